#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/problem.hpp>

namespace pulse::test {

/// Least makespan by trying every order: passes are started one after the other at the earliest time that leaves starts
/// in order, so every schedule in which nothing can move ahead by itself is met. Knows nothing of pulse's index or
/// bound.
class exact_solver {
public:
    exact_solver(const schedule_problem& problem, double known, long most_nodes) :
        problem_{problem}, best_{known}, nodes_left_{most_nodes} {
        kinds_ = problem.passes_per_stage();
        const auto n = problem.stages.size() * static_cast<std::size_t>(kinds_);
        done_.assign(n, 0);
        end_.assign(n, std::vector<double>(static_cast<std::size_t>(problem.microbatches), 0));
        free_at_.assign(static_cast<std::size_t>(problem.devices), 0);
        held_.assign(free_at_.size(), 0);
        left_.assign(free_at_.size(), 0);
        for (std::size_t o = 0; o != n; ++o) { left_[device(o)] += duration(o) * problem.microbatches; }
    }

    /// True when the search ended by itself; then `best()` is the optimum, or what was known before if nothing beats
    /// it.
    bool solve() {
        extend(0, 0, 0);
        return nodes_left_ > 0;
    }
    double best() const { return best_; }

private:
    std::size_t at(stage_pass p) const {
        return static_cast<std::size_t>(p.stage) * static_cast<std::size_t>(kinds_) + static_cast<std::size_t>(p.op);
    }
    std::size_t device(std::size_t o) const {
        return static_cast<std::size_t>(problem_.stages[o / static_cast<std::size_t>(kinds_)].device);
    }
    double duration(std::size_t o) const {
        return problem_.stages[o / static_cast<std::size_t>(kinds_)].duration_us(
            static_cast<pass>(o % static_cast<std::size_t>(kinds_)));
    }

    void extend(double now, double makespan, std::size_t placed) {
        if (nodes_left_ <= 0) { return; }
        --nodes_left_;
        const std::size_t total = done_.size() * static_cast<std::size_t>(problem_.microbatches);
        if (placed == total) {
            best_ = std::min(best_, makespan);
            return;
        }
        for (std::size_t d = 0; d != left_.size(); ++d) {
            if (left_[d] > 0 && std::max(now, free_at_[d]) + left_[d] >= best_ - 1e-9) { return; }
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
            if (!ready || start < now) { continue; }
            const double end = start + duration(o);
            if (end >= best_ - 1e-9) { continue; }
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
            extend(start, std::max(makespan, end), placed + 1);
            --done_[o];
            free_at_[d] = free_before;
            left_[d] += duration(o);
            held_[d] -= more - less;
        }
    }

    const schedule_problem& problem_;
    double best_;
    long nodes_left_;
    int kinds_{};
    std::vector<int> done_{};
    std::vector<std::vector<double>> end_{};
    std::vector<double> free_at_{};
    std::vector<double> left_{};
    std::vector<std::int64_t> held_{};
};

} // namespace pulse::test
