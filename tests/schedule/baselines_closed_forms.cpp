#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/dualpipe_v.hpp>
#include <pulse/schedule/baselines/hanayo.hpp>
#include <pulse/schedule/baselines/interleaved.hpp>
#include <pulse/schedule/baselines/zb_v.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

// Bubbles and peaks of the published orders on equal stages. Costs below are per stage; every stage holds one byte per
// microbatch, so bytes count stage activations.

namespace {

using namespace pulse;
using detail::index_problem;
using detail::timed_from_orders;

struct cost {
    double f{};
    double b{};
    double w{};
    [[nodiscard]] double sum() const { return f + b + w; }
};

schedule_problem equal_stages(placement kind, int devices, int waves, int microbatches, bool split, cost c) {
    return test::chain_problem(test::placed(kind, devices, waves), devices, microbatches, split, c.f, c.b, c.w);
}

/// Makespan minus the work of the busiest device.
double excess(const schedule_problem& problem, const schedule& timed, const cost& c) {
    const auto stages = static_cast<double>(problem.stages.size()) / problem.devices;
    return timed.makespan_us() - problem.microbatches * stages * c.sum();
}

void check_schedule(const schedule_problem& problem, const schedule& timed) {
    CHECK(describe(find_violation(problem, timed)) == "");
    CHECK(timed.makespan_us() >= lower_bound_us(problem) - 1e-9);
}

constexpr schedule_problem small_problem(const std::vector<int>& devices) {
    return test::chain_problem(devices, 2, 3, true, 1, 1, 1);
}
static_assert(interleaved_one_f_one_b(small_problem({0, 1, 0, 1})).makespan_us() >= 18);
static_assert(zb_h1(small_problem({0, 1})).makespan_us() == 10);
static_assert(zb_v(small_problem({0, 1, 1, 0})).makespan_us() == 19);
static_assert(dualpipe_v(small_problem({0, 1, 1, 0})).makespan_us() >= 19);
static_assert(hanayo(small_problem({0, 1, 1, 0})).makespan_us() >= 19);

} // namespace

TEST_CASE("interleaved 1F1B divides the bubble of 1F1B by its chunks and holds P + (P-1)/v") {
    const cost c{2, 3, 4};
    for (int devices = 1; devices <= 5; ++devices) {
        for (int chunks = 1; chunks <= 3; ++chunks) {
            for (int rounds = 1; rounds <= 4; ++rounds) {
                const int count = rounds * devices;
                const auto problem = equal_stages(placement::interleaved, devices, chunks, count, false, c);
                const auto timed = interleaved_one_f_one_b(problem);
                check_schedule(problem, timed);
                CHECK(excess(problem, timed, c) == (devices - 1) * c.sum()); // (P-1)(F+B+W)/v per whole device
                const auto peaks = peak_holds(problem, timed);
                for (int d = 0; d != devices; ++d) {
                    const int ahead = 2 * (devices - 1 - d) + (chunks - 1) * devices + 1;
                    CHECK(peaks[static_cast<std::size_t>(d)] == std::min(ahead, count * chunks));
                }
                const auto split = equal_stages(placement::interleaved, devices, chunks, count, true, c);
                check_schedule(split, interleaved_one_f_one_b(split));
                CHECK(interleaved_one_f_one_b(split).makespan_us() <= timed.makespan_us());
            }
        }
    }
}

TEST_CASE("interleaved 1F1B takes any number of microbatches from P on, in groups that Megatron-LM accepts") {
    for (int devices = 1; devices <= 6; ++devices) {
        for (int count = devices; count <= 4 * devices + 3; ++count) {
            const int group = detail::interleaved_group(devices, count);
            CHECK(group >= devices);
            CHECK((count % group == 0 || count % group >= devices));
            if (count % devices == 0) { CHECK(group == devices); }
            const auto problem = equal_stages(placement::interleaved, devices, 2, count, false, {1, 1, 1});
            check_schedule(problem, interleaved_one_f_one_b(problem));
        }
        if (devices == 1) { continue; }
        const auto few = equal_stages(placement::interleaved, devices, 2, devices - 1, false, {1, 1, 1});
        CHECK_THROWS_WITH_AS((void)interleaved_one_f_one_b(few), doctest::Contains("microbatches must be at least"),
                             input_error);
    }
}

TEST_CASE("ZB-H1 has the bubble (P-1)(F+B-W) in 1F1B's memory") {
    for (const cost c : {cost{1, 1, 1}, cost{4, 5, 3}, cost{2, 3, 2}, cost{5, 6, 4}}) {
        for (int devices = 1; devices <= 8; ++devices) {
            for (int count = devices; count <= 3 * devices; ++count) {
                const auto problem = equal_stages(placement::sequential, devices, 1, count, true, c);
                const auto timed = zb_h1(problem);
                check_schedule(problem, timed);
                CHECK(excess(problem, timed, c) <= (devices - 1) * (c.f + c.b - c.w) + 1e-9);
                if (count >= 2 * devices) { CHECK(excess(problem, timed, c) == (devices - 1) * (c.f + c.b - c.w)); }
                for (const auto peak : peak_holds(problem, timed)) { CHECK(peak <= devices); }
            }
        }
    }
}

TEST_CASE("ZB-V's fixed order idles in no device's span and holds P whole activations on every device") {
    for (int devices = 1; devices <= 8; ++devices) {
        for (int count = 1; count <= 4 * devices; ++count) {
            const auto problem = equal_stages(placement::folded, devices, 1, count, true, {1, 1, 1});
            const auto timed = zb_v_fixed(problem);
            check_schedule(problem, timed);
            const auto best = zb_v(problem);
            check_schedule(problem, best);
            CHECK(best.makespan_us() <= timed.makespan_us());
            for (const auto peak : peak_holds(problem, best)) { CHECK(peak <= 2 * devices); }
            if (count < 2 * devices - 1) { continue; }
            CHECK(excess(problem, timed, {1, 1, 1}) == devices - 1); // (P-1)F/2 per whole device
            for (const auto& passes : timed.devices) {
                CHECK(passes.back().end_us - passes.front().start_us == 6.0 * count);
            }
            for (const auto peak : peak_holds(problem, timed)) { CHECK(peak == 2 * devices); }
        }
    }
}

TEST_CASE(
    "ZB-V's greedy run keeps 2P stage activations in every mode and wins where costs or microbatches are uneven") {
    for (const cost c : {cost{1, 1, 1}, cost{2, 1, 1}, cost{1, 2, 1}, cost{1, 1, 2}}) {
        for (const int devices : {2, 4, 6}) {
            for (const int rounds : {1, 2, 4}) {
                const auto problem = test::chain_problem(test::placed(placement::folded, devices, 1), devices,
                                                         rounds * devices, true, c.f, c.b, c.w, 0.1);
                const auto index = index_problem(problem);
                detail::v_greedy_run greedy{problem, index, 2 * devices};
                double least = 1e300;
                for (int mode = 0; mode != 4; ++mode) {
                    const auto orders = greedy.build({(mode & 1) != 0, (mode & 2) != 0});
                    REQUIRE(!orders.empty());
                    const auto timed = timed_from_orders(problem, orders);
                    check_schedule(problem, timed);
                    for (const auto peak : peak_holds(problem, timed)) { CHECK(peak <= 2 * devices); }
                    least = std::min(least, timed.makespan_us());
                }
                const double fixed = zb_v_fixed(problem).makespan_us();
                CHECK(zb_v(problem).makespan_us() == std::min(least, fixed));
                if (rounds == 1 || (c.f == 2 && devices > 2)) { CHECK(least < fixed); }
            }
        }
    }
}

TEST_CASE("DualPipeV's order without overlap has (P-1)F of a stage at F = B = W and holds 2P+1 stage activations") {
    for (int devices = 1; devices <= 8; ++devices) {
        for (int count = 1; count <= 4 * devices; ++count) {
            const auto problem = equal_stages(placement::folded, devices, 1, count, true, {1, 1, 1});
            const auto timed = dualpipe_v(problem);
            check_schedule(problem, timed);
            if (count < 2 * devices) { continue; }
            CHECK(excess(problem, timed, {1, 1, 1}) == devices - 1); // per whole device: 1.5 at P = 4, 3.5 at P = 8
            for (const auto peak : peak_holds(problem, timed)) {
                CHECK((count == 2 * devices ? peak <= 2 * devices + 1 : peak == 2 * devices + 1));
            }
        }
    }
    // 2.1 and 5.1 where a device's F, B, W are 1, 1.2, 0.8
    const cost uneven{0.5, 0.6, 0.4};
    for (const int devices : {4, 8}) {
        const auto problem = equal_stages(placement::folded, devices, 1, 3 * devices, true, uneven);
        CHECK(excess(problem, dualpipe_v(problem), uneven) == doctest::Approx(devices == 4 ? 2.1 : 5.1));
    }
}

TEST_CASE("Hanayo's waves reach the paper's bubble ratio at M = P in P whole activations") {
    const cost c{1, 1, 1};
    for (const int devices : {2, 3, 4, 6, 8}) {
        for (const int waves : {1, 2, 4}) {
            const auto problem = equal_stages(placement::folded, devices, waves, devices, false, c);
            const auto timed = hanayo(problem);
            check_schedule(problem, timed);
            const double paper = (2.0 * devices - 2) / (3.0 * devices * waves + devices - 1);
            CHECK(bubble_ratio(problem, timed) <= 1.02 * paper);
            for (const auto peak : peak_holds(problem, timed)) { CHECK(peak <= 2 * waves * devices); }
        }
    }
}

TEST_CASE("Hanayo: W follows its B at once, and more microbatches do not cost more than as many blocks of P") {
    for (const int devices : {2, 3, 4}) {
        const auto one = hanayo(equal_stages(placement::folded, devices, 1, devices, false, {1, 1, 1})).makespan_us();
        for (const int rounds : {2, 3, 4}) {
            const auto problem = equal_stages(placement::folded, devices, 1, rounds * devices, false, {1, 1, 1});
            CHECK(hanayo(problem).makespan_us() <= rounds * one);
            const auto split = equal_stages(placement::folded, devices, 1, rounds * devices, true, {1, 1, 1});
            const auto timed = hanayo(split);
            check_schedule(split, timed);
            for (const auto& passes : timed.devices) {
                for (std::size_t i = 0; i + 1 < passes.size(); ++i) {
                    if (passes[i].op != pass::backward_input) { continue; }
                    CHECK(passes[i + 1].op == pass::backward_weight);
                    CHECK(passes[i + 1].start_us == passes[i].end_us);
                }
            }
        }
    }
}
