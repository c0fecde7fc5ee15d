#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/validate.hpp>

#include <bench/chimera.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;
using pulse::bench::bidirectional_problem;

/// One layer per stage; one saved byte each, so held bytes count activations.
test::instance equal_layers(int devices, int microbatches, bool split, double f, double b, double w) {
    test::instance out{};
    out.cut = {placement::sequential, devices, 1, {}};
    for (int s = 0; s != devices; ++s) {
        out.cut.stages.push_back({s, s, s, s});
        layer_cost c{};
        c.forward_us = f;
        c.backward_input_us = b;
        c.backward_weight_us = w;
        c.saved_bytes = 1;
        c.parameter_bytes = 100 * (s + 1);
        out.costs.layers.push_back(c);
    }
    out.options.microbatches = microbatches;
    out.options.split_backward = split;
    return out;
}

bidirectional_problem problem_of(const test::instance& i) {
    return bench::make_bidirectional_problem(i.costs, i.cut, i.options);
}

} // namespace

TEST_CASE("Chimera at M = P and F = B: bubble ratio (P-2)/(2M+P-2), at most P activations on a device") {
    for (const int devices : {2, 4, 6, 8}) {
        const auto both = problem_of(equal_layers(devices, devices, false, 2, 1, 1));
        const auto timed = chimera(both);
        CHECK(describe(find_violation(both.problem, timed)) == "");
        CHECK(bubble_ratio(both.problem, timed) <= (devices - 2.0) / (2.0 * devices + devices - 2) + 1e-12);
        const auto peaks = peak_holds(both.problem, timed);
        CHECK(*std::max_element(peaks.begin(), peaks.end()) <= devices);
        CHECK(*std::min_element(peaks.begin(), peaks.end()) >= devices / 2);
        // the same microbatches through a single pipeline with one copy of the parameters
        const auto one = equal_layers(devices, devices, false, 2, 1, 1);
        const auto single = one_f_one_b(make_problem(one.costs, one.cut, one.options));
        CHECK((devices == 2 || timed.makespan_us() < single.makespan_us()));
    }
}

TEST_CASE("Chimera's bubble stays below 1F1B's when there are more microbatches than devices") {
    for (const int devices : {2, 4, 6, 8}) {
        for (const int rounds : {1, 2, 4}) {
            for (const bool split : {false, true}) {
                const auto equal = equal_layers(devices, rounds * devices, split, 2, 2, 2);
                const auto both = problem_of(equal);
                const auto timed = chimera(both);
                CHECK(describe(find_violation(both.problem, timed)) == "");
                const auto single = one_f_one_b(make_problem(equal.costs, equal.cut, equal.options));
                const double work = 6.0 * rounds * devices;
                CHECK(timed.makespan_us() - work <= 0.6 * (single.makespan_us() - work));
            }
        }
    }
}

TEST_CASE("the second copy: every device holds two stages' parameters and every gradient crosses twice") {
    const auto both = problem_of(equal_layers(4, 4, true, 1, 1, 1));
    CHECK(both.parameter_bytes == std::vector<std::int64_t>(4, 500));
    CHECK(both.gradient_bytes == 2 * (100 + 200 + 300 + 400));
    CHECK(both.problem.stages.size() == 8);
    CHECK(both.problem.microbatches == 2);
}

TEST_CASE("sums of gradients begin when both copies are done, one at a time between two devices") {
    auto drawn = equal_layers(2, 2, false, 1, 1, 0);
    drawn.options.link = {1.0, 0.0};
    auto both = problem_of(drawn);
    CHECK(both.gradient_sum_us == std::vector<double>(2, 2.0));
    // one microbatch each way: on device 0, stage 0 ends at 6 (1 + lag + 1 + 1 + lag + 1) and stage 1 at 4
    const auto timed = chimera(both);
    CHECK(timed.makespan_us() == 6);
    CHECK(step_us(both, timed) == 8);
    both.gradient_sum_us = {2.0, 5.0};
    CHECK(step_us(both, timed) == 11); // stage 1 is summed from 4 to 9, then stage 0
    both.gradient_sum_us = {0.0, 0.0};
    CHECK(step_us(both, timed) == 6);
}

TEST_CASE("Chimera is a schedule of random uneven bidirectional problems, within their memory or not at all") {
    std::mt19937 random{41};
    int seen = 0;
    int refused = 0;
    int fitted = 0;
    for (int i = 0; i != 1500; ++i) {
        auto drawn = test::random_instance(random, 6, 1, 12);
        if (drawn.cut.kind == placement::folded || drawn.cut.devices % 2 != 0) { continue; }
        drawn.cut.kind = placement::sequential; // one chunk
        drawn.options.microbatches += drawn.options.microbatches % 2;
        auto both = problem_of(drawn);
        const auto timed = chimera(both);
        REQUIRE(describe(find_violation(both.problem, timed)) == "");
        REQUIRE(step_us(both, timed) >= timed.makespan_us());
        for (int d = 0; d != both.problem.devices; ++d) {
            double load = 0;
            for (const auto& s : both.problem.stages) {
                if (s.device != d) { continue; }
                load += s.forward_us + s.backward_input_us + (both.problem.split_backward ? s.backward_weight_us : 0.0);
            }
            REQUIRE(timed.makespan_us() >= both.problem.microbatches * load * (1 - 1e-9));
        }
        const auto peaks = peak_holds(both.problem, timed);
        for (const int percent : {100, 80, 40}) {
            both.problem.memory_limit_bytes.clear();
            for (const auto peak : peaks) { both.problem.memory_limit_bytes.push_back(peak * percent / 100); }
            try {
                const auto limited = chimera(both);
                REQUIRE(describe(find_violation(both.problem, limited)) == "");
                fitted += percent < 100 ? 1 : 0;
            } catch (const infeasible_error&) {
                CHECK(percent < 100);
                ++refused;
            }
        }
        ++seen;
    }
    CHECK(seen > 100);
    CHECK(refused > 50);
    CHECK(fitted > 10);
}

TEST_CASE("two opposite pipelines need even numbers and a sequential cut") {
    const auto make = [](int devices, int microbatches) {
        static_cast<void>(problem_of(equal_layers(devices, microbatches, true, 1, 1, 1)));
    };
    CHECK_THROWS_WITH_AS(make(3, 4), doctest::Contains("3 devices"), input_error);
    CHECK_THROWS_WITH_AS(make(4, 3), doctest::Contains("3 microbatches"), input_error);
    auto folded = equal_layers(2, 2, true, 1, 1, 1);
    folded.cut.kind = placement::folded;
    CHECK_THROWS_WITH_AS((void)problem_of(folded), doctest::Contains("sequential"), input_error);
}
