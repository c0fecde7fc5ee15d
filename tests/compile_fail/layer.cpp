// What a type needs to be a layer.
//
// error-1: pulse: a layer needs 'static constexpr pulse::label name', not empty
// error-2: pulse: a layer needs 'static constexpr pulse::label name', not empty
// error-3: pulse: a layer needs 'using input = pulse::shape<...>'
// error-4: pulse: a layer needs 'using output = pulse::shape<...>'
// error-5: pulse: a layer needs 'static constexpr auto parameters()' giving std::array<pulse::parameter, K>
// error-6: pulse: a layer needs 'static constexpr double forward_flops()', not negative
// error-7: pulse: a layer needs 'static constexpr std::int64_t saved_elements', not negative
// error-8: pulse: a layer needs 'static constexpr std::int64_t deferred_elements', not negative
// error-9: pulse: a layer needs 'static constexpr std::int64_t workspace_elements', not negative
// error-10: pulse: the skip_input of a layer must be a pulse::shape<...>
// error-11: pulse: the conditioning of a layer must be a pulse::shape<...>
// error-12: pulse: the context of a layer must be a pulse::shape<...>
// error-13: pulse: statistics_elements of a layer must be a 'static constexpr std::int64_t', not negative
// error-14: pulse: a parameter must have as many positive dims as its rank, and only 0 or 1 after them
// error-15: pulse: a parameter must have as many positive dims as its rank, and only 0 or 1 after them
// error-16: pulse: a one-dimensional parameter must be named '.weight', or '.bias' directly after a weight, or
// error-17: pulse: a one-dimensional parameter must be named '.weight', or '.bias' directly after a weight, or

#include <array>
#include <cstdint>

#include <pulse/model/model.hpp>

struct some {
#if CASE == 2
    static constexpr pulse::label name{""};
#elif CASE != 1
    static constexpr pulse::label name{"some"};
#endif
#if CASE != 3
    using input = pulse::shape<4>;
#endif
#if CASE == 4
    using output = int;
#else
    using output = pulse::shape<4>;
#endif
#if CASE == 5
    static constexpr int parameters() { return 0; }
#elif CASE == 14
    static constexpr auto parameters() { return std::array{pulse::parameter{"some.weight", {3, 4}}}; }
#elif CASE == 15
    static constexpr auto parameters() { return std::array{pulse::parameter{"some.weight", {3, 4}, 3}}; }
#elif CASE == 16
    static constexpr auto parameters() { return std::array{pulse::parameter{"some.scale", {4}, 1}}; }
#elif CASE == 17
    static constexpr auto parameters() { return std::array{pulse::parameter{"some.bias", {4}, 1}}; }
#else
    static constexpr std::array<pulse::parameter, 0> parameters() { return {}; }
#endif
#if CASE == 6
    static double forward_flops() { return 1.0; }
#else
    static constexpr double forward_flops() { return 1.0; }
#endif
#if CASE != 7
    static constexpr std::int64_t saved_elements = 0;
#endif
#if CASE == 8
    static constexpr double deferred_elements = 0.5;
#else
    static constexpr std::int64_t deferred_elements = 0;
#endif
#if CASE == 9
    static constexpr std::int64_t workspace_elements = -1;
#else
    static constexpr std::int64_t workspace_elements = 0;
#endif
#if CASE == 10
    using skip_input = int;
#endif
#if CASE == 11
    using conditioning = float;
#endif
#if CASE == 12
    using context = float;
#endif
#if CASE == 13
    static constexpr std::int64_t statistics_elements = -1;
#else
    static constexpr std::int64_t statistics_elements = 2;
#endif
};

struct one_layer : pulse::model<"one_layer", pulse::layers<some>> {};
static_assert(one_layer::layer_count == 1);
