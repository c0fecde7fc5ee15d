#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse::detail {

/// Whether ZB-V's greedy run fills the wait before a forward, and the wait before a backward on the way in, with a W
/// longer than the wait: one of its four modes.
struct v_fill {
    bool before_forward{};
    bool before_backward{};
};

/// The greedy run behind ZB-V (Qi et al., 2024): two stages of a V on each device, filled with forwards up to the
/// memory limit before the first backward; then each round runs one backward and one forward of every device, with W's
/// in the waits. The run is repeated with the idle times of the last one as allowance while that helps.
///
/// A microbatch visits a device four times: F on the way in (lane 0) and out (1), B on the way in (2) and out (3).
class v_greedy_run {
public:
    /// Holds at most `room` stage activations, F to W, on a device.
    constexpr v_greedy_run(const schedule_problem& problem, const indexed_problem& index, int room) :
        index_{&index}, room_{room}, last_{static_cast<std::size_t>(problem.devices) - 1} {
        for (int d = 0; d != problem.devices; ++d) {
            home_.push_back(static_cast<std::size_t>(problem.stages[static_cast<std::size_t>(d)].device));
        }
    }

    /// The orders; empty when the run gets stuck, as with few microbatches or little room.
    [[nodiscard]] constexpr device_orders build(v_fill fill) {
        fill_ = fill;
        allowance_.assign(home_.size(), -1.0);
        device_orders best{};
        double least = 0;
        while (run()) {
            const double idle = most_idle();
            if (!best.empty() && !(idle < least)) { break; }
            const bool first = best.empty();
            best.assign(home_.size(), {});
            for (std::size_t d = 0; d != home_.size(); ++d) { best[home_[d]] = at_[d].order; }
            const double allowed = *std::max_element(allowance_.begin(), allowance_.end());
            least = idle;
            if (!first && !(idle < allowed)) { break; }
            for (std::size_t d = 0; d != home_.size(); ++d) { allowance_[d] = at_[d].idle; }
        }
        return best;
    }

private:
    struct device_state {
        std::array<int, 4> done{};
        std::vector<timed_pass> waiting{}; ///< W passes, first in, first out
        std::size_t next_weight{};
        int held{};
        double free_at{};
        double idle{};
        std::vector<timed_pass> order{};
    };

    [[nodiscard]] constexpr stage_pass pass_in(std::size_t d, std::size_t lane) const {
        const bool out = lane == 1 || lane == 2; // the stage after the fold
        const std::size_t s = out ? 2 * last_ + 1 - d : d;
        return {lane < 2 ? pass::forward : pass::backward_input, static_cast<int>(s)};
    }
    [[nodiscard]] constexpr bool at_fold(std::size_t d, std::size_t lane) const {
        return lane % 2 == 0 ? d == 0 : d == last_;
    }
    [[nodiscard]] constexpr double& end_of(stage_pass p, int k) {
        const auto m = static_cast<std::size_t>(index_->microbatches);
        return end_[static_cast<std::size_t>(index_->op_of(p)) * m + static_cast<std::size_t>(k)];
    }
    /// When the inputs of the next pass of a lane have arrived; negative when some of them have no time yet.
    [[nodiscard]] constexpr double arrival(stage_pass p, int k) {
        double at = 0;
        for (const auto& link : index_->before[static_cast<std::size_t>(index_->op_of(p))]) {
            const double end = end_of(index_->pass_of(link.op), k);
            if (end < 0) { return -1; }
            at = std::max(at, end + link.lag_us);
        }
        return at;
    }
    [[nodiscard]] constexpr bool has_weight(std::size_t d) const { return at_[d].next_weight != at_[d].waiting.size(); }
    [[nodiscard]] constexpr double most_idle() const {
        double most = 0;
        for (const auto& d : at_) { most = std::max(most, d.idle); }
        return most;
    }

    constexpr void place(std::size_t d, stage_pass p, int k) {
        auto& here = at_[d];
        const double arrived = arrival(p, k);
        if (arrived < 0) {
            fits_ = false;
            return;
        }
        const double start = std::max(here.free_at, arrived);
        if (here.done[0] > 0) { here.idle += start - here.free_at; }
        here.free_at = end_of(p, k) = start + index_->duration[static_cast<std::size_t>(index_->op_of(p))];
        here.order.push_back({p.op, p.stage, k});
    }
    constexpr void put(std::size_t d, std::size_t lane) {
        auto& here = at_[d];
        const int k = here.done[lane];
        fits_ = fits_ && k < index_->microbatches && (lane > 1 || here.held < room_);
        if (!fits_) { return; }
        const stage_pass p = pass_in(d, lane);
        place(d, p, k);
        if (lane < 2) {
            ++here.held;
        } else {
            here.waiting.push_back({pass::backward_weight, p.stage, k});
        }
        ++here.done[lane];
    }
    constexpr void put_weight(std::size_t d) {
        if (!has_weight(d)) {
            fits_ = false;
            return;
        }
        const timed_pass w = at_[d].waiting[at_[d].next_weight++];
        place(d, {w.op, w.stage}, w.microbatch);
        --at_[d].held;
    }
    /// Runs W's while the next pass of the lane has not arrived, and one longer than the wait if `also_longer` and the
    /// wait is more than the device may idle.
    constexpr void fill_wait(std::size_t d, std::size_t lane, bool also_longer) {
        auto& here = at_[d];
        if (!fits_ || at_fold(d, lane) || here.done[lane] == index_->microbatches) { return; }
        const double until = arrival(pass_in(d, lane), here.done[lane]);
        const auto weight_us = [&] {
            const auto& w = here.waiting[here.next_weight];
            return index_->duration[static_cast<std::size_t>(index_->op_of({w.op, w.stage}))];
        };
        while (fits_ && has_weight(d) && until >= here.free_at + weight_us()) { put_weight(d); }
        const double most_allowed = *std::max_element(allowance_.begin(), allowance_.end());
        const double may_idle = std::max(most_idle(), most_allowed - allowance_[d]) - here.idle;
        if (also_longer && has_weight(d) && until - here.free_at > may_idle) { put_weight(d); }
    }

    constexpr void warm_up() {
        const int count = index_->microbatches;
        const std::size_t devices = home_.size();
        for (std::size_t d = 0; d != devices; ++d) { put(d, 0); }
        for (std::size_t d = devices; d-- > 0 && fits_;) {
            if (d == last_) {
                put(d, 1);
                continue;
            }
            auto& here = at_[d];
            const double until = arrival(pass_in(d, 1), 0);
            const double forward = index_->duration[static_cast<std::size_t>(index_->op_of(pass_in(d, 0)))];
            while (fits_ && here.held + 2 + 2 * static_cast<int>(d) <= room_ && here.free_at + forward <= until &&
                   here.done[0] < count) {
                for (std::size_t e = 0; e <= d; ++e) { put(e, 0); }
            }
            put(d, 1);
        }
        std::size_t lane = 0;
        for (std::size_t d = 1; d < devices; ++d) {
            const auto& before = at_[d - 1].done;
            const auto& here = at_[d].done;
            while (fits_ &&
                   (here[0] + here[1] < before[0] + before[1] || (here[1] <= before[1] && before[1] < count))) {
                for (std::size_t e = devices; e-- > d;) {
                    if (at_[e].done[lane] < count) { put(e, lane); }
                }
                lane = 1 - lane;
            }
        }
    }

    constexpr void backward_round() {
        const int count = index_->microbatches;
        std::vector<char> outward(home_.size(), 0);
        for (std::size_t d = 0; d <= last_; ++d) {
            const auto& done = at_[d].done;
            const bool arrived = d == last_ || done[2] >= count || end_of(pass_in(d + 1, 3), done[3]) >= 0;
            outward[d] = done[3] < done[2] && arrived ? 1 : 0;
        }
        for (std::size_t d = home_.size(); d-- > 0;) {
            if (outward[d] == 0) { continue; }
            fill_wait(d, 3, true);
            put(d, 3);
        }
        for (std::size_t d = 0; d <= last_; ++d) {
            if (outward[d] != 0) { continue; }
            fill_wait(d, 2, fill_.before_backward);
            put(d, 2);
        }
    }
    constexpr void forward_round() {
        const int count = index_->microbatches;
        for (std::size_t d = 0; d <= last_ && fits_; ++d) {
            const auto& done = at_[d].done;
            if (done[1] >= count) { continue; }
            std::size_t lane = 1;
            if (done[1] >= done[0]) {
                lane = 0;
            } else if (d != last_ && end_of(pass_in(d + 1, 1), done[1]) < 0) {
                if (done[0] >= count || (d != 0 && end_of(pass_in(d - 1, 0), done[0]) < 0)) { continue; }
                lane = 0;
            }
            while (fits_ && at_[d].held >= room_) { put_weight(d); }
            fill_wait(d, lane, fill_.before_forward);
            put(d, lane);
        }
    }

    /// One run from the start; false when it gets stuck.
    constexpr bool run() {
        at_.assign(home_.size(), {});
        end_.assign(static_cast<std::size_t>(index_->ops() * index_->microbatches), -1.0);
        fits_ = true;
        warm_up();
        for (int i = 0; i != 2 * index_->microbatches && fits_; ++i) {
            backward_round();
            forward_round();
        }
        for (std::size_t d = 0; d <= last_; ++d) {
            while (fits_ && has_weight(d)) { put_weight(d); }
        }
        for (const auto& d : at_) {
            for (const int done : d.done) { fits_ = fits_ && done == index_->microbatches; }
        }
        return fits_;
    }

    const indexed_problem* index_;
    int room_;
    std::size_t last_;
    std::vector<std::size_t> home_{}; ///< device of the d-th stage
    v_fill fill_{};
    std::vector<double> allowance_{};
    bool fits_{true};
    std::vector<device_state> at_{};
    std::vector<double> end_{};
};

} // namespace pulse::detail
