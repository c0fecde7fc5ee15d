#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/encode/text_network.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::encode {

/// A text encoder with its weights on one backend, for batches of up to `batch` texts; Network is a clip_text,
/// bert_text or t5_text. All memory is taken when it is made, in the backend's space.
template <class Network, backend B>
class text_encoder {
    static_assert(text_backend<B>, "pulse: a text encoder runs on a text_backend");

public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;

    /// The weights that run, by their names in a checkpoint.
    static constexpr auto parameters = Network::template parameters<Network::live_layers>();

    /// Bytes of one for batches of so many texts: weights, tensors and statistics, all of it but the backend's scratch.
    [[nodiscard]] static constexpr std::int64_t bytes(int batch) noexcept {
        return static_cast<std::int64_t>(sizeof(scalar)) *
                   (Network::live_parameter_elements +
                    batch * (Network::workspace_elements + 2 * Network::activation_elements)) +
               static_cast<std::int64_t>(sizeof(accumulator)) * batch * Network::statistics_elements;
    }
    /// The same of this one, as it was taken.
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        const std::size_t taken = weights_.size() + workspace_.size() + between_[0].size() + between_[1].size();
        return static_cast<std::int64_t>(taken * sizeof(scalar) + statistics_.size() * sizeof(accumulator));
    }

    /// Throws input_error when `batch` is less than 1.
    text_encoder(B& math, int batch) : math_{math}, batch_{batch} {
        if (batch < 1) {
            throw input_error{"pulse: text_encoder: batch is " + std::to_string(batch) + ", it must be at least 1"};
        }
        const auto room = [&](std::int64_t elements) {
            return static_cast<std::size_t>(elements) * static_cast<std::size_t>(batch);
        };
        weights_ = scalars(static_cast<std::size_t>(Network::live_parameter_elements));
        workspace_ = scalars(room(Network::workspace_elements));
        for (scalars& each : between_) { each = scalars(room(Network::activation_elements)); }
        statistics_ = accumulators(room(Network::statistics_elements));
    }
    text_encoder(const text_encoder&) = delete;
    text_encoder& operator=(const text_encoder&) = delete;

    /// Fills every weight: read(const parameter&, std::span<float>) gives the values of one, in C order. Nothing that was
    /// run may be still running on a device.
    template <class Read>
    void load(Read read) {
        std::vector<float> values;
        std::vector<scalar> converted;
        scalar* to = weights_.data();
        for (const parameter& p : parameters) {
            values.resize(static_cast<std::size_t>(p.elements()));
            read(p, std::span<float>{values});
            converted.clear();
            for (const float value : values) { converted.push_back(static_cast<scalar>(value)); }
            space::template upload<scalar>(converted, to);
            to += p.elements();
        }
        math_.weights_changed();
    }

    /// Writes the states [samples][tokens][features] and, where the network pools, the pooled text [samples][features];
    /// of others `pooled` may be null. `facts` are those of text_facts_of for so many samples. All are in the backend's
    /// space.
    ///
    /// Throws input_error unless `samples` is 1 to the encoder's batch.
    void run(int samples, const accumulator* facts, scalar* states, scalar* pooled = nullptr) {
        if (samples < 1 || samples > batch_) {
            throw input_error{"pulse: " + Network::name.str() + ": " + std::to_string(samples) +
                              " texts, it was made for 1 to " + std::to_string(batch_)};
        }
        if (Network::pools && pooled == nullptr) {
            throw input_error{"pulse: " + Network::name.str() + ": there is no room for the pooled text"};
        }
        frozen_frame<B> frame;
        frame.batch = samples;
        frame.facts = facts;
        frame.workspace = workspace_.data();
        frame.statistics = statistics_.data();
        if constexpr (Network::shared_at >= 0) { frame.shared = weights_.data() + Network::shared_at; }
        Network::for_live_layers([&]<std::size_t I>() {
            frame.parameters = weights_.data() + Network::parameter_offsets[I];
            frame.output = I == Network::states_layer      ? states
                           : I + 1 == Network::live_layers ? pooled
                                                           : between_[I % 2].data();
            Network::template layer_at<I>::forward(math_, frame);
            frame.input = frame.output;
        });
    }

private:
    using scalars = typename space::template array<scalar>;
    using accumulators = typename space::template array<accumulator>;

    B& math_;
    int batch_;
    scalars weights_{};
    scalars workspace_{};
    scalars between_[2]{}; ///< outputs of the even and of the odd layers
    accumulators statistics_{};
};

} // namespace pulse::encode
