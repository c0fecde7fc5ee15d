#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/encode/text_network.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// A part of a text encoder that may run on its own: one layer, or that of the states with all that run after it.
/// Elements are per text, except the parameters.
struct text_piece {
    label name{};          ///< of its first layer
    std::size_t tensors{}; ///< number of its parameters
    std::int64_t parameters{};
    std::int64_t output{};  ///< what the next piece reads, or the states
    std::int64_t working{}; ///< most that a layer's input, output and workspace take together
};

template <class Network>
inline constexpr auto text_pieces = [] {
    std::array<text_piece, Network::states_layer + 1> all{};
    std::int64_t input = 0;
    Network::for_live_layers([&]<std::size_t I>() {
        using layer = typename Network::template layer_at<I>;
        text_piece& one = all[std::min(I, Network::states_layer)];
        constexpr std::int64_t output = chain_link::aligned(layer::output::elements);
        if (I <= Network::states_layer) {
            one.name = layer::name;
            one.output = layer::output::elements;
        }
        one.tensors += layer::parameters().size();
        one.parameters += layer::parameter_elements;
        one.working = std::max(one.working, input + output + chain_link::aligned(layer::workspace_elements));
        input = output;
    });
    return all;
}();

/// A text encoder with its weights on one backend, for batches of up to `batch` texts; Network is a clip_text,
/// bert_text or t5_text. It runs whole, or some pieces at a time, between which others may run on other texts. One call
/// may run several batches and then reads the weights once; the bits are those of separate calls.
///
/// Each batch has an array in which tensors between layers alternate: one begins at its front, the next ends at its
/// back; a layer's workspace lies between its input and output. All memory is allocated on construction, in the
/// backend's space: for all pieces, or for those that run here.
template <class Network, backend B>
class text_encoder {
    static_assert(text_backend<B>, "pulse: a text encoder needs a text_backend");

public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;

    /// The weights of the layers that run, named as in a checkpoint.
    static constexpr auto parameters = Network::template parameters<Network::live_layers>();

    /// Elements of the parameter that more than one layer reads; every encoder has a copy for each of its batches.
    static constexpr std::int64_t shared_elements = [] {
        std::int64_t at = 0;
        for (const parameter& p : parameters) {
            if (at == Network::shared_at) { return p.elements(); }
            at += p.elements();
        }
        return std::int64_t{0};
    }();
    static_assert(Network::shared_at < 0 || shared_elements > 0, "pulse: shared_at must be where a parameter begins");
    /// Maximum elements of one text that tensors between layers and workspace take.
    static constexpr std::int64_t working_elements = [] {
        std::int64_t most = 0;
        for (const text_piece& one : text_pieces<Network>) { most = std::max(most, one.working); }
        return most;
    }();
    /// Bytes of an encoder with all pieces for one batch of `batch` texts: weights, tensors and statistics, without the
    /// backend's scratch.
    [[nodiscard]] static constexpr std::int64_t bytes(int batch) noexcept {
        return static_cast<std::int64_t>(sizeof(scalar)) *
                   (Network::live_parameter_elements + shared_elements + batch * working_elements) +
               static_cast<std::int64_t>(sizeof(accumulator)) * batch * Network::statistics_elements;
    }
    /// Bytes that this encoder has allocated.
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return static_cast<std::int64_t>((weights_.size() + shared_.size() + working_.size()) * sizeof(scalar) +
                                         statistics_.size() * sizeof(accumulator));
    }

    /// For calls of up to `batches` batches, which share nothing but the weights. Holds piece p where `pieces` is true
    /// at p, or all pieces if it is empty. Throws input_error when `batch` or `batches` is less than 1, or `pieces` has
    /// another number of entries.
    text_encoder(B& math, int batch, const std::vector<bool>& pieces = {}, int batches = 1) :
        math_{math}, batch_{batch}, batches_{batches} {
        if (batch < 1 || batches < 1) {
            throw input_error{"pulse: text_encoder: batch must be at least 1, not " +
                              std::to_string(std::min(batch, batches))};
        }
        detail::require_one_each("text_encoder", pieces, begins_.size());
        std::int64_t weights = 0;
        std::int64_t working = 0;
        for (std::size_t p = 0; p != begins_.size(); ++p) {
            begins_[p] = -1;
            if (!pieces.empty() && !pieces[p]) { continue; }
            begins_[p] = weights;
            weights += text_pieces<Network>[p].parameters;
            working = std::max(working, text_pieces<Network>[p].working);
        }
        weights_ = scalars(static_cast<std::size_t>(weights));
        const std::int64_t samples = std::int64_t{batch} * batches;
        shared_ = scalars(static_cast<std::size_t>(batches * shared_elements));
        working_ = scalars(static_cast<std::size_t>(samples * working));
        statistics_ = accumulators(static_cast<std::size_t>(samples * Network::statistics_elements));
    }
    text_encoder(const text_encoder&) = delete;
    text_encoder& operator=(const text_encoder&) = delete;

    /// Fills the weights of its pieces: read(const parameter&, std::span<float>) writes the values of one, in C order.
    /// No earlier run may still be in progress on a device.
    template <class Read>
    void load(Read read) {
        scalar* to = weights_.data();
        const parameter* next = parameters.data();
        std::int64_t at = 0;
        for (std::size_t p = 0; p != begins_.size(); ++p) {
            for (std::size_t i = 0; i != text_pieces<Network>[p].tensors; ++i, ++next) {
                const bool here = begins_[p] >= 0;
                const bool shared = at == Network::shared_at;
                at += next->elements();
                if (!here && !shared) { continue; }
                const std::vector<scalar> values = detail::scalars_of<scalar>(*next, read);
                for (int b = 0; b != batches_ && shared; ++b) {
                    space::template upload<scalar>(values, shared_.data() + b * shared_elements);
                }
                if (here) {
                    space::template upload<scalar>(values, to);
                    to += next->elements();
                }
            }
        }
        math_.weights_changed();
    }

    /// Writes the states [samples][tokens][features] and, if the network pools, the pooled text [samples][features];
    /// otherwise `pooled` may be null. `facts` are those of text_facts_of for `samples` texts. All are in the backend's
    /// space.
    ///
    /// Throws input_error unless `samples` is 1 to the encoder's batch, and for a null `pooled` that is needed.
    void run(int samples, const accumulator* facts, scalar* states, scalar* pooled = nullptr) {
        const batch_of_texts all{samples, facts, nullptr, states, pooled};
        run_pieces(0, Network::states_layer, {&all, 1});
    }

    /// Texts and their text_facts_of. x: the output of the piece before, null if there is none; y: where the output of
    /// the last piece goes, [samples][text_pieces[last].output]; `pooled` as in run(), for the last piece.
    struct batch_of_texts {
        int samples{};
        const accumulator* facts{};
        const scalar* x{};
        scalar* y{};
        scalar* pooled{};
    };
    /// Runs pieces `first` to `last` on all these batches, as run() does; first <= last <= Network::states_layer. The
    /// bits are those of run(), however pieces are split. Throws error naming a piece that is not here, and input_error
    /// for more batches than it was made for.
    void run_pieces(std::size_t first, std::size_t last, std::span<const batch_of_texts> of) {
        if (of.size() > static_cast<std::size_t>(batches_)) {
            throw input_error{"pulse: " + Network::name.str() + ": batches must be at most " +
                              std::to_string(batches_) + ", not " + std::to_string(of.size())};
        }
        for (const batch_of_texts& one : of) {
            require_room(one.samples, last < Network::states_layer || one.pooled != nullptr);
        }
        Network::for_live_layers([&]<std::size_t I>() {
            constexpr std::size_t piece = std::min(I, Network::states_layer);
            if (std::clamp(piece, first, last) != piece) { return; }
            if (begins_[piece] < 0) {
                throw error{"pulse: " + Network::name.str() + ": piece " + std::to_string(piece) + " is not here"};
            }
            Network::template layer_at<I>::forward(math_, of.size(), [&](std::size_t b) {
                const batch_of_texts& one = of[b];
                frozen_frame<B> frame = frame_of<I>(b, one.samples);
                frame.facts = one.facts;
                if constexpr (I != 0) {
                    frame.input = I == first      ? one.x
                                  : I == last + 1 ? one.y // the states, from which the pooled text is made
                                                  : frame_of<I - 1>(b, one.samples).output;
                }
                if (I == last) { frame.output = one.y; }
                if (I != Network::states_layer && I + 1 == Network::live_layers) { frame.output = one.pooled; }
                return frame;
            });
        });
    }
    void run_pieces(std::size_t first, std::size_t last, batch_of_texts of, const scalar* x, scalar* y,
                    scalar* pooled = nullptr) {
        of.x = x;
        of.y = y;
        of.pooled = pooled;
        run_pieces(first, last, {&of, 1});
    }

private:
    using scalars = typename space::template array<scalar>;
    using accumulators = typename space::template array<accumulator>;

    void require_room(int samples, bool pooled) const {
        if (samples < 1 || samples > batch_) {
            throw input_error{"pulse: " + Network::name.str() + ": expects 1 to " + std::to_string(batch_) +
                              " texts, not " + std::to_string(samples)};
        }
        if (Network::pools && !pooled) {
            throw input_error{"pulse: " + Network::name.str() + ": needs room for the pooled text"};
        }
    }
    /// Weights, workspace and output of layer I for batch b; outputs of even layers are at the front, of odd ones at
    /// the back.
    template <std::size_t I>
    [[nodiscard]] frozen_frame<B> frame_of(std::size_t b, int samples) {
        constexpr std::size_t piece = std::min(I, Network::states_layer);
        constexpr std::int64_t output = chain_link::aligned(Network::template layer_at<I>::output::elements);
        const auto batches = static_cast<std::size_t>(batches_);
        scalar* const begin = working_.data() + b * (working_.size() / batches);
        frozen_frame<B> frame;
        frame.batch = samples;
        frame.statistics = statistics_.data() + b * (statistics_.size() / batches);
        if constexpr (Network::shared_at >= 0) { frame.shared = shared_.data() + b * (shared_.size() / batches); }
        frame.parameters =
            weights_.data() + begins_[piece] + (Network::parameter_offsets[I] - Network::parameter_offsets[piece]);
        if constexpr (I % 2 == 0) {
            frame.output = begin;
            frame.workspace = begin + frame.batch * output;
        } else {
            constexpr std::int64_t input = chain_link::aligned(Network::template layer_at<I - 1>::output::elements);
            frame.output = begin + working_.size() / batches - frame.batch * output;
            frame.workspace = begin + frame.batch * input;
        }
        return frame;
    }

    B& math_;
    int batch_;
    int batches_;
    /// Offset of each piece's weights; negative for pieces that are not here.
    std::array<std::int64_t, text_pieces<Network>.size()> begins_{};
    scalars weights_{};
    scalars shared_{};
    scalars working_{};
    accumulators statistics_{};
};

} // namespace pulse::encode
