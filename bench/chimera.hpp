#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

#include "bidirectional.hpp"

namespace pulse::bench {

namespace detail {

/// Greedy run of two opposite pipelines: a free device runs what is ready; ties go to the given pass, then to the lower
/// microbatch. At most min(cap, P - s) microbatches are between F and B of stage s, as in 1F1B.
class bidirectional_run {
public:
    constexpr bidirectional_run(const schedule_problem& problem, int cap, pass first) :
        problem_{&problem}, cap_{cap}, first_{first}, stages_{static_cast<int>(problem.stages.size()) / 2},
        done_(problem.stages.size() * 3, 0), end_(done_.size() * static_cast<std::size_t>(problem.microbatches), -1.0),
        free_at_(static_cast<std::size_t>(problem.devices), 0.0), before_(done_.size()) {
        for (const auto& d : problem.dependencies) { before_[op_of(d.after)].push_back({op_of(d.before), d.lag_us}); }
    }

    [[nodiscard]] constexpr schedule run() {
        schedule out{};
        out.devices.resize(free_at_.size());
        const std::size_t kinds = problem_->split_backward ? 2 : 1;
        for (std::size_t left = problem_->stages.size() * 2 * static_cast<std::size_t>(problem_->microbatches);
             left != 0; --left) {
            const choice next = earliest();
            const auto d = static_cast<std::size_t>(timing(next.what.stage).device);
            for (std::size_t i = 0; i != (next.what.op == pass::forward ? 1 : kinds); ++i) {
                const pass op = i == 0 ? next.what.op : pass::backward_weight; // W right after its B
                int& k = done_[op_of({op, next.what.stage})];
                const double start = i == 0 ? next.start : free_at_[d];
                const double end = start + timing(next.what.stage).duration_us(op);
                out.devices[d].push_back({op, next.what.stage, k, start, end});
                end_[at(op_of({op, next.what.stage}), k++)] = free_at_[d] = end;
            }
        }
        return out;
    }

private:
    struct choice {
        stage_pass what{};
        int microbatch{};
        double start{std::numeric_limits<double>::infinity()};
    };
    struct source {
        std::size_t op{};
        double lag_us{};
    };

    [[nodiscard]] constexpr std::size_t op_of(stage_pass p) const {
        return static_cast<std::size_t>(p.stage) * 3 + static_cast<std::size_t>(p.op);
    }
    [[nodiscard]] constexpr std::size_t at(std::size_t op, int k) const {
        return op * static_cast<std::size_t>(problem_->microbatches) + static_cast<std::size_t>(k);
    }
    [[nodiscard]] constexpr const stage_timing& timing(int s) const {
        return problem_->stages[static_cast<std::size_t>(s)];
    }
    [[nodiscard]] constexpr bool better(const choice& a, const choice& b) const {
        if (a.start != b.start) { return a.start < b.start; }
        if (a.what.op != b.what.op) { return a.what.op == first_; }
        return a.microbatch < b.microbatch;
    }

    /// The pass that can start first, of those whose dependencies have their times.
    [[nodiscard]] constexpr choice earliest() const {
        choice best{};
        for (int s = 0; s != 2 * stages_; ++s) {
            for (const pass op : {pass::backward_input, pass::forward}) {
                const int k = done_[op_of({op, s})];
                if (k == problem_->microbatches) { continue; }
                const int under_way = k - done_[op_of({pass::backward_input, s})];
                if (op == pass::forward && under_way >= std::min(cap_, stages_ - s % stages_)) { continue; }
                double start = free_at_[static_cast<std::size_t>(timing(s).device)];
                bool known = true;
                for (const auto& from : before_[op_of({op, s})]) {
                    const double end = end_[at(from.op, k)];
                    known = known && end >= 0;
                    start = std::max(start, end + from.lag_us);
                }
                const choice found{{op, s}, k, start};
                if (known && better(found, best)) { best = found; }
            }
        }
        return best;
    }

    const schedule_problem* problem_;
    int cap_;
    pass first_;
    int stages_;
    std::vector<int> done_;
    std::vector<double> end_;
    std::vector<double> free_at_;
    std::vector<std::vector<source>> before_;
};

} // namespace detail

/// Chimera (Li and Hoefler, 2021), bidirectional pipelines: filling the step from both ends halves the bubble of P
/// microbatches, for a second copy of the parameters and a sum of gradients between the copies (`step_us`).
///
/// The authors give the order for P microbatches of equal stages and concatenate such blocks for more. Here the same
/// rule, 1F1B in each direction, runs on the times and lags of the problem with P/2 to P microbatches per direction in
/// flight and ties to F or to B; the shortest step that fits into memory is taken. With a split backward pass, W
/// follows its B at once. Throws infeasible_error when none fits.
[[nodiscard]] inline schedule chimera(const bidirectional_problem& both) {
    const int devices = both.problem.devices;
    schedule best{};
    schedule least{}; // for the error when none fits
    for (int cap = devices / 2; cap <= devices; ++cap) {
        for (const pass first : {pass::backward_input, pass::forward}) {
            schedule timed = detail::bidirectional_run{both.problem, cap, first}.run();
            if (least.devices.empty()) { least = timed; }
            if (!fits_memory(both.problem, timed)) { continue; }
            if (best.devices.empty() || step_us(both, timed) < step_us(both, best)) { best = std::move(timed); }
        }
    }
    if (best.devices.empty()) { pulse::detail::require_fits_memory(both.problem, least, "chimera"); }
    return best;
}

} // namespace pulse::bench
