#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/validate.hpp>

#include "exact_solver.hpp"
#include "instances.hpp"

namespace {

using namespace pulse;
using detail::begun_work;
using detail::forced_idle_bound;
using detail::index_problem;
using detail::jackson_preemptive;
using detail::machine_job;
using detail::profile_memory;

/// The least maximum of end + tail over preemptive schedules, as the maximum over all sets of jobs (Carlier, 1982).
double preemptive_by_sets(const std::vector<machine_job>& jobs) {
    double most = 0;
    for (std::size_t set = 1; set != std::size_t{1} << jobs.size(); ++set) {
        double head = std::numeric_limits<double>::infinity();
        double tail = head;
        double work = 0;
        for (std::size_t j = 0; j != jobs.size(); ++j) {
            if ((set >> j & 1U) == 0) { continue; }
            head = std::min(head, jobs[j].head);
            tail = std::min(tail, jobs[j].tail);
            work += jobs[j].duration;
        }
        most = std::max(most, head + work + tail);
    }
    return most;
}

} // namespace

TEST_CASE("Jackson's preemptive schedule equals the maximum over all sets of jobs") {
    std::mt19937 random{3};
    std::uniform_int_distribution<int> number{0, 12};
    for (int round = 0; round != 500; ++round) {
        std::vector<machine_job> jobs(static_cast<std::size_t>(1 + round % 8));
        for (auto& j : jobs) { j = {1.0 * number(random), 0.5 * number(random), 1.0 * number(random)}; }
        CHECK(jackson_preemptive(jobs) == doctest::Approx(preemptive_by_sets(jobs)));
    }
}

TEST_CASE("the bound is never above the optimum, the list scheduler never below") {
    std::mt19937 random{2026};
    int solved = 0;
    int limited = 0;
    int tight = 0;
    int best_found = 0;
    for (int round = 0; round != 700; ++round) {
        const auto instance = test::random_instance(random, 3, 1, 3);
        if (instance.cut.stages.size() > 4) { continue; }
        auto problem = make_problem(instance.costs, instance.cut, instance.options);
        if (round % 2 == 0) {
            const auto index = index_problem(problem);
            const auto memory = profile_memory(problem, index);
            for (const auto& peaks : memory.peak_from) {
                const auto alone = peaks.front();
                problem.memory_limit_bytes.push_back(alone +
                                                     alone * std::uniform_int_distribution<int>{0, 6}(random) / 4);
            }
        }
        const auto found = list_search(problem);
        REQUIRE(describe(find_violation(problem, found.order)) == "");
        CHECK(found.makespan_us >= found.lower_bound_us - 1e-9);
        test::exact_solver solver{problem, found.makespan_us + 1e-6, 60000};
        if (!solver.solve()) { continue; }
        ++solved;
        limited += problem.memory_limit_bytes.empty() ? 0 : 1;
        CHECK(found.lower_bound_us <= solver.best() + 1e-9);
        CHECK(found.makespan_us >= solver.best() - 1e-5);
        tight += found.lower_bound_us >= solver.best() - 1e-5 ? 1 : 0;
        best_found += found.makespan_us <= solver.best() + 1e-5 ? 1 : 0;
    }
    MESSAGE(solved << " solved, " << limited << " of them with a limit; bound tight in " << tight
                   << ", list optimal in " << best_found);
    CHECK(solved > 250);
    CHECK(limited > 100);
    CHECK(tight > solved / 2);
    CHECK(best_found > solved * 9 / 10);
}

TEST_CASE("forced idle time lies between the loads and the optimum of one device") {
    // F of two microbatches fill the memory; the third waits for a B that arrives late.
    const std::vector<begun_work> early{{0, 0}, {10, 2}};
    const std::vector<begun_work> late{{0, 0}, {7, 3}};
    CHECK(forced_idle_bound(20, early, late) == doctest::Approx(20 + 8 + 4));
    CHECK(forced_idle_bound(5, early, late) == doctest::Approx(5 + 8)); // all work fits before or after: one side
    CHECK(forced_idle_bound(5, {}, late) == 0);
}

TEST_CASE("no schedule of a larger limited problem is below the bound") {
    std::mt19937 random{11};
    int limited_more = 0;
    for (int round = 0; round != 800; ++round) {
        const auto instance = test::random_instance(random, 4, 2, 8);
        auto problem = make_problem(instance.costs, instance.cut, instance.options);
        const double free = lower_bound_us(problem);
        const auto index = index_problem(problem);
        for (const auto& peaks : profile_memory(problem, index).peak_from) {
            problem.memory_limit_bytes.push_back(peaks.front() * (4 + round % 7) / 4);
        }
        const double bound = lower_bound_us(problem);
        CHECK(bound >= free * (1 - 1e-12));
        limited_more += bound > free * (1 + 1e-9) ? 1 : 0;
        CHECK(list_schedule(problem, {list_effort::one, 0, 0, 20}).makespan_us() >= bound * (1 - 1e-12));
    }
    CHECK(limited_more > 200);
}

TEST_CASE("heads and tails hold in every schedule that is found") {
    std::mt19937 random{5};
    for (int round = 0; round != 150; ++round) {
        const auto instance = test::random_instance(random, 4, 2, 8);
        auto problem = make_problem(instance.costs, instance.cut, instance.options);
        if (round % 2 == 0) {
            const auto index = index_problem(problem);
            for (const auto& peaks : profile_memory(problem, index).peak_from) {
                problem.memory_limit_bytes.push_back(peaks.front() * 3 / 2);
            }
        }
        const auto bound = bound_schedule(problem);
        const auto order = list_schedule(problem, {list_effort::one, 0, 0, 0});
        const double makespan = order.makespan_us();
        const auto m = static_cast<std::size_t>(problem.microbatches);
        for (const auto& passes : order.devices) {
            for (const auto& p : passes) {
                const auto op = static_cast<std::size_t>(p.stage * problem.passes_per_stage() + static_cast<int>(p.op));
                const auto at = op * m + static_cast<std::size_t>(p.microbatch);
                CHECK(p.start_us >= bound.head[at] - 1e-9);
                CHECK(makespan - p.end_us >= bound.tail[at] - 1e-9);
            }
        }
    }
}

TEST_CASE("ill-formed problems are refused by name") {
    const auto good = test::chain_problem({0, 1}, 2, 3, true, 1, 1, 1);
    const auto refuses = [](schedule_problem problem, const char* words) {
        CHECK_THROWS_WITH_AS((void)lower_bound_us(problem), doctest::Contains(words), input_error);
    };
    auto bad = good;
    bad.microbatches = 0;
    refuses(bad, "microbatches");
    bad = good;
    bad.stages[1].device = 2;
    refuses(bad, "stages: a device is out of range");
    bad = good;
    bad.stages[1].forward_us = -1;
    refuses(bad, "duration");
    bad = good;
    bad.stages[1].forward_us = std::numeric_limits<double>::quiet_NaN();
    refuses(bad, "duration");
    bad = good;
    bad.dependencies.pop_back();
    refuses(bad, "chain");
    bad = good;
    bad.dependencies.push_back({{pass::backward_input, 0}, {pass::forward, 1}, 0});
    refuses(bad, "depends on a later one");
    bad = good;
    bad.holds[0].device = 1;
    refuses(bad, "another device");
    bad = good;
    bad.holds[0].begin.op = pass::backward_weight;
    refuses(bad, "weight pass");
    bad = good;
    bad.memory_limit_bytes = {1};
    refuses(bad, "memory_limit_bytes");
}
