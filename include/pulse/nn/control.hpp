#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/rules.hpp>
#include <pulse/nn/locked.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/tensor/shape.hpp>

// ControlNet (Zhang et al. 2023): a trained copy of a backbone's encoder reads the picture and a hint, and its outputs
// are added, through 1x1 convolutions, to those that the locked encoder passes to the locked decoder. Copy and locked
// encoder run side by side in one chain: an activation holds both, the copy's first, each for the whole batch, and so
// does a skip tensor, which thus waits on the rank of the decoder's stage. The convolutions start at 0, the copy with
// the locked weights (train::with_locked_values).

namespace pulse::nn {

namespace detail {

// What layers side by side read besides their inputs: each has its own embedding, the copy's first; both share the
// context.

template <class L>
struct both_embeddings {};
template <reads_conditioning L>
struct both_embeddings<L> {
    using conditioning = shape<static_cast<int>(2 * L::conditioning::elements)>;
};
template <class L>
struct same_context {};
template <reads_context L>
struct same_context<L> {
    using context = typename L::context;
};

template <layer One, layer Other>
inline constexpr bool reads_the_same = facts_of<One>().conditioning
                                       == facts_of<Other>().conditioning&& facts_of<One>().context
                                       == facts_of<Other>().context;

} // namespace detail

/// Layer L of the locked backbone: it reads the second of two embeddings, whose gradient nobody needs.
template <layer L>
struct of_locked : L {};
template <layer L>
    requires(reads_conditioning<L>)
struct of_locked<L> : L {
    using conditioning = typename detail::both_embeddings<L>::conditioning;

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        L::forward(on, second(frame));
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& frame) {
        L::backward_input(on, second(frame));
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& frame) {
        L::backward_weight(on, second(frame));
    }

private:
    template <class T, class A>
    [[nodiscard]] static constexpr layer_frame<T, A> second(layer_frame<T, A> f) noexcept {
        const std::int64_t first = f.batch * L::conditioning::elements;
        f.conditioning += first;
        if (f.conditioning_gradient != nullptr) { f.conditioning_gradient += first; }
        return f;
    }
};

/// Computes both embeddings, each with its own weights (the second's are frozen), and the context that both read.
template <conditioner C>
struct both_conditionings : C {
    static_assert(!trains_context<C> && !has_frozen_parameters<C>,
                  "pulse: a conditioning module locked beside its copy must train all its weights and no context");
    using output = shape<static_cast<int>(2 * C::output::elements)>;
    using unchanged = detail::unsaved<C>;
    static constexpr std::int64_t workspace_elements =
        std::max<std::int64_t>(C::workspace_elements, unchanged::workspace_elements);

    [[nodiscard]] static constexpr decltype(auto) frozen_parameters() { return C::parameters(); }
    [[nodiscard]] static constexpr double forward_flops() { return 2 * C::forward_flops(); }
    [[nodiscard]] static constexpr double forward_only_flops() { return C::forward_flops(); }

    /// The context follows the embedding that is computed last.
    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        C::forward(on, frame);
        backend_frame<B> behind = unchanged::frame(frame);
        behind.output += frame.batch * C::output::elements;
        C::forward(on, behind);
    }
};

/// `Trained` on the first part of the activation and `Locked`, forward only, on the rest.
///
/// If they read conditioning, the model's holds two embeddings, the first for `Trained` (see both_conditionings).
template <label Name, layer Trained, layer Locked>
struct beside : detail::both_embeddings<Trained>, detail::same_context<Trained> {
    static_assert(detail::is_plain<Trained>, "pulse: the layer beside a locked layer must be trained as a whole");
    static_assert(!concatenates<Trained> && !concatenates<Locked>,
                  "pulse: layers that run side by side must not read skips");
    static_assert(!reads_timesteps<Trained> && !reads_timesteps<Locked> && !reads_facts<Trained> &&
                      !reads_facts<Locked>,
                  "pulse: layers that run side by side must not read timesteps or facts");
    static_assert(detail::reads_the_same<Trained, Locked>,
                  "pulse: layers that run side by side must read the same conditioning and context, or none");
    using unchanged = forward_only<of_locked<Locked>>;

    static constexpr label name = Name;
    using input = shape<static_cast<int>(Trained::input::elements + Locked::input::elements)>;
    using output = shape<static_cast<int>(Trained::output::elements + Locked::output::elements)>;
    static constexpr std::int64_t saved_elements = Trained::saved_elements;
    static constexpr std::int64_t statistics_elements = pulse::statistics_elements<Trained>();
    static constexpr std::int64_t deferred_elements = Trained::deferred_elements;
    static constexpr std::int64_t workspace_elements =
        std::max<std::int64_t>(Trained::workspace_elements, unchanged::workspace_elements);
    static constexpr std::int64_t frozen_input_elements = Locked::input::elements;
    static constexpr std::int64_t frozen_output_elements = Locked::output::elements;
    static constexpr bool writes_gradients = pulse::writes_gradients<Trained>;

    [[nodiscard]] static constexpr decltype(auto) parameters() { return Trained::parameters(); }
    [[nodiscard]] static constexpr decltype(auto) frozen_parameters() { return Locked::parameters(); }
    [[nodiscard]] static constexpr double forward_flops() { return Trained::forward_flops() + Locked::forward_flops(); }
    [[nodiscard]] static constexpr double forward_only_flops() { return Locked::forward_flops(); }

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        run(on, frame, frame.input + frame.batch * Trained::input::elements);
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& frame) {
        Trained::backward_input(on, frame);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& frame) {
        Trained::backward_weight(on, frame);
    }

protected:
    template <backend B>
    static void run(B& on, const backend_frame<B>& frame, const typename B::scalar* locked_input) {
        Trained::forward(on, frame);
        backend_frame<B> behind = frame;
        behind.input = locked_input;
        behind.output += frame.batch * Trained::output::elements;
        unchanged::forward(on, behind);
    }
};

/// The first layer of copy and locked encoder, on one input: `Locked` reads the images, `Trained` also a hint of shape
/// `Hint` for each. Neither images nor hints get a gradient.
template <label Name, layer Trained, layer Locked, static_shape Hint>
    requires(Trained::input::elements == Locked::input::elements + Hint::elements)
struct enter_control : beside<Name, Trained, Locked> {
    using input = typename Trained::input;
    using image = typename Locked::input;
    using hint = Hint;
    static constexpr std::int64_t frozen_input_elements = 0;

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        beside<Name, Trained, Locked>::run(on, frame, frame.input);
    }
};

namespace detail {

/// The 1x1 convolution of the copy's output of Shape; channels are the first of three extents, else the last.
template <static_shape Shape>
struct control {
    static constexpr int channels = Shape::dims[Shape::rank == 3 ? 0 : Shape::rank - 1];
    static constexpr linear_shape matrix{channels, channels};
    static constexpr std::int64_t elements = Shape::elements;
    static constexpr std::int64_t rows = elements / channels;
    static constexpr double flops = 2.0 * static_cast<double>(elements) * channels;
    /// Both parts, the copy's first.
    using wide = shape<static_cast<int>(2 * elements)>;

    [[nodiscard]] static constexpr auto parameters_of(const label& name) {
        return std::array<parameter, 2>{parameter{name + ".weight", {channels, channels, 1, 1}, 4, true},
                                        parameter{name + ".bias", {channels, 1, 1, 1}, 1, true}};
    }
    template <backend B, class T>
    static void add(B& on, int batch, const T* both, const T* weight, T* sum) {
        on.copy(batch * elements, both + batch * elements, sum);
        on.linear(matrix, batch * rows, both, weight, weight + channels * channels, sum, into::add);
    }
    template <backend B, class T>
    static void add_backward_input(B& on, int batch, const T* sum_gradient, const T* weight, T* gradient) {
        if (gradient != nullptr) {
            on.linear_backward_input(matrix, batch * rows, sum_gradient, weight, gradient, into::write);
        }
    }
    template <backend B, class T>
    static void add_backward_weight(B& on, int batch, const T* both, const T* sum_gradient,
                                    gradient_place<typename B::accumulator> gradient) {
        on.linear_backward_weight(matrix, batch * rows, both, sum_gradient, gradient, gradient + channels * channels);
    }
};

} // namespace detail

/// After the last layer of copy and locked encoder: outputs the locked encoder's result, of Shape, plus the control.
template <label Name, static_shape Shape>
struct join_control {
    using control = detail::control<Shape>;

    static constexpr label name = Name;
    using input = typename control::wide;
    using output = Shape;
    static constexpr std::int64_t saved_elements = 0, deferred_elements = 0, workspace_elements = 0;
    static constexpr std::int64_t frozen_input_elements = control::elements, frozen_output_elements = 0;
    static constexpr bool writes_gradients = true;

    [[nodiscard]] static constexpr auto parameters() { return control::parameters_of(name); }
    [[nodiscard]] static constexpr double forward_flops() { return control::flops; }

    template <backend B>
    static void forward(B& on, const backend_frame<B>& f) {
        control::add(on, f.batch, f.input, f.parameters, f.output);
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& f) {
        control::add_backward_input(on, f.batch, f.output_gradient, f.parameters, f.input_gradient);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& f) {
        control::add_backward_weight(on, f.batch, f.input, f.output_gradient, f.gradient());
    }
};

/// The locked decoder layer L, whose skip is the output of the locked encoder's layer plus the control: the convolution
/// `Control` of the copy's output.
template <label Control, layer L>
    requires(concatenates<L>)
struct controlled : of_locked<L> {
    using inner = locked<of_locked<L>>;
    using control = detail::control<typename L::skip_input>;

    using skip_input = typename control::wide;
    static constexpr int part_count = 1;
    static constexpr bool writes_gradients = true;
    static constexpr std::int64_t frozen_skip_elements = control::elements;
    static constexpr std::int64_t sum_in = detail::padded(L::saved_elements);
    static constexpr std::int64_t saved_elements = sum_in + control::elements;
    static constexpr std::int64_t deferred_elements = control::elements;
    static constexpr std::int64_t workspace_elements = inner::workspace_elements;

    [[nodiscard]] static constexpr auto parameters() { return control::parameters_of(Control); }
    [[nodiscard]] static constexpr decltype(auto) frozen_parameters() { return L::parameters(); }
    [[nodiscard]] static constexpr double forward_flops() { return L::forward_flops() + control::flops; }
    [[nodiscard]] static constexpr double frozen_flops() { return L::forward_flops(); }

    template <backend B>
    static void forward(B& on, const backend_frame<B>& f) {
        control::add(on, f.batch, f.skip, f.parameters, f.saved + f.batch * sum_in);
        inner::forward(on, of_decoder(f));
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& f) {
        inner::backward_input(on, of_decoder(f));
        control::add_backward_input(on, f.batch, f.deferred, f.parameters, f.skip_gradient);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& f) {
        control::add_backward_weight(on, f.batch, f.skip, f.deferred, f.gradient());
    }

private:
    /// L reads the sum as its skip; the skip's gradient is kept for the gradient of the control's weights.
    template <class T, class A>
    [[nodiscard]] static constexpr layer_frame<T, A> of_decoder(layer_frame<T, A> f) noexcept {
        f.skip = f.saved + f.batch * sum_in;
        f.skip_gradient = f.deferred;
        return f;
    }
};

} // namespace pulse::nn
