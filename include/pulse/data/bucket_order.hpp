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

/// Which picture stands at which global position where each step's samples are of one bucket: a function of (seed,
/// position) and the number of a step's samples.
///
/// An epoch has of each bucket as many steps as its pictures fill, the last one filled with the first pictures of the
/// bucket's order again; steps, and the pictures of a bucket, are shuffled in each epoch anew.
class bucket_order {
public:
    /// The pictures of each bucket, in which one stands as often as it is repeated. Throws input_error where there are
    /// none, or too many to be counted.
    bucket_order(std::vector<std::vector<std::uint32_t>> pictures, std::uint64_t step_samples, std::uint64_t seed,
                 bool shuffle) :
        pictures_{std::move(pictures)},
        step_samples_{step_samples}, seed_{seed}, shuffle_{shuffle} {
        if (step_samples == 0) { throw input_error{"buckets: a step has at least one sample"}; }
        std::uint64_t steps = 0;
        for (const std::vector<std::uint32_t>& of_bucket : pictures_) {
            steps += (of_bucket.size() + step_samples - 1) / step_samples;
            ends_.push_back(static_cast<std::uint32_t>(steps));
        }
        if (steps == 0 || steps >= (std::uint64_t{1} << 32U) - 1) {
            throw input_error{"buckets: an epoch has " + std::to_string(steps) + " steps"};
        }
    }

    [[nodiscard]] std::uint64_t step_samples() const noexcept { return step_samples_; }
    /// Steps of an epoch.
    [[nodiscard]] std::uint32_t steps() const noexcept { return ends_.back(); }
    /// Of those: steps of a bucket.
    [[nodiscard]] std::uint32_t steps_of(std::size_t bucket) const {
        return ends_.at(bucket) - (bucket == 0 ? 0 : ends_[bucket - 1]);
    }
    /// The bucket of the step to which the sample at a global position belongs.
    [[nodiscard]] std::size_t bucket_at(std::uint64_t position) const { return place_of(position).bucket; }
    /// The picture at a global position; `after` pictures later in the order of its bucket stands what takes the place
    /// of one that cannot be read.
    [[nodiscard]] std::uint32_t picture_at(std::uint64_t position, std::uint32_t after = 0) const {
        const place at = place_of(position);
        const std::vector<std::uint32_t>& of = pictures_[at.bucket];
        const auto count = static_cast<std::uint32_t>(of.size());
        const std::uint64_t within = at.chunk * step_samples_ + position % step_samples_;
        // Buckets are shuffled apart.
        const std::uint64_t seed = train::random_source{seed_, train::random_stream::bucket}.bits(at.bucket);
        return of[index_at(seed, at.epoch * count + within % count, count, shuffle_, after)];
    }
    /// How many pictures may take that place, the one that stands there included.
    [[nodiscard]] std::uint32_t choices_at(std::uint64_t position) const {
        return static_cast<std::uint32_t>(pictures_[bucket_at(position)].size());
    }

private:
    struct place {
        std::size_t bucket{};
        std::uint64_t chunk{}; ///< of the bucket's steps in the epoch
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
    std::vector<std::uint32_t> ends_{}; ///< of the steps of an epoch before they are shuffled, behind each bucket
};

} // namespace pulse::data
