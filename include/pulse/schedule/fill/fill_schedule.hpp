#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/fill/chain_pieces.hpp>
#include <pulse/schedule/fill/fill_frame.hpp>
#include <pulse/schedule/fill/fill_run.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// What filling may spend.
struct fill_options {
    /// Walks along the schedule.
    int walks{200};
};

namespace detail {

/// Many walks, of which the best is kept.
class filler {
public:
    constexpr filler(const schedule_problem& problem, const schedule& passes, const frozen_work& work,
                     double bound_us, int walks) :
        problem_{problem},
        work_{work}, frame_{frame_of(problem, passes)}, busy_{busy_us(problem)}, bound_us_{bound_us}, left_{walks} {}

    /// Walks with the same rules, each with the shares that the time lost in the one before asks for: a device that
    /// stands still where no layer fits takes less.
    constexpr void level(const std::vector<int>& chunk, bool cut, double delay, int open, double stretch) {
        std::vector<double> lost(busy_.size(), 0.0);
        double here = std::numeric_limits<double>::infinity();
        for (int round = 0, since = 0; round != 12 && since != 4 && left_ > 0 && !proved(); ++round, ++since) {
            std::vector<double> base = busy_;
            for (std::size_t d = 0; d != base.size(); ++d) { base[d] += lost[d]; }
            const auto pieces = cut_chains(work_, base, chunk, cut);
            for (const chain_piece& p : pieces) {
                base[static_cast<std::size_t>(p.device)] +=
                    work_.components[static_cast<std::size_t>(p.component)].duration_us(p.first_layer, p.last_layer,
                                                                                        p.samples);
            }
            double end = frame_.makespan_us;
            for (const double b : base) { end = std::max(end, b); }
            fill_run run{frame_, problem_, work_, pieces, {end * stretch, delay, open}};
            --left_;
            if (!run.run()) { return; }
            for (std::size_t d = 0; d != lost.size(); ++d) {
                lost[d] = round == 0 ? run.lost_us(d) : 0.5 * (lost[d] + run.lost_us(d));
            }
            const double makespan = run.makespan_us();
            if (makespan < here * (1 - 1e-6)) { here = makespan, since = 0; }
            if (makespan < best_us_) {
                best_us_ = makespan;
                best_ = std::move(run).result(bound_us_);
            }
        }
    }
    [[nodiscard]] constexpr bool proved() const { return best_us_ <= bound_us_ * (1 + 1e-9); }
    [[nodiscard]] constexpr bool found() const { return best_us_ < std::numeric_limits<double>::infinity(); }
    [[nodiscard]] constexpr filled_schedule result() && { return std::move(best_); }

private:
    const schedule_problem& problem_;
    const frozen_work& work_;
    fill_frame frame_;
    std::vector<double> busy_;
    double bound_us_;
    int left_;
    double best_us_{std::numeric_limits<double>::infinity()};
    filled_schedule best_{};
};

} // namespace detail

/// Frozen work in the gaps of `passes`, a schedule of `problem`, for the least makespan that could be found. The orders
/// of the passes stay, and their times where there is no work.
///
/// `passes_bound_us` is a makespan that the passes alone cannot beat: `lower_bound_us` of a synthesis. Throws input_error
/// for bad work and for orders that cannot run; infeasible_error when a device cannot hold a layer, naming the component.
[[nodiscard]] constexpr filled_schedule fill_schedule(const schedule_problem& problem, const schedule& passes,
                                                      const frozen_work& work, double passes_bound_us,
                                                      const fill_options& options = fill_options{}) {
    const double bound = frozen_bound_us(problem, work, passes_bound_us);
    if (work.components.empty() || work.samples == 0) {
        return {passes, std::vector<std::vector<frozen_task>>(passes.devices.size()), bound};
    }
    detail::filler fill{problem, passes, work, bound, options.walks};
    std::vector<int> chunk{};
    int most = 1;
    for (const frozen_component& c : work.components) {
        chunk.push_back(std::min(c.max_chunk, work.samples));
        most = std::max(most, chunk.back());
    }
    for (;; most = (most + 1) / 2) {
        for (int& k : chunk) { k = std::min(k, most); }
        for (const double stretch : {1.0, 1.002, 1.01, 1.05}) {
            for (const double delay : {1.0, 0.5}) { fill.level(chunk, true, delay, 3, stretch); }
        }
        if (!fill.found()) { fill.level(chunk, false, 1.0, 1, 1.0); }
        if (most == 1) { break; }
    }
    if (!fill.found()) { throw infeasible_error("frozen work: a device cannot hold a layer beside its passes"); }
    return std::move(fill).result();
}

} // namespace pulse
