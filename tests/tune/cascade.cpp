#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <partition/random_table.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/plan_summary.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Layers of equal work, each with a skip to its mirror image.
cost_table equal_layers(const char* name, int layers, double us) {
    cost_table costs;
    costs.model = label{std::string_view{name}};
    costs.microbatch_size = 1;
    for (int l = 0; l != layers; ++l) {
        costs.layers.push_back({.name = label{"l"} + static_cast<unsigned>(l),
                                .forward_us = us,
                                .backward_input_us = us,
                                .backward_weight_us = us,
                                .parameter_bytes = 4000,
                                .saved_bytes = 500,
                                .output_bytes = 100});
    }
    for (int l = 0; 2 * l + 3 < layers; ++l) { costs.skips.push_back({l, layers - 1 - l, 100}); }
    return costs;
}

plan_request cascade_request() {
    plan_request asked;
    asked.devices = 4;
    asked.global_batch = 8;
    asked.cluster = one_node(4, pulse::link{});
    asked.seconds = 0;
    return asked;
}

cascade_tuning tuned(const plan_request& asked) {
    const cost_table a = equal_layers("a", 16, 10.0);
    const cost_table b = equal_layers("b", 12, 7.0);
    return plan_cascade_for([a](int samples) { return scaled_costs(a, samples); },
                            [b](int samples) { return scaled_costs(b, samples); }, asked);
}

std::string said(const std::function<void()>& act) {
    try {
        act();
    } catch (const error& e) { return e.what(); }
    return "";
}

} // namespace

TEST_CASE("a request for a cascade is tuned, and compared with its backbones one after the other") {
    const cascade_tuning found = tuned(cascade_request());
    require_valid(found.plan, "plan");
    const prediction& expected = found.plan.predicted;
    CHECK(found.plan.model.view() == "a+b");
    CHECK(found.plan.microbatches * found.plan.microbatch_size == 8);
    CHECK(expected.step_us >= expected.lower_bound_us * (1 - 1e-12));
    CHECK(expected.peak_memory_bytes == peak_bytes(found.plan, found.costs, found.kept));
    for (const tune_row& row : found.rows) {
        if (row.evaluated()) { CHECK(row.step_us >= expected.step_us); }
        CHECK((row.verdict == tune_verdict::best) == row.reason.empty());
    }
    // Each backbone alone gets as many samples on as many devices, and idles where the other one works in the cascade.
    for (const tuning* alone : {&found.first, &found.second}) {
        CHECK(alone->plan.pipeline_degree == 4);
        CHECK(alone->plan.microbatches * alone->plan.microbatch_size == 8);
        CHECK(alone->plan.predicted.step_us < expected.step_us);
    }
    const double apart_us = found.first.plan.predicted.step_us + found.second.plan.predicted.step_us;
    CHECK(found.gain() == doctest::Approx(apart_us / expected.step_us));
    CHECK(plan_summary(found).find("lower bound") != std::string::npos);
    // Given values are kept, and the candidate is plan_cascade's.
    plan_request asked = cascade_request();
    asked.microbatch_size = 4;
    asked.split_backward = false;
    asked.recompute = recomputation::stages;
    const cascade_tuning fixed = tuned(asked);
    CHECK(fixed.rows.size() == 1);
    CHECK(fixed.plan.microbatches == 2);
    CHECK(!fixed.plan.split_backward);
    CHECK(fixed.plan.recompute == recomputation::stages);
    const planned same =
        plan_cascade(scaled_costs(equal_layers("a", 16, 10.0), 4), scaled_costs(equal_layers("b", 12, 7.0), 4),
                     fixed.best_row().candidate, one_node(4, pulse::link{}), {.kept = adamw_memory(4)});
    CHECK(same.plan == fixed.plan);
}

TEST_CASE("a cascade is within memory or says what it needs; the joint bound holds for drawn backbones") {
    std::mt19937 random{12};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    int tight = 0;
    for (int n = 0; n != 40; ++n) {
        CAPTURE(n);
        const int devices = 1 + n % 4;
        const cost_table a = random_table(random, draw(2 * devices, 12), static_cast<skip_pattern>(draw(0, 2)));
        const cost_table b = random_table(random, draw(2 * devices, 12), static_cast<skip_pattern>(draw(0, 2)));
        tune_candidate c;
        c.pipeline_degree = devices;
        c.microbatches = draw(1, 5);
        c.split_backward = draw(0, 1) == 1;
        candidate_options options;
        options.list.explored_runs = 1;
        options.memory_gb_per_s = 0.001;
        const cluster machine = one_node(devices, {.latency_us = 0.5, .bandwidth_gb_per_s = 0.1});
        planned made;
        try {
            made = plan_cascade(a, b, c, machine, options);
        } catch (const infeasible_error&) { continue; }
        REQUIRE(made.plan.predicted.lower_bound_us <= made.plan.predicted.step_us * (1 + 1e-12));
        std::int64_t most = 0;
        for (const std::int64_t bytes : made.plan.predicted.peak_memory_bytes) { most = std::max(most, bytes); }
        if (most < 2) { continue; }
        options.memory_limit_bytes = most - 1;
        try {
            for (const std::int64_t bytes : plan_cascade(a, b, c, machine, options).plan.predicted.peak_memory_bytes) {
                REQUIRE(bytes <= options.memory_limit_bytes);
            }
        } catch (const memory_error& e) {
            REQUIRE(std::string{e.what()}.find("bytes of " + std::to_string(most - 1)) != std::string::npos);
            ++tight;
        }
    }
    CHECK(tight > 5);
}

TEST_CASE("backbones that are cut inside their layers are cut together, nearly evenly") {
    const cost_table a = analytic_costs(graph_of<sd21>().view(), a100_80gb, 1, 2);
    const cost_table b = analytic_costs(graph_of<sd15>().view(), a100_80gb, 1, 2);
    tune_candidate c{};
    c.pipeline_degree = 4;
    c.microbatches = 4;
    const planned found = plan_cascade(a, b, c, one_node(4, pulse::link{}), {.kept = adamw_memory(4)});
    require_valid(found.plan, "plan");
    std::vector<double> load(4, 0.0);
    double sum = 0;
    for (const stage& s : found.plan.cut.stages) {
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            load[static_cast<std::size_t>(s.device)] += found.costs.layers[static_cast<std::size_t>(l)].load_us();
        }
    }
    for (const double us : load) { sum += us; }
    CHECK(*std::max_element(load.begin(), load.end()) <= 1.005 * sum / 4);
}

TEST_CASE("a cascade's microbatch size that takes more bytes than a table can count leaves the smaller ones") {
    cost_table large = equal_layers("large", 8, 10.0);
    for (layer_cost& l : large.layers) { l.saved_bytes = std::int64_t{1} << 38; }
    const cost_source costs_of = [&](int samples) { return scaled_costs(large, samples); };
    CHECK(plan_cascade_for(costs_of, costs_of, cascade_request()).plan.microbatch_size <= 4);
}

TEST_CASE("what no cascade does is refused in one line that names it") {
    const cost_table a = equal_layers("a", 8, 10.0);
    const auto refused = [&](const std::function<void(tune_candidate&)>& change) {
        tune_candidate c;
        c.pipeline_degree = 2;
        change(c);
        return said([&] { static_cast<void>(plan_cascade(a, a, c, one_node(2, pulse::link{}))); });
    };
    CHECK(refused([](tune_candidate&) {}) == "");
    CHECK(refused([](tune_candidate& c) { c.data_degree = 2; }) ==
          "data_degree: a cascade has one pipeline, without replicas");
    CHECK(refused([](tune_candidate& c) { c.waves = 2; }).find("folded in one wave") != std::string::npos);
    CHECK(refused([](tune_candidate& c) { c.kind = placement::sequential; }).find("folded") != std::string::npos);
    CHECK(refused([](tune_candidate& c) { c.method = schedule_method::gpipe; }) ==
          "schedule: it must be list for a cascade, not gpipe");
    CHECK(refused([](tune_candidate& c) { c.microbatches = 0; }) == "microbatches: it must be at least 1");
    CHECK(refused([](tune_candidate& c) { c.pipeline_degree = 5; }).find("has no cut over 5 devices") !=
          std::string::npos);
    tune_candidate pair;
    pair.pipeline_degree = 2;
    candidate_options factored;
    factored.kept = adamw_memory(4, {.moments = moment_form::factored});
    CHECK(said([&] {
              static_cast<void>(plan_cascade(a, a, pair, one_node(2, pulse::link{}), factored));
          }).find("factored_elements is missing") != std::string::npos);
    cost_table larger = scaled_costs(a, 2);
    CHECK(said([&] { static_cast<void>(plan_cascade(a, larger, {}, one_node(1, pulse::link{}))); }) ==
          "cascade: the two cost tables must have the same microbatch size");
    cost_table encoded = a;
    encoded.frozen.resize(1);
    encoded.frozen[0].name = "vae";
    encoded.frozen[0].layers = {{.name = "x", .sample_us = 1}};
    CHECK(said([&] { static_cast<void>(plan_cascade(a, encoded, {}, one_node(1, pulse::link{}))); }) ==
          "cascade: a has frozen components, which a cascade cannot encode");

    const auto asking = [](const std::function<void(plan_request&)>& change) {
        plan_request asked = cascade_request();
        asked.words.data_degree = "--data";
        change(asked);
        return said([&] { static_cast<void>(tuned(asked)); });
    };
    CHECK(asking([](plan_request& r) { r.data_degree = 2; }) == "--data: a cascade has one pipeline, without replicas");
    CHECK(asking([](plan_request& r) { r.waves = 2; }) == "waves: a cascade is folded in one wave");
    CHECK(asking([](plan_request& r) { r.placement = placement::sequential; }) == "placement: a cascade is folded");
    CHECK(asking([](plan_request& r) { r.schedule = schedule_method::ilp; }) ==
          "schedule: a cascade can only be ordered by list");
    CHECK(asking([](plan_request& r) { r.sharded_optimizer = true; }).find("sharded_optimizer") == 0);
    CHECK(asking([](plan_request& r) { r.gradient_release = true; }).find("gradient_release") == 0);
    CHECK(asking([](plan_request& r) { r.self_conditioning = true; }) ==
          "self_conditioning: a cascade has no previews");
    CHECK(asking([](plan_request& r) { r.frozen = frozen_mode::bubbles; }).find("frozen: a cascade encodes nothing") ==
          0);
    CHECK(asking([](plan_request& r) { r.pipeline_degree = 2; }) ==
          "pipeline_degree: a cascade is one pipeline over all devices");
    struct float_backend {
        using scalar [[maybe_unused]] = float;
    };
    plan_request sized{.devices = 1, .global_batch = 2, .device = cpu_core, .microbatch_size = 1, .seconds = 0};
    sized.extent = {16, 16};
    CHECK(said([&] { static_cast<void>(plan_cascade_for<ddpm_fmnist, ddpm_fmnist, float_backend>(sized)); }) ==
          "extent: a cascade has the extents of its models' types");
    CHECK(asking([](plan_request& r) { r.slack = 0.1; }).find("slack") == 0);
    CHECK(asking([](plan_request& r) { r.microbatch_size = 3; }).find("microbatch_size") != std::string::npos);
    CHECK(asking([](plan_request& r) { r.memory_limit_bytes = 10; }) != "");
}
