#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <pulse/data/prefetcher.hpp>
#include <pulse/frozen/picture_source.hpp>

namespace pulse::frozen {

/// The pictures and captions that a rank's networks see in each step, in one order; those of the step behind are
/// decoded while one runs.
class pictures_ahead {
public:
    struct seen_sample {
        std::uint64_t sample{}; ///< of the rank's samples in a step
        bool picture{};         ///< or its caption alone
    };

    /// `step_samples`: those of all replicas. The source must outlive it.
    pictures_ahead(const picture_source& source, std::vector<seen_sample> of_step, std::uint64_t step_samples) :
        source_{source}, of_step_{std::move(of_step)}, step_samples_{step_samples} {}
    pictures_ahead(const pictures_ahead&) = delete; // what decodes looks at this one
    pictures_ahead& operator=(const pictures_ahead&) = delete;

    /// The next one of the step whose samples begin at `first`. A run that goes on elsewhere begins anew there.
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
    std::size_t at_{};     ///< in of_step_
    std::uint64_t next_{}; ///< where the next step begins, unless the run goes on elsewhere
    std::optional<data::prefetcher<captioned_picture>> decoded_{};
};

} // namespace pulse::frozen
