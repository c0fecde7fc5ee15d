#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;
using detail::device_orders;
using detail::timed_from_orders;

schedule_problem example(bool split) {
    return test::chain_problem(test::placed(placement::folded, 2, 1), 2, 4, split, 1, 2, 3, 0.5);
}

schedule_rule first_broken(const schedule_problem& problem, const schedule& timed) {
    return find_violation(problem, timed).rule;
}

} // namespace

TEST_CASE("validate names every kind of mistake") {
    const auto problem = example(true);
    const auto good = gpipe(problem);
    REQUIRE(first_broken(problem, good) == schedule_rule::none);
    CHECK_NOTHROW(validate(problem, good));
    auto bad = good;
    auto& list = bad.devices[1];

    SUBCASE("device_count") {
        bad.devices.push_back({});
        CHECK(first_broken(problem, bad) == schedule_rule::device_count);
    }
    SUBCASE("unknown_pass") {
        list[3].stage = 4;
        CHECK(first_broken(problem, bad) == schedule_rule::unknown_pass);
        list[3] = good.devices[1][3];
        list[3].microbatch = -1;
        CHECK(first_broken(problem, bad) == schedule_rule::unknown_pass);
        const auto unsplit = example(false);
        CHECK(first_broken(unsplit, good) == schedule_rule::unknown_pass);
    }
    SUBCASE("wrong_device") {
        std::swap(bad.devices[0], bad.devices[1]);
        CHECK(first_broken(problem, bad) == schedule_rule::wrong_device);
    }
    SUBCASE("repeated") {
        list.push_back(list.back());
        CHECK(first_broken(problem, bad) == schedule_rule::repeated);
    }
    SUBCASE("missing") {
        list.erase(list.begin() + 2);
        CHECK(first_broken(problem, bad) == schedule_rule::missing);
    }
    SUBCASE("start") {
        list.front().start_us = -1;
        list.front().end_us = 0;
        CHECK(first_broken(problem, bad) == schedule_rule::start);
    }
    SUBCASE("duration") {
        list.back().end_us += 1e-3;
        CHECK(first_broken(problem, bad) == schedule_rule::duration);
    }
    SUBCASE("sorted") {
        std::swap(list[1], list[2]);
        CHECK(first_broken(problem, bad) == schedule_rule::sorted);
    }
    SUBCASE("overlap") {
        list[1].start_us -= 0.4;
        list[1].end_us -= 0.4;
        CHECK(first_broken(problem, bad) == schedule_rule::overlap);
    }
    SUBCASE("fifo") {
        std::swap(list[0].microbatch, list[1].microbatch);
        CHECK(first_broken(problem, bad) == schedule_rule::fifo);
    }
    SUBCASE("dependency") {
        for (auto& p : list) {
            p.start_us -= 0.25; // half the lag of the first boundary
            p.end_us -= 0.25;
        }
        const auto violation = find_violation(problem, bad);
        CHECK(violation.rule == schedule_rule::dependency);
        const std::string text = describe(violation);
        CHECK(text.find("F of stage 1 of microbatch 0 on device 1") != std::string::npos);
        CHECK(text.find("F of stage 0 of microbatch 0") != std::string::npos);
    }
    SUBCASE("memory") {
        auto tight = problem;
        tight.memory_limit_bytes = {8, 8};
        CHECK(first_broken(tight, good) == schedule_rule::none);
        tight.memory_limit_bytes = {8, 7};
        const auto violation = find_violation(tight, good);
        CHECK(violation.rule == schedule_rule::memory);
        CHECK(violation.device == 1);
        CHECK_THROWS_WITH_AS(validate(tight, good),
                             doctest::Contains("raises the device's memory to 8 bytes; the limit is 7"), input_error);
    }
}

TEST_CASE("a random schedule with one pass moved earlier or exchanged is rejected") {
    std::mt19937 random{11};
    int moved = 0;
    int exchanged = 0;
    for (int round = 0; round != 200; ++round) {
        const auto instance = test::random_instance(random, 3, 2, 5);
        const auto problem = make_problem(instance.costs, instance.cut, instance.options);
        const auto good = gpipe(problem);
        REQUIRE(describe(find_violation(problem, good)) == "");
        for (std::size_t d = 0; d != good.devices.size(); ++d) {
            for (std::size_t i = 0; i != good.devices[d].size(); ++i) {
                // gpipe starts everything as early as its order allows: no single pass can move earlier
                auto bad = good;
                auto& p = bad.devices[d][i];
                const double step = 0.05;
                p.start_us -= step;
                p.end_us -= step;
                if (p.start_us == p.end_us) { continue; }
                CHECK_FALSE(is_valid(problem, bad));
                ++moved;
                if (i == 0 || good.devices[d][i - 1].stage != p.stage || good.devices[d][i - 1].op != p.op) {
                    continue;
                }
                bad = good;
                std::swap(bad.devices[d][i].microbatch, bad.devices[d][i - 1].microbatch);
                CHECK(first_broken(problem, bad) == schedule_rule::fifo);
                ++exchanged;
            }
        }
    }
    CHECK(moved > 2000);
    CHECK(exchanged > 1000);
}

TEST_CASE("peaks and bubble of a schedule worked out by hand") {
    // one device, two stages, two microbatches: F0 F1 B1 W1 B0 W0 of microbatch 0, then of microbatch 1
    auto problem = test::chain_problem({0, 0}, 1, 2, true, 1, 1, 1);
    problem.holds[0].bytes = 3;
    problem.holds[1].bytes = 5;
    const stage_pass b1{pass::backward_input, 1};
    const stage_pass b0{pass::backward_input, 0};
    problem.holds.push_back({0, b1, b0, b0, 10});                           // a skip gradient
    problem.holds.push_back({0, b1, b1, b1, 100});                          // scratch of one pass
    problem.holds.push_back({0, b1, b1, {pass::backward_weight, 0}, 1000}); // the later of two ends
    device_orders orders(1);
    for (int k = 0; k != 2; ++k) {
        for (const stage_pass p : {stage_pass{pass::forward, 0}, stage_pass{pass::forward, 1}, b1,
                                   stage_pass{pass::backward_weight, 1}, b0, stage_pass{pass::backward_weight, 0}}) {
            orders[0].push_back({p.op, p.stage, k});
        }
    }
    const auto timed = timed_from_orders(problem, orders);
    validate(problem, timed);
    CHECK(peak_holds(problem, timed) == std::vector<std::int64_t>{3 + 5 + 10 + 100 + 1000});
    CHECK(timed.makespan_us() == 12);
    CHECK(bubble_ratio(problem, timed) == 0);
    CHECK(detail::hold_levels(problem, timed.devices[0], 0) ==
          std::vector<std::int64_t>{3, 8, 1118, 1018, 1013, 1003, 3, 8, 1118, 1018, 1013, 1003});
    problem.devices = 2; // the second device is idle
    CHECK(bubble_ratio(problem, timed) == 0.5);
}

TEST_CASE("orders that wait for each other are named, wrong lists are refused") {
    const auto problem = example(true);
    auto orders = gpipe(problem).devices;
    CHECK(timed_from_orders(problem, orders) == gpipe(problem));
    SUBCASE("deadlock") {
        // device 0 waits to finish microbatch 0 before it sends microbatch 1, device 1 waits for microbatch 1 first
        auto& list = orders[1];
        std::reverse(list.begin(), list.end());
        CHECK_THROWS_WITH_AS((void)timed_from_orders(problem, orders), doctest::Contains("device 1 is at W of stage 1"),
                             input_error);
        // passes that have run are not reported
        CHECK_THROWS_WITH_AS((void)timed_from_orders(problem, orders),
                             doctest::Contains("and waits for B of stage 1 of microbatch"), input_error);
    }
    SUBCASE("missing") {
        orders[0].pop_back();
        CHECK_THROWS_WITH_AS((void)timed_from_orders(problem, orders), doctest::Contains("missing"), input_error);
    }
    SUBCASE("twice") {
        orders[0].back() = orders[0].front();
        CHECK_THROWS_WITH_AS((void)timed_from_orders(problem, orders), doctest::Contains("listed twice"), input_error);
    }
    SUBCASE("elsewhere") {
        std::swap(orders[0].back(), orders[1].back());
        CHECK_THROWS_WITH_AS((void)timed_from_orders(problem, orders), doctest::Contains("another device"),
                             input_error);
    }
}
