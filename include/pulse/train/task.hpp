#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse {

/// The microbatch that a task works on, and where its loss is accumulated.
template <class B>
struct work {
    int microbatch{};             ///< index among the microbatches of this replica's step
    int samples{};                ///< in the microbatch
    std::uint64_t first_sample{}; ///< global position of its first sample, unique to this microbatch
    std::int64_t step_samples{};  ///< samples in a step, over all replicas
    /// The task adds the microbatch's share of the step's loss here, in the backend's memory; 0 at first.
    double* loss{};
    const B* on{};

    /// The stream for the task's work, on a device backend.
    [[nodiscard]] auto stream() const requires requires(const B& b) { b.stream(); }
    { return on->stream(); }
};

namespace detail {

template <class Model, class B>
struct task_rules {
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using embedder = typename Model::conditioning;
    using first_layer = typename Model::template layer_at<0>;

    static constexpr bool needs_timesteps = Model::is_conditioned || reads_timesteps<first_layer>;
    static constexpr bool needs_text = reads_text<embedder>;
    static constexpr bool needs_facts = reads_facts<embedder> || reads_facts<first_layer>;

    template <class T>
    static constexpr bool plain_input = requires(T& t, const work<B>& at, std::span<scalar> x) {
        t.input(at, x);
    };
    template <class T>
    static constexpr bool conditioned_input = requires(T& t, const work<B>& at, std::span<scalar> x,
                                                       std::span<const scalar> prediction) {
        t.input(at, x, prediction);
    };
    template <class T>
    static constexpr bool input = plain_input<T> || conditioned_input<T>;
    template <class T>
    static constexpr bool loss = requires(T& t, const work<B>& at, std::span<const scalar> y, std::span<scalar> dy) {
        t.loss(at, y, dy);
    };
    template <class T>
    static constexpr bool timesteps = !needs_timesteps || requires(T & t, const work<B>& at) {
        { t.timesteps(at) } -> std::convertible_to<const accumulator*>;
    };
    template <class T>
    static constexpr bool text = !needs_text || requires(T & t, const work<B>& at) {
        { t.text(at) } -> std::convertible_to<const scalar*>;
    };
    template <class T>
    static constexpr bool facts = !needs_facts || requires(T & t, const work<B>& at) {
        { t.facts(at) } -> std::convertible_to<const accumulator*>;
    };
    template <class T>
    static constexpr bool begins_scaled = requires(T& t, std::uint64_t first, double scale) {
        t.begin(first, scale);
    };
    template <class T>
    static constexpr bool begins = begins_scaled<T> || requires(T& t, std::uint64_t first) {
        t.begin(first);
    };
    template <class T>
    static constexpr bool encodes = requires(T& t, std::uint64_t first, const encoding& call,
                                             const encoded_results& results) {
        t.encode(first, call);
        t.encoded(results);
    };
    template <class T>
    static constexpr bool chooses_extent = requires(T& t, std::uint64_t first) {
        { t.extent_at(first) } -> std::convertible_to<std::size_t>;
    };
    template <class T>
    static constexpr bool begin = begins<T> || !requires {
        &T::begin;
    };
};

} // namespace detail

/// The data and the loss that a trainer trains on. All pointers and spans are memory of the backend; on a device, the
/// task enqueues its work on the stream of the `work`.
/// - `input(at, x)` writes the model's input, [samples][input], on the rank of stage 0, and again when stage 0 is
///   recomputed.
/// - `input(at, x, prediction)` replaces it where the plan has previews (self-conditioning): `prediction` is the
///   model's preview output for the same input, [samples][output]; empty in previews and for a microbatch without one.
/// - `loss(at, y, dy)` reads the model's output, writes the loss's gradient and adds the loss to *at.loss, on the rank
///   of the last stage, once per microbatch.
/// - `timesteps(at)`, `text(at)`, `facts(at)` return pointers to the conditions of the samples, valid until the step
///   ends; needed only if the model reads them.
/// - `begin(first_sample)`, optional, is called before each step on every rank. A task with `begin(first_sample,
///   loss_scale)` multiplies its gradient by the loss scale itself, in floats; otherwise the trainer does, in scalars.
/// - `extent_at(first_sample)`, needed where the plan has several extents, returns the index of the extent of the step
///   that begins at that sample: the same on every rank.
/// - `encode(first_sample, call)`, needed where the plan has frozen tasks, writes the result of one of them for samples
///   of this replica, which begin at global position `first_sample`; `encoded(results)` is called after `begin` with
///   the results for the step, valid until it ends.
template <class T, class Model, class B>
concept task = detail::task_rules<Model, B>::template input<T>&& detail::task_rules<Model, B>::template loss<T>&&
    detail::task_rules<Model, B>::template timesteps<T>&& detail::task_rules<Model, B>::template text<T>&&
        detail::task_rules<Model, B>::template facts<T>&& detail::task_rules<Model, B>::template begin<T>;

/// Checks that T is a task, with a one-sentence error for whatever is missing.
template <class T, class Model, class B>
consteval void require_task() {
    using rules = detail::task_rules<Model, B>;
    static_assert(rules::template input<T>,
                  "pulse: a task needs input(const work<backend>&, std::span<scalar>), which writes the model's input");
    static_assert(rules::template loss<T>, "pulse: a task needs loss(const work<backend>&, std::span<const scalar>, "
                                           "std::span<scalar>), which reads the output and writes its gradient");
    static_assert(rules::template timesteps<T>,
                  "pulse: the model reads timesteps, so a task needs timesteps(const work<backend>&), which returns a "
                  "pointer to const accumulators");
    static_assert(rules::template text<T>, "pulse: the model reads text, so a task needs text(const work<backend>&), "
                                           "which returns a pointer to const scalars");
    static_assert(rules::template facts<T>,
                  "pulse: the model reads facts of the samples, so a task needs facts(const work<backend>&), which "
                  "returns a pointer to const accumulators");
    static_assert(
        rules::template begin<T>,
        "pulse: a task's begin must take the position of the step's first sample and, if it wants, the loss scale");
}

} // namespace pulse
