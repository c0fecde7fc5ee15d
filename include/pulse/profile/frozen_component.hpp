#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/label.hpp>

namespace pulse {

/// What a backbone takes the result of a frozen component for.
enum class frozen_use : std::uint8_t {
    input,   ///< layer 0 reads it: latents
    context, ///< text states that every boundary relays
    facts,   ///< what the conditioning module reads besides
    target,  ///< what the loss compares with
};

/// One layer of a frozen component, which only runs forward. A call on k samples takes call_us + k sample_us; bytes are
/// of one sample but for the parameters.
struct frozen_layer {
    label name{};
    /// What a call takes whatever its size: reading the weights.
    double call_us{};
    double sample_us{};
    std::int64_t parameter_bytes{};
    /// What a chain that pauses after this layer holds.
    std::int64_t output_bytes{};
    /// The most that is alive while it runs: input, output and all between.
    std::int64_t live_bytes{};

    /// Microseconds of one call on `samples` samples.
    [[nodiscard]] constexpr double duration_us(int samples) const noexcept { return call_us + samples * sample_us; }
    [[nodiscard]] constexpr bool operator==(const frozen_layer&) const = default;
};

/// A network that is not trained and runs once a sample, a step before its result is read; bytes are of one sample.
struct frozen_component {
    label name{};
    frozen_use feeds{};
    /// What layer 0 reads: a picture, tokens.
    std::int64_t input_bytes{};
    std::int64_t result_bytes{};
    /// Most samples of one call.
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
    /// Of layers [first, last].
    [[nodiscard]] constexpr std::int64_t parameter_bytes(int first, int last) const {
        std::int64_t sum = 0;
        for (int l = first; l <= last; ++l) { sum += layers[static_cast<std::size_t>(l)].parameter_bytes; }
        return sum;
    }
    [[nodiscard]] constexpr std::int64_t parameter_bytes() const {
        return parameter_bytes(0, static_cast<int>(layers.size()) - 1);
    }
    /// What the greatest of layers [first, last] has alive for one sample.
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
