#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/label.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/skip.hpp>
#include <pulse/tensor/shape.hpp>

namespace pulse {

/// A shape as a value; a negative rank means that there is none.
///
/// Values, because g++ 12 with -fsanitize=undefined does not compare addresses of tags in constant expressions.
struct shape_facts {
    static constexpr std::size_t max_rank = 8;

    int rank{-1};
    std::array<int, max_rank> dims{};

    [[nodiscard]] constexpr bool present() const noexcept { return rank >= 0; }
    [[nodiscard]] constexpr bool operator==(const shape_facts&) const = default;
};

template <static_shape Shape>
[[nodiscard]] constexpr shape_facts facts_of_shape() noexcept {
    static_assert(Shape::rank <= shape_facts::max_rank, "pulse: a shape must have at most 8 dimensions");
    shape_facts facts{.rank = static_cast<int>(Shape::rank)};
    for (std::size_t d = 0; d != Shape::rank; ++d) { facts.dims[d] = Shape::dims[d]; }
    return facts;
}

/// The properties of a layer that the rules of a model check.
struct layer_facts {
    label name{};
    shape_facts input{};
    shape_facts output{};
    shape_facts skip_input{};
    shape_facts conditioning{};
    shape_facts context{};
    std::int64_t output_elements{};
    std::int64_t frozen_output{};
    std::int64_t frozen_input{};
    std::int64_t frozen_skip{};

    [[nodiscard]] constexpr bool forward_only() const noexcept {
        return frozen_output != 0 && frozen_output == output_elements;
    }
};

template <layer L>
[[nodiscard]] constexpr layer_facts facts_of() noexcept {
    layer_facts facts{
        .name = L::name, .input = facts_of_shape<typename L::input>(), .output = facts_of_shape<typename L::output>()};
    if constexpr (concatenates<L>) { facts.skip_input = facts_of_shape<typename L::skip_input>(); }
    if constexpr (reads_conditioning<L>) { facts.conditioning = facts_of_shape<typename L::conditioning>(); }
    if constexpr (reads_context<L>) { facts.context = facts_of_shape<typename L::context>(); }
    facts.output_elements = L::output::elements;
    if constexpr (keeps_gradients_back<L>) {
        facts.frozen_output = L::frozen_output_elements;
        facts.frozen_input = L::frozen_input_elements;
    }
    if constexpr (requires { L::frozen_skip_elements; }) { facts.frozen_skip = L::frozen_skip_elements; }
    return facts;
}

/// What can be wrong in how layers, skip edges and conditioning fit together.
enum class model_rule : std::uint8_t {
    kept,
    has_layers,
    names_differ,
    neighbours_agree,
    skip_source_exists,
    skip_target_exists,
    skip_goes_forward,
    skip_target_concatenates,
    skip_shape_agrees,
    one_skip_per_layer,
    concatenation_is_fed,
    conditioning_is_given,
    conditioning_agrees,
    context_is_given,
    context_agrees,
    end_is_trained,
    gradient_goes_back,
    gradient_is_read,
    skip_gradient_fits,
    conditioning_gradient_goes_back,
};

/// The first rule that a model breaks, and the layers concerned.
struct model_finding {
    model_rule broken{model_rule::kept};
    label subject{};
    label object{};
};

/// Position of the layer of that name; `layers.size()` when there is none.
[[nodiscard]] constexpr std::size_t find_layer(std::span<const layer_facts> layers, const label& name) noexcept {
    std::size_t at = 0;
    while (at != layers.size() && !(layers[at].name == name)) { ++at; }
    return at;
}

/// The first rule that edge `e` breaks.
[[nodiscard]] constexpr model_finding inspect_edge(std::span<const layer_facts> layers,
                                                   std::span<const skip_ends> skips, std::size_t e) noexcept {
    using enum model_rule;
    const label& from = skips[e].from;
    const label& to = skips[e].to;
    const std::size_t source = find_layer(layers, from);
    const std::size_t target = find_layer(layers, to);
    if (source == layers.size()) { return {skip_source_exists, from, to}; }
    if (target == layers.size()) { return {skip_target_exists, from, to}; }
    if (source >= target) { return {skip_goes_forward, from, to}; }
    const shape_facts& wanted = layers[target].skip_input;
    if (!wanted.present()) { return {skip_target_concatenates, from, to}; }
    if (!(wanted == layers[source].output)) { return {skip_shape_agrees, from, to}; }
    for (std::size_t other = 0; other != e; ++other) {
        if (skips[other].to == to) { return {one_skip_per_layer, from, to}; }
    }
    return {};
}

/// Checks that trained parts get their whole gradient: no layer drops a needed one or makes one without room for it.
/// Hence layers that run forward only come first, and no skip leads to them from a trained layer.
[[nodiscard]] constexpr model_finding inspect_gradients(std::span<const layer_facts> layers,
                                                        std::span<const skip_ends> skips,
                                                        bool context_is_trained) noexcept {
    using enum model_rule;
    if (layers.back().frozen_output != 0) { return {end_is_trained, layers.back().name, {}}; }
    for (std::size_t i = 0; i != layers.size(); ++i) {
        const layer_facts& node = layers[i];
        if ((node.forward_only() && node.conditioning.present()) ||
            (node.frozen_output != 0 && node.context.present() && context_is_trained)) {
            return {conditioning_gradient_goes_back, node.name, {}};
        }
        if (i == 0) { continue; }
        const layer_facts& before = layers[i - 1];
        if (node.frozen_input > before.frozen_output) { return {gradient_goes_back, before.name, node.name}; }
        // If the whole input has no gradient, none is requested.
        if (!before.forward_only() && node.frozen_input < before.frozen_output) {
            return {gradient_is_read, before.name, node.name};
        }
    }
    for (const skip_ends& edge : skips) {
        const layer_facts& from = layers[find_layer(layers, edge.from)];
        const layer_facts& to = layers[find_layer(layers, edge.to)];
        if (!from.forward_only() && to.frozen_skip != from.frozen_output) {
            return {skip_gradient_fits, from.name, to.name};
        }
    }
    return {};
}

/// Returns the first broken rule. `conditioning` and `context` are the shapes that the model provides, if any.
[[nodiscard]] constexpr model_finding inspect_model(std::span<const layer_facts> layers,
                                                    std::span<const skip_ends> skips, const shape_facts& conditioning,
                                                    const shape_facts& context = {},
                                                    bool context_is_trained = false) noexcept {
    using enum model_rule;
    if (layers.empty()) { return {has_layers, {}, {}}; }
    for (std::size_t i = 0; i != layers.size(); ++i) {
        if (find_layer(layers, layers[i].name) != i) { return {names_differ, layers[i].name, {}}; }
    }
    for (std::size_t i = 1; i != layers.size(); ++i) {
        if (!(layers[i - 1].output == layers[i].input)) {
            return {neighbours_agree, layers[i - 1].name, layers[i].name};
        }
    }
    for (std::size_t e = 0; e != skips.size(); ++e) {
        const model_finding found = inspect_edge(layers, skips, e);
        if (found.broken != kept) { return found; }
    }
    const auto fed = [skips](const label& name) {
        for (const skip_ends& edge : skips) {
            if (edge.to == name) { return true; }
        }
        return false;
    };
    for (const layer_facts& node : layers) {
        if (node.skip_input.present() && !fed(node.name)) { return {concatenation_is_fed, node.name, {}}; }
        if (node.conditioning.present()) {
            if (!conditioning.present()) { return {conditioning_is_given, node.name, {}}; }
            if (!(conditioning == node.conditioning)) { return {conditioning_agrees, node.name, {}}; }
        }
        if (node.context.present()) {
            if (!context.present()) { return {context_is_given, node.name, {}}; }
            if (!(context == node.context)) { return {context_agrees, node.name, {}}; }
        }
    }
    return inspect_gradients(layers, skips, context_is_trained);
}

/// Stops compilation with one sentence about the broken rule; the compiler prints Subject and Object beside it.
template <model_rule Broken, label Subject, label Object>
[[nodiscard]] consteval bool explain_model() {
    using enum model_rule;
    static_assert(Broken != has_layers, "pulse: a model must have at least one layer");
    static_assert(Broken != names_differ, "pulse: two layers of a model have the same name (Subject)");
    static_assert(Broken != neighbours_agree,
                  "pulse: the output shape of a layer (Subject) is not the input shape of the next one (Object)");
    static_assert(Broken != skip_source_exists, "pulse: a skip edge begins at an unknown layer (Subject)");
    static_assert(Broken != skip_target_exists, "pulse: a skip edge ends at an unknown layer (Object)");
    static_assert(Broken != skip_goes_forward,
                  "pulse: a skip edge goes backwards: its target (Object) is not after its source (Subject)");
    static_assert(Broken != skip_target_concatenates,
                  "pulse: a skip edge ends at a layer that concatenates nothing (Object has no skip_input)");
    static_assert(Broken != skip_shape_agrees,
                  "pulse: the shape on a skip edge (output of Subject) is not what its target (Object) concatenates");
    static_assert(Broken != one_skip_per_layer, "pulse: two skip edges end at the same layer (Object)");
    static_assert(Broken != concatenation_is_fed,
                  "pulse: a layer concatenates a skip (Subject has a skip_input) but no skip edge ends at it");
    static_assert(Broken != conditioning_is_given,
                  "pulse: a layer reads conditioning (Subject) but the model has no conditioning module");
    static_assert(Broken != conditioning_agrees,
                  "pulse: a layer reads conditioning of another shape (Subject) than the model gives");
    static_assert(Broken != context_is_given,
                  "pulse: a layer reads context (Subject) but the model's conditioning module gives none");
    static_assert(Broken != context_agrees,
                  "pulse: a layer reads context of another shape (Subject) than the model gives");
    static_assert(Broken != end_is_trained,
                  "pulse: the last layer (Subject) outputs elements without a gradient, so they would train nothing");
    static_assert(
        Broken != gradient_goes_back,
        "pulse: a layer (Object) does not compute the input gradient that the previous layer (Subject) needs");
    static_assert(Broken != gradient_is_read, "pulse: a layer (Object) computes an input gradient for elements that "
                                              "have none in the previous layer (Subject)");
    static_assert(Broken != skip_gradient_fits, "pulse: the target of a skip edge (Object) and its source (Subject) "
                                                "disagree on which elements have a gradient");
    static_assert(Broken != conditioning_gradient_goes_back,
                  "pulse: a layer that runs forward only (Subject) reads conditioning or context that is trained");
    return Broken == kept;
}

} // namespace pulse
