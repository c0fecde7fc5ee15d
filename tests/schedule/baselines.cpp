#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;

schedule_problem sequential(int devices, int microbatches, bool split) {
    return test::chain_problem(test::placed(placement::sequential, devices, 1), devices, microbatches, split, 2, 3, 4);
}

} // namespace

TEST_CASE("GPipe and 1F1B have their closed forms on equal stages") {
    for (int devices = 1; devices <= 6; ++devices) {
        for (int microbatches = 1; microbatches <= 12; ++microbatches) {
            const auto problem = sequential(devices, microbatches, false);
            const auto a = gpipe(problem);
            const auto b = one_f_one_b(problem);
            CHECK(describe(find_violation(problem, a)) == "");
            CHECK(describe(find_violation(problem, b)) == "");
            // the bubble is (P-1)(F+B+W); as a ratio (P-1) / (M+P-1)
            const double makespan = (microbatches + devices - 1) * (2.0 + 3 + 4);
            CHECK(a.makespan_us() == makespan);
            CHECK(b.makespan_us() == makespan);
            const double ratio = (devices - 1.0) / (microbatches + devices - 1);
            CHECK(bubble_ratio(problem, a) == doctest::Approx(ratio));
            CHECK(bubble_ratio(problem, b) == doctest::Approx(ratio));
            CHECK(lower_bound_us(problem) <= makespan);
            const auto peak_a = peak_holds(problem, a);
            const auto peak_b = peak_holds(problem, b);
            for (int d = 0; d != devices; ++d) {
                CHECK(peak_a[static_cast<std::size_t>(d)] == microbatches);
                CHECK(peak_b[static_cast<std::size_t>(d)] == std::min(devices - d, microbatches));
            }
        }
    }
}

TEST_CASE("split, both send the input gradient before they compute the weight gradient") {
    for (int devices = 1; devices <= 5; ++devices) {
        for (int microbatches = 1; microbatches <= 10; ++microbatches) {
            const auto split = sequential(devices, microbatches, true);
            const auto whole = sequential(devices, microbatches, false);
            for (const bool first : {true, false}) {
                const auto timed = first ? gpipe(split) : one_f_one_b(split);
                CHECK(describe(find_violation(split, timed)) == "");
                CHECK(timed.makespan_us() <= (first ? gpipe(whole) : one_f_one_b(whole)).makespan_us());
                CHECK(peak_holds(split, timed) == peak_holds(whole, first ? gpipe(whole) : one_f_one_b(whole)));
            }
            // on its way back the first gradient passes P-1 stages without their W
            CHECK(gpipe(split).makespan_us() == microbatches * 9.0 + (devices - 1) * (2.0 + 3));
        }
    }
}

TEST_CASE("GPipe on folded and interleaved placements runs stage after stage") {
    for (const auto kind : {placement::folded, placement::interleaved}) {
        for (const int devices : {1, 2, 4}) {
            for (const bool split : {true, false}) {
                const auto problem =
                    test::chain_problem(test::placed(kind, devices, 2), devices, 5, split, 1, 2, 1, 0.5);
                const auto timed = gpipe(problem);
                CHECK(describe(find_violation(problem, timed)) == "");
                for (const auto& passes : timed.devices) {
                    const auto is_forward = [](const timed_pass& p) { return p.op == pass::forward; };
                    CHECK(std::is_partitioned(passes.begin(), passes.end(), is_forward));
                }
            }
        }
    }
}

TEST_CASE("1F1B refuses a device with two stages and says which") {
    const auto folded = test::chain_problem(test::placed(placement::folded, 2, 1), 2, 4, false, 1, 1, 1);
    CHECK_THROWS_WITH_AS((void)one_f_one_b(folded), doctest::Contains("device 1"), input_error);
}

TEST_CASE("1F1B of an uneven pipeline with lags, by hand") {
    // P = 2, M = 2, F = 1 and 3, B = 2 and 4, lag 1 each way
    auto problem = test::chain_problem({0, 1}, 2, 2, false, 1, 2, 0, 1);
    problem.stages[1].forward_us = 3;
    problem.stages[1].backward_input_us = 4;
    const auto timed = one_f_one_b(problem);
    const std::vector<timed_pass> second{{pass::forward, 1, 0, 2, 5},
                                         {pass::backward_input, 1, 0, 5, 9},
                                         {pass::forward, 1, 1, 9, 12},
                                         {pass::backward_input, 1, 1, 12, 16}};
    const std::vector<timed_pass> first{{pass::forward, 0, 0, 0, 1},
                                        {pass::forward, 0, 1, 1, 2},
                                        {pass::backward_input, 0, 0, 10, 12},
                                        {pass::backward_input, 0, 1, 17, 19}};
    CHECK(timed.devices[0] == first);
    CHECK(timed.devices[1] == second);
    CHECK(one_f_one_b(problem) == timed);
}
