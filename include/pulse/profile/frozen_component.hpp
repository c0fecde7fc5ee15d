#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/label.hpp>

namespace pulse {

/// How a backbone uses the result of a frozen component.
enum class frozen_use : std::uint8_t {
    input,   ///< layer 0 reads it: latents
    context, ///< text states that every boundary relays
    facts,   ///< other values that the conditioning module reads
    target,  ///< the loss compares with it
};

/// One forward-only layer of a frozen component. A call on k samples takes call_us + k sample_us; bytes are per sample,
/// except the parameters.
struct frozen_layer {
    label name{};
    /// Fixed time of a call, whatever its size: reading the weights.
    double call_us{};
    double sample_us{};
    std::int64_t parameter_bytes{};
    /// Bytes held while the chain is paused after this layer.
    std::int64_t output_bytes{};
    /// Peak live bytes while it runs: input, output and everything in between.
    std::int64_t live_bytes{};

    /// Microseconds of one call on `samples` samples.
    [[nodiscard]] constexpr double duration_us(int samples) const noexcept { return call_us + samples * sample_us; }
    [[nodiscard]] constexpr bool operator==(const frozen_layer&) const = default;
};

/// An untrained network that runs once per sample, a step before its result is read; bytes are per sample.
struct frozen_component {
    label name{};
    frozen_use feeds{};
    /// Input of layer 0: a picture or tokens.
    std::int64_t input_bytes{};
    std::int64_t result_bytes{};
    /// Maximum number of samples per call.
    int max_chunk{1};
    std::vector<frozen_layer> layers{};

    /// Microseconds of layers [first, last], each called once on `samples` samples.
    [[nodiscard]] constexpr double duration_us(int first, int last, int samples) const {
        double sum = 0;
        for (int l = first; l <= last; ++l) { sum += layers[static_cast<std::size_t>(l)].duration_us(samples); }
        return sum;
    }
    [[nodiscard]] constexpr double duration_us(int samples) const {
        return duration_us(0, static_cast<int>(layers.size()) - 1, samples);
    }
    /// Parameter bytes of layers [first, last].
    [[nodiscard]] constexpr std::int64_t parameter_bytes(int first, int last) const {
        std::int64_t sum = 0;
        for (int l = first; l <= last; ++l) { sum += layers[static_cast<std::size_t>(l)].parameter_bytes; }
        return sum;
    }
    [[nodiscard]] constexpr std::int64_t parameter_bytes() const {
        return parameter_bytes(0, static_cast<int>(layers.size()) - 1);
    }
    /// Largest live_bytes of layers [first, last], per sample.
    [[nodiscard]] constexpr std::int64_t live_bytes(int first, int last) const {
        std::int64_t most = 0;
        for (int l = first; l <= last; ++l) {
            const std::int64_t here = layers[static_cast<std::size_t>(l)].live_bytes;
            most = here > most ? here : most;
        }
        return most;
    }
    [[nodiscard]] constexpr bool operator==(const frozen_component&) const = default;
};

} // namespace pulse
