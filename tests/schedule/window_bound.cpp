#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/prove/window_bound.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/time_grain.hpp>

#include "exact_solver.hpp"
#include "small_problems.hpp"

namespace {

using namespace pulse;
using detail::cutoff_below;
using detail::least_after;
using detail::refute_by_windows;
using detail::time_grain_us;
using detail::window_problem_of;
using detail::window_propagator;

/// The longest cutoff that windows refute (the bound's makespan if none), and the number of narrowings.
struct refutation {
    double cutoff_us{};
    int narrowed{};
};

refutation refute(const schedule_problem& problem, double high, double step, int most = 1000) {
    const auto bound = bound_schedule(problem);
    const auto facts = window_problem_of(problem);
    window_propagator propagator{facts};
    refutation out{bound.makespan_us, 0};
    refute_by_windows(
        facts, bound, propagator, bound.makespan_us, high, step, [&] { return ++out.narrowed < most; },
        [&](double cutoff) { out.cutoff_us = std::max(out.cutoff_us, cutoff); });
    return out;
}

/// Two waves over six devices with six microbatches: only warm-up and cool-down, no steady state.
schedule_problem short_problem(std::mt19937& random) {
    auto problem = test::chain_problem(test::placed(placement::folded, 6, 2), 6, 6, false, 0, 0, 0, 5);
    for (auto& s : problem.stages) {
        s.forward_us = 60 + static_cast<double>(random() % 80);
        s.backward_input_us = 120 + static_cast<double>(random() % 100);
    }
    return problem;
}

} // namespace

TEST_CASE("windows refute no makespan of the optimum or more, and some above the bound") {
    std::mt19937 random{71};
    int raised = 0;
    int settled = 0;
    for (int round = 0; round != 200; ++round) {
        const auto problem = test::small_problem(random, 16);
        const double listed = list_search(problem).makespan_us;
        test::exact_solver exact{problem, listed, 200000};
        if (listed == 0 || !exact.solve()) { continue; }
        const double bound = bound_schedule(problem).makespan_us;
        // Also with the optimum itself, and with a value far above it.
        for (const double high : {exact.best(), 2 * listed}) {
            const double refuted = refute(problem, high, 1e-6 * listed).cutoff_us;
            CHECK(refuted < exact.best() * (1 + 1e-9));
            raised += refuted > bound * (1 + 1e-5) ? 1 : 0;
        }
        ++settled;
    }
    CHECK(settled > 100);
    CHECK(raised > 10);
}

TEST_CASE("the longest cutoff is found down to the step, wherever the search begins and as far as it may go") {
    std::mt19937 random{72};
    for (int round = 0; round != 4; ++round) {
        const auto problem = short_problem(random);
        const double bound = bound_schedule(problem).makespan_us;
        const auto fine = refute(problem, 2 * bound, 0.5);
        REQUIRE(fine.cutoff_us > bound + 1);
        CHECK(std::abs(refute(problem, 1.5 * bound, 0.5).cutoff_us - fine.cutoff_us) <= 1);
        // A refutation at the upper end finishes the search.
        const double middle = (bound + fine.cutoff_us) / 2;
        CHECK(refute(problem, middle, 0.5).cutoff_us == middle);
        CHECK(refute(problem, middle, 0.5).narrowed == 1);
        CHECK(refute(problem, middle, 0.5, 1).cutoff_us < middle);
        CHECK(refute(problem, 2 * bound, 0.5, 3).narrowed == 3);
        // Nothing is refuted if even the least cutoff holds.
        CHECK(refute(problem, 2 * bound, 2 * (fine.cutoff_us - bound) + 2).cutoff_us == bound);
    }
}

TEST_CASE("a synthesis is bounded by windows, in whole steps of its times") {
    std::mt19937 random{73};
    for (int round = 0; round != 4; ++round) {
        const auto problem = short_problem(random);
        const double grain = time_grain_us(problem);
        REQUIRE(grain == 1);
        const double refuted = refute(problem, 2 * bound_schedule(problem).makespan_us, 0.25).cutoff_us;
        synthesis_options options{};
        options.limit = search_limit{};
        options.limit.nodes = 30000;
        const auto found = synthesize(problem, options);
        CHECK(found.lower_bound_us >= std::floor(refuted));
        CHECK(found.lower_bound_us == std::floor(found.lower_bound_us));
        CHECK(found.lower_bound_us <= found.makespan_us);
    }
}

TEST_CASE("makespans next to a cutoff") {
    CHECK(least_after(10, 3) == 12);
    CHECK(least_after(12, 3) == 15);
    CHECK(least_after(11.5, 0) == 11.5);
    CHECK(cutoff_below(12, 3) == 10.5);
    CHECK(cutoff_below(12, 0) < 12);
    CHECK(cutoff_below(12, 0) > 12 * (1 - 1e-9));
}
