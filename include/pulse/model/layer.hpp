#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pulse/core/label.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/tensor/shape.hpp>

namespace pulse {

template <class T>
inline constexpr bool is_parameter_array = false;
template <std::size_t Count>
inline constexpr bool is_parameter_array<std::array<parameter, Count>> = true;
template <parameter_counts Counts>
inline constexpr bool is_parameter_array<counted_parameters<Counts>> = true;

/// A list as the layers of nn refer to theirs.
template <class List>
inline constexpr bool is_counted = false;
template <parameter_counts Counts>
inline constexpr bool is_counted<const counted_parameters<Counts>&> = true;

/// T::name is a pulse::label known when the program is compiled, and not empty.
template <class T>
concept named = requires {
    requires std::same_as<std::remove_cvref_t<decltype(T::name)>, label>;
    requires std::bool_constant<!T::name.empty()>::value;
};

/// T::input is the shape of one sample of what T reads.
template <class T>
concept has_input = requires {
    requires static_shape<typename T::input>;
};

/// T::output is the shape of one sample of what T writes.
template <class T>
concept has_output = requires {
    requires static_shape<typename T::output>;
};

/// T::parameters() is a constexpr std::array of pulse::parameter.
template <class T>
concept has_parameters = requires {
    requires is_parameter_array<std::remove_cvref_t<decltype(T::parameters())>>;
    requires is_counted<decltype(T::parameters())> || requires {
        typename std::bool_constant<(static_cast<void>(T::parameters()), true)>;
    };
};

/// T::forward_flops() is a constexpr number, not negative: FLOPs of one sample's forward pass.
template <class T>
concept costed = requires {
    requires std::convertible_to<decltype(T::forward_flops()), double>;
    requires std::bool_constant<(static_cast<double>(T::forward_flops()) >= 0.0)>::value;
};

/// T::saved_elements is how many scalars per sample T's forward pass leaves for its backward passes, without
/// statistics.
template <class T>
concept saving = requires {
    requires std::integral<std::remove_cvref_t<decltype(T::saved_elements)>>;
    requires std::bool_constant<(T::saved_elements >= 0)>::value;
};

/// T::deferred_elements is how many scalars per sample T's backward_input leaves for backward_weight.
template <class T>
concept deferring = requires {
    requires std::integral<std::remove_cvref_t<decltype(T::deferred_elements)>>;
    requires std::bool_constant<(T::deferred_elements >= 0)>::value;
};

/// T::workspace_elements is how many scalars per sample a pass of T may use and need not keep.
template <class T>
concept has_workspace = requires {
    requires std::integral<std::remove_cvref_t<decltype(T::workspace_elements)>>;
    requires std::bool_constant<(T::workspace_elements >= 0)>::value;
};

/// T reads the tensor of a skip edge, which it concatenates to its input or adds: it has a `skip_input`.
template <class T>
concept concatenates = requires {
    typename T::skip_input;
};

/// T reads the model's conditioning: it has a `conditioning`.
template <class T>
concept reads_conditioning = requires {
    typename T::conditioning;
};

/// T runs in T::part_count parts: part_at(k, resizing) says what part k costs, parameters_in(k) how many of
/// parameters(), in their order, are of it, and makes_residual whether the first part makes the residual that is open
/// between parts (layer_frame::made_residual). Its passes run the part that the frame asks for, or all.
template <class T>
concept runs_in_parts = requires {
    requires(T::part_count > 1);
};
/// The parts between which a plan may cut T.
template <class T>
[[nodiscard]] constexpr int part_count() noexcept {
    if constexpr (runs_in_parts<T>) {
        return T::part_count;
    } else {
        return 1;
    }
}

/// T reads the text states, or whatever else the model relays to every layer unchanged: it has a `context`.
template <class T>
concept reads_context = requires {
    typename T::context;
};

/// C, a conditioning module, needs the gradient of the text states: it trains what makes them.
template <class C>
concept trains_context = requires {
    requires C::trains_context;
};

template <class T>
concept skip_input_is_shape = !concatenates<T> || requires {
    requires static_shape<typename T::skip_input>;
};

template <class T>
concept conditioning_is_shape = !reads_conditioning<T> || requires {
    requires static_shape<typename T::conditioning>;
};

/// T keeps statistics of norms or attentions: T::statistics_elements is how many accumulators per sample T's forward
/// pass leaves for its backward passes.
template <class T>
concept keeps_statistics = requires {
    T::statistics_elements;
};

template <class T>
concept statistics_are_counted = !keeps_statistics<T> || requires {
    requires std::integral<std::remove_cvref_t<decltype(T::statistics_elements)>>;
    requires std::bool_constant<(T::statistics_elements >= 0)>::value;
};

/// T reads weights that are not trained: T::frozen_parameters() is a constexpr std::array of pulse::parameter. They
/// have no gradient and no optimizer state, and T finds them in layer_frame::frozen_parameters.
template <class T>
concept has_frozen_parameters = requires {
    T::frozen_parameters();
};

template <class T>
concept frozen_parameters_are_listed = !has_frozen_parameters<T> || requires {
    requires is_parameter_array<std::remove_cvref_t<decltype(T::frozen_parameters())>>;
};

/// T makes something that no gradient goes back of: T::frozen_output_elements is how many scalars per sample at the end
/// of its output, and T::frozen_input_elements how many at the end of its input it makes no gradient of. The same of
/// the tensor of its skip edge is T::frozen_skip_elements, if it is there.
template <class T>
concept keeps_gradients_back = requires {
    T::frozen_output_elements;
    T::frozen_input_elements;
};

template <class T>
concept frozen_ends_are_counted = !keeps_gradients_back<T> || requires {
    requires std::bool_constant<(T::frozen_output_elements >= 0 &&
                                 T::frozen_output_elements <= T::output::elements)>::value;
    requires std::bool_constant<(T::frozen_input_elements >= 0 &&
                                 T::frozen_input_elements <= T::input::elements)>::value;
};

template <class T>
concept context_is_shape = !reads_context<T> || requires {
    requires static_shape<typename T::context>;
};

namespace detail {

/// The first flaw in what T lists. Layers of nn need no look: their description makes the list.
template <has_parameters T>
[[nodiscard]] consteval parameter_flaw flaw_of_parameters() {
    if constexpr (is_counted<decltype(T::parameters())>) {
        return parameter_flaw::none;
    } else {
        constexpr auto all = T::parameters();
        return inspect(all).flaw;
    }
}

/// Stops compilation with one sentence for what T lists wrongly.
template <has_parameters T>
[[nodiscard]] consteval bool explain_parameters() {
    constexpr parameter_flaw found = flaw_of_parameters<T>();
    static_assert(found != parameter_flaw::dims,
                  "pulse: a parameter has as many positive dims as its rank says, and 0 or 1 behind them");
    static_assert(found != parameter_flaw::start,
                  "pulse: a parameter of one dimension is called '.weight', or '.bias' and stands right behind one, or "
                  "starts at 0 (zero): else nothing says what it starts as");
    return found == parameter_flaw::none;
}

} // namespace detail

/// A node of the model. L satisfies layer if
/// 1. L::name is a label that is not empty;
/// 2. L::input and L::output are shapes, per sample;
/// 3. L::parameters() is a constexpr std::array<parameter, K>, with the full names of a checkpoint, without a
///    parameter_flaw;
/// 4. L::forward_flops() is a constexpr number, per sample;
/// 5. L::saved_elements, L::deferred_elements and L::workspace_elements are integers, per sample;
/// 6. L::skip_input, if it is there, is the shape of what a skip edge brings, which L concatenates or adds;
/// 7. L::conditioning, if it is there, is the shape of the model's conditioning, which L reads;
/// 8. L::context, if it is there, is the shape of the model's context (text states), which L reads;
/// 9. L::statistics_elements, if it is there, is an integer: accumulators per sample that L keeps besides
///    saved_elements;
/// 10. L::frozen_parameters(), if it is there, is a list as parameters() is, of weights that are not trained;
/// 11. L::frozen_output_elements and L::frozen_input_elements, if they are there, are integers, per sample: what at the
///    end of the output no gradient goes back of, and what at the end of the input L makes no gradient of;
/// 12. L::part_count, if it is there, says of how many parts L is, between which a plan may cut it (see runs_in_parts).
template <class L>
concept layer = named<L> && has_input<L> && has_output<L> && has_parameters<L> && costed<L> && saving<L> &&
    deferring<L> && has_workspace<L> && skip_input_is_shape<L> && conditioning_is_shape<L> && context_is_shape<L> &&
    statistics_are_counted<L> && frozen_parameters_are_listed<L> && frozen_ends_are_counted<L>;

/// What makes the model's conditioning (a time embedding): a layer whose input is the timestep, and which runs before
/// the first layer. C satisfies conditioner if it has name, output, parameters(), forward_flops(), saved_elements and
/// workspace_elements with the meaning they have in a layer, statistics_elements if it keeps statistics, and, if it
/// also gives text states, their shape as `context`.
template <class C>
concept conditioner = named<C> && has_output<C> && has_parameters<C> && costed<C> && saving<C> && has_workspace<C> &&
    context_is_shape<C> && statistics_are_counted<C>;

/// Stands where a conditioner would: the model has no conditioning.
struct unconditioned {};

/// Whether T is a layer; if it is not, compilation stops with the first rule that T breaks, in words.
template <class T>
[[nodiscard]] consteval bool explain_layer() {
    if constexpr (!named<T>) {
        static_assert(named<T>, "pulse: a layer needs 'static constexpr pulse::label name', not empty");
    } else if constexpr (!has_input<T>) {
        static_assert(has_input<T>, "pulse: a layer needs 'using input = pulse::shape<...>'");
    } else if constexpr (!has_output<T>) {
        static_assert(has_output<T>, "pulse: a layer needs 'using output = pulse::shape<...>'");
    } else if constexpr (!has_parameters<T>) {
        static_assert(
            has_parameters<T>,
            "pulse: a layer needs 'static constexpr auto parameters()' giving std::array<pulse::parameter, K>");
    } else if constexpr (!costed<T>) {
        static_assert(costed<T>, "pulse: a layer needs 'static constexpr double forward_flops()', not negative");
    } else if constexpr (!saving<T>) {
        static_assert(saving<T>, "pulse: a layer needs 'static constexpr std::int64_t saved_elements', not negative");
    } else if constexpr (!deferring<T>) {
        static_assert(deferring<T>,
                      "pulse: a layer needs 'static constexpr std::int64_t deferred_elements', not negative");
    } else if constexpr (!has_workspace<T>) {
        static_assert(has_workspace<T>,
                      "pulse: a layer needs 'static constexpr std::int64_t workspace_elements', not negative");
    } else if constexpr (!skip_input_is_shape<T>) {
        static_assert(skip_input_is_shape<T>, "pulse: the skip_input of a layer is a pulse::shape<...>");
    } else if constexpr (!conditioning_is_shape<T>) {
        static_assert(conditioning_is_shape<T>, "pulse: the conditioning of a layer is a pulse::shape<...>");
    } else if constexpr (!context_is_shape<T>) {
        static_assert(context_is_shape<T>, "pulse: the context of a layer is a pulse::shape<...>");
    } else if constexpr (!statistics_are_counted<T>) {
        static_assert(statistics_are_counted<T>,
                      "pulse: the statistics_elements of a layer are a 'static constexpr std::int64_t', not negative");
    } else if constexpr (!frozen_parameters_are_listed<T>) {
        static_assert(frozen_parameters_are_listed<T>,
                      "pulse: the frozen_parameters() of a layer give std::array<pulse::parameter, K>");
    } else if constexpr (!frozen_ends_are_counted<T>) {
        static_assert(frozen_ends_are_counted<T>, "pulse: the frozen_output_elements and frozen_input_elements of a "
                                                  "layer are not negative and not more than it has");
    } else {
        return detail::explain_parameters<T>();
    }
    return layer<T>;
}

/// Whether T can make a model's conditioning; if it cannot, compilation stops with the first rule that T breaks.
template <class T>
[[nodiscard]] consteval bool explain_conditioner() {
    if constexpr (!std::same_as<T, unconditioned>) {
        if constexpr (!named<T>) {
            static_assert(named<T>,
                          "pulse: a conditioning module needs 'static constexpr pulse::label name', not empty");
        } else if constexpr (!has_output<T>) {
            static_assert(has_output<T>, "pulse: a conditioning module needs 'using output = pulse::shape<...>'");
        } else if constexpr (!has_parameters<T>) {
            static_assert(has_parameters<T>, "pulse: a conditioning module needs 'static constexpr auto parameters()' "
                                             "giving std::array<pulse::parameter, K>");
        } else if constexpr (!costed<T>) {
            static_assert(costed<T>,
                          "pulse: a conditioning module needs 'static constexpr double forward_flops()', not negative");
        } else if constexpr (!saving<T>) {
            static_assert(saving<T>, "pulse: a conditioning module needs 'static constexpr std::int64_t "
                                     "saved_elements', not negative");
        } else if constexpr (!has_workspace<T>) {
            static_assert(has_workspace<T>, "pulse: a conditioning module needs 'static constexpr std::int64_t "
                                            "workspace_elements', not negative");
        } else if constexpr (!context_is_shape<T>) {
            static_assert(context_is_shape<T>, "pulse: the context of a conditioning module is a pulse::shape<...>");
        } else if constexpr (!statistics_are_counted<T>) {
            static_assert(statistics_are_counted<T>, "pulse: the statistics_elements of a conditioning module are a "
                                                     "'static constexpr std::int64_t', not negative");
        } else {
            return detail::explain_parameters<T>();
        }
    }
    return conditioner<T> || std::same_as<T, unconditioned>;
}

namespace detail {

template <class List>
[[nodiscard]] constexpr parameter_counts sum_of(const List& all) {
    parameter_counts total{all.size()};
    for (const parameter& p : all) {
        total.elements += p.elements();
        total.factored += factored_elements(p.elements(), p.matrix_rows());
    }
    return total;
}

} // namespace detail

/// What a layer or conditioning module lists adds up to.
template <has_parameters T>
[[nodiscard]] constexpr parameter_counts counts_of() {
    using list = decltype(T::parameters());
    if constexpr (is_counted<list>) {
        return std::remove_cvref_t<list>::counts;
    } else {
        return detail::sum_of(T::parameters());
    }
}

/// Scalars in all parameters of a layer or conditioning module.
template <has_parameters T>
[[nodiscard]] constexpr std::int64_t parameter_elements() {
    return counts_of<T>().elements;
}

/// Scalars in the weights of a layer that are not trained; 0 where it has none.
template <class T>
[[nodiscard]] constexpr std::int64_t frozen_parameter_elements() {
    if constexpr (!has_frozen_parameters<T>) {
        return 0;
    } else if constexpr (is_counted<decltype(T::frozen_parameters())>) {
        return std::remove_cvref_t<decltype(T::frozen_parameters())>::counts.elements;
    } else {
        return detail::sum_of(T::frozen_parameters()).elements;
    }
}

/// Whether nothing that T makes has a gradient: T runs forward only.
template <class T>
[[nodiscard]] constexpr bool is_forward_only() noexcept {
    if constexpr (keeps_gradients_back<T>) {
        return T::frozen_output_elements == T::output::elements;
    } else {
        return false;
    }
}

/// Statistics per sample that a layer or conditioning module keeps; 0 where it has none.
template <class T>
[[nodiscard]] constexpr std::int64_t statistics_elements() noexcept {
    if constexpr (keeps_statistics<T>) {
        return T::statistics_elements;
    } else {
        return 0;
    }
}

} // namespace pulse
