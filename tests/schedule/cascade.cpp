#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include <partition/random_table.hpp>
#include <pulse/partition/cascade.hpp>
#include <pulse/schedule/cascade_problem.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>

#include "exact_solver.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// Two backbones with skips and their joint cut.
struct cascade {
    cost_table first{};
    cost_table second{};
    cascade_cut cut{};

    [[nodiscard]] schedule_problem problem(const problem_options& options) const {
        return make_cascade_problem(first, cut.first, second, cut.second, options);
    }
};

cascade draw_cascade(std::mt19937& random, int devices, int most_layers) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    cascade made;
    while (!made.cut.found()) {
        made.first = random_table(random, draw(2 * devices, most_layers), static_cast<skip_pattern>(draw(0, 2)));
        made.second = random_table(random, draw(2 * devices, most_layers), static_cast<skip_pattern>(draw(0, 2)));
        made.cut = find_cascade_cut(made.first, made.second, devices);
    }
    return made;
}

} // namespace

TEST_CASE("two chains are ordered on one set of devices, no faster than their bound") {
    std::mt19937 random{3};
    double gaps = 0.0;
    int busy = 0;
    for (int n = 0; n != 60; ++n) {
        CAPTURE(n);
        const int devices = 2 + n % 3;
        const cascade of = draw_cascade(random, devices, 12);
        problem_options options;
        options.microbatches = devices + n % 5;
        options.split_backward = n % 2 == 0;
        options.link = {.latency_us = static_cast<double>(n % 3), .bandwidth_gb_per_s = 1.0};
        const schedule_problem problem = of.problem(options);
        REQUIRE(problem.stages.size() == static_cast<std::size_t>(4 * devices));
        const list_result found = list_search(problem, {.explored_runs = 20});
        REQUIRE(!find_violation(problem, found.order).broken());
        REQUIRE(found.makespan_us >= found.lower_bound_us * (1 - 1e-12));
        REQUIRE(found.lower_bound_us >= options.microbatches * of.cut.greatest_load_us * (1 - 1e-12));
        // The bound of both is at least that of either backbone alone.
        REQUIRE(found.lower_bound_us >= lower_bound_us(make_problem(of.first, of.cut.first, options)) * (1 - 1e-12));
        REQUIRE(found.lower_bound_us >= lower_bound_us(make_problem(of.second, of.cut.second, options)) * (1 - 1e-12));
        if (found.makespan_us > 0.0) {
            gaps += found.gap();
            ++busy;
        }
    }
    MESSAGE("mean gap to the bound: ", 100.0 * gaps / busy, " %");
    CHECK(gaps / busy < 0.1);
}

TEST_CASE("the bound of two chains is no more than the best of all their schedules") {
    std::mt19937 random{4};
    int solved = 0;
    int met = 0;
    for (int n = 0; n != 40; ++n) {
        CAPTURE(n);
        const cascade of = draw_cascade(random, 1 + n % 2, 5);
        problem_options options;
        options.microbatches = 1;
        options.split_backward = n % 4 == 0;
        const schedule_problem problem = of.problem(options);
        const list_result found = list_search(problem);
        exact_solver exact{problem, found.makespan_us * (1 + 1e-9) + 1e-6, 200'000};
        if (!exact.solve()) { continue; }
        ++solved;
        REQUIRE(found.lower_bound_us <= std::min(exact.best(), found.makespan_us) + 1e-6);
        met += found.makespan_us <= exact.best() + 1e-6 ? 1 : 0;
    }
    CHECK(solved >= 20);
    CHECK(met >= solved * 3 / 4);
}

TEST_CASE("what wants one chain refuses two, and limits of memory with two are refused") {
    std::mt19937 random{5};
    const cascade of = draw_cascade(random, 2, 8);
    problem_options options;
    options.microbatches = 2;
    schedule_problem problem = of.problem(options);
    CHECK_THROWS_WITH_AS(static_cast<void>(synthesize(problem)),
                         "schedule_problem.further_chains: only list_search and gpipe accept several chains",
                         input_error);
    problem.memory_limit_bytes.assign(2, 1);
    CHECK_THROWS_AS(static_cast<void>(list_search(problem)), input_error);
    problem = of.problem(options);
    problem.further_chains.front() = 0;
    CHECK_THROWS_AS(static_cast<void>(list_search(problem)), input_error);
    options.memory_limit_bytes = {100};
    CHECK_THROWS_AS(static_cast<void>(of.problem(options)), input_error);
}
