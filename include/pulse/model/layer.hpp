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

/// List is a reference to counted_parameters, which is what parameters() of nn's layers returns.
template <class List>
inline constexpr bool is_counted = false;
template <parameter_counts Counts>
inline constexpr bool is_counted<const counted_parameters<Counts>&> = true;

/// T::name is a non-empty pulse::label known at compile time.
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

/// T::forward_flops() is a constexpr non-negative number: FLOPs of one sample's forward pass.
template <class T>
concept costed = requires {
    requires std::convertible_to<decltype(T::forward_flops()), double>;
    requires std::bool_constant<(static_cast<double>(T::forward_flops()) >= 0.0)>::value;
};

/// T::saved_elements is the number of scalars per sample that T's forward pass saves for its backward passes, without
/// statistics.
template <class T>
concept saving = requires {
    requires std::integral<std::remove_cvref_t<decltype(T::saved_elements)>>;
    requires std::bool_constant<(T::saved_elements >= 0)>::value;
};

/// T::deferred_elements is the number of scalars per sample that T's backward_input leaves for backward_weight.
template <class T>
concept deferring = requires {
    requires std::integral<std::remove_cvref_t<decltype(T::deferred_elements)>>;
    requires std::bool_constant<(T::deferred_elements >= 0)>::value;
};

/// T::workspace_elements is the number of scratch scalars per sample that a pass of T may use.
template <class T>
concept has_workspace = requires {
    requires std::integral<std::remove_cvref_t<decltype(T::workspace_elements)>>;
    requires std::bool_constant<(T::workspace_elements >= 0)>::value;
};

/// T has a `skip_input`: the tensor of a skip edge, which it concatenates to its input or adds.
template <class T>
concept concatenates = requires {
    typename T::skip_input;
};

/// T has a `conditioning`: it reads the model's conditioning.
template <class T>
concept reads_conditioning = requires {
    typename T::conditioning;
};

/// T runs in T::part_count parts. part_at(k, resizing) returns the costs of part k, parameters_in(k) how many of
/// parameters(), in order, belong to it, and makes_residual whether the first part makes the residual that is open
/// between the parts (layer_frame::made_residual). A pass runs the part that the frame asks for, or all of them.
template <class T>
concept runs_in_parts = requires {
    requires(T::part_count > 1);
};
/// The number of T's parts; a plan may cut T between them.
template <class T>
[[nodiscard]] constexpr int part_count() noexcept {
    if constexpr (runs_in_parts<T>) {
        return T::part_count;
    } else {
        return 1;
    }
}

/// T has a `context`: the text states, or whatever else the model relays unchanged to every layer.
template <class T>
concept reads_context = requires {
    typename T::context;
};

/// C, a conditioning module, needs the gradient of the text states because it trains what produces them.
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

/// T keeps statistics of norms or attentions: T::statistics_elements is the number of accumulators per sample that T's
/// forward pass saves for its backward passes.
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

/// T stops gradients: the last T::frozen_output_elements scalars per sample of its output have no gradient, and T makes
/// none for the last T::frozen_input_elements of its input. T::frozen_skip_elements, if present, says the same of the
/// tensor of its skip edge.
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

/// The first flaw in T's parameter list. Lists of nn's layers are generated and need no check.
template <has_parameters T>
[[nodiscard]] consteval parameter_flaw flaw_of_parameters() {
    if constexpr (is_counted<decltype(T::parameters())>) {
        return parameter_flaw::none;
    } else {
        constexpr auto all = T::parameters();
        return inspect(all).flaw;
    }
}

/// Stops compilation with one sentence about what is wrong with T's parameter list.
template <has_parameters T>
[[nodiscard]] consteval bool explain_parameters() {
    constexpr parameter_flaw found = flaw_of_parameters<T>();
    static_assert(found != parameter_flaw::dims,
                  "pulse: a parameter must have as many positive dims as its rank, and only 0 or 1 after them");
    static_assert(found != parameter_flaw::start,
                  "pulse: a one-dimensional parameter must be named '.weight', or '.bias' directly after a weight, or "
                  "be marked zero: otherwise its initial value is undefined");
    return found == parameter_flaw::none;
}

} // namespace detail

/// A node of the model. L satisfies layer if
/// 1. L::name is a non-empty label;
/// 2. L::input and L::output are shapes, per sample;
/// 3. L::parameters() is a constexpr std::array<parameter, K> with the full names of a checkpoint and without a
///    parameter_flaw;
/// 4. L::forward_flops() is a constexpr number, per sample;
/// 5. L::saved_elements, L::deferred_elements and L::workspace_elements are integers, per sample;
/// 6. L::skip_input, if present, is the shape of the skip edge's tensor, which L concatenates or adds;
/// 7. L::conditioning, if present, is the shape of the model's conditioning, which L reads;
/// 8. L::context, if present, is the shape of the model's context (text states), which L reads;
/// 9. L::statistics_elements, if present, is an integer: accumulators per sample that L keeps besides saved_elements;
/// 10. L::frozen_parameters(), if present, lists weights that are not trained, in the form of parameters();
/// 11. L::frozen_output_elements and L::frozen_input_elements, if present, are integers, per sample: the elements at
///    the end of the output without a gradient, and those at the end of the input that L makes no gradient of;
/// 12. L::part_count, if present, is the number of parts between which a plan may cut L (see runs_in_parts).
template <class L>
concept layer = named<L> && has_input<L> && has_output<L> && has_parameters<L> && costed<L> && saving<L> &&
    deferring<L> && has_workspace<L> && skip_input_is_shape<L> && conditioning_is_shape<L> && context_is_shape<L> &&
    statistics_are_counted<L> && frozen_parameters_are_listed<L> && frozen_ends_are_counted<L>;

/// Makes the model's conditioning (a time embedding): a layer whose input is the timestep and which runs before the
/// first layer. C satisfies conditioner if it has name, output, parameters(), forward_flops(), saved_elements and
/// workspace_elements with the same meaning as in a layer, statistics_elements if it keeps statistics, and `context`,
/// the shape of the text states, if it also outputs those.
template <class C>
concept conditioner = named<C> && has_output<C> && has_parameters<C> && costed<C> && saving<C> && has_workspace<C> &&
    context_is_shape<C> && statistics_are_counted<C>;

/// Used in place of a conditioner: the model has no conditioning.
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
        static_assert(skip_input_is_shape<T>, "pulse: the skip_input of a layer must be a pulse::shape<...>");
    } else if constexpr (!conditioning_is_shape<T>) {
        static_assert(conditioning_is_shape<T>, "pulse: the conditioning of a layer must be a pulse::shape<...>");
    } else if constexpr (!context_is_shape<T>) {
        static_assert(context_is_shape<T>, "pulse: the context of a layer must be a pulse::shape<...>");
    } else if constexpr (!statistics_are_counted<T>) {
        static_assert(statistics_are_counted<T>,
                      "pulse: statistics_elements of a layer must be a 'static constexpr std::int64_t', not negative");
    } else if constexpr (!frozen_parameters_are_listed<T>) {
        static_assert(frozen_parameters_are_listed<T>,
                      "pulse: the frozen_parameters() of a layer must return std::array<pulse::parameter, K>");
    } else if constexpr (!frozen_ends_are_counted<T>) {
        static_assert(frozen_ends_are_counted<T>, "pulse: frozen_output_elements and frozen_input_elements must be "
                                                  "between 0 and the layer's output and input elements");
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
            static_assert(context_is_shape<T>, "pulse: context of a conditioning module must be a pulse::shape<...>");
        } else if constexpr (!statistics_are_counted<T>) {
            static_assert(statistics_are_counted<T>, "pulse: statistics_elements of a conditioning module must be a "
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

/// Tensors, elements and factored moments of all parameters of a layer or conditioning module.
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

/// Scalars in the frozen weights of a layer; 0 if it has none.
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

/// Whether no output of T has a gradient, so that T runs forward only.
template <class T>
[[nodiscard]] constexpr bool is_forward_only() noexcept {
    if constexpr (keeps_gradients_back<T>) {
        return T::frozen_output_elements == T::output::elements;
    } else {
        return false;
    }
}

/// Statistics per sample that a layer or conditioning module keeps; 0 if none.
template <class T>
[[nodiscard]] constexpr std::int64_t statistics_elements() noexcept {
    if constexpr (keeps_statistics<T>) {
        return T::statistics_elements;
    } else {
        return 0;
    }
}

} // namespace pulse
