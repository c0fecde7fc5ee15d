#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/bound/best_first_bound.hpp>
#include <pulse/schedule/bound/device_bounds.hpp>
#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/bound/state_search.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/problem.hpp>

#include "exact_solver.hpp"
#include "instances.hpp"

namespace {

using namespace pulse;
using detail::best_first_bound;
using detail::device_bounds;
using detail::index_problem;
using detail::problem_relaxer;
using detail::relaxed_problem;
using detail::state_search;

constexpr auto always = [] { return true; };
constexpr auto never = [] { return false; };

std::vector<int> all_devices(const schedule_problem& problem) {
    std::vector<int> out(static_cast<std::size_t>(problem.devices));
    std::iota(out.begin(), out.end(), 0);
    return out;
}

/// Four devices in two waves, with memory for four microbatches; stages differ in length, and the outer ones hold the
/// most bytes.
schedule_problem uneven_waves(int microbatches) {
    std::mt19937 random{95};
    schedule_problem out{};
    out.devices = 4;
    out.microbatches = microbatches;
    out.split_backward = true;
    out.memory_limit_bytes.assign(4, 0);
    for (int s = 0; s != 16; ++s) {
        const int home = device_of(placement::folded, s, 4);
        const auto forward = static_cast<double>(std::uniform_int_distribution<int>{60, 140}(random));
        const std::int64_t bytes = 400 + 100 * std::int64_t{(s - 8) * (s - 7)} / 4;
        out.stages.push_back({home, forward, forward + 20, forward - 10});
        const stage_pass last{pass::backward_weight, s};
        out.holds.push_back({home, {pass::forward, s}, last, last, bytes});
        out.memory_limit_bytes[static_cast<std::size_t>(home)] += 4 * bytes;
        out.dependencies.push_back({{pass::backward_input, s}, last, 0});
        if (s == 0) { continue; }
        out.dependencies.push_back({{pass::forward, s - 1}, {pass::forward, s}, 20});
        out.dependencies.push_back({{pass::backward_input, s}, {pass::backward_input, s - 1}, 20});
    }
    out.dependencies.push_back({{pass::forward, 15}, {pass::backward_input, 15}, 0});
    return out;
}

/// The least makespan of a relaxation below `below_us`, found by the search over layers; `below_us` if there is none.
double least_makespan_us(const relaxed_problem& relaxed, double below_us) {
    state_search layers{relaxed};
    const auto found = layers.run({below_us, 1'000'000, 1'000'000, never});
    REQUIRE(found.finished);
    return std::min(found.makespan_us, below_us);
}

} // namespace

TEST_CASE("best-first search of all devices proves the optimum of small problems, and that of some devices no more") {
    std::mt19937 random{91};
    int solved = 0;
    int nearer = 0;
    for (int round = 0; round != 200; ++round) {
        const auto problem = test::limited_problem(random, 3, 1, 3, round);
        if (problem.stages.size() > 6) { continue; }
        const auto bound = bound_schedule(problem);
        const double makespan = list_search(problem, {list_effort::one, 1, 1, 20}).makespan_us;
        const problem_relaxer relaxer{problem, bound};
        const double below = makespan * (1 + 1e-9);
        const double optimum = least_makespan_us(relaxer.relax(all_devices(problem), false), below);
        for (const bool turned : {false, true}) {
            best_first_bound all{relaxer.relax(all_devices(problem), turned)};
            all.run(below, 1'000'000, always);
            REQUIRE(all.finished());
            CHECK(all.proved_us() == doctest::Approx(optimum).epsilon(1e-9));
            best_first_bound refuted{relaxer.relax(all_devices(problem), turned)};
            refuted.run(0.9 * optimum, 1'000'000, always);
            CHECK(refuted.finished());
            CHECK(refuted.proved_us() == 0.9 * optimum);
            for (int first = 0; first != problem.devices; ++first) {
                const auto relaxed = relaxer.relax({first}, turned);
                const double least = least_makespan_us(relaxed, below);
                best_first_bound one{relaxed};
                one.run(below, 1'000'000, always);
                REQUIRE(one.finished());
                // The relaxation's own schedule does not count the tails of the relaxed passes.
                CHECK(one.proved_us() >= least * (1 - 1e-9));
                CHECK(one.proved_us() <= optimum * (1 + 1e-9));
                nearer += one.proved_us() > bound.makespan_us * (1 + 1e-9) ? 1 : 0;
            }
        }
        test::exact_solver solver{problem, below, 60000};
        if (!solver.solve()) { continue; }
        ++solved;
        CHECK(optimum == doctest::Approx(solver.best()).epsilon(1e-9));
    }
    MESSAGE(solved << " solved, a single device proved more than the bound in " << nearer);
    CHECK(solved > 60);
    CHECK(nearer > 30);
}

TEST_CASE("best-first search proves more the more states it may visit, wherever it is interrupted") {
    std::mt19937 random{92};
    int steps = 0;
    for (int round = 0; round != 60; ++round) {
        const auto problem = test::limited_problem(random, 3, 2, 6, round);
        const double below = 1.2 * list_search(problem, {list_effort::one, 0, 0, 0}).makespan_us;
        const problem_relaxer relaxer{problem, bound_schedule(problem)};
        const auto relaxed = relaxer.relax({round % problem.devices}, round % 2 == 0);
        best_first_bound whole{relaxed};
        whole.run(below, 3000, always);
        best_first_bound cut{relaxed};
        double last = 0;
        while (!cut.finished() && cut.looked() != 3000) {
            const std::int64_t before = cut.looked();
            const std::int64_t drawn = std::uniform_int_distribution<std::int64_t>{1, 400}(random);
            const std::int64_t most = std::min<std::int64_t>(drawn, 3000 - before);
            std::int64_t asked = 0;
            // Either limit may end the run.
            cut.run(below, most, [&] { return ++asked <= 300; });
            CHECK(cut.looked() - before <= std::min<std::int64_t>(most, 300));
            CHECK(cut.gained() <= cut.looked());
            CHECK(cut.proved_us() >= last);
            steps += cut.proved_us() > last ? 1 : 0;
            last = cut.proved_us();
        }
        CHECK(cut.finished() == whole.finished());
        CHECK(cut.looked() == whole.looked());
        CHECK(cut.proved_us() == whole.proved_us());
        CHECK(cut.proved_us() <= below);
    }
    CHECK(steps > 60);
}

TEST_CASE("bounds of devices lie between the bound and the optimum, and end where nothing is left to prove") {
    std::mt19937 random{93};
    int raised = 0;
    for (int round = 0; round != 150; ++round) {
        const auto problem = test::limited_problem(random, 3, 1, 5, round);
        const auto bound = bound_schedule(problem);
        const double makespan = list_search(problem, {list_effort::one, 1, 1, 50}).makespan_us;
        device_bounds devices{problem, bound};
        const double lower = std::min(bound.makespan_us, makespan);
        std::int64_t states = 0;
        const double cut = devices.raise(lower, makespan, [&] { return ++states <= 40; });
        const double found = devices.raise(cut, makespan, always);
        CHECK(devices.raise(found, makespan, always) == found);
        CHECK((devices.finished() || found >= makespan * (1 - 1e-9)));
        CHECK(lower <= cut);
        CHECK(cut <= found);
        CHECK(found <= makespan);
        raised += found > lower * (1 + 1e-9) ? 1 : 0;
        const problem_relaxer relaxer{problem, bound};
        const double optimum = least_makespan_us(relaxer.relax(all_devices(problem), false), makespan);
        CHECK(found <= optimum * (1 + 1e-9));
    }
    MESSAGE("raised in " << raised << " of 150");
    CHECK(raised > 30);
}

TEST_CASE("a device proves what the warm-up costs from as many states, however many microbatches follow") {
    std::vector<double> proved{};
    std::vector<std::int64_t> states{};
    for (const int microbatches : {16, 64}) {
        const auto problem = uneven_waves(microbatches);
        const auto bound = bound_schedule(problem);
        const auto index = index_problem(problem);
        int busiest = 0;
        for (int d = 1; d != problem.devices; ++d) {
            if (index.load_us(d) > index.load_us(busiest)) { busiest = d; }
        }
        best_first_bound search{problem_relaxer{problem, bound}.relax({busiest}, false)};
        search.run(2 * bound.makespan_us, 20'000, always);
        proved.push_back(search.proved_us() - bound.makespan_us);
        states.push_back(search.gained());
    }
    MESSAGE("raised by " << proved[0] << " and " << proved[1] << " us with " << states[0] << " and " << states[1]
                         << " states");
    CHECK(proved[0] > 0);
    CHECK(proved[1] == doctest::Approx(proved[0]));
    CHECK(states[1] < 2 * states[0]);
}

TEST_CASE("bounds of devices follow a best schedule that becomes shorter, and know devices without passes") {
    std::mt19937 random{94};
    int between = 0;
    for (int round = 0; round != 60; ++round) {
        auto problem = test::limited_problem(random, 3, 1, 4, round);
        problem.devices += 1; // an idle device
        if (!problem.memory_limit_bytes.empty()) { problem.memory_limit_bytes.push_back(0); }
        const auto bound = bound_schedule(problem);
        const double makespan = list_search(problem, {list_effort::one, 1, 1, 50}).makespan_us;
        const problem_relaxer relaxer{problem, bound};
        const double optimum = least_makespan_us(relaxer.relax(all_devices(problem), false), makespan);
        device_bounds devices{problem, bound};
        double lower = 0;
        for (const double factor : {1.5, 1.2, 1.05, 1.0}) {
            std::int64_t states = 0;
            const double next = devices.raise(lower, factor * makespan, [&] { return ++states <= 8; });
            CHECK(next >= lower * (1 - 1e-12));
            CHECK(next <= optimum * (1 + 1e-9));
            between += next > lower && next < optimum * (1 - 1e-9) ? 1 : 0;
            lower = next;
        }
        best_first_bound idle{relaxer.relax({problem.devices - 1}, false)};
        idle.run(makespan, 10, always);
        CHECK(idle.finished());
        CHECK(idle.proved_us() == 0);
    }
    MESSAGE("the bound rose and stayed below the optimum " << between << " times");
    CHECK(between > 10);
}

TEST_CASE("a device's bound asks for a well-formed problem") {
    schedule_problem problem{};
    problem.devices = 1;
    problem.microbatches = 0;
    CHECK_THROWS_AS((device_bounds{problem, schedule_bound{}}), input_error);
}
