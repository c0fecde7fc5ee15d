#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/draw.hpp>
#include <pulse/train/random.hpp>

namespace pulse::data {

/// The order of pictures where all samples of a step come from one bucket: the picture at a global position is a
/// function of (seed, position) and the number of samples per step.
///
/// In an epoch a bucket has as many steps as its pictures fill; its last step is filled up with the first pictures of
/// the bucket's order. Each epoch shuffles the steps, and the pictures of each bucket, anew.
class bucket_order {
public:
    /// Takes the pictures of each bucket, each listed as often as it is repeated. Throws input_error for steps without
    /// samples, and when an epoch has no steps, or 2^32 - 1 or more.
    bucket_order(std::vector<std::vector<std::uint32_t>> pictures, std::uint64_t step_samples, std::uint64_t seed,
                 bool shuffle) :
        pictures_{std::move(pictures)},
        step_samples_{step_samples}, seed_{seed}, shuffle_{shuffle} {
        if (step_samples == 0) { throw input_error{"buckets: a step must have at least one sample"}; }
        std::uint64_t steps = 0;
        for (const std::vector<std::uint32_t>& of_bucket : pictures_) {
            steps += (of_bucket.size() + step_samples - 1) / step_samples;
            ends_.push_back(static_cast<std::uint32_t>(steps));
        }
        if (steps == 0 || steps >= (std::uint64_t{1} << 32U) - 1) {
            throw input_error{"buckets: an epoch must have 1 to 4294967294 steps, not " + std::to_string(steps)};
        }
    }

    [[nodiscard]] std::uint64_t step_samples() const noexcept { return step_samples_; }
    /// Steps of an epoch.
    [[nodiscard]] std::uint32_t steps() const noexcept { return ends_.back(); }
    /// Steps of a bucket in an epoch.
    [[nodiscard]] std::uint32_t steps_of(std::size_t bucket) const {
        return ends_.at(bucket) - (bucket == 0 ? 0 : ends_[bucket - 1]);
    }
    /// The bucket of the step that has the sample at a global position.
    [[nodiscard]] std::size_t bucket_at(std::uint64_t position) const { return place_of(position).bucket; }
    /// The picture at a global position, or `after` pictures later in the order of its bucket: a replacement for one
    /// that cannot be read.
    [[nodiscard]] std::uint32_t picture_at(std::uint64_t position, std::uint32_t after = 0) const {
        const place at = place_of(position);
        const std::vector<std::uint32_t>& of = pictures_[at.bucket];
        const auto count = static_cast<std::uint32_t>(of.size());
        const std::uint64_t within = at.chunk * step_samples_ + position % step_samples_;
        // Each bucket is shuffled on its own.
        const std::uint64_t seed = train::random_source{seed_, train::random_stream::bucket}.bits(at.bucket);
        return of[index_at(seed, at.epoch * count + within % count, count, shuffle_, after)];
    }
    /// Number of candidates for the position: its picture and the replacements.
    [[nodiscard]] std::uint32_t choices_at(std::uint64_t position) const {
        return static_cast<std::uint32_t>(pictures_[bucket_at(position)].size());
    }

private:
    struct place {
        std::size_t bucket{};
        std::uint64_t chunk{}; ///< index among the bucket's steps in the epoch
        std::uint64_t epoch{};
    };
    [[nodiscard]] place place_of(std::uint64_t position) const {
        const std::uint64_t step = position / step_samples_;
        const std::uint32_t which = index_at(seed_, step, steps(), shuffle_);
        const auto bucket =
            static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), which) - ends_.begin());
        return {bucket, which - (bucket == 0 ? 0U : ends_[bucket - 1]), step / steps()};
    }

    std::vector<std::vector<std::uint32_t>> pictures_;
    std::uint64_t step_samples_;
    std::uint64_t seed_;
    bool shuffle_;
    std::vector<std::uint32_t> ends_{}; ///< where each bucket's steps end in an epoch that is not shuffled
};

} // namespace pulse::data
