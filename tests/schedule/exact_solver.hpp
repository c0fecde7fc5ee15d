#pragma once

#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

#include "every_schedule.hpp"

namespace pulse::test {

/// Finds the least makespan by enumerating every schedule that beats the best one so far.
class exact_solver {
public:
    exact_solver(const schedule_problem& problem, double known, long most_nodes) :
        best_{known}, all_{problem, below(known), most_nodes, [this](const schedule& found) { take(found); }} {}
    exact_solver(const exact_solver&) = delete;
    exact_solver& operator=(const exact_solver&) = delete;

    /// Returns true if the search completed; `best()` is then the optimum, or the known makespan if nothing beats it.
    bool solve() { return all_.walk(); }
    double best() const { return best_; }

private:
    /// The enumeration tolerates 1e-9, so a makespan counts as shorter only by more than that.
    static double below(double makespan) { return makespan - 2e-9; }

    void take(const schedule& found) {
        best_ = found.makespan_us();
        all_.set_cutoff(below(best_));
    }

    double best_;
    every_schedule all_;
};

} // namespace pulse::test
