#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <support/drawn_cases.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "drawn_space.hpp"
#include "mentions.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

template <class Scalar>
struct backend_of {
    using scalar = Scalar;
};
struct half {
    short bits{};
};

cost_table costs_of(int samples) {
    static constexpr auto graph = graph_of<ddpm_fmnist>();
    return analytic_costs(graph.view(), cpu_core, samples, sizeof(float));
}

/// Four devices in two nodes, links with a cost, no search time: every call gives the same plan.
plan_request small_request() {
    plan_request asked{};
    asked.devices = 4;
    asked.global_batch = 32;
    asked.device = cpu_core;
    asked.cluster = cluster{.name = "two",
                            .nodes = 2,
                            .devices_per_node = 2,
                            .memory_bytes = 0,
                            .intra_node = {.latency_us = 5, .bandwidth_gb_per_s = 2},
                            .inter_node = {.latency_us = 20, .bandwidth_gb_per_s = 0.2}};
    asked.seconds = 0;
    return asked;
}

plan_request request_of(const tune_candidate& c, plan_request asked) {
    asked.pipeline_degree = c.pipeline_degree;
    asked.data_degree = c.data_degree;
    asked.waves = c.waves;
    asked.microbatch_size = c.microbatch_size;
    asked.microbatches = c.microbatches;
    asked.placement = c.kind;
    asked.routing = c.routing;
    asked.recompute = c.recompute.kind;
    asked.layout = c.layout;
    asked.slack = c.slack;
    asked.sharded_optimizer = c.sharded_optimizer;
    asked.schedule = c.method;
    asked.split_backward = c.split_backward;
    if (c.pipeline_degree == 1) { asked.split_backward.reset(); }
    return asked;
}

template <class Change>
std::string refusal(Change change) {
    plan_request asked = small_request();
    change(asked);
    try {
        static_cast<void>(plan_for(costs_of, asked));
    } catch (const input_error& e) { return e.what(); }
    return "nothing was thrown";
}

static_assert(kept_by<ddpm_fmnist, backend_of<float>>().total_bytes() == 20);
static_assert(kept_by<ddpm_fmnist, backend_of<half>>().total_bytes() == 22);
static_assert(kept_by<ddpm_fmnist, backend_of<half>>(true).state_bytes == 16);

/// Number of floats in the factored second moments of all parameters of a graph, from their shapes.
template <class Model>
std::int64_t listed_means() {
    std::int64_t means = 0;
    const auto add = [&](int layer) {
        for (const parameter& p : parameters_of<Model>(layer)) {
            means += p.rank < 2 ? p.elements() : p.dims[0] + p.elements() / p.dims[0];
        }
    };
    add(conditioning_block);
    for (int l = 0; l != static_cast<int>(Model::part_count); ++l) { add(l); }
    return means;
}

} // namespace

TEST_CASE("factored moments are planned for as floats of rows and columns, and are shared by no replicas") {
    const auto graph = graph_of<ddpm_fmnist>();
    std::int64_t means = 0;
    std::int64_t elements = 0;
    for (const layer_node& layer : graph.layers) {
        means += layer.factored_elements;
        elements += layer.parameter_elements;
    }
    CHECK(means == listed_means<ddpm_fmnist>());
    CHECK(means < elements / 20);

    plan_request asked = small_request();
    asked.sharded_optimizer = std::nullopt;
    asked.optimizer.moments = moment_form::factored;
    const tuning found = plan_for(costs_of, asked);
    for (const tune_row& row : found.rows) { CHECK_FALSE(row.candidate.sharded_optimizer); }
    CHECK(found.kept.total_bytes() == 4 + 4 + 4);
    // Over all devices, the same plan with AdamW takes 8 bytes per parameter more, and no means.
    const std::vector<std::int64_t> bytes = peak_bytes(found.plan, found.costs, found.kept);
    const std::vector<std::int64_t> usual = peak_bytes(found.plan, found.costs, adamw_memory(4));
    std::int64_t saved = 0;
    for (std::size_t d = 0; d != bytes.size(); ++d) { saved += usual[d] - bytes[d]; }
    CHECK(saved == 8 * elements - 4 * means);

    const cost_source costs_without = [](int samples) {
        cost_table costs = costs_of(samples);
        for (layer_cost& layer : costs.layers) { layer.factored_elements = 0; }
        return costs;
    };
    const auto refused = [](const auto& act) {
        try {
            act();
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{};
    };
    const std::string why =
        "costs: layers: " + found.costs.layers[0].name.str() + ": factored_elements is missing, but adafactor needs it";
    CHECK(refused([&] { static_cast<void>(plan_for(costs_without, asked)); }) == why);
    CHECK(refused([&] { static_cast<void>(plan_for(costs_without(2), asked)); }) == why);
}

TEST_CASE("a request with every field given is one candidate: the tuner's row, and what plan_candidate makes of it") {
    plan_request asked = small_request();
    asked.sharded_optimizer = std::nullopt;
    const tuning all = plan_for(costs_of, asked);
    REQUIRE(all.ranking.size() >= 10);
    tune_options quick{};
    quick.kept = adamw_memory(4);
    quick.memory_gb_per_s = cpu_core.memory_gb_per_s * cpu_core.efficiency;
    for (std::size_t k = 0; k != 10; ++k) {
        const tune_row& row = all.rows[all.ranking[k]];
        INFO(to_text(row.candidate));
        const cost_table costs = costs_of(row.candidate.microbatch_size);
        const planned alone = plan_candidate(costs, row.candidate, *asked.cluster, quick);
        CHECK(alone.plan.predicted.step_us == row.step_us);
        CHECK(alone.plan.predicted.lower_bound_us == row.bound_us);
        CHECK(alone.plan.predicted.bubble_ratio == row.bubble_ratio);
        if (k == 0) { CHECK(static_cast<const planned&>(all) == alone); }

        const tuning one = plan_for(costs_of, request_of(row.candidate, asked));
        REQUIRE(one.rows.size() == 1);
        CHECK(one.best_row().candidate == row.candidate);
        CHECK(one.kept.sharded == row.candidate.sharded_optimizer);
        // A candidate requested by name gets a longer list search.
        CHECK(one.plan.predicted.step_us <= row.step_us);
        candidate_options longer = quick;
        longer.list = {};
        const plan sought = plan_candidate(costs, row.candidate, *asked.cluster, longer).plan;
        CHECK(one.plan.predicted.step_us == std::min(row.step_us, sought.predicted.step_us));
        CHECK(one.plan.predicted.peak_memory_bytes == peak_bytes(one.plan, one.costs, one.kept));
    }
}

TEST_CASE("what is given is kept, and what is absent is chosen no worse than any value that could have been given") {
    const plan_request asked = small_request();
    const double free_us = plan_for(costs_of, asked).plan.predicted.step_us;
    CHECK(free_us > 0);
    int planned = 0;
    const auto fixed = [&](auto field, const auto& values, auto read) {
        for (const auto& value : values) {
            plan_request one = asked;
            one.*field = value;
            tuning made;
            try {
                made = plan_for(costs_of, one);
            } catch (const infeasible_error&) { continue; }
            CHECK(read(made) == value);
            CHECK(free_us <= made.plan.predicted.step_us);
            ++planned;
        }
    };
    fixed(&plan_request::pipeline_degree, std::vector{1, 2, 4}, [](const tuning& t) { return t.plan.pipeline_degree; });
    fixed(&plan_request::data_degree, std::vector{1, 2, 4}, [](const tuning& t) { return t.plan.data_degree; });
    fixed(&plan_request::waves, std::vector{1, 2}, [](const tuning& t) { return t.best_row().candidate.waves; });
    fixed(&plan_request::microbatch_size, std::vector{1, 2, 4, 8},
          [](const tuning& t) { return t.plan.microbatch_size; });
    fixed(&plan_request::microbatches, std::vector{1, 2, 4, 8}, [](const tuning& t) { return t.plan.microbatches; });
    fixed(&plan_request::placement, std::vector{placement::folded, placement::sequential, placement::interleaved},
          [](const tuning& t) { return t.plan.cut.kind; });
    fixed(&plan_request::split_backward, std::vector{true, false},
          [](const tuning& t) { return t.plan.split_backward; });
    fixed(&plan_request::recompute,
          std::vector{recomputation::none, recomputation::skips, recomputation::stages, recomputation::selective},
          [](const tuning& t) { return t.plan.recompute.kind; });
    fixed(&plan_request::layout, std::vector{rank_layout::pipeline_inside, rank_layout::replicas_inside},
          [](const tuning& t) { return t.layout; });
    CHECK(planned >= 20);
}

TEST_CASE("a placement and a number of stages that are given are kept on one device too") {
    for (const auto kind : {placement::folded, placement::interleaved}) {
        for (const auto kept :
             {recomputation::none, recomputation::skips, recomputation::stages, recomputation::selective}) {
            const tuning made = plan_for(costs_of(2), {.devices = 1,
                                                       .pipeline_degree = 1,
                                                       .waves = 2,
                                                       .microbatches = 4,
                                                       .placement = kind,
                                                       .recompute = kept,
                                                       .seconds = 0});
            CHECK(made.plan.cut.kind == kind);
            CHECK(made.best_row().candidate.waves == 2);
            CHECK(made.plan.recompute.kind == kept);
        }
    }
}

TEST_CASE("the batch follows from the sizes that are given, and a profile brings its microbatch size") {
    const cost_table costs = costs_of(2);
    const tuning made = plan_for(costs, {.devices = 2, .pipeline_degree = 2, .microbatches = 6, .seconds = 0});
    CHECK(made.plan.microbatch_size == 2);
    CHECK(made.plan.microbatches == 6);
    CHECK(made.costs == costs);
    CHECK(made.assumptions.size() == 2); // the microbatch size and the link; cpu-core is known
    const plan_request for_backend{
        .devices = 2, .global_batch = 12, .device = cpu_core, .microbatch_size = 2, .seconds = 0};
    const tuning same = plan_for<ddpm_fmnist, backend_of<float>>(for_backend);
    CHECK(same.costs == costs);
    CHECK(same.kept == kept_by<ddpm_fmnist, backend_of<float>>());
}

TEST_CASE("a search shares its seconds among the best candidates and is asked for no published order") {
    plan_request asked = small_request();
    asked.seconds = 1.0;
    int times = 0;
    double seconds = 0;
    asked.search = [&](const schedule_problem& problem, const synthesis_options& options) {
        ++times;
        seconds += options.limit.seconds;
        synthesis found{};
        found.best = list_schedule(problem);
        found.seconds = options.limit.seconds;
        return found;
    };
    static_cast<void>(plan_for(costs_of, asked));
    CHECK(times >= 3);
    CHECK(seconds <= 1.0 + 1e-3 * times);
    times = 0;
    asked.schedule = schedule_method::ilp;
    CHECK(plan_for(costs_of, asked).best_row().candidate.method == schedule_method::list);
    CHECK(times >= 3);
    times = 0;
    for (const method_rule& rule : method_rules) {
        const schedule_method method = rule.method;
        if (method == schedule_method::ilp) { continue; }
        asked.schedule = method;
        const tuning made = plan_for(costs_of, asked);
        CHECK((made.best_row().candidate.method == method || made.plan.pipeline_degree == 1));
    }
    CHECK(times == 0);
}

TEST_CASE("beside frozen work too a search makes no step longer, whatever its orders, and some shorter") {
    std::mt19937 random{5011};
    int shorter = 0;
    for (int i = 0; i != drawn_cases(9); ++i) {
        CAPTURE(i);
        drawn_space s = draw_space(random);
        const int devices = s.machine.devices();
        if (static_cast<int>(s.costs.layers.size()) < 2 * devices) { continue; }
        s.options.pipeline_degrees = {devices};
        s.options.recomputations = {recomputation::none};
        double load_us = 0;
        for (const layer_cost& l : s.costs.layers) { load_us += l.load_us(); }
        s.costs.frozen = {{"pictures", frozen_use::input, 16, 8, 1, {{"whole", 0.0, 0.5 * load_us, 8, 8, 8}}}};
        s.options.frozen = frozen_mode::tuned;
        const double quick_us = s.run().best_row().step_us;
        const auto searched_us = [&](const auto& order) {
            s.options.refined = 2;
            s.options.refine = [&](const schedule_problem& problem) { return synthesis{.best = order(problem)}; };
            return s.run().best_row().step_us;
        };
        // The best candidate is filled again, with more patience than during the choice.
        constexpr double patience = 1 + 1e-3;
        const double by_rules =
            searched_us([](const schedule_problem& p) { return list_schedule(p, {.effort = list_effort::rules}); });
        CHECK(by_rules <= quick_us * patience);
        CHECK(searched_us([](const schedule_problem& p) { return gpipe(p); }) <= quick_us * patience);
        shorter += by_rules < quick_us ? 1 : 0;
    }
    CHECK(shorter > 0);
}

TEST_CASE("a request that contradicts itself is refused in the words of whoever asks") {
    CHECK(mentions(refusal([](plan_request& a) { a.pipeline_degree = 3; }),
                   "pipeline_degree: 3 does not divide the 4 of devices"));
    CHECK(mentions(refusal([](plan_request& a) { a.pipeline_degree = 0; }), "pipeline_degree: it must be at least 1"));
    CHECK(mentions(refusal([](plan_request& a) { a.pipeline_degree = a.data_degree = 4; }),
                   "pipeline_degree x data_degree is 16, not the 4 of devices"));
    CHECK(mentions(refusal([](plan_request& a) { a.devices = 5; }), "devices: 5 requested, but cluster has 4"));
    CHECK(mentions(refusal([](plan_request& a) { a.microbatch_size = 5; }),
                   "microbatch_size is 5, which does not divide"));
    CHECK(
        mentions(refusal([](plan_request& a) { a.global_batch = 0; }), "global_batch: not given, and the other sizes"));
    CHECK(mentions(refusal([](plan_request& a) { a.slack = -1; }), "slack"));
    CHECK(mentions(refusal([](plan_request& a) { a.seconds = -1; }), "seconds"));
    CHECK(mentions(refusal([](plan_request& a) { a.memory_limit_bytes = -1; }), "memory_limit_bytes"));
    CHECK(mentions(refusal([](plan_request& a) { a.kept = parameter_memory{.state_bytes = -1}; }), "state_bytes"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.waves = 2;
                       a.placement = placement::sequential;
                   }),
                   "waves: must be 1, as a sequential placement has one stage"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.data_degree = 1;
                       a.sharded_optimizer = true;
                   }),
                   "sharded_optimizer: there is only one replica"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.optimizer.moments = moment_form::factored;
                       a.sharded_optimizer = true;
                   }),
                   "sharded_optimizer: adafactor keeps state for whole tensors"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.pipeline_degree = 1;
                       a.split_backward = true;
                   }),
                   "split_backward: must not be set with pipeline_degree 1"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.schedule = schedule_method::zb_v;
                       a.waves = 2;
                   }),
                   "schedule zb-v: it needs one wave"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.schedule = schedule_method::one_f_one_b;
                       a.words.schedule = "--schedule";
                       a.waves = 2;
                   }),
                   "--schedule 1f1b: it has one stage on each device, so waves must be 1"));
    CHECK(mentions(refusal([](plan_request& a) { a.schedule = schedule_method::ilp; }),
                   "seconds: must be above 0 for schedule ilp"));
    CHECK(mentions(refusal([](plan_request& a) {
                       a.schedule = schedule_method::ilp;
                       a.seconds = 1;
                   }),
                   "integer-program solver"));
}
