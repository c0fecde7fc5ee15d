#include <cstddef>
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/prove/window_bound.hpp>
#include <pulse/schedule/prove/window_shaving.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/time_grain.hpp>

#include "exact_solver.hpp"
#include "small_problems.hpp"

namespace window_shaving_test {

using namespace pulse;
using detail::time_grain_us;
using detail::window_facts_of;
using detail::window_propagator;
using detail::window_shaver;
using detail::window_state_of;

/// As long as it takes.
constexpr auto patient = [](std::int64_t) { return true; };

/// Windows alone refute the cutoff.
bool refuted_by_windows(const schedule_problem& problem, double cutoff_us) {
    const auto facts = window_facts_of(problem);
    auto state = window_state_of(facts, bound_schedule(problem), cutoff_us);
    return !window_propagator{facts}.narrow(state);
}

/// Two waves over six devices with as many microbatches, and a latency: warm-up and cool-down are all there is.
schedule_problem short_problem(std::mt19937& random, bool split) {
    auto problem = test::chain_problem(test::placed(placement::folded, 6, 2), 6, 6, split, 0, 0, 0, 5);
    for (auto& s : problem.stages) {
        s.forward_us = 60 + static_cast<double>(random() % 80);
        s.backward_input_us = 120 + static_cast<double>(random() % 100);
        if (split) { s.backward_weight_us = 40 + static_cast<double>(random() % 60); }
    }
    return problem;
}

} // namespace window_shaving_test

using namespace window_shaving_test;

TEST_CASE("shaving refutes no makespan of the optimum or more, and most of what is shorter") {
    std::mt19937 random{81};
    int settled = 0;
    int refuted = 0;
    for (int round = 0; round != 200; ++round) {
        const auto problem = test::small_problem(random, 16);
        const double listed = list_search(problem).makespan_us;
        test::exact_solver exact{problem, listed, 200000};
        if (listed == 0 || !exact.solve()) { continue; }
        const auto bound = bound_schedule(problem);
        const auto facts = window_facts_of(problem);
        for (const double grain : {time_grain_us(problem), 0.0}) {
            // One shaver goes down, so what it has learnt is used; the other one begins with each.
            window_shaver learnt{facts, bound, 2 * listed, grain};
            for (const double cutoff : {2 * listed, listed * (1 + 1e-9), exact.best() * (1 + 1e-9)}) {
                CHECK_FALSE(learnt.refute(cutoff, patient));
                CHECK_FALSE(window_shaver(facts, bound, 2 * listed, grain).refute(cutoff, patient));
            }
            const double below = exact.best() * (1 - 1e-6);
            refuted += learnt.refute(below, patient) ? 1 : 0;
        }
        ++settled;
    }
    CHECK(settled > 100);
    CHECK(refuted > 100);
}

TEST_CASE("shaving goes beyond windows on short steps, never above what a schedule reaches") {
    std::mt19937 random{82};
    for (int round = 0; round != 2; ++round) {
        const auto problem = short_problem(random, round == 0);
        const auto bound = bound_schedule(problem);
        const auto facts = window_facts_of(problem);
        synthesis_options options{};
        options.limit = search_limit{};
        options.limit.nodes = 20000;
        const double known = synthesize(problem, options).makespan_us;
        const double grain = time_grain_us(problem);
        window_shaver shaver{facts, bound, 2 * known, grain};
        // For as long as a few thousand suppositions take.
        int left = 6000;
        const auto hasty = [&](std::int64_t) { return --left > 0; };
        CHECK_FALSE(shaver.refute(known, hasty));
        const double step = (known - bound.makespan_us) / 64;
        double by_windows = bound.makespan_us;
        while (by_windows < known && refuted_by_windows(problem, by_windows)) { by_windows += step; }
        double shaved = by_windows;
        left = 6000;
        while (shaved < known && shaver.refute(shaved, hasty)) { shaved += step; }
        CHECK(shaved > by_windows + step / 2);
        CHECK(shaved < known + step);
    }
}

TEST_CASE("an attempt ends when it may spend no more, and says what it has spent") {
    std::mt19937 random{83};
    const auto problem = short_problem(random, true);
    const auto bound = bound_schedule(problem);
    const auto facts = window_facts_of(problem);
    window_shaver shaver{facts, bound, 3 * bound.makespan_us, 1};
    int asked = 0;
    std::int64_t pairs = 0;
    const auto seven = [&](std::int64_t more) {
        pairs += more;
        return ++asked != 7;
    };
    CHECK_FALSE(shaver.refute(1.5 * bound.makespan_us, seven));
    CHECK(asked == 7);
    CHECK(pairs > 0);
}

TEST_CASE("a synthesis that shaves depends on its nodes alone") {
    std::mt19937 random{84};
    const auto problem = short_problem(random, false);
    synthesis_options options{};
    options.limit = search_limit{};
    options.limit.nodes = 15000;
    const auto one = synthesize(problem, options);
    const auto two = synthesize(problem, options);
    CHECK(one.lower_bound_us == two.lower_bound_us);
    CHECK(one.makespan_us == two.makespan_us);
    CHECK(one.nodes == two.nodes);
}
