#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <pulse/core/label.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/tensor/shape.hpp>

namespace pulse::nn {

/// Why the sizes of a block are invalid; `block` turns each flaw into a one-line compile error.
enum class flaw : std::uint8_t { none, size, window, groups, heads, features };

template <sample_dims E>
struct shape_of {
    using type = shape<E[0], E[1], E[2]>;
};
template <sample_dims E>
    requires(E[1] == 0)
struct shape_of<E> {
    using type = shape<E[0]>;
};
template <sample_dims E>
    requires(E[1] != 0 && E[2] == 0)
struct shape_of<E> {
    using type = shape<E[0], E[1]>;
};

// One member type for each input of a layer besides the main one; an absent input has no type.

template <sample_dims E>
struct skip_face {
    using skip_input = typename shape_of<E>::type;
};
template <sample_dims E>
struct context_face {
    using context = typename shape_of<E>::type;
};
template <int Features>
struct conditioning_face {
    using conditioning = shape<Features>;
};
template <>
struct skip_face<sample_dims{}> {};
template <>
struct context_face<sample_dims{}> {};
template <>
struct conditioning_face<0> {};

namespace detail {

/// Calls use(math, frame) for the part of the layer that the frame asks for, or for all of them in order. Tensors
/// between parts then lie among the saved and deferred pieces, where describe() puts them.
template <class Math, class T, class A, class Use>
void use_parts(const Math& math, const layer_frame<T, A>& f, [[maybe_unused]] bool backwards, const Use& use) {
    if constexpr (!in_parts<Math>) {
        use(math, f);
    } else if (f.part >= 0) {
        math.use_part(f.part, [&](std::string_view, const auto& part) { use(part, f); });
    } else {
        layer_extents before = backwards ? layout_of(math).sizes.kept : layer_extents{};
        for (int i = 0; i != math.parts(); ++i) {
            const bool first = (backwards ? math.parts() - 1 : 0) == i;
            const bool last = (backwards ? 0 : math.parts() - 1) == i;
            math.use_part(backwards ? math.parts() - 1 - i : i, [&](std::string_view, const auto& part) {
                layer_extents own = layout_of(part).sizes.kept;
                const std::int64_t given = elements(part.output());
                const std::int64_t read = elements(part.input());
                if (!last) { own = own + layer_extents{.saved = given, .deferred = given}; }
                if (backwards) { before = before - own; }
                layer_frame<T, A> one = f.behind(before);
                one.residual = f.input;
                one.made_residual = f.output;
                one.residual_gradient = f.output_gradient;
                if (!first) { one.input = one.saved - f.batch * read; }
                if (!last) { one.output = one.saved + f.batch * (own.saved - given); }
                if (f.deferred != nullptr && !first) { one.input_gradient = one.deferred - f.batch * read; }
                if (f.deferred != nullptr && !last) {
                    one.output_gradient = one.deferred + f.batch * (own.deferred - given);
                }
                use(part, one);
                if (!backwards) { before = before + own; }
            });
        }
    }
}

// One concept for each member that a block requires of its mathematics.

template <class Math>
concept has_input_dims = requires(const Math& math) {
    { math.input() } -> std::same_as<sample_dims>;
};
template <class Math>
concept has_output_dims = requires(const Math& math) {
    { math.output() } -> std::same_as<sample_dims>;
};
template <class Math>
concept has_defect = requires(const Math& math) {
    { math.defect() } -> std::same_as<flaw>;
};
template <class Math>
concept is_described = in_parts<Math> || requires(const Math& math, description& all) {
    requires !std::is_void_v<decltype(math.describe(all))>;
};
template <class Math, class B>
concept computes = requires(const Math& math, B& on, const backend_frame<B>& f) {
    math.forward(on, f, layout_of(math).pieces);
};
template <class Math, class B>
concept computes_input_gradients = requires(const Math& math, B& on, const backend_frame<B>& f) {
    math.backward_input(on, f, layout_of(math).pieces);
};
template <class Math, class B>
concept computes_weight_gradients = requires(const Math& math, B& on, const backend_frame<B>& f) {
    math.backward_weight(on, f, layout_of(math).pieces);
};

} // namespace detail

// The passes at the sizes of a run: compiled once per type of mathematics, whatever the sizes of a layer.

template <class Math, backend B>
void run_forward(const Math& type, B& on, const backend_frame<B>& frame) {
    const auto run = [&on]<class Part>(const Part& part, const backend_frame<B>& f) {
        static_assert(detail::computes<Part, B>,
                      "pulse: the mathematics of a block (Part) needs 'void forward(B&, const "
                      "pulse::backend_frame<B>&, const pieces&) const' over the backend");
        if constexpr (detail::computes<Part, B>) { part.forward(on, f, layout_of(part).pieces); }
    };
    detail::use_parts(resized(type, frame.size), frame, false, run);
}
template <class Math, backend B>
void run_backward_input(const Math& type, B& on, const backend_frame<B>& frame) {
    const auto run = [&on]<class Part>(const Part& part, const backend_frame<B>& f) {
        static_assert(detail::computes_input_gradients<Part, B>,
                      "pulse: the mathematics of a block (Part) needs 'void backward_input(B&, const "
                      "pulse::backend_frame<B>&, const pieces&) const' over the backend");
        if constexpr (detail::computes_input_gradients<Part, B>) { part.backward_input(on, f, layout_of(part).pieces); }
    };
    detail::use_parts(resized(type, frame.size), frame, true, run);
}
template <class Math, backend B>
void run_backward_weight(const Math& type, B& on, const backend_frame<B>& frame) {
    const auto run = [&on]<class Part>(const Part& part, const backend_frame<B>& f) {
        static_assert(detail::computes_weight_gradients<Part, B>,
                      "pulse: the mathematics of a block (Part) needs 'void backward_weight(B&, const "
                      "pulse::backend_frame<B>&, const pieces&) const' over the backend");
        if constexpr (detail::computes_weight_gradients<Part, B>) {
            part.backward_weight(on, f, layout_of(part).pieces);
        }
    };
    detail::use_parts(resized(type, frame.size), frame, true, run);
}

/// Forwards the passes of a layer to its mathematics.
template <auto Math>
struct passes_face {
    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        run_forward(Math, on, frame);
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& frame) {
        run_backward_input(Math, on, frame);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& frame) {
        run_backward_weight(Math, on, frame);
    }
};

/// Costs of the parts of a layer, without its name: computed once for all layers of equal mathematics.
template <auto Math>
inline constexpr auto parts_costs = [] {
    std::array<layer_node, static_cast<std::size_t>(Math.parts())> all{};
    for (int k = 0; k != Math.parts(); ++k) { all[static_cast<std::size_t>(k)] = part_of({}, Math, k); }
    return all;
}();

/// What a plan reads from a layer that it may cut inside (pulse::runs_in_parts).
template <label Name, auto Math>
struct parts_face {};
template <label Name, auto Math>
    requires(in_parts<decltype(Math)>)
struct parts_face<Name, Math> {
    static constexpr int part_count = Math.parts();
    static constexpr bool makes_residual = Math.makes_residual();

    [[nodiscard]] static constexpr layer_node part_at(int k, const resizing& by) {
        if constexpr (is_resizable<decltype(Math)>) {
            if (!by.same()) { return part_of(Name, resized(Math, by), k); }
        }
        layer_node node = parts_costs<Math>[static_cast<std::size_t>(k)];
        node.name = Name + node.name.view();
        return node;
    }
    /// Number of parameters() that belong to part k.
    [[nodiscard]] static constexpr std::size_t parameters_in(int k) {
        std::size_t count = 0;
        Math.use_part(k, [&](std::string_view, const auto& part) { count = layout_of(part).sizes.parameter_count; });
        return count;
    }
};

/// Costs of a layer at the sizes of a run.
template <label Name, auto Math>
struct resizing_face {};
template <label Name, auto Math>
    requires(is_resizable<decltype(Math)>)
struct resizing_face<Name, Math> {
    /// Height and width of an image are multiples of this.
    static constexpr int image_step = [] {
        if constexpr (requires { Math.image_step(); }) { return Math.image_step(); }
        return 1;
    }();
    /// Whether positions have learned vectors, which are resampled for other heights and widths.
    static constexpr bool learns_positions = requires {
        { Math.positions() } -> std::same_as<resample_shape>;
    };
    [[nodiscard]] static constexpr layer_node node_at(const resizing& by) { return node_of(Name, resized(Math, by)); }
};

/// Whether Math, with an input if Reads, makes a block; if not, compilation stops and names the first rule that it
/// breaks.
template <auto Math, bool Reads>
[[nodiscard]] consteval bool explain_mathematics() {
    using math = std::remove_cvref_t<decltype(Math)>;
    static_assert(detail::has_output_dims<math>,
                  "pulse: the mathematics of a block needs 'constexpr pulse::nn::sample_dims output() const'");
    constexpr bool has_input = !Reads || detail::has_input_dims<math>;
    static_assert(has_input,
                  "pulse: the mathematics of a block needs 'constexpr pulse::nn::sample_dims input() const'");
    static_assert(detail::has_defect<math>,
                  "pulse: the mathematics of a block needs 'constexpr pulse::nn::flaw defect() const'");
    static_assert(detail::is_described<math>,
                  "pulse: the mathematics of a block needs 'constexpr pieces "
                  "describe(pulse::nn::description&) const', which returns where its pieces lie");
    if constexpr (detail::has_output_dims<math> && has_input && detail::has_defect<math> &&
                  detail::is_described<math>) {
        static_assert(Math.defect() != flaw::size, "pulse: every size of a layer must be positive");
        static_assert(Math.defect() != flaw::window, "pulse: a convolution's window must fit into its padded image");
        static_assert(Math.defect() != flaw::groups, "pulse: the groups of a GroupNorm must divide its channels");
        static_assert(Math.defect() != flaw::heads, "pulse: the heads of an attention must divide its channels");
        static_assert(Math.defect() != flaw::features,
                      "pulse: a sinusoid must have an even number of features, more than twice its shift");
        return Math.defect() == flaw::none;
    } else {
        return false;
    }
}

/// What a layer and a conditioning module have in common.
template <label Name, auto Math>
struct described : context_face<layout<Math>.sizes.context> {
    static constexpr label name = Name;
    static constexpr auto math = Math;
    // nvcc 13 finds no concept true of a plain decltype(Math) here.
    static constexpr bool writes_gradients = pulse::writes_gradients<std::remove_cvref_t<decltype(Math)>>;

    using output = typename shape_of<Math.output()>::type;

    static constexpr std::int64_t saved_elements = layout<Math>.sizes.kept.saved;
    static constexpr std::int64_t statistics_elements = layout<Math>.sizes.kept.statistics;
    static constexpr std::int64_t workspace_elements = layout<Math>.sizes.workspace;
    static constexpr std::int64_t fact_elements = layout<Math>.sizes.conditions.fact_elements();
    static constexpr const condition_set& conditions = layout<Math>.sizes.conditions;

    [[nodiscard]] static constexpr const counted_parameters<layout<Math>.sizes.counts()>& parameters() {
        return parameters_of<Name, Math>;
    }
    [[nodiscard]] static constexpr double forward_flops() { return layout<Math>.sizes.forward_flops; }
};

/// A layer: a name and its mathematics, such as block<"mid", resnet{.in_channels = 64, ...}>.
///
/// The mathematics is a plain value with input(), output(), defect(), describe(description&), which returns where its
/// pieces lie, and the passes forward, backward_input and backward_weight over a frame and these pieces; or it has
/// parts, each of which is such mathematics (in_parts). Layers of equal mathematics share their code whatever their
/// names. No backward pass reads the layer's output.
template <label Name, auto Math>
    requires(explain_mathematics<Math, true>())
struct block : described<Name, Math>,
               passes_face<Math>,
               parts_face<Name, Math>,
               resizing_face<Name, Math>,
               skip_face<layout<Math>.sizes.skip>,
               conditioning_face<layout<Math>.sizes.conditioning> {
    using input = typename shape_of<Math.input()>::type;

    static constexpr std::int64_t deferred_elements = layout<Math>.sizes.kept.deferred;
    static constexpr bool reads_timesteps = layout<Math>.sizes.timesteps;
};

/// A module that computes the conditioning from frame.timesteps [batch]: its mathematics is like a layer's without
/// input and backward_input, such as time_embedding.
template <label Name, auto Math>
    requires(explain_mathematics<Math, false>())
struct conditioning_block : described<Name, Math> {
    static constexpr std::int64_t text_elements = layout<Math>.sizes.conditions.text_elements();
    static constexpr bool trains_context = layout<Math>.sizes.trains_context;

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        Math.forward(on, frame, layout<Math>.pieces);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& frame) {
        Math.backward_weight(on, frame, layout<Math>.pieces);
    }
};

} // namespace pulse::nn
