#include <pulse/schedule/fill/fill_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
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

namespace {

using namespace pulse;
using detail::device_orders;
using detail::frozen_bound_us;
using detail::frozen_end_bound_us;
using detail::ordered_pass;
using detail::orders_of;
using pulse::test::chain_problem;
using pulse::test::end_us;
using pulse::test::limited_problem;
using pulse::test::placed;
using pulse::test::random_split;
using pulse::test::up_to;

frozen_component random_component(std::mt19937& random, int most_layers, int most_chunk) {
    frozen_component out{"f", frozen_use::input, 0, 0, up_to(random, 1, most_chunk), {}};
    out.name = out.name + static_cast<unsigned>(up_to(random, 0, 1'000'000'000));
    const bool whole = up_to(random, 0, 1) == 0;
    for (int l = up_to(random, 1, most_layers); l != 0; --l) {
        const auto time = [&](int most) {
            return whole ? up_to(random, 0, most) : std::uniform_real_distribution<double>{0, 1.0 * most}(random);
        };
        const std::int64_t in = out.layers.empty() ? 0 : out.layers.back().output_bytes;
        const std::int64_t made = up_to(random, 0, 4);
        out.layers.push_back(
            {"layer", up_to(random, 0, 1) == 0 ? 0.0 : time(2), time(4), 0, made, in + made + up_to(random, 0, 3)});
    }
    return out;
}

frozen_work random_work(std::mt19937& random, int devices, int most_components, int most_samples) {
    frozen_work out{};
    for (int c = up_to(random, 1, most_components); c != 0; --c) {
        out.components.push_back(random_component(random, 5, 3));
    }
    out.samples = up_to(random, 0, most_samples);
    if (up_to(random, 0, 1) == 0) { out.link = {0.3, 0.01}; }
    if (up_to(random, 0, 2) == 0) { return out; }
    out.hosts.resize(static_cast<std::size_t>(devices));
    for (int c = 0; c != static_cast<int>(out.components.size()); ++c) {
        const int sure = up_to(random, 0, devices - 1);
        for (int d = 0; d != devices; ++d) {
            if (d == sure || up_to(random, 0, 2) == 0) { out.hosts[static_cast<std::size_t>(d)].push_back(c); }
        }
    }
    return out;
}

/// Hall's condition over every set of devices.
double bound_of_all_sets(const schedule_problem& problem, const frozen_work& work, double passes_bound_us) {
    double bound = passes_bound_us;
    const auto busy = busy_us(problem);
    for (unsigned set = 1; set != 1U << static_cast<unsigned>(problem.devices); ++set) {
        double sum = 0;
        int count = 0;
        const auto inside = [&](int d) { return (set >> static_cast<unsigned>(d) & 1U) != 0; };
        for (int d = 0; d != problem.devices; ++d) {
            if (inside(d)) { sum += busy[static_cast<std::size_t>(d)], ++count; }
        }
        for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
            const auto& of = work.components[static_cast<std::size_t>(c)];
            for (int l = 0; l != static_cast<int>(of.layers.size()); ++l) {
                bool only = true;
                for (int d = 0; d != problem.devices; ++d) { only = only && (inside(d) || !work.may_host(c, l, d)); }
                if (only) { sum += least_work_us(of, l, l, work.samples); }
            }
        }
        bound = std::max(bound, sum / count);
    }
    if (work.samples > 0) {
        for (const auto& c : work.components) { bound = std::max(bound, c.duration_us(1)); }
    }
    return bound;
}

/// The earliest end of all, if it is below `known`, of passes in the orders that they have and calls of one sample
/// each, in any order on any host: every sequence of starts.
class exhaustive_fill {
public:
    exhaustive_fill(const schedule_problem& problem, const schedule& passes, const frozen_work& work, double known) :
        problem_{problem}, work_{work}, orders_{orders_of(passes)}, best_{known}, next_(orders_.size(), 0),
        free_(orders_.size(), 0.0), after_{work.after_us},
        ends_(problem.stages.size() * 3 * static_cast<std::size_t>(problem.microbatches), -1.0) {
        for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
            for (int s = 0; s != work.samples; ++s) { chains_.push_back({c, s, 0, 0.0, -1}); }
        }
        after_.resize(orders_.size(), 0.0);
        const auto busy = busy_us(problem);
        for (const double b : busy) { left_ += b; }
        for (const auto& c : work.components) { left_ += least_work_us(c, work.samples); }
        search(0.0);
    }
    [[nodiscard]] double best() const { return best_; }
    [[nodiscard]] bool gave_up() const { return nodes_ > most_nodes; }

private:
    struct chain {
        int component{};
        int sample{};
        std::size_t layer{};
        double end{};
        int device{};
    };
    static constexpr long most_nodes = 300'000;

    double& end_of(const ordered_pass& p) {
        return ends_[(static_cast<std::size_t>(p.stage) * 3 + static_cast<std::size_t>(p.op)) *
                         static_cast<std::size_t>(problem_.microbatches) +
                     static_cast<std::size_t>(p.microbatch)];
    }

    /// Starts are tried in the order of time.
    void search(double since) {
        if (++nodes_ > most_nodes) { return; }
        double last = 0;
        double room = 0;
        for (std::size_t d = 0; d != free_.size(); ++d) {
            last = std::max(last, free_[d] + after_[d]);
            room += best_ - after_[d] - std::max(free_[d], since);
        }
        if (last >= best_ - 1e-9 || left_ > room - 1e-9) { return; }
        bool ended = true;
        for (std::size_t d = 0; d != orders_.size(); ++d) {
            if (next_[d] == orders_[d].size()) { continue; }
            ended = false;
            const ordered_pass p = orders_[d][next_[d]];
            double start = free_[d];
            bool ready = true;
            for (const auto& need : problem_.dependencies) {
                if (!(need.after == stage_pass{p.op, p.stage})) { continue; }
                const double end = end_of({need.before.op, need.before.stage, p.microbatch});
                ready = ready && end >= 0;
                start = std::max(start, end + need.lag_us);
            }
            if (!ready || start < since) { continue; }
            const double length = problem_.stages[static_cast<std::size_t>(p.stage)].duration_us(p.op);
            const double free = std::exchange(free_[d], start + length);
            end_of(p) = start + length;
            ++next_[d];
            left_ -= length;
            search(start);
            left_ += length;
            --next_[d];
            end_of(p) = -1;
            free_[d] = free;
        }
        for (std::size_t i = 0; i != chains_.size(); ++i) {
            chain& c = chains_[i];
            const auto& of = work_.components[static_cast<std::size_t>(c.component)];
            if (c.layer == of.layers.size()) { continue; }
            ended = false;
            // samples are alike: they begin in order
            if (c.layer == 0 && c.sample > 0 && chains_[i - 1].layer == 0) { continue; }
            const double length = of.layers[c.layer].duration_us(1);
            for (int d = 0; d != problem_.devices; ++d) {
                if (!work_.may_host(c.component, static_cast<int>(c.layer), d)) { continue; }
                const chain before = c;
                const double moved =
                    c.layer != 0 && c.device != d ? work_.link.transfer_us(of.layers[c.layer - 1].output_bytes) : 0.0;
                const double start = std::max(free_[static_cast<std::size_t>(d)], c.end + moved);
                if (start < since) { continue; }
                const double free = std::exchange(free_[static_cast<std::size_t>(d)], start + length);
                c = {c.component, c.sample, c.layer + 1, start + length, d};
                left_ -= length;
                search(start);
                left_ += length;
                c = before;
                free_[static_cast<std::size_t>(d)] = free;
            }
        }
        if (ended) { best_ = last; }
    }

    const schedule_problem& problem_;
    const frozen_work& work_;
    device_orders orders_;
    double best_;
    double left_{};
    long nodes_{};
    std::vector<std::size_t> next_;
    std::vector<double> free_;
    std::vector<double> after_;
    std::vector<double> ends_;
    std::vector<chain> chains_{};
};

/// Two devices, two microbatches, one component of three layers on two samples.
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
            if (!reorder) { REQUIRE(orders_of(found.passes) == orders_of(passes)); }
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
        // 10 us of one device, 4 of the other: 2 layers of both samples, then the third on one of them
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

    TEST_CASE("fill: the bound is that of all sets of devices, and never falls when work grows") {
        std::mt19937 random{2};
        std::mt19937 splits{2};
        for (int round = 0; round != 500; ++round) {
            const auto problem = limited_problem(random, 5, 1, 3, 0);
            auto work = random_work(random, problem.devices, 4, 8);
            if (round % 2 == 1) { work.split = random_split(splits, work, problem.devices); }
            const double alone = lower_bound_us(problem) * up_to(random, 0, 1);
            const double found = frozen_bound_us(problem, work, alone);
            const double wanted = bound_of_all_sets(problem, work, alone);
            REQUIRE(found == doctest::Approx(wanted).epsilon(1e-6));
            REQUIRE(found <= wanted * (1 + 1e-9));
            ++work.samples;
            REQUIRE(frozen_bound_us(problem, work, alone) >= found * (1 - 1e-6));
        }
    }

    TEST_CASE("fill: 500 tiny instances against every order of passes and layers") {
        std::mt19937 random{3};
        std::mt19937 splits{3};
        int judged = 0;
        int equal = 0;
        int attained = 0; // bounds of the end
        double worst = 0;
        while (judged != 500) {
            const auto problem = limited_problem(random, 2, 1, 2, 0);
            const auto passes = list_schedule(problem);
            auto work = random_work(random, problem.devices, 1, 2);
            work.components.front().max_chunk = 1;
            if (work.components.front().layers.size() > 2) { work.components.front().layers.resize(2); }
            if (judged % 4 < 2) { work.split = random_split(splits, work, problem.devices); }
            for (int d = 0; d != problem.devices && judged % 2 == 1; ++d) {
                work.after_us.push_back(up_to(random, 0, 40));
            }
            const auto found = fill_schedule(problem, passes, work, 0.0, {.placements = 20'000});
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            const exhaustive_fill all{problem, passes, work, end_us(work, found)};
            if (all.gave_up()) { continue; }
            REQUIRE(all.best() >= found.lower_bound_us * (1 - 1e-9));
            const double end_bound = frozen_end_bound_us(problem, work, 0.0);
            REQUIRE(all.best() >= end_bound * (1 - 1e-9));
            attained += all.best() <= end_bound * (1 + 1e-9) ? 1 : 0;
            const double gap = gap_of(end_us(work, found), all.best());
            ++judged;
            equal += gap < 1e-9 ? 1 : 0;
            worst = std::max(worst, gap);
        }
        MESSAGE("optimal " << equal << " of " << judged << ", worst " << 100 * worst << " %; bounds attained "
                           << attained);
        CHECK(equal == judged);
        CHECK(attained >= 50);
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
                        frozen_work work{{shape}, 4 * microbatches + 1, {}, {}}; // some chains have to be cut
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

        // By hand: after the passes layer a on device 0, b and c on device 1, with 0.5 us between.
        const double end = good.passes.makespan_us();
        const auto by_hand = [&](double begin) {
            return tasks_of{{{0, 0, 0, 0, 2, 0, end, end + 3}}, {{0, 1, 2, 0, 2, 1, begin, begin + 8}}};
        };
        CHECK(find_fill_violation(of.problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::none);
        CHECK(find_fill_violation(of.problem, of.work, good.passes, by_hand(end + 3.25)).rule == fill_rule::chain);
        auto tasks = by_hand(end + 3.5);
        tasks[1] = {{0, 2, 2, 0, 2, 1, end + 10, end + 12}, {0, 1, 1, 0, 2, 1, end + 3.5, end + 9.5}};
        CHECK(find_fill_violation(of.problem, of.work, good.passes, tasks).rule == fill_rule::sorted);

        // Layer b on two samples: 16 bytes. Passes hold 1 for each microbatch and stage, all freed in the end.
        auto problem = of.problem;
        problem.memory_limit_bytes = {20, 16};
        CHECK(find_fill_violation(problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::none);
        problem.memory_limit_bytes = {20, 15};
        CHECK(find_fill_violation(problem, of.work, good.passes, by_hand(end + 3.5)).rule == fill_rule::memory);
        // An activation that waits beside another task: 8 bytes on both devices.
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
        of.problem.memory_limit_bytes = {100, 8}; // one sample at a time
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
        CHECK(has(says([](frozen_work& w) { w.hosts = {{}, {}}; }), "no device has component encoder"));
        CHECK(has(says([](frozen_work& w) { w.hosts = {{0}, {1}}; }), "no component 1"));
        CHECK(has(says([](frozen_work& w) { w.split = {{}, {}}; }), "split: there are 2 lists for 1 components"));
        CHECK(has(says([](frozen_work& w) { w.split = {{0}}; }), "split: of component encoder it has not every layer"));
        CHECK(has(says([](frozen_work& w) { w.split = {{0, 2, 0}}; }), "device 2 has a layer, which is no host"));
        CHECK(has(says([](frozen_work& w) { w.hosts = {{0}, {}}, w.split = {{0, 1, 0}}; }), "device 1 has a layer"));
        CHECK(has(says([](frozen_work& w) { w.components[0].max_chunk = 0; }), "max_chunk"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers[1].sample_us = -1; }), "layer b"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers[0].live_bytes = -1; }), "layer a"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers.clear(); }), "layers"));
        CHECK(has(says([](frozen_work& w) { w.components.push_back(w.components[0]); }), "name"));
        CHECK(has(says([](frozen_work& w) { w.components[0].layers[0].sample_us = 1e308; }), "encoder"));
        CHECK(has(says([](frozen_work& w) { w.link.latency_us = -1; }), "link"));
        CHECK(has(says([](frozen_work& w) { w.after_us = {1.0}; }), "after_us: there are 1 for 2 devices"));
        CHECK(has(says([](frozen_work& w) { w.after_us = {0.0, -1.0}; }), "after_us: it is negative"));
    }
}

TEST_SUITE("constexpr") {
    TEST_CASE("fill: a plan's tasks can be found when it is compiled") {
        constexpr double gained_us = [] {
            small_case of{}; // not const: GCC 12 cannot fill a vector of a const object then
            auto passes = list_schedule(of.problem);
            auto found = fill_schedule(of.problem, passes, of.work, 0.0, {.placements = 200});
            validate_fill(of.problem, of.work, found.passes, found.tasks);
            return passes.makespan_us() + least_work_us(of.work.components[0], 2) - found.makespan_us();
        }();
        static_assert(gained_us > 0);
        CHECK(gained_us > 0);
    }
}
