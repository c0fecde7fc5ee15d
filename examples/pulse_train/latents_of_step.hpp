#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pulse_train {

/// Latents of the samples from one global position on, as a data set that has no others.
class latents_of_step {
public:
    latents_of_step(std::size_t samples, std::size_t elements, int channels) :
        elements_{elements}, channels_{channels}, values_(samples * elements) {}

    [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
    [[nodiscard]] int channels() const noexcept { return channels_; }
    void batch(std::uint64_t position, std::span<float> out) const {
        const auto from = values_.begin() + static_cast<std::ptrdiff_t>((position - first_) * elements_);
        std::copy_n(from, out.size(), out.begin());
    }
    void begin(std::uint64_t position) noexcept { first_ = position; }
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    [[nodiscard]] std::span<float> of(std::size_t sample) {
        return std::span{values_}.subspan(sample * elements_, elements_);
    }

private:
    std::size_t elements_;
    int channels_;
    std::uint64_t first_{};
    std::vector<float> values_;
};

} // namespace pulse_train
