#pragma once

#include <cstdint>

#include <pulse/model/extent.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse {

// Offsets of a layer's tensors: elements from the start of what the type names, per sample except for weights.
// nn::description assigns them, and a frame turns them into pointers.

/// Parameters of one product or norm: the weight and, behind it, the bias.
struct weight_piece {
    std::int64_t begin{};
    std::int64_t bias{};
};
struct saved_piece {
    std::int64_t begin{};
};
struct statistics_piece {
    std::int64_t begin{};
};
struct deferred_piece {
    std::int64_t begin{};
};
struct workspace_piece {
    std::int64_t begin{};
};

/// Sizes of a layer's areas; workspace is not among them because passes share it.
struct layer_extents {
    std::int64_t parameters{};
    std::int64_t saved{};
    std::int64_t statistics{};
    std::int64_t deferred{};

    friend constexpr layer_extents operator+(const layer_extents& a, const layer_extents& b) noexcept {
        return {a.parameters + b.parameters, a.saved + b.saved, a.statistics + b.statistics, a.deferred + b.deferred};
    }
    friend constexpr layer_extents operator-(const layer_extents& a, const layer_extents& b) noexcept {
        return {a.parameters - b.parameters, a.saved - b.saved, a.statistics - b.statistics, a.deferred - b.deferred};
    }
};

/// The tensors that one pass of one layer reads and writes; all are contiguous, batch first, channels last.
///
/// forward reads input, skip, conditioning and parameters, and writes output and saved. backward_input reads these and
/// output_gradient; it writes input_gradient, skip_gradient and deferred, adds to conditioning_gradient, and computes
/// the gradients of affine norm parameters, whose sums it needs anyway. backward_weight computes the rest of
/// parameter_gradients from input, skip, conditioning, saved, output_gradient and deferred. A pass may use all of
/// workspace and leaves nothing in it. What holds for saved holds for statistics.
///
/// The conditioning of a microbatch that is sent between devices is one tensor of two parts: the embeddings of all
/// samples, [batch][embedding], followed, if the model has text states, by those of all samples,
/// [batch][tokens][features]. Layers get the parts as conditioning and context, and add to the gradients of each.
///
/// A part of a layer reads and writes as a layer does. Where a residual is open around the parts, the first part reads
/// residual_gradient and the last one residual. A layer that makes its own residual writes it to made_residual in its
/// first part, and its last part finds it in output.
///
/// T is the backend's scalar, A its accumulator.
template <class T, class A = T>
struct layer_frame {
    int batch{};
    resizing size{}; ///< from the type's sizes to the run's
    int part{-1};    ///< which part of a layer that has parts; negative: all of them
    const T* input{};
    const T* skip{};
    const T* conditioning{};
    const T* context{}; ///< text states
    const T* parameters{};
    const T* frozen_parameters{}; ///< weights that are not trained, for a layer that has_frozen_parameters
    T* output{};
    T* saved{};
    A* statistics{}; ///< means and deviations of norms, logarithms of sums of attentions
    const T* output_gradient{};
    T* input_gradient{}; ///< null if not needed (the first layer of a model)
    T* skip_gradient{};
    T* conditioning_gradient{};
    T* context_gradient{}; ///< null if not needed (nothing that makes the text states is trained)
    T* deferred{};
    A* parameter_gradients{};  ///< null where the parameters are not trained
    into gradients{into::add}; ///< whether the pass writes or adds its gradients, see writes_gradients
    T* workspace{};
    const T* residual{};          ///< the residual that is open around a layer's parts, for the last part
    T* made_residual{};           ///< where the first part of a layer that makes its residual writes it
    const T* residual_gradient{}; ///< for the first part
    const A* timesteps{}; ///< [batch], for a conditioning module and the forward pass of a layer that reads_timesteps
    const T* text{};      ///< [batch][text_elements], for a conditioning module that reads_text
    const A* facts{};     ///< [batch][fact_elements], for what reads_facts

    [[nodiscard]] constexpr const T* operator[](weight_piece p) const noexcept { return parameters + p.begin; }
    [[nodiscard]] constexpr T* operator[](saved_piece p) const noexcept { return saved + batch * p.begin; }
    [[nodiscard]] constexpr A* operator[](statistics_piece p) const noexcept { return statistics + batch * p.begin; }
    [[nodiscard]] constexpr T* operator[](deferred_piece p) const noexcept { return deferred + batch * p.begin; }
    [[nodiscard]] constexpr T* operator[](workspace_piece p) const noexcept { return workspace + batch * p.begin; }
    [[nodiscard]] constexpr const T* bias(weight_piece p) const noexcept { return parameters + p.bias; }
    [[nodiscard]] constexpr gradient_place<A> gradient(weight_piece p = {}) const noexcept {
        return gradient_place<A>{parameter_gradients, gradients} + p.begin;
    }
    [[nodiscard]] constexpr gradient_place<A> bias_gradient(weight_piece p) const noexcept {
        return gradient_place<A>{parameter_gradients, gradients} + p.bias;
    }

    /// The frame of a part that starts `by` after the start of the layer, with the same inputs, outputs and workspace.
    /// Null stays null: a forward pass has no gradients.
    [[nodiscard]] constexpr layer_frame behind(const layer_extents& by) const noexcept {
        const auto moved = [](auto* from, std::int64_t on) { return from != nullptr ? from + on : from; };
        layer_frame other = *this;
        other.parameters = moved(parameters, by.parameters);
        other.saved = moved(saved, batch * by.saved);
        other.statistics = moved(statistics, batch * by.statistics);
        other.deferred = moved(deferred, batch * by.deferred);
        other.parameter_gradients = moved(parameter_gradients, by.parameters);
        return other;
    }
};

/// The frame of a layer on backend B.
template <class B>
using backend_frame = layer_frame<typename B::scalar, typename B::accumulator>;

/// L, a layer or a conditioning module, writes or adds its parameters' gradients as frame.gradients says.
///
/// The gradient of a parameter is computed by one of L's passes, completely each time: the pass hands
/// frame.gradient(piece) to one backend operation, and .again() of it to further ones. The first such pass of a step
/// writes, and the old values are never read. For other layers the gradients are set to 0 before the first pass of a
/// step, and frame.gradients says that all passes add: such a layer may add in any way, for example by hand on the
/// host.
template <class L>
concept writes_gradients = requires {
    requires L::writes_gradients;
};

/// L reads the timesteps themselves. Only the first layer of a model may: timesteps reach no other device, and a model
/// whose first layer makes a token of them relays no conditioning. The same is true of reads_facts.
template <class L>
concept reads_timesteps = requires {
    requires L::reads_timesteps;
};

/// C, a conditioning module, reads C::text_elements scalars per sample of a text encoder's output. C defines its
/// tensors; they follow one another, each over the whole batch.
template <class C>
concept reads_text = requires {
    requires C::text_elements != 0;
};

/// L, a conditioning module or the first layer of a model, reads L::fact_elements numbers known of each sample, such as
/// a class, sizes, or which tokens of a text are padding. Its tensors follow one another, each over the whole batch.
template <class L>
concept reads_facts = requires {
    requires L::fact_elements != 0;
};

/// A pass of a layer on backend B. Passes of layers are static templates over the backend.
template <class B>
using layer_pass = void (*)(B&, const backend_frame<B>&);

template <class L, class B>
concept runs_forward_on = requires {
    static_cast<layer_pass<B>>(&L::template forward<B>);
};
/// L has that pass, or runs forward only.
template <class L, class B>
concept runs_backward_input_on = is_forward_only<L>() || requires {
    static_cast<layer_pass<B>>(&L::template backward_input<B>);
};
template <class L, class B>
concept runs_backward_weight_on = is_forward_only<L>() || requires {
    static_cast<layer_pass<B>>(&L::template backward_weight<B>);
};

/// A layer that can run on backend B.
template <class L, class B>
concept runs_on = runs_forward_on<L, B> && runs_backward_input_on<L, B> && runs_backward_weight_on<L, B>;

/// A conditioning module (time embedding) that can run on backend B: it reads `timesteps` [batch] and no `input`, and
/// `output` is the conditioning, including text states; it needs no backward_input, and backward_weight reads
/// output_gradient.
template <class C, class B>
concept conditions_on = requires(B& b, const backend_frame<B>& frame) {
    C::forward(b, frame);
    C::backward_weight(b, frame);
};

} // namespace pulse
