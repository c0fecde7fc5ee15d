#include <cstddef>
#include <cstdint>
#include <random>
#include <stop_token>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/bound/memory_bounds.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>

#include "every_schedule.hpp"
#include "random_runs.hpp"
#include "small_problems.hpp"

namespace {

using namespace pulse;
using detail::for_each_known_order;
using detail::without_idle_limits;

synthesis_options by_nodes(std::int64_t nodes) {
    synthesis_options out{};
    out.limit = search_limit{};
    out.limit.nodes = nodes;
    return out;
}

} // namespace

TEST_CASE("a synthesized schedule is valid, above the bound, and no worse than lists and what was known") {
    std::mt19937 random{11};
    int gained = 0;
    for (int round = 0; round != 80; ++round) {
        const auto problem = test::random_problem(random, round);
        const auto listed = list_search(problem);
        const auto found = synthesize(problem, by_nodes(3000));
        CHECK(describe(find_violation(problem, found.best)) == "");
        CHECK(found.makespan_us == found.best.makespan_us());
        CHECK(found.lower_bound_us <= found.makespan_us);
        CHECK(found.makespan_us <= listed.makespan_us * (1 + 1e-9)); // equal to the bound is enough
        CHECK(found.finished == found.proved());
        gained += found.makespan_us < listed.makespan_us * (1 - 1e-9) ? 1 : 0;

        const schedule known[] = {found.best};
        CHECK(synthesize(problem, by_nodes(1), known).makespan_us <= found.makespan_us);
    }
    CHECK(gained > 5);
}

TEST_CASE("a synthesis is no longer than any published order of the same problem in the same memory") {
    std::mt19937 random{15};
    std::size_t compared = 0;
    for (int round = 0; round != 60; ++round) {
        const auto kind = round % 4 == 0   ? placement::sequential
                          : round % 4 == 1 ? placement::interleaved
                                           : placement::folded;
        const int devices = 2 + static_cast<int>(random() % 2);
        const int chunks = kind == placement::sequential ? 1 : round % 8 == 3 ? 4 : 2;
        const bool split = random() % 3 != 0;
        auto problem = test::chain_problem(test::placed(kind, devices, kind == placement::folded ? chunks / 2 : chunks),
                                           devices, devices * (1 + static_cast<int>(random() % 3)), split, 2, 2, 1);
        for (auto& s : problem.stages) {
            s.forward_us += static_cast<double>(random() % 3);
            s.backward_input_us += static_cast<double>(random() % 3);
        }
        if (random() % 2 == 0) {
            problem.memory_limit_bytes.assign(static_cast<std::size_t>(devices), chunks * devices);
        }
        const auto found = synthesize(problem, by_nodes(300));
        CHECK(describe(find_violation(problem, found.best)) == "");
        std::size_t defined = 0;
        for (const auto method : baseline_methods) {
            try {
                const auto known = baseline_schedule(problem, method);
                CHECK_MESSAGE(found.makespan_us <= known.makespan_us() * (1 + 1e-9), name_of(method));
                ++defined;
            } catch (const infeasible_error&) { continue; } catch (const input_error&) {
                continue;
            }
        }
        std::size_t handed = 0;
        for_each_known_order(
            problem, [](std::int64_t) { return true; },
            [&](const schedule& order) {
                CHECK(is_valid(problem, order));
                ++handed;
            });
        CHECK(handed == defined);
        compared += defined;
        for_each_known_order(
            problem, [](std::int64_t) { return false; }, [&](const schedule&) { CHECK(false); });
    }
    CHECK(compared > 60);
}

TEST_CASE("a synthesis limited by nodes repeats itself") {
    std::mt19937 random{12};
    for (int round = 0; round != 10; ++round) {
        const auto problem = test::random_problem(random, round);
        const auto one = synthesize(problem, by_nodes(2000));
        const auto two = synthesize(problem, by_nodes(2000));
        CHECK(one.best == two.best);
        CHECK(one.nodes == two.nodes);
    }
}

TEST_CASE("memory limits that no schedule can pass are as good as none") {
    std::mt19937 random{23};
    int limited = 0;
    for (int round = 0; round != 40; ++round) {
        auto problem = test::random_problem(random, round);
        auto free = problem;
        free.memory_limit_bytes.clear();
        std::vector<std::int64_t> all(static_cast<std::size_t>(problem.devices), 0);
        for (const auto& h : problem.holds) {
            all[static_cast<std::size_t>(h.device)] += h.bytes * problem.microbatches;
        }
        problem.memory_limit_bytes = all;
        CHECK(without_idle_limits(problem).memory_limit_bytes.empty());
        CHECK(synthesize(problem, by_nodes(300)).best == synthesize(free, by_nodes(300)).best);
        for (std::size_t d = 0; d != all.size(); ++d) {
            if (all[d] == 0) { continue; }
            problem.memory_limit_bytes = all;
            --problem.memory_limit_bytes[d];
            CHECK(without_idle_limits(problem).memory_limit_bytes == problem.memory_limit_bytes);
            ++limited;
        }
        problem.memory_limit_bytes = all;
        problem.memory_limit_bytes.push_back(0);
        CHECK(without_idle_limits(problem).memory_limit_bytes.size() == all.size() + 1);
        CHECK_THROWS_AS((void)synthesize(problem, by_nodes(1)), input_error);
    }
    CHECK(limited > 20);
}

TEST_CASE("a limit of nodes alone ends a synthesis of many stages in little memory") {
    std::mt19937 random{16};
    for (int round = 0; round != 2; ++round) {
        auto problem = test::chain_problem(test::placed(placement::folded, 8, 2), 8, 16, false, 0, 0, 0, 5);
        for (auto& s : problem.stages) {
            s.forward_us = 60 + static_cast<double>(random() % 80);
            s.backward_input_us = 2 * s.forward_us + static_cast<double>(random() % 20);
        }
        problem.memory_limit_bytes.assign(8, 8 * 4);
        const auto found = synthesize(problem, by_nodes(60000));
        CHECK(describe(find_violation(problem, found.best)) == "");
        CHECK(found.nodes >= 60000);
    }
}

TEST_CASE("tiny problems are solved to the optimum") {
    std::mt19937 random{13};
    int solved = 0;
    int limited = 0;
    int beyond_lists = 0;
    for (int round = 0; round != 120; ++round) {
        const auto problem = test::small_problem(random, 16);
        const auto found = synthesize(problem, by_nodes(40000));
        long better = 0;
        test::every_schedule all{problem, found.makespan_us * (1 - 1e-7) - 2e-9, 200000,
                                 [&](const schedule&) { ++better; }};
        if (!all.walk()) { continue; }
        CHECK(better == 0);
        ++solved;
        limited += problem.memory_limit_bytes.empty() ? 0 : 1;
        beyond_lists +=
            found.makespan_us < list_search(problem, {list_effort::one, 0, 0, 0}).makespan_us - 1e-9 ? 1 : 0;
    }
    CHECK(solved > 80);
    CHECK(limited > 40);
    CHECK(beyond_lists > 0);
}

TEST_CASE("a search that is stopped, or has no time, returns a schedule; progress only improves") {
    std::mt19937 random{14};
    int improvements = 0;
    for (int round = 0; round != 30; ++round) {
        const auto problem = test::random_problem(random, round);
        std::stop_source stop{};
        stop.request_stop();
        auto options = by_nodes(1'000'000);
        options.limit.stop = stop.get_token();
        const auto stopped = synthesize(problem, options);
        CHECK(describe(find_violation(problem, stopped.best)) == "");
        CHECK(stopped.nodes <= 2);
        options.limit = search_limit{};
        options.limit.seconds = 0;
        CHECK(is_valid(problem, synthesize(problem, options).best));

        double last = 1e300;
        double raised = 0;
        options = by_nodes(3000);
        options.progress = [&](const synthesis_progress& p) {
            CHECK(p.makespan_us <= last);
            const bool either = p.makespan_us < last || p.lower_bound_us > raised;
            CHECK(either);
            CHECK(p.lower_bound_us <= p.makespan_us);
            last = p.makespan_us;
            raised = p.lower_bound_us;
            ++improvements;
        };
        CHECK(synthesize(problem, options).makespan_us == last);
    }
    CHECK(improvements > 30);
}

TEST_CASE("a device that cannot hold one microbatch is infeasible, a known order that is no schedule is passed over") {
    auto problem = test::chain_problem(test::placed(placement::folded, 2, 1), 2, 4, true, 1, 1, 1);
    const auto listed = list_schedule(problem);
    auto wrong = listed;
    wrong.devices[0][0].start_us += 100;
    const schedule known[] = {wrong};
    CHECK(is_valid(problem, synthesize(problem, by_nodes(10), known).best));
    problem.memory_limit_bytes = {1, 2};
    CHECK_THROWS_AS((void)synthesize(problem, by_nodes(10)), infeasible_error);
    const schedule too_much[] = {listed};
    problem.memory_limit_bytes = {2, 2};
    CHECK(is_valid(problem, synthesize(problem, by_nodes(1000), too_much).best));
}
