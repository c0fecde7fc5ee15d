#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <pulse/data/prefetcher.hpp>
#include <pulse/frozen/picture_source.hpp>

namespace pulse::frozen {

/// The pictures and captions that a rank's networks see in each step, in a fixed order; those of the next step are
/// decoded during the current one.
class pictures_ahead {
public:
    struct seen_sample {
        std::uint64_t sample{}; ///< index among the rank's samples of a step
        bool picture{};         ///< else the caption alone
    };

    /// `step_samples`: over all replicas. The source must outlive it.
    pictures_ahead(const picture_source& source, std::vector<seen_sample> of_step, std::uint64_t step_samples) :
        source_{source}, of_step_{std::move(of_step)}, step_samples_{step_samples} {}
    pictures_ahead(const pictures_ahead&) = delete; // the prefetcher captures this
    pictures_ahead& operator=(const pictures_ahead&) = delete;

    /// Leaves a step that was not read to its end.
    void begin() {
        if (std::exchange(at_, 0) != 0) { decoded_.reset(); }
    }
    /// The next one of the step whose samples begin at `first`. Restarts there if the run jumps.
    [[nodiscard]] captioned_picture next(std::uint64_t first) {
        if (at_ == 0 && (!decoded_ || next_ != first)) {
            decoded_.emplace([this, first](std::uint64_t n) {
                const seen_sample& now = of_step_[n % of_step_.size()];
                const std::uint64_t position = first + n / of_step_.size() * step_samples_ + now.sample;
                return now.picture ? source_.at(position) : source_.caption_at(position);
            });
        }
        if (++at_ == of_step_.size()) {
            at_ = 0;
            next_ = first + step_samples_;
        }
        return decoded_->next();
    }

private:
    const picture_source& source_;
    std::vector<seen_sample> of_step_;
    std::uint64_t step_samples_;
    std::size_t at_{};     ///< index in of_step_
    std::uint64_t next_{}; ///< first sample of the next step, unless the run jumps
    std::optional<data::prefetcher<captioned_picture>> decoded_{};
};

} // namespace pulse::frozen
