#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/frozen/picture_source.hpp>

namespace pulse::frozen {

/// Images that accompany the pictures of a rank's samples, such as hints and masks, one at a time; those of the next
/// step are decoded during the current one.
///
/// The picture of a sample may be known only when it is needed, as another replaces one that cannot be read. Decoding
/// ahead assumes the original picture.
class decoded_ahead {
public:
    /// Decodes a picture's image as the sample at a global position sees it; several threads call it. Throws
    /// input_error naming the image.
    using decoder = std::function<std::vector<float>(std::uint32_t picture, std::uint64_t position)>;

    /// For `samples` per step; a step of all replicas has `step_samples`. The source must outlive it.
    decoded_ahead(const picture_source& source, decoder decode, std::uint64_t samples, std::uint64_t step_samples) :
        source_{source}, decode_{std::move(decode)}, samples_{samples}, step_samples_{step_samples} {}
    decoded_ahead(const decoded_ahead&) = delete; // the prefetcher captures this
    decoded_ahead& operator=(const decoded_ahead&) = delete;

    /// Decodes the images of the step whose samples begin at `first`, for the pictures originally due there.
    void begin(std::uint64_t first) {
        const bool whole = step_.size() == samples_; // an exception may have ended the last step's decoding
        if (whole && first_ == first) { return; }
        if (!ahead_ || !whole || next_ != first) {
            const auto make = [this, first](std::uint64_t n) {
                const std::uint64_t position = first + n / samples_ * step_samples_ + n % samples_;
                return decode(position, source_.pictures().picture_at(position));
            };
            ahead_.emplace(make,
                           data::prefetch_options{.ahead = static_cast<int>(std::max<std::uint64_t>(8, samples_))});
        }
        step_.clear();
        while (step_.size() != samples_) { step_.push_back(ahead_->next()); }
        first_ = first;
        next_ = first + step_samples_;
    }
    /// Why the image of sample `i` of the step cannot be read; empty if it can.
    [[nodiscard]] const std::string& fault(std::size_t i) const { return step_.at(i).fault; }
    /// Ensures that sample `i` has this picture's image. Throws input_error naming an image that cannot be read.
    void require(std::size_t i, std::uint32_t picture) {
        decoded& mine = step_.at(i);
        if (mine.picture != picture) { mine = decode(first_ + i, picture); }
        if (!mine.fault.empty()) { throw input_error{mine.fault}; }
    }
    /// Image of sample `i`.
    [[nodiscard]] std::span<const float> of(std::size_t i) const { return step_.at(i).image; }

private:
    struct decoded {
        std::uint32_t picture{};
        std::vector<float> image{};
        std::string fault{}; ///< why it cannot be read; empty: it can
    };
    [[nodiscard]] decoded decode(std::uint64_t position, std::uint32_t picture) const {
        decoded made{.picture = picture};
        try {
            made.image = decode_(picture, position);
        } catch (const input_error& e) { made.fault = e.what(); }
        return made;
    }

    const picture_source& source_;
    decoder decode_;
    std::uint64_t samples_;
    std::uint64_t step_samples_;
    std::vector<decoded> step_{}; ///< the step whose samples begin at first_
    std::uint64_t first_{};
    std::uint64_t next_{}; ///< first sample of the next step, unless the run jumps
    std::optional<data::prefetcher<decoded>> ahead_{};
};

} // namespace pulse::frozen
