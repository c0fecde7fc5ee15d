#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/certificate.hpp>
#include <pulse/schedule/prove/disjunctive_program.hpp>
#include <pulse/schedule/prove/ilp_solver.hpp>
#include <pulse/schedule/prove/scaled_times.hpp>
#include <pulse/schedule/prove/window_bound.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/prove/window_search.hpp>
#include <pulse/schedule/prove/window_state.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/time_grain.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

/// Which parts of the search go to the integer-program solver.
struct certify_options {
    /// A part of the search becomes an integer program when at most this many of its orders are open ...
    std::size_t most_open_pairs{24};
    /// ... and it may take this many nodes; what is then undecided goes back into the search.
    std::int64_t most_part_nodes{60};
    /// In larger problems the relaxations of parts cost more than they settle.
    std::size_t most_instances{400};
};

namespace detail {

/// The rounds of `certify`.
template <class Solver>
class certifier {
public:
    certifier(const schedule_problem& problem, const schedule_bound& bound, const schedule& incumbent, Solver& solver,
              const search_limit& limit, const certify_options& options,
              const std::function<void(const synthesis_progress&)>& progress) :
        budget_{limit},
        scale_{solver_scale(incumbent.makespan_us())}, problem_{scaled_times(problem, scale_)},
        bound_{scaled_times(bound, scale_)}, solver_{&solver}, options_{options}, progress_{&progress},
        facts_{window_problem_of(problem_)}, propagator_{facts_}, grain_{time_grain_us(problem) * scale_},
        search_{problem_, facts_, [this](const window_state& state, std::size_t open, schedule& found) {
                    return solve_part(state, open, found);
                }} {
        best_ = retimed(problem_, incumbent);
        makespan_ = incumbent.makespan_us() * scale_;
        if (best_.makespan_us() > makespan_) { best_ = scaled_times(incumbent, scale_); }
        makespan_ = best_.makespan_us();
        if (grain_ < 1e-9 * makespan_) { grain_ = 0; } // too fine to tell times apart
        lower_ = std::min(raised_to_grain(bound_.makespan_us, grain_), makespan_);
    }
    // The search holds a callback to this object.
    certifier(const certifier&) = delete;
    certifier& operator=(const certifier&) = delete;

    certificate run() {
        if (!closed() && budget_.look()) { refute_by_windows(); }
        std::int64_t nodes = 64;
        // Rounds in a row without a change: after one for every division into stretches, the next would do the same.
        int vain = 0;
        for (int round = 0; vain != 4 && !closed() && budget_.look(); ++round) {
            const double makespan = makespan_;
            const double lower = lower_;
            cut_short_ = false;
            // Close to the bound, a refutation is cheap and a schedule is optimal; close to the incumbent, a refutation
            // is the proof. Half way, either result halves the gap.
            const double high = below(makespan_);
            const double low = grain_ > 0 ? lower_ : lower_ + 0.1 * (high - lower_);
            const double half = raised_to_grain(lower_ + (high - lower_) / 2, grain_);
            for (const double cutoff : {high, low, half}) {
                if (closed() || !budget_.look()) { break; }
                if (cutoff < lower_ || cutoff > below(makespan_)) { continue; }
                attempt(cutoff, nodes);
            }
            improve_windows(round, nodes);
            if (nodes < std::int64_t{1} << 40U) { nodes *= 2; }
            vain = cut_short_ || makespan_ < makespan || lower_ > lower ? 0 : vain + 1;
        }
        return {
            lower_ / scale_,  scaled_times(best_, 1 / scale_), makespan_ / scale_, closed(), budget_.nodes(), programs_,
            budget_.seconds()};
    }

private:
    [[nodiscard]] double below(double makespan) const { return cutoff_below(makespan, grain_); }
    [[nodiscard]] bool closed() const { return lower_ >= below(makespan_); }

    /// Every makespan exceeds `cutoff`: with a grain, it is at least the next multiple.
    void refuted(double cutoff) {
        const double reached = std::min(least_after(cutoff, grain_), makespan_);
        if (reached <= lower_) { return; }
        lower_ = reached;
        report();
    }
    void take(const schedule& found) {
        if (!(found.makespan_us() < makespan_) || !is_valid(problem_, found)) { return; }
        best_ = found;
        makespan_ = found.makespan_us();
        lower_ = std::min(lower_, makespan_);
        report();
    }
    void report() const {
        if (*progress_) { (*progress_)({budget_.seconds(), makespan_ / scale_, lower_ / scale_}); }
    }

    /// Refutes cutoffs between bound and incumbent by windows alone.
    void refute_by_windows() {
        detail::refute_by_windows(
            facts_, bound_, propagator_, lower_, below(makespan_), std::max(grain_, 1e-6 * makespan_),
            [this] { return budget_.look(); }, [this](double cutoff) { refuted(cutoff); });
    }

    void attempt(double cutoff, std::int64_t nodes) {
        schedule found{};
        const auto outcome = search_.run(window_state_of(facts_, bound_, cutoff), nodes, budget_, found);
        cut_short_ = cut_short_ || search_.out_of_nodes();
        if (outcome == window_outcome::refuted) { refuted(cutoff); }
        if (outcome == window_outcome::found) { take(found); }
    }

    /// Solves a part of the search as an integer program.
    window_outcome solve_part(const window_state& state, std::size_t open, schedule& found) {
        if (open > options_.most_open_pairs || state.start.size() > options_.most_instances) {
            return window_outcome::open;
        }
        const disjunctive_program program{facts_, state, bound_};
        ilp_request request{};
        request.known_bound = program.model().columns.front().lower;
        request.limit = budget_.turn(1, options_.most_part_nodes);
        const ilp_answer answer = solver_->solve(program.model(), request);
        ++programs_;
        budget_.count(answer.nodes);
        if (!answer.values.empty()) {
            // Values hold up to the solver's tolerance: the schedule may be longer, or its orders may deadlock.
            try {
                schedule timed = program.decode(problem_, answer.values);
                if (timed.makespan_us() > state.cutoff_us || !is_valid(problem_, timed)) {
                    return window_outcome::open;
                }
                found = std::move(timed);
                return window_outcome::found;
            } catch (const input_error&) { return window_outcome::open; }
        }
        return answer.status == ilp_status::infeasible ? window_outcome::refuted : window_outcome::open;
    }

    /// Frees the orders inside a stretch of time while the rest stays as in the best schedule.
    void improve_windows(int round, std::int64_t nodes) {
        const int parts = 2 + round % 4;
        for (int part = 0; part != parts && !closed() && !budget_.over(); ++part) {
            const double from = makespan_ * part / parts;
            window_state state = window_state_of(facts_, bound_, below(makespan_));
            if (!settle_outside(state, from, from + makespan_ / parts)) { continue; }
            schedule found{};
            if (search_.run(std::move(state), nodes / 2, budget_, found) == window_outcome::found) { take(found); }
            cut_short_ = cut_short_ || search_.out_of_nodes();
        }
    }
    bool settle_outside(window_state& state, double from, double to) {
        for (const auto& passes : best_.devices) {
            for (std::size_t j = 0; j != passes.size(); ++j) {
                const auto& late = passes[j];
                const int b = facts_.index.op_of({late.op, late.stage});
                const bool late_inside = late.start_us >= from && late.start_us < to;
                for (std::size_t i = 0; i != j; ++i) {
                    const auto& early = passes[i];
                    const bool inside = late_inside && early.start_us >= from;
                    const int a = facts_.index.op_of({early.op, early.stage});
                    if (inside || a == b) { continue; }
                    if (!propagator_.settle(state, a, early.microbatch, b, late.microbatch)) { return false; }
                }
            }
        }
        return true;
    }

    search_budget budget_;
    /// Times inside this class are the caller's times multiplied by this.
    double scale_;
    schedule_problem problem_;
    schedule_bound bound_;
    Solver* solver_;
    certify_options options_;
    const std::function<void(const synthesis_progress&)>* progress_;
    window_problem facts_;
    window_propagator propagator_;
    double grain_{};
    window_search search_;
    schedule best_{};
    double makespan_{};
    double lower_{};
    std::int64_t programs_{};
    /// A search of this round ran out of its own nodes.
    bool cut_short_{};
};

} // namespace detail

/// Proves how good a schedule is, or finds a better one, until bound and makespan meet or the limit is reached.
///
/// Destructive: asks whether a schedule with a makespan of at most some cutoff exists. The windows of every pass under
/// the cutoff answer first (`window_propagator`); then orders are settled one after the other (`window_search`), and
/// the parts that remain become integer programs (`disjunctive_program`) for `solver`. Cutoffs at the incumbent, at the
/// bound and between take turns with growing numbers of nodes; in between, stretches of time are optimised while the
/// rest stays as it is.
///
/// `bound` comes from `bound_schedule(problem)`; a proof may have raised its makespan. With `limit.seconds` unlimited
/// the result depends on the arguments alone. Trusts the solver when it says infeasible. Treats problems whose times
/// differ by a power of two alike. Ends, with `closed` false, when nothing left to try differs from what has been
/// tried. Throws input_error when `incumbent` is not a schedule of `problem`.
template <class Solver>
[[nodiscard]] certificate certify(const schedule_problem& problem, const schedule_bound& bound,
                                  const schedule& incumbent, Solver& solver, const search_limit& limit,
                                  const certify_options& options = {},
                                  const std::function<void(const synthesis_progress&)>& progress = {}) {
    detail::require_ilp_solver<Solver>();
    validate(problem, incumbent);
    return detail::certifier<Solver>{problem, bound, incumbent, solver, limit, options, progress}.run();
}

} // namespace pulse
