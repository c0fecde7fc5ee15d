#pragma once

#include <concepts>
#include <cstdint>

#include <pulse/model/condition.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse {

namespace detail {

/// What a task knows of a microbatch besides its data, in the backend's memory; null where the model does not read it.
template <class T, class A>
struct sample_conditions {
    const A* timesteps{};
    const T* text{};
    const A* facts{};
};

/// The conditions of a microbatch on backend B.
template <class B>
using backend_conditions = sample_conditions<typename B::scalar, typename B::accumulator>;

/// Asks a task for the conditions of microbatch m that the model reads; called on the rank of stage 0.
template <class Model, class B, class Task>
[[nodiscard]] backend_conditions<B> conditions_of(Task& task, int m) {
    using embedder = typename Model::conditioning;
    using first_layer = typename Model::template layer_at<0>;
    backend_conditions<B> known;
    if constexpr (Model::is_conditioned || reads_timesteps<first_layer>) { known.timesteps = task.timesteps(m); }
    if constexpr (reads_text<embedder>) { known.text = task.text(m); }
    if constexpr (reads_facts<embedder> || reads_facts<first_layer>) { known.facts = task.facts(m); }
    return known;
}

/// L declares the text and facts that it reads.
template <class L>
concept has_conditions = requires {
    { L::conditions } -> std::convertible_to<const condition_set&>;
};

} // namespace detail

/// What a model reads of each sample besides the time, as its conditioning module or else its first layer declares.
template <class Model>
[[nodiscard]] consteval condition_set conditions_read_by() {
    using embedder = typename Model::conditioning;
    using first_layer = typename Model::template layer_at<0>;
    static_assert((detail::has_conditions<embedder> || !(reads_text<embedder> || reads_facts<embedder>)) &&
                      (detail::has_conditions<first_layer> || !reads_facts<first_layer>),
                  "pulse: a conditioning module or first layer that reads text or facts needs a condition_set "
                  "'conditions' that declares them");
    condition_set all;
    if constexpr (detail::has_conditions<embedder>) { all.add(embedder::conditions); }
    if constexpr (detail::has_conditions<first_layer>) {
        if (all.empty()) { all.add(first_layer::conditions); }
    }
    return all;
}

namespace detail {

/// Sets what is known of the samples in the frame of a conditioning module or first layer.
template <class T, class A>
constexpr void bind_conditions(layer_frame<T, A>& frame, const sample_conditions<T, A>& known) noexcept {
    frame.timesteps = known.timesteps;
    frame.text = known.text;
    frame.facts = known.facts;
}

/// Embeddings per sample that Module makes, before the text states; 0 for `unconditioned`.
template <class Module>
[[nodiscard]] constexpr std::int64_t embedding_elements() noexcept {
    if constexpr (has_output<Module>) {
        return Module::output::elements;
    } else {
        return 0;
    }
}

/// Sets the parts of a microbatch's conditioning in a frame; frame.batch must be set.
template <class Module, class T, class A>
constexpr void bind_conditioning(layer_frame<T, A>& frame, const T* tensor) noexcept {
    frame.conditioning = tensor;
    if constexpr (reads_context<Module>) { frame.context = tensor + frame.batch * embedding_elements<Module>(); }
}

/// Sets the parts of the conditioning's gradient in a frame; the text states' only if it is needed.
template <class Module, class T, class A>
constexpr void bind_conditioning_gradient(layer_frame<T, A>& frame, T* tensor) noexcept {
    frame.conditioning_gradient = tensor;
    if constexpr (trains_context<Module>) {
        frame.context_gradient = tensor + frame.batch * embedding_elements<Module>();
    }
}

} // namespace detail

} // namespace pulse
