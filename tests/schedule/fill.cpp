#include <pulse/schedule/fill/fill_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/validate_fill.hpp>

#include <bench/greedy_fill.hpp>

#include "instances.hpp"
#include "random_work.hpp"

namespace fill_tests {

using namespace pulse;
using detail::frozen_bound_us;
using detail::frozen_end_bound_us;
using detail::retimed;
using pulse::test::chain_problem;
using pulse::test::end_us;
using pulse::test::limited_problem;
using pulse::test::placed;
using pulse::test::random_split;
using pulse::test::up_to;

namespace {

/// Two devices, two microbatches, and one component of three layers on two samples.
struct small_case {
    schedule_problem problem{chain_problem(placed(placement::folded, 2, 1), 2, 2, true, 2, 2, 2, 0.5)};
    frozen_work work{
        {{"encoder", frozen_use::input, 1, 1, 2, {{"a", 1, 1, 1, 4, 6}, {"b", 0, 3, 1, 2, 8}, {"c", 0, 1, 1, 1, 3}}}},
        2,
        {},
        {0.5, 0}};
};

} // namespace

TEST_SUITE("host") {
    TEST_CASE("fill: 2,000 random fills are valid, and none is below the bound") {
        std::mt19937 random{1};
        std::mt19937 splits{1};
        for (int round = 0; round != 2000; ++round) {
            auto problem = limited_problem(random, 4, 2, 4, round);
            const auto passes = list_schedule(problem);
            auto work = random_work(random, problem.devices, 3, 8);
            if (round % 2 == 1) { work.split = random_split(splits, work, problem.devices); }
            for (auto& limit : problem.memory_limit_bytes) { limit += up_to(random, 0, 40); }
            const bool reorder = round % 4 < 2;
            const auto found = fill_schedule(problem, passes, work, lower_bound_us(problem),
                                             {.placements = 3000, .reorder_passes = reorder});
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            REQUIRE(found.makespan_us() >= found.lower_bound_us * (1 - 1e-9));
            if (!reorder) { REQUIRE(retimed(problem, found.passes) == retimed(problem, passes)); }
            if (work.samples == 0) { REQUIRE(found.passes == passes); }
        }
    }

    TEST_CASE("fill: work is placed wherever one chain after the other has room behind the passes") {
        std::mt19937 random{17};
        for (int round = 0; round != 600; ++round) {
            CAPTURE(round);
            auto problem = limited_problem(random, 4, 2, 4, round);
            if (problem.memory_limit_bytes.empty()) { continue; }
            const auto passes = list_schedule(problem);
            auto work = random_work(random, problem.devices, 3, 8);
            work.split = random_split(random, work, problem.devices);
            for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
                const auto& layers = work.components[static_cast<std::size_t>(c)].layers;
                for (std::size_t l = 0; l != layers.size(); ++l) {
                    for (int d = 0; d != problem.devices; ++d) {
                        if (!work.may_host(c, static_cast<int>(l), d)) { continue; }
                        auto& limit = problem.memory_limit_bytes[static_cast<std::size_t>(d)];
                        limit = std::max({limit, layers[l].live_bytes, l == 0 ? 0 : layers[l - 1].output_bytes});
                    }
                }
            }
            filled_schedule found{};
            REQUIRE_NOTHROW(found = fill_schedule(problem, passes, work, lower_bound_us(problem), {.placements = 500}));
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
        }
    }

    TEST_CASE("fill: DiffusionPipe's greedy is valid, leaves passes where they are, and is never faster") {
        std::mt19937 random{11};
        int slower = 0;
        for (int i = 0; i != 150; ++i) {
            auto problem = limited_problem(random, 4, 2, 6, i);
            problem.memory_limit_bytes.clear();
            auto work = random_work(random, problem.devices, 3, 12);
            work.hosts.clear();
            const schedule passes = list_schedule(problem);
            const double shortest = up_to(random, 0, 3);
            const filled_schedule found = bench::greedy_fill(passes, work, shortest);
            CAPTURE(i);
            CHECK(found.passes == passes);
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            for (std::size_t d = 0; d != found.tasks.size(); ++d) {
                double idle_since = 0;
                for (const timed_pass& p : passes.devices[d]) {
                    for (const frozen_task& t : found.tasks[d]) {
                        const bool between = t.start_us >= idle_since && t.start_us < p.start_us;
                        if (between) { CHECK(p.start_us - idle_since >= shortest * (1 - 1e-9)); }
                    }
                    idle_since = p.end_us;
                }
            }
            const filled_schedule ours =
                fill_schedule(problem, passes, work, lower_bound_us(problem), {.placements = 10'000});
            CHECK(ours.makespan_us() <= found.makespan_us() * (1 + 1e-9));
            slower += found.makespan_us() > ours.makespan_us() * (1 + 1e-9) ? 1 : 0;
        }
        CHECK(slower > 50);
        // 10 us idle on one device, 4 on the other: 2 layers of both samples, then the third layer on one sample
        const schedule passes{{{{pass::forward, 0, 0, 10, 20}}, {{pass::forward, 1, 0, 0, 20}}}};
        const frozen_component chain{"f", {}, 0,
                                     0,   1,  {{"a", 0, 2, 0, 0, 0}, {"b", 0, 2, 0, 0, 0}, {"c", 0, 2, 0, 0, 0}}};
        const auto found = bench::greedy_fill(passes, {{chain}, 2, {}, {}}, 0);
        CHECK(found.tasks[0].size() == 5);
        CHECK(found.tasks[0].back().end_us == 10);
        CHECK(found.makespan_us() == 22);
        CHECK(bench::greedy_fill(passes, {{chain}, 2, {}, {}}, 11).makespan_us() == 26);
        CHECK_THROWS_AS((void)bench::greedy_fill(passes, {{chain}, 2, {{0}, {}}, {}}, 0), input_error);
    }

    TEST_CASE("fill: layers short beside a step come near the bound of these orders of passes") {
        frozen_component shape{"encoder", frozen_use::input, 0, 0, 1, {}};
        for (int l = 0; l != 20; ++l) { shape.layers.push_back({"layer", 0, 1.0 + l % 5, 0, 0, 0}); }
        for (const int devices : {2, 4, 8}) {
            double sum = 0;
            double worst = 0;
            int count = 0;
            for (const bool split : {false, true}) {
                for (const int times : {1, 2}) {
                    const int microbatches = times * devices;
                    const auto problem = chain_problem(placed(placement::folded, devices, 1), devices, microbatches,
                                                       split, 10, 10, 10, 1);
                    const auto passes = list_schedule(problem);
                    for (const int percent : {10, 25, 40, 100}) {
                        frozen_work work{{shape}, 4 * microbatches + 1, {}, {}}; // some chains must be split
                        double busy = 0;
                        for (const double b : busy_us(problem)) { busy += b; }
                        const double factor = busy * percent / 100 / least_work_us(shape, work.samples);
                        for (auto& l : work.components[0].layers) { l.sample_us *= factor; }
                        const auto found = fill_schedule(problem, passes, work, passes.makespan_us());
                        REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
                        sum += found.gap();
                        worst = std::max(worst, found.gap());
                        ++count;
                    }
                }
            }
            MESSAGE(devices << " devices: mean " << 100 * sum / count << " %, worst " << 100 * worst << " %");
            CHECK(sum / count <= (devices == 8 ? 0.005 : 0.002));
            CHECK(worst <= (devices == 8 ? 0.015 : 0.01));
        }
    }

    TEST_CASE("fill: layers of several passes' length, as much of them as of passes") {
        frozen_component shape{"encoder", frozen_use::input, 0, 0, 1, {}};
        for (const double length : {1, 14, 14, 2, 11, 14, 2, 11, 14, 2, 4, 4, 4, 4, 4}) {
            shape.layers.push_back({"layer", 0, length, 0, 0, 0});
        }
        for (const bool split : {false, true}) {
            const auto problem = chain_problem(placed(placement::folded, 8, 2), 8, 16, split, 10, 10, 10, 1);
            const auto passes = list_schedule(problem);
            frozen_work work{{shape}, 64, {}, {}};
            double busy = 0;
            for (const double b : busy_us(problem)) { busy += b; }
            const double factor = busy / least_work_us(shape, work.samples);
            for (auto& l : work.components[0].layers) { l.sample_us *= factor; }
            const auto found = fill_schedule(problem, passes, work, passes.makespan_us());
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            CAPTURE(split);
            CHECK(found.gap() <= 0.005);
        }
    }

    TEST_CASE("fill: each component has calls of the length that gaps have, whatever another may take at once") {
        for (const int devices : {4, 8}) {
            CAPTURE(devices);
            const int samples = 2 * devices;
            const auto problem =
                chain_problem(placed(placement::folded, devices, 1), devices, samples, true, 10, 10, 10, 0);
            const schedule passes = list_schedule(problem);
            // Long layers, whose calls add little cost, and short ones that are almost all call overhead.
            frozen_component pictures{"pictures", frozen_use::input, 1, 1, 1, {}};
            for (int l = 0; l != 16; ++l) { pictures.layers.push_back({"layer", 0.01, 5, 0, 1, 1}); }
            frozen_component texts{"texts", frozen_use::context, 1, 1, samples, {}};
            for (int l = 0; l != 12; ++l) { texts.layers.push_back({"layer", 2, 0.1, 0, 1, 1}); }
            const auto filled = [&](int most_pictures) {
                pictures.max_chunk = most_pictures;
                return fill_schedule(problem, passes, {{pictures, texts}, samples, {}, {}}, lower_bound_us(problem));
            };
            const filled_schedule one = filled(1);
            const filled_schedule many = filled(samples);
            CHECK(one.gap() < 0.02);
            CHECK(many.makespan_us() < one.makespan_us() * 1.002);
            for (const auto& list : many.tasks) {
                for (const frozen_task& t : list) { CHECK((t.component == 0 ? t.samples < 4 : t.samples > 4)); }
            }
        }
    }

    TEST_CASE("fill: each rule is looked at") {
        const small_case of{};
        const auto passes = list_schedule(of.problem);
        const auto good = fill_schedule(of.problem, passes, of.work, 0.0);
        REQUIRE_NOTHROW(validate_fill(of.problem, of.work, good.passes, good.tasks));
        const auto broken = [&](const auto& change, const schedule_problem& problem, frozen_work work) {
            auto tasks = good.tasks;
            change(tasks, work);
            const auto v = find_fill_violation(problem, work, good.passes, tasks);
            CHECK(describe(v).empty() == (v.rule == fill_rule::none));
            return v.rule;
        };
        const auto rule_of = [&](const auto& change) { return broken(change, of.problem, of.work); };
        using tasks_of = std::vector<std::vector<frozen_task>>;
        const auto first = [](tasks_of& tasks) -> std::vector<frozen_task>& {
            return tasks[0].empty() ? tasks[1] : tasks[0];
        };
        CHECK(rule_of([](tasks_of&, frozen_work&) {}) == fill_rule::none);
        CHECK(rule_of([](tasks_of& t, frozen_work&) { t.emplace_back(); }) == fill_rule::device_count);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t)[0].component = 1; }) == fill_rule::unknown_task);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t)[0].last_layer = 3; }) == fill_rule::unknown_task);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t)[0].device ^= 1; }) == fill_rule::unknown_task);
        CHECK(rule_of([&](tasks_of& t, frozen_work& w) {
                  w.hosts = first(t)[0].device == 0 ? std::vector<std::vector<int>>{{}, {0}}
                                                    : std::vector<std::vector<int>>{{0}, {}};
              }) == fill_rule::wrong_device);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t)[0].samples = 0; }) == fill_rule::chunk);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t)[0].start_us = -1; }) == fill_rule::start);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t)[0].end_us += 0.25; }) == fill_rule::duration);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t).push_back(first(t)[0]); }) != fill_rule::none);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) {
                  auto again = first(t)[0];
                  again.start_us += 1000;
                  again.end_us += 1000;
                  first(t).push_back(again);
              }) == fill_rule::repeated);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) { first(t).pop_back(); }) == fill_rule::missing);
        CHECK(rule_of([&](tasks_of& t, frozen_work&) {
                  auto& task = first(t)[0];
                  const double at = good.passes.devices[static_cast<std::size_t>(task.device)].back().start_us;
                  task.end_us += at - task.start_us;
                  task.start_us = at;
              }) == fill_rule::overlap);

        // By hand: after the passes, layer a on device 0, then b and c on device 1, with 0.5 us in between.
        const double end = good.passes.makespan_us();
        const auto by_hand = [&](double begin) {
            return tasks_of{{{0, 0, 0, 0, 2, 0, end, end + 3}}, {{0, 1, 2, 0, 2, 1, begin, begin + 8}}};
        };
        CHECK(find_fill_violation(of.problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::none);
        CHECK(find_fill_violation(of.problem, of.work, good.passes, by_hand(end + 3.25)).rule == fill_rule::chain);
        auto tasks = by_hand(end + 3.5);
        tasks[1] = {{0, 2, 2, 0, 2, 1, end + 10, end + 12}, {0, 1, 1, 0, 2, 1, end + 3.5, end + 9.5}};
        CHECK(find_fill_violation(of.problem, of.work, good.passes, tasks).rule == fill_rule::sorted);

        // Layer b on two samples: 16 bytes. Passes hold 1 byte per microbatch and stage, all freed at the end.
        auto problem = of.problem;
        problem.memory_limit_bytes = {20, 16};
        CHECK(find_fill_violation(problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::none);
        problem.memory_limit_bytes = {20, 15};
        CHECK(find_fill_violation(problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::memory);
        // An activation that waits while another task runs: 8 bytes on both devices.
        problem.memory_limit_bytes = {12, 16};
        CHECK(find_fill_violation(problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::none);
        problem.memory_limit_bytes = {11, 16};
        CHECK(find_fill_violation(problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::memory);
    }

    TEST_CASE("fill: a component stays on its hosts, and what no device can hold is said") {
        small_case of{};
        const auto passes = list_schedule(of.problem);
        of.work.hosts = {{}, {0}};
        const auto found = fill_schedule(of.problem, passes, of.work, 0.0);
        CHECK(found.tasks[0].empty());
        CHECK_NOTHROW(validate_fill(of.problem, of.work, found.passes, found.tasks));
        of.problem.memory_limit_bytes = {100, 7};
        CHECK_THROWS_AS((void)fill_schedule(of.problem, passes, of.work, 0.0), infeasible_error);
        of.problem.memory_limit_bytes = {100, 8}; // room for one sample at a time
        const auto tight = fill_schedule(of.problem, passes, of.work, 0.0);
        CHECK_NOTHROW(validate_fill(of.problem, of.work, tight.passes, tight.tasks));
    }

    TEST_CASE("fill: layers of a component that is split stay on their devices") {
        small_case of{};
        const auto passes = list_schedule(of.problem);
        of.work.hosts = {{0}, {0}};
        of.work.split = {{1, 0, 0}};
        const auto found = fill_schedule(of.problem, passes, of.work, 0.0);
        CHECK_NOTHROW(validate_fill(of.problem, of.work, found.passes, found.tasks));
        for (const auto& list : found.tasks) {
            for (const frozen_task& t : list) { CHECK((t.device == 1) == (t.first_layer == 0 && t.last_layer == 0)); }
        }
        of.work.split = {{0, 0, 1}};
        const std::vector<std::vector<frozen_task>> whole{{{0, 0, 2, 0, 1, 0, 0, 6}}, {}};
        CHECK(find_fill_violation(of.problem, of.work, passes, whole).rule == fill_rule::wrong_device);
    }

    TEST_CASE("fill: bad work is named") {
        const small_case of{};
        const auto says = [&](const auto& change) {
            auto work = of.work;
            change(work);
            try {
                (void)frozen_bound_us(of.problem, work, 0.0);
            } catch (const input_error& e) { return std::string{e.what()}; }
            return std::string{};
        };
        const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
        CHECK(says([](frozen_work&) {}).empty());
        CHECK(has(says([](frozen_work& w) { w.samples = -1; }), "samples"));
        CHECK(has(says([](frozen_work& w) { w.hosts = {{0}}; }), "hosts"));
        CHECK(has(says([](frozen_work& w) { w.hosts = {{}, {}}; }), "no device hosts component encoder"));
        CHECK(has(says([](frozen_work& w) { w.hosts = {{0}, {1}}; }), "no component 1"));
        CHECK(has(says([](frozen_work& w) {
                      w.split = {{}, {}};
                  }),
                  "split: must have one list per component (1), not 2"));
        CHECK(has(says([](frozen_work& w) { w.split = {{0}}; }),
                  "split: component encoder: must have one device per layer (3), not 1"));
        CHECK(has(says([](frozen_work& w) { w.split = {{0, 2, 0}}; }), "device 2 has a layer but is not a host"));
        CHECK(has(says([](frozen_work& w) { w.hosts = {{0}, {}}, w.split = {{0, 1, 0}}; }), "device 1 has a layer"));
        CHECK(has(says([](frozen_work& w) { w.components[0].max_chunk = 0; }), "max_chunk"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers[1].sample_us = -1; }), "layer b"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers[0].live_bytes = -1; }), "layer a"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers.clear(); }), "layers"));
        CHECK(has(says([](frozen_work& w) { w.components.push_back(w.components[0]); }), "name"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers[0].sample_us = 1e308; }), "encoder"));
        CHECK(has(says([](frozen_work& w) { w.link.latency_us = -1; }), "link"));
        CHECK(has(says([](frozen_work& w) { w.after_us = {1.0}; }),
                  "after_us: must have one value per device (2), not 1"));
        CHECK(has(says([](frozen_work& w) { w.after_us = {0.0, -1.0}; }), "after_us: must not be negative"));
    }
}

TEST_SUITE("constexpr") {
    TEST_CASE("fill: a plan's tasks can be found when it is compiled") {
        constexpr double gained_us = [] {
            small_case of{}; // not const: GCC 12 cannot fill a vector of a const object
            auto passes = list_schedule(of.problem);
            auto found = fill_schedule(of.problem, passes, of.work, 0.0, {.placements = 200});
            validate_fill(of.problem, of.work, found.passes, found.tasks);
            return passes.makespan_us() + least_work_us(of.work.components[0], 2) - found.makespan_us();
        }();
        static_assert(gained_us > 0);
        CHECK(gained_us > 0);
    }
}

} // namespace fill_tests
