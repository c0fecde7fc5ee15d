#include <array>
#include <cstdint>
#include <vector>

#include <support/archetype.hpp>
#include <support/check_both.hpp>

#include <pulse/model/layer.hpp>

namespace layer_test {

// One archetype that is a layer, and one mutant per rule that differs in the spoiled property alone: exactly the
// concept of that rule becomes false.

namespace {

using pulse::shape;

using ok = archetype::layer<"ok", shape<4>>;
using ok_module = archetype::module<"ok", shape<4>>;

struct context_is_no_shape : ok {
    using context = double;
};
struct module_context_is_no_shape : ok_module {
    using context = double;
};
struct no_name : ok {
    static constexpr int name = 3;
};
struct name_from_text : ok {
    static constexpr const char* name = "text";
};
struct empty_name : ok {
    static constexpr pulse::label name{};
};
struct name_per_object {
    pulse::label name{"object"};
};
struct input_is_no_shape : ok {
    using input = std::array<float, 4>;
};
struct output_is_no_shape : ok {
    using output = int;
};
struct parameters_at_run_time : ok {
    static std::array<pulse::parameter, 1> parameters() { return {}; }
};
struct parameters_in_vector : ok {
    static constexpr std::vector<pulse::parameter> parameters() { return {}; }
};
struct parameters_of_other_type : ok {
    static constexpr std::array<int, 2> parameters() { return {}; }
};
struct flops_at_run_time : ok {
    static double forward_flops() { return 1.0; }
};
struct negative_flops : ok {
    static constexpr double forward_flops() { return -1.0; }
};
struct negative_saved : ok {
    static constexpr std::int64_t saved_elements = -1;
};
struct fractional_saved : ok {
    static constexpr double saved_elements = 0.5;
};
struct negative_deferred : ok {
    static constexpr std::int64_t deferred_elements = -1;
};
struct negative_workspace : ok {
    static constexpr std::int64_t workspace_elements = -1;
};
struct skip_input_is_no_shape : ok {
    using skip_input = float;
};
struct conditioning_is_no_shape : ok {
    using conditioning = float;
};
struct negative_statistics : ok {
    static constexpr std::int64_t statistics_elements = -1;
};
struct fractional_statistics : ok {
    static constexpr double statistics_elements = 0.5;
};
struct two_statistics : ok {
    static constexpr int statistics_elements = 2;
};
struct lacks_everything {};

/// The number of small concepts that hold for T.
template <class T>
inline constexpr int rules_kept =
    pulse::named<T> + pulse::has_input<T> + pulse::has_output<T> + pulse::has_parameters<T> + pulse::costed<T> +
    pulse::saving<T> + pulse::deferring<T> + pulse::has_workspace<T> + pulse::skip_input_is_shape<T> +
    pulse::conditioning_is_shape<T> + pulse::context_is_shape<T> + pulse::statistics_are_counted<T>;

template <class T>
inline constexpr bool breaks_one_rule = rules_kept<T> == rules_kept<ok> - 1 && !pulse::layer<T>;

} // namespace

TEST_SUITE("constexpr") {

    TEST_CASE("the archetypes are layers") {
        CHECK_BOTH(pulse::layer<ok>);
        CHECK_BOTH(pulse::layer<archetype::joining_layer<"a", shape<4>, shape<2, 3>>>);
        CHECK_BOTH(pulse::layer<archetype::conditioned_layer<"a", shape<4>, shape<16>>>);
        CHECK_BOTH(pulse::layer<archetype::attending_layer<"a", shape<4>, shape<3, 16>>>);
        CHECK_BOTH(rules_kept<ok> == 12);
        CHECK_BOTH(pulse::layer<two_statistics> && pulse::statistics_elements<two_statistics>() == 2);
        CHECK_BOTH(pulse::statistics_elements<ok>() == 0);
        CHECK_BOTH(pulse::explain_layer<ok>());
    }

    TEST_CASE("a layer has a name") {
        CHECK_BOTH(breaks_one_rule<no_name> && !pulse::named<no_name>);
        CHECK_BOTH(breaks_one_rule<name_from_text> && !pulse::named<name_from_text>);
        CHECK_BOTH(breaks_one_rule<empty_name> && !pulse::named<empty_name>);
        CHECK_BOTH(!pulse::named<name_per_object>);
    }

    TEST_CASE("a layer has shapes") {
        CHECK_BOTH(breaks_one_rule<input_is_no_shape> && !pulse::has_input<input_is_no_shape>);
        CHECK_BOTH(breaks_one_rule<output_is_no_shape> && !pulse::has_output<output_is_no_shape>);
        CHECK_BOTH(breaks_one_rule<skip_input_is_no_shape> && !pulse::skip_input_is_shape<skip_input_is_no_shape>);
        CHECK_BOTH(breaks_one_rule<conditioning_is_no_shape> &&
                   !pulse::conditioning_is_shape<conditioning_is_no_shape>);
        CHECK_BOTH(breaks_one_rule<context_is_no_shape> && !pulse::context_is_shape<context_is_no_shape>);
    }

    TEST_CASE("a layer lists its parameters when compiled") {
        CHECK_BOTH(breaks_one_rule<parameters_at_run_time> && !pulse::has_parameters<parameters_at_run_time>);
        CHECK_BOTH(breaks_one_rule<parameters_in_vector> && !pulse::has_parameters<parameters_in_vector>);
        CHECK_BOTH(breaks_one_rule<parameters_of_other_type> && !pulse::has_parameters<parameters_of_other_type>);
        CHECK_BOTH(pulse::parameter_elements<ok>() == 2 * 3 + 2);
    }

    TEST_CASE("a layer states its costs when compiled") {
        CHECK_BOTH(breaks_one_rule<flops_at_run_time> && !pulse::costed<flops_at_run_time>);
        CHECK_BOTH(breaks_one_rule<negative_flops> && !pulse::costed<negative_flops>);
        CHECK_BOTH(breaks_one_rule<negative_saved> && !pulse::saving<negative_saved>);
        CHECK_BOTH(breaks_one_rule<fractional_saved> && !pulse::saving<fractional_saved>);
        CHECK_BOTH(breaks_one_rule<negative_deferred> && !pulse::deferring<negative_deferred>);
        CHECK_BOTH(breaks_one_rule<negative_workspace> && !pulse::has_workspace<negative_workspace>);
        CHECK_BOTH(breaks_one_rule<negative_statistics> && !pulse::statistics_are_counted<negative_statistics>);
        CHECK_BOTH(breaks_one_rule<fractional_statistics> && !pulse::statistics_are_counted<fractional_statistics>);
    }

    TEST_CASE("types that have nothing to do with models are no layers") {
        CHECK_BOTH(!pulse::layer<lacks_everything>);
        CHECK_BOTH(!pulse::layer<int>);
        CHECK_BOTH(!pulse::layer<void>);
        CHECK_BOTH(!pulse::layer<ok*>);
        CHECK_BOTH(!pulse::conditioner<int>);
    }

    TEST_CASE("a conditioning module needs no input and defers nothing") {
        CHECK_BOTH(pulse::conditioner<ok_module>);
        CHECK_BOTH(!pulse::layer<ok_module>);
        CHECK_BOTH(pulse::explain_conditioner<ok_module>());
        CHECK_BOTH(pulse::explain_conditioner<pulse::unconditioned>());
        CHECK_BOTH(!pulse::conditioner<pulse::unconditioned>);
        CHECK_BOTH(pulse::conditioner<archetype::module_with_text<"ok", shape<4>, shape<3, 5>>>);
        CHECK_BOTH(!pulse::conditioner<module_context_is_no_shape>);
    }

} // TEST_SUITE

} // namespace layer_test
