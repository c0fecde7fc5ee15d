#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::test {

/// Enumerates the semi-active schedules of a small problem (no pass can start earlier without another order) with a
/// makespan of at most `cutoff`, by starting passes in order of their start times. Independent of pulse's index, bounds
/// and windows.
class every_schedule {
public:
    every_schedule(const schedule_problem& problem, double cutoff, long most_nodes,
                   std::function<void(const schedule&)> found) :
        problem_{problem},
        cutoff_{cutoff}, nodes_left_{most_nodes}, found_{std::move(found)} {
        kinds_ = static_cast<std::size_t>(problem.passes_per_stage());
        const auto ops = problem.stages.size() * kinds_;
        const auto devices = static_cast<std::size_t>(problem.devices);
        done_.assign(ops, 0);
        end_.assign(ops, std::vector<double>(static_cast<std::size_t>(problem.microbatches), 0));
        free_at_.assign(devices, 0);
        left_.assign(devices, 0);
        held_.assign(devices, 0);
        now_.devices.resize(devices);
        for (std::size_t o = 0; o != ops; ++o) { left_[device(o)] += duration(o) * problem.microbatches; }
    }

    /// Calls `found` for each schedule; returns false if there are too many.
    bool walk() {
        extend(0, 0);
        return nodes_left_ > 0;
    }

    /// Restricts the rest of the walk to schedules of at most this makespan; `found` calls it as it learns more.
    void set_cutoff(double cutoff) { cutoff_ = cutoff; }

private:
    std::size_t at(stage_pass p) const {
        return static_cast<std::size_t>(p.stage) * kinds_ + static_cast<std::size_t>(p.op);
    }
    std::size_t device(std::size_t o) const { return static_cast<std::size_t>(problem_.stages[o / kinds_].device); }
    double duration(std::size_t o) const {
        return problem_.stages[o / kinds_].duration_us(static_cast<pass>(o % kinds_));
    }

    void extend(double now, std::size_t placed) {
        if (nodes_left_ <= 0) { return; }
        --nodes_left_;
        if (placed == done_.size() * static_cast<std::size_t>(problem_.microbatches)) {
            found_(now_);
            return;
        }
        for (std::size_t d = 0; d != left_.size(); ++d) {
            if (left_[d] > 0 && std::max(now, free_at_[d]) + left_[d] > cutoff_ + 1e-9) { return; }
        }
        for (std::size_t o = 0; o != done_.size(); ++o) {
            const int k = done_[o];
            if (k == problem_.microbatches) { continue; }
            const std::size_t d = device(o);
            double start = free_at_[d];
            bool ready = true;
            for (const auto& need : problem_.dependencies) {
                if (at(need.after) != o) { continue; }
                ready = ready && done_[at(need.before)] > k;
                start = std::max(start, end_[at(need.before)][static_cast<std::size_t>(k)] + need.lag_us);
            }
            const double end = start + duration(o);
            if (!ready || start < now || end > cutoff_ + 1e-9) { continue; }
            std::int64_t more = 0;
            std::int64_t less = 0;
            for (const auto& h : problem_.holds) {
                if (at(h.begin) == o) { more += h.bytes; }
                const bool one = at(h.end) == o || done_[at(h.end)] > k;
                const bool two = at(h.also_end) == o || done_[at(h.also_end)] > k;
                if ((at(h.end) == o || at(h.also_end) == o) && one && two) { less += h.bytes; }
            }
            if (!problem_.memory_limit_bytes.empty() && held_[d] + more > problem_.memory_limit_bytes[d]) { continue; }
            const double free_before = free_at_[d];
            held_[d] += more - less;
            left_[d] -= duration(o);
            free_at_[d] = end;
            end_[o][static_cast<std::size_t>(k)] = end;
            ++done_[o];
            now_.devices[d].push_back({static_cast<pass>(o % kinds_), static_cast<int>(o / kinds_), k, start, end});
            extend(start, placed + 1);
            now_.devices[d].pop_back();
            --done_[o];
            free_at_[d] = free_before;
            left_[d] += duration(o);
            held_[d] -= more - less;
        }
    }

    const schedule_problem& problem_;
    double cutoff_;
    long nodes_left_;
    std::function<void(const schedule&)> found_;
    std::size_t kinds_{};
    std::vector<int> done_{};
    std::vector<std::vector<double>> end_{};
    std::vector<double> free_at_{};
    std::vector<double> left_{};
    std::vector<std::int64_t> held_{};
    schedule now_{};
};

} // namespace pulse::test
