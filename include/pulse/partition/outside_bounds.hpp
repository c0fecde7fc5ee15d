#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/partition/closed_regions.hpp>
#include <pulse/partition/layer_sums.hpp>

namespace pulse::detail {

/// Lower bounds on what devices 0 to d-1 add around a region R(d), for any regions R(1) to R(d-1) around it.
///
/// Bytes: one dynamic program for the cuts before the first layer of R(d) and one for those after its last, in which no
/// device exceeds the limit with one of its two outermost stages alone; or, if that is stronger, the sum over levels of
/// the fewest bytes that a region of the level sends. Imbalance: the sum of differences between the stages before R(d)
/// and their mirrors after it is at least the difference of the sums.
class outside_bounds {
public:
    /// `least_level` and `most_level`: the levels on which each region may be, under `limit_us` for every device.
    constexpr outside_bounds(const layer_sums& sums, const closed_regions& regions, const std::vector<int>& least_level,
                             const std::vector<int>& most_level, const std::vector<double>& speed, double limit_us) :
        sums_(&sums),
        waves_(regions.waves), width_(static_cast<std::size_t>(sums.layers) + 1) {
        const std::size_t devices = speed.size();
        const std::size_t cells = devices * width_;
        std::vector<char> front_allowed(cells, 0);
        std::vector<char> back_allowed(cells, 0);
        std::vector<std::int64_t> together(devices, none);
        std::vector<std::int64_t> inner(devices, none);
        for (std::size_t r = 0; r != regions.size; ++r) {
            const std::size_t first = front_of(regions.cut(r));
            const std::size_t last = back_of(regions.cut(r));
            const std::int64_t inner_ends = regions.sent[r] - sums.sent[first] - sums.sent[last];
            for (int level = least_level[r]; level <= most_level[r]; ++level) {
                const auto d = static_cast<std::size_t>(level);
                front_allowed[d * width_ + first] = 1;
                back_allowed[d * width_ + last] = 1;
                together[d] = std::min(together[d], regions.sent[r]);
                inner[d] = std::min(inner[d], inner_ends);
            }
        }
        together_.assign(devices, 0);
        inner_.assign(devices, 0);
        fastest_.assign(devices, 0.0);
        double slowest = speed.front();
        for (std::size_t d = 1; d != devices; ++d) {
            fastest_[d] = std::max(fastest_[d - 1], speed[d - 1]);
            slowest = std::min(slowest, speed[d]);
            if (d == 1) { continue; }
            // For a level without regions the search fails anyway.
            together_[d] = together_[d - 1] + (together[d - 1] == none ? 0 : together[d - 1]);
            inner_[d] = inner_[d - 1] + (inner[d - 1] == none ? 0 : inner[d - 1]);
        }
        // Sums of loads and of imbalances are rounded.
        rounding_us_ = 1e-9 * sums.load.back() / slowest;
        front_.assign(cells, none);
        back_.assign(cells, none);
        fill(front_, front_allowed, speed, limit_us, false);
        fill(back_, back_allowed, speed, limit_us, true);
    }

    /// Fewest bytes that R(1) to R(d-1) send if R(d) has these ends; `unreachable` if there are no such regions.
    [[nodiscard]] constexpr std::int64_t bytes(int device, const int* cut) const noexcept {
        const auto d = static_cast<std::size_t>(device);
        const std::int64_t front = front_[d * width_ + front_of(cut)];
        const std::int64_t back = back_[d * width_ + back_of(cut)];
        if (front == none || back == none) { return unreachable; }
        return std::max(together_[d], front + back + inner_[d]);
    }
    /// Least imbalance of devices 0 to d-1, us, if R(d) has these ends.
    [[nodiscard]] constexpr double imbalance_us(int device, const int* cut) const noexcept {
        double sum = 0.0;
        // Gap w precedes interval w; the last gap follows all intervals.
        for (int w = 0; 2 * w < waves_; ++w) {
            const int v = waves_ - w;
            const double off = load_of(w == 0 ? 0 : cut[2 * w - 1], cut[2 * w]) -
                               load_of(cut[2 * v - 1], v == waves_ ? sums_->layers : cut[2 * v]);
            sum += off < 0.0 ? -off : off;
        }
        return std::max(0.0, sum / fastest_[static_cast<std::size_t>(device)] - rounding_us_);
    }
    /// Result of `bytes` if no region fits around R(d): more than any table sends, and far from overflow.
    static constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max() / 4;

private:
    static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

    const layer_sums* sums_;
    int waves_;
    std::size_t width_;
    std::vector<std::int64_t> front_{};    // [d * width + c]: sent by cuts 1 to d-1, ascending, before cut d at c
    std::vector<std::int64_t> back_{};     // the same, descending, after cut d at c
    std::vector<std::int64_t> together_{}; // [d]: sent by levels 1 to d-1, the fewest bytes of each
    std::vector<std::int64_t> inner_{};    // the same for ends that are neither first nor last
    std::vector<double> fastest_{};        // [d]: speed of the fastest of devices 0 to d-1
    double rounding_us_{};

    [[nodiscard]] constexpr std::size_t front_of(const int* cut) const noexcept {
        return static_cast<std::size_t>(cut[0]);
    }
    [[nodiscard]] constexpr std::size_t back_of(const int* cut) const noexcept {
        return static_cast<std::size_t>(cut[2 * waves_ - 1]);
    }
    [[nodiscard]] constexpr double load_of(int first, int last) const noexcept {
        return sums_->load[static_cast<std::size_t>(last)] - sums_->load[static_cast<std::size_t>(first)];
    }

    /// Fills level by level; the cuts that may precede a cut are a window that moves with it.
    constexpr void fill(std::vector<std::int64_t>& table, const std::vector<char>& allowed,
                        const std::vector<double>& speed, double limit_us, bool mirrored) const {
        const auto place = [&](std::size_t step) { return mirrored ? width_ - 1 - step : step; };
        const auto load_until = [&](std::size_t step) {
            return mirrored ? sums_->load.back() - sums_->load[place(step)] : sums_->load[step];
        };
        const double rounding = 1e-9 * sums_->load.back();
        std::vector<std::size_t> queue(width_, 0); // steps with ascending sums: the first is the minimum of the window
        for (std::size_t d = 1; d != speed.size(); ++d) {
            const double most = limit_us * speed[d - 1] + rounding;
            std::size_t begin = 0;
            std::size_t end = 0;
            const auto sum_at = [&](std::size_t step) {
                return table[(d - 1) * width_ + place(step)] + sums_->sent[place(step)];
            };
            for (std::size_t step = 1; step != width_; ++step) {
                const std::size_t cell = d * width_ + place(step);
                if (d == 1) {
                    if (allowed[cell] != 0 && load_until(step) <= most) { table[cell] = 0; }
                    continue;
                }
                if (table[(d - 1) * width_ + place(step - 1)] != none) {
                    while (end != begin && sum_at(queue[end - 1]) >= sum_at(step - 1)) { --end; }
                    queue[end++] = step - 1;
                }
                while (begin != end && load_until(step) - load_until(queue[begin]) > most) { ++begin; }
                if (allowed[cell] != 0 && begin != end) { table[cell] = sum_at(queue[begin]); }
            }
        }
    }
};

} // namespace pulse::detail
