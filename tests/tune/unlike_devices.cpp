#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

#include "drawn_space.hpp"
#include "mentions.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// A space whose devices have memory for everything.
drawn_space draw_roomy_space(std::mt19937& random) {
    drawn_space s = draw_space(random);
    s.machine.memory_bytes = std::int64_t{1} << 40U;
    return s;
}

void list_devices(drawn_space& s, std::mt19937& random) {
    for (int d = 0; d != s.machine.devices(); ++d) {
        s.machine.unlike.push_back({"some", s.machine.memory_bytes, 0.25 * static_cast<double>(1 + random() % 8)});
    }
}

/// Two cards on PCIe; the second is slower and has less memory.
cluster two_cards(double speed, std::int64_t memory_bytes) {
    cluster made = one_node(2, {.latency_us = 15, .bandwidth_gb_per_s = 10}, rtx_4090.memory_bytes);
    made.unlike = {{"rtx-4090", rtx_4090.memory_bytes, 1}, {"other", memory_bytes, speed}};
    return made;
}

plan_request two_cards_request(const cluster& machine) {
    plan_request asked;
    asked.cluster = machine;
    asked.device = rtx_4090;
    asked.pipeline_degree = 2;
    asked.microbatch_size = 1;
    asked.global_batch = 8;
    asked.placement = placement::folded;
    asked.seconds = 0;
    asked.kept = adamw_memory(2);
    return asked;
}

cost_table costs_of_sd(int size) {
    static constexpr auto graph = graph_of<sd21>();
    return analytic_costs(graph.view(), rtx_4090, size, 2);
}

} // namespace

TEST_CASE("a cluster that lists devices which are alike is planned as one that lists none") {
    std::mt19937 random{9101};
    for (int i = 0; i != 16; ++i) {
        drawn_space s = draw_roomy_space(random);
        if (i % 2 == 0) { // replicas only, with gradients in several buckets
            for (layer_cost& l : s.costs.layers) { l.parameter_bytes *= 100'000; }
            s.machine.intra_node.bandwidth_gb_per_s *= 100'000;
            s.machine.inter_node.bandwidth_gb_per_s *= 100'000;
            s.options.memory_gb_per_s *= 100'000;
            s.options.pipeline_degrees = {1};
        }
        INFO("space " << i);
        const tuning plain = s.run();
        s.machine.unlike.assign(static_cast<std::size_t>(s.machine.devices()), {"same", s.machine.memory_bytes, 1.0});
        const tuning listed = s.run();
        CHECK(listed.plan == plain.plan);
        REQUIRE(listed.rows.size() == plain.rows.size());
        for (std::size_t r = 0; r != plain.rows.size(); ++r) {
            CHECK(listed.rows[r].step_us == plain.rows[r].step_us);
            CHECK(listed.rows[r].verdict == plain.rows[r].verdict);
        }
        // Costs are those of a device of speed 1.
        for (unlike_device& d : s.machine.unlike) { d.relative_speed = 2; }
        drawn_space twice = s;
        twice.machine.unlike.clear();
        for (layer_cost& l : twice.costs.layers) {
            l.forward_us /= 2;
            l.backward_input_us /= 2;
            l.backward_weight_us /= 2;
        }
        twice.options.memory_gb_per_s *= 2;
        CHECK(s.run().plan.predicted.step_us == doctest::Approx(twice.run().plan.predicted.step_us));
    }
}

TEST_CASE("plans for unlike devices keep to the speed and the memory of each") {
    std::mt19937 random{9102};
    int limited = 0;
    int compared = 0;
    for (int i = 0; i != 30; ++i) {
        drawn_space s = draw_roomy_space(random);
        list_devices(s, random);
        s.options.prune = false;
        INFO("space " << i);
        tuning made = s.run();
        if (i % 2 == 0) { // some devices have less memory than that needs
            const std::int64_t most = made.best_row().peak_memory_bytes;
            for (unlike_device& d : s.machine.unlike) {
                d.memory_bytes = most * static_cast<std::int64_t>(50 + random() % 100) / 100 + 1;
            }
            try {
                made = s.run();
            } catch (const infeasible_error& e) {
                CHECK(mentions(e.what(), "memory"));
                continue;
            }
            ++limited;
        }
        const plan& best = made.plan;
        const tune_candidate& c = made.best_row().candidate;
        const rank_grid grid{c.layout, c.pipeline_degree, c.data_degree};
        std::vector<double> speed;
        for (int p = 0; p != grid.pipeline; ++p) {
            double slowest = 1e9;
            for (int r = 0; r != grid.data; ++r) {
                const unlike_device& d = s.machine.unlike[static_cast<std::size_t>(grid.rank_of(p, r))];
                slowest = std::min(slowest, d.relative_speed);
                CHECK(best.predicted.peak_memory_bytes[static_cast<std::size_t>(p)] <= d.memory_bytes);
            }
            speed.push_back(slowest);
        }
        CHECK(made.world.device_speed == speed);
        const cost_table costs = scaled_costs(s.costs, best.microbatch_size);
        problem_options ask{};
        ask.microbatches = best.microbatches;
        ask.split_backward = best.split_backward;
        ask.routing = best.routing;
        ask.recompute = best.recompute;
        ask.links = made.world.links;
        ask.device_speed = speed;
        const auto violation = find_violation(make_problem(costs, best.cut, ask), best.order);
        CHECK_MESSAGE(!violation.broken(), describe(violation));
        for (const tune_row& row : made.rows) {
            if (!row.evaluated()) { continue; }
            REQUIRE(row.bound_us <= row.step_us * (1 + 1e-9));
            const cost_table sized = scaled_costs(s.costs, row.candidate.microbatch_size);
            const plan alone = plan_candidate(sized, row.candidate, s.machine, s.options).plan;
            REQUIRE(alone.predicted.step_us == row.step_us);
        }
        s.options.prune = true;
        REQUIRE(s.run().plan == best);
        ++compared;
    }
    CHECK(limited > 5);
    CHECK(compared > 20);
}

TEST_CASE("two unlike cards share a model by their speeds, which beats two equal halves") {
    const cluster cards = two_cards(0.5, rtx_4090.memory_bytes);
    const tuning ours = plan_for(costs_of_sd, two_cards_request(cards));
    const tuning halves = plan_for(costs_of_sd, two_cards_request(one_node(2, cards.intra_node, cards.memory_bytes)));
    simulation_options world = halves.world;
    world.device_speed = ours.world.device_speed;
    const step_model model{halves.plan, halves.costs};
    const simulation ran = simulate(halves.plan, model, lower(halves.plan, model), world);
    MESSAGE("equal halves ", ran.step_us, " us, by speed ", ours.plan.predicted.step_us, " us");
    CHECK(ours.plan.predicted.step_us < 0.8 * ran.step_us);
    double work_us = 0;
    for (const layer_cost& l : ours.costs.layers) {
        work_us += ours.plan.microbatches * (l.forward_us + l.backward_input_us + l.backward_weight_us);
    }
    CHECK(ours.plan.predicted.step_us > work_us / 1.5); // both cards busy all the time
    CHECK(ours.plan.predicted.step_us < 1.15 * work_us / 1.5);
}

TEST_CASE("a card with less memory has less of the model") {
    const tuning free = plan_for(costs_of_sd, two_cards_request(two_cards(1, rtx_4090.memory_bytes)));
    const std::int64_t taken = free.plan.predicted.peak_memory_bytes[1];
    const tuning tight = plan_for(costs_of_sd, two_cards_request(two_cards(1, taken * 9 / 10)));
    CHECK(tight.plan.predicted.peak_memory_bytes[1] <= taken * 9 / 10);
    CHECK(tight.plan.predicted.step_us >= free.plan.predicted.step_us);
}

TEST_CASE("replicas of one position are cards of one kind where a layout has them so") {
    cluster cards = one_node(4, {.latency_us = 15, .bandwidth_gb_per_s = 10}, rtx_4090.memory_bytes);
    for (const double speed : {1.0, 1.0, 0.5, 0.5}) {
        cards.unlike.push_back(
            {label{std::string_view{speed == 1 ? "rtx-4090" : "other"}}, rtx_4090.memory_bytes, speed});
    }
    plan_request asked = two_cards_request(cards);
    asked.data_degree = 2;
    const tuning found = plan_for(costs_of_sd, asked);
    CHECK(found.layout == rank_layout::replicas_inside);
    CHECK(found.world.device_speed == std::vector<double>{1, 0.5});
    asked.layout = rank_layout::pipeline_inside;
    const tuning mixed = plan_for(costs_of_sd, asked);
    CHECK(mixed.world.device_speed == std::vector<double>{0.5, 0.5});
    CHECK(mixed.plan.predicted.step_us >= found.plan.predicted.step_us);
}

TEST_CASE("of a longer list the first devices are planned for, at every extent of a run") {
    plan_request asked = two_cards_request(two_cards(0.5, rtx_4090.memory_bytes));
    const auto costs_at = [](int size, const extent& to) {
        cost_table costs = costs_of_sd(size);
        for (layer_cost& l : costs.layers) {
            for (double* us : {&l.forward_us, &l.backward_input_us, &l.backward_weight_us}) { *us *= to.height / 96.0; }
        }
        return costs;
    };
    asked.extents = {{{96, 96}, 0.5}, {{48, 96}, 0.5}};
    const tuning two = plan_for(extent_cost_source{costs_at}, asked);
    two.each_extent([&](const extent& to, const plan& made, const cost_table& costs, double) {
        const step_model model{made, costs};
        CHECK(simulate(made, model, lower(made, model), two.world).step_us ==
              doctest::Approx(made.predicted.step_us).epsilon(0.02));
        CHECK(to.width == 96);
    });
    asked.devices = 2;
    asked.cluster->devices_per_node = 4;
    asked.cluster->unlike.resize(4, {"far", 1, 0.001});
    asked.cluster->memory_bytes = 1;
    CHECK(plan_for(extent_cost_source{costs_at}, asked).plan == two.plan);
}

TEST_CASE("what is only for devices that are alike is refused") {
    plan_request asked = two_cards_request(two_cards(0.5, rtx_4090.memory_bytes));
    asked.frozen = frozen_mode::bubbles;
    const auto with_frozen = [](int size) {
        cost_table costs = costs_of_sd(size);
        frozen_component one;
        one.name = "text";
        one.layers.push_back({.name = "all", .call_us = 1, .sample_us = 1});
        costs.frozen.push_back(one);
        return costs;
    };
    const auto refusal = [](const auto& make) -> std::string {
        try {
            static_cast<void>(make());
        } catch (const input_error& e) { return e.what(); }
        return "nothing was thrown";
    };
    CHECK(mentions(refusal([&] { return plan_for(cost_source{with_frozen}, asked); }), "alike"));
    asked.frozen = frozen_mode::tuned;
    const tuning without = plan_for(cost_source{with_frozen}, asked);
    CHECK(without.plan.frozen_tasks.empty());
    CHECK(mentions(without.assumptions.back(), "alike"));
    tune_options space{};
    space.global_batch = 2;
    space.frozen = frozen_mode::bubbles;
    CHECK(mentions(refusal([&] { return tune(with_frozen, *asked.cluster, space); }), "alike"));
    CHECK(mentions(refusal([&] { return plan_cascade_for(costs_of_sd, costs_of_sd, asked); }),
                   "a cascade needs devices that are all alike"));
}

TEST_CASE("a list of devices that is none of the cluster is refused before it is read") {
    const auto refusal = [](cluster machine, int pipeline) -> std::string {
        tune_candidate c{};
        c.pipeline_degree = pipeline;
        c.microbatches = 2;
        try {
            static_cast<void>(plan_candidate(costs_of_sd(1), c, machine));
        } catch (const input_error& e) { return e.what(); }
        return "nothing was thrown";
    };
    cluster cards = two_cards(0.5, rtx_4090.memory_bytes);
    CHECK(refusal(cards, 2) == "nothing was thrown");
    CHECK(mentions(refusal(cards, 3), "a grid of 3 x 1 does not fit the cluster's 2 devices"));
    cards.unlike.pop_back();
    CHECK(mentions(refusal(cards, 2), "devices must have nodes x devices_per_node entries (2)"));
    cards = two_cards(0.5, 0);
    CHECK(mentions(refusal(cards, 2), "devices[1].memory_bytes"));
    cards = two_cards(0, 1);
    CHECK(mentions(refusal(cards, 2), "devices[1].relative_speed"));
}
