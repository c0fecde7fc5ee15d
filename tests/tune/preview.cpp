#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include <partition/random_table.hpp>
#include <pulse/core/error.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "mentions.hpp"

using namespace pulse;
using namespace pulse::test;

namespace previewed_candidates {

namespace {

struct drawn {
    cost_table costs{};
    tune_candidate c{};
    candidate_options options{};
};

drawn draw(std::mt19937& random) {
    const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    drawn made;
    made.costs = random_table(random, between(2, 16), static_cast<skip_pattern>(between(0, 5)));
    made.costs.input_bytes = 8;
    for (layer_cost& l : made.costs.layers) {
        l.forward_us += 1;
        l.parameter_bytes = 8;
        l.saved_bytes = between(0, 9) * 8;
        l.output_bytes = between(1, 20) * 8;
    }
    for (skip_cost& e : made.costs.skips) {
        e.bytes = made.costs.layers[static_cast<std::size_t>(e.from)].output_bytes;
    }
    tune_candidate& c = made.c;
    c.kind = static_cast<placement>(between(0, 1) == 0 ? 0 : between(1, 2));
    c.pipeline_degree = between(1, 4);
    c.waves = c.kind == placement::sequential ? 1 : between(1, 2);
    c.microbatches = 2 * between(1, 4);
    c.split_backward = between(0, 1) == 1;
    c.routing = between(0, 1) == 1 ? skip_routing::relayed : skip_routing::direct;
    c.recompute = static_cast<recomputation>(between(0, 2));
    made.options.self_conditioning = true;
    return made;
}

plan_request request(int devices) {
    plan_request asked;
    asked.devices = devices;
    asked.global_batch = 16;
    asked.device = *find_device("a100-80gb");
    asked.seconds = 0;
    asked.self_conditioning = true;
    return asked;
}

cost_table ddpm_costs(int samples) {
    return analytic_costs(graph_of<ddpm_cifar10>().view(), *find_device("a100-80gb"), samples, 2);
}

} // namespace

TEST_CASE("a candidate with self-conditioning has a checked plan, whose step is the simulated one, no longer than its "
          "order") {
    std::mt19937 random{21};
    int planned = 0;
    int apart = 0;
    while (planned != 100) {
        CAPTURE(planned);
        const drawn of = draw(random);
        plan with;
        plan without;
        try {
            with = plan_candidate(of.costs, of.c, pulse::link{}, of.options).plan;
            candidate_options plain = of.options;
            plain.self_conditioning = false;
            without = plan_candidate(of.costs, of.c, pulse::link{}, plain).plan;
        } catch (const infeasible_error&) { continue; }
        ++planned;
        REQUIRE(with.previews == of.c.microbatches / 2);
        REQUIRE(without.previews == 0);
        const step_model model{with, of.costs};
        const std::vector<program> programs = lower(with, model);
        REQUIRE(check(with, model, programs).violation == "");
        REQUIRE(with.predicted.step_us >= with.predicted.lower_bound_us * (1 - 1e-9));
        const simulation ran = simulate(with, model, programs, {});
        REQUIRE(ran.step_us == doctest::Approx(with.predicted.step_us).epsilon(1e-9));
        // Recomputation may run in a gap of the order.
        REQUIRE(ran.step_us <= with.order.makespan_us() * (1 + 1e-9));
        if (of.c.recompute == recomputation::none) { REQUIRE(ran.step_us >= with.order.makespan_us() * (1 - 1e-9)); }
        std::int64_t boundary = 0;
        std::int64_t skip = 0;
        for (const simulated_transfer& t : ran.transfers) {
            boundary += t.boundary_bytes;
            skip += t.skip_bytes;
            apart += t.message.kind == message_kind::prediction ? 1 : 0;
        }
        REQUIRE(boundary == with.predicted.boundary_bytes);
        REQUIRE(skip == with.predicted.skip_bytes);
    }
    CHECK(apart > 20);
}

TEST_CASE("a memory limit is met with previews too, or refused") {
    std::mt19937 random{22};
    int met = 0;
    for (int n = 0; n != 60; ++n) {
        CAPTURE(n);
        drawn of = draw(random);
        try {
            const plan free = plan_candidate(of.costs, of.c, pulse::link{}, of.options).plan;
            const auto& peaks = free.predicted.peak_memory_bytes;
            of.options.memory_limit_bytes = *std::max_element(peaks.begin(), peaks.end()) * 3 / 4;
            const plan tight = plan_candidate(of.costs, of.c, pulse::link{}, of.options).plan;
            for (const std::int64_t peak : tight.predicted.peak_memory_bytes) {
                REQUIRE(peak <= of.options.memory_limit_bytes);
            }
            REQUIRE(tight.predicted.step_us >= tight.predicted.lower_bound_us * (1 - 1e-9));
            ++met;
        } catch (const infeasible_error&) {}
    }
    CHECK(met >= 10);
}

TEST_CASE("the tuner plans self-conditioning: half as many forwards more, near the bound") {
    for (const int devices : {1, 2, 4}) {
        CAPTURE(devices);
        const tuning with = plan_for(ddpm_costs, request(devices));
        plan_request plain = request(devices);
        plain.self_conditioning = false;
        const tuning without = plan_for(ddpm_costs, plain);
        CHECK(with.plan.previews * 2 == with.plan.microbatches);
        CHECK(with.plan.predicted.step_us > without.plan.predicted.step_us);
        CHECK(with.plan.predicted.step_us < 1.5 * without.plan.predicted.step_us);
        CHECK(gap_of(with.plan.predicted.step_us, with.plan.predicted.lower_bound_us) < 0.1);
    }
}

TEST_CASE("seconds, or all rules of the list scheduler, make no step with previews longer, and a stop is heard") {
    plan_request asked = request(2);
    asked.pipeline_degree = 2;
    asked.microbatch_size = 1;
    const double quick_us = plan_for(ddpm_costs, asked).plan.predicted.step_us;
    const auto planned = [&](const plan_request& longer) {
        const plan found = plan_for(ddpm_costs, longer).plan;
        CHECK(found.previews * 2 == found.microbatches);
        CHECK(found.predicted.step_us >= found.predicted.lower_bound_us * (1 - 1e-9));
        return found.predicted.step_us;
    };
    plan_request timed = asked;
    timed.seconds = 0.5;
    CHECK(planned(timed) <= quick_us * (1 + 1e-9));
    plan_request by_rules = asked;
    by_rules.schedule = schedule_method::list;
    CHECK(planned(by_rules) <= quick_us * (1 + 1e-9));
    std::stop_source stop;
    by_rules.stop = stop.get_token();
    by_rules.progress = [&](const tune_progress& now) {
        if (now.stage == "refinement") { stop.request_stop(); }
    };
    static_cast<void>(planned(by_rules));
}

TEST_CASE("what self-conditioning is not planned with is refused") {
    std::mt19937 random{23};
    drawn of = draw(random);
    of.c = {.pipeline_degree = 1, .microbatches = 3};
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_candidate(of.costs, of.c, pulse::link{}, of.options)),
                         "self-conditioning needs an even number of microbatches", input_error);
    plan_request asked = request(2);
    asked.microbatches = 1;
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_for(ddpm_costs, asked)),
                         "self_conditioning: microbatches must be even, because half of them have a preview",
                         input_error);
    asked = request(2);
    asked.schedule = schedule_method::zb_v;
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_for(ddpm_costs, asked)),
                         "self_conditioning: schedule zb-v does not order previews; use list or gpipe", input_error);
}

} // namespace previewed_candidates
