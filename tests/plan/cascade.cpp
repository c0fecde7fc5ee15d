#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <partition/random_table.hpp>
#include <support/drawn_recomputation.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/partition/cascade.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/fingerprint.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/join_costs.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/tune/cascade_plan.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

struct drawn_cascade {
    cost_table first{};
    cost_table second{};
    planned made{};
};

/// Draws a cascade of two backbones, one with conditioning, on 2 to 4 devices.
drawn_cascade draw_planned(std::mt19937& random, int devices, const pulse::link& line) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    while (true) {
        drawn_cascade drawn;
        drawn.first = random_table(random, draw(2 * devices, 14), static_cast<skip_pattern>(draw(0, 2)));
        drawn.second = random_table(random, draw(2 * devices, 14), static_cast<skip_pattern>(draw(0, 2)));
        drawn.second.input_bytes = draw(0, 9);
        drawn.second.conditioning_bytes = draw(0, 9);
        drawn.second.frozen_conditioning_bytes = drawn.second.conditioning_bytes / 2;
        if (!find_cascade_cut(drawn.first, drawn.second, devices).found()) { continue; }
        tune_candidate c;
        c.pipeline_degree = devices;
        c.microbatches = draw(1, 6);
        c.split_backward = draw(0, 1) == 1;
        c.recompute = drawn_recomputation(draw, static_cast<std::size_t>(4 * devices));
        candidate_options options;
        options.list.explored_runs = 1;
        drawn.made = plan_cascade(drawn.first, drawn.second, c, one_node(devices, line), options);
        return drawn;
    }
}

std::string complaint_of(const std::function<void()>& act) {
    try {
        act();
    } catch (const input_error& e) { return e.what(); }
    return "";
}

} // namespace

TEST_CASE("a cascade's plan is what is saved, proven and read, and its costs are those of both") {
    std::mt19937 random{31};
    for (int n = 0; n != 60; ++n) {
        CAPTURE(n);
        const drawn_cascade drawn = draw_planned(random, 2 + n % 3, {.latency_us = 1.0, .bandwidth_gb_per_s = 1.0});
        const plan& made = drawn.made.plan;
        const std::string text = print_plan(made);
        REQUIRE(parse_plan(text, "text") == made);
        REQUIRE(print_plan(parse_plan(text, "text")) == text);
        const step_model model{made, drawn.made.costs};
        REQUIRE(check(made, model, lower(made, model)).violation == "");
        // Splitting the joined costs gives back the two tables.
        const auto parts = split_costs(drawn.made.costs);
        cost_table first = drawn.first;
        cost_table second = drawn.second;
        first.model = second.model = drawn.made.costs.model;
        second.device = first.device;
        REQUIRE(parts[0] == first);
        REQUIRE(parts[1] == second);
    }
}

TEST_CASE("no message, buffer or dependency joins the two backbones of a plan") {
    std::mt19937 random{32};
    const drawn_cascade drawn = draw_planned(random, 3, {});
    const step_model model{drawn.made.plan, drawn.made.costs};
    const int stages = drawn.made.plan.further_chains.front();
    CHECK(stages == 6);
    for (const message_id& m : model.messages(microbatch_id{0})) {
        CHECK((model.producer_stage(m) < stages) == (model.consumer_stage(m) < stages));
    }
    CHECK(model.begins_chain(stages));
    CHECK(model.ends_chain(stages - 1));
    CHECK(!model.held_apart(model.last_layer(stages - 1)));
    CHECK(model.footprint(stages).input >= 0);
    // The second backbone is placed in reverse.
    for (int s = 0; s != stages; ++s) { CHECK(model.device_of_stage(stages + s) == 2 - model.device_of_stage(s)); }
}

TEST_CASE("files of a cascade that contradict themselves are refused by field, and joined costs are no profile") {
    std::mt19937 random{33};
    const drawn_cascade drawn = draw_planned(random, 2, {});
    const auto wrong = [&](const std::function<void(plan&)>& spoil) {
        plan bad = drawn.made.plan;
        spoil(bad);
        return complaint_of([&] { require_valid(bad, "file"); });
    };
    CHECK(wrong([](plan&) {}) == "");
    CHECK(wrong([](plan& p) { ++p.cut.devices; }) == "file: pipeline_degree must equal the partition's device count");
    CHECK(wrong([](plan& p) { p.further_chains = {3}; }) ==
          "file: further_chains must hold only 4: a second backbone follows the stages of the first");
    CHECK(wrong([](plan& p) { p.further_chains = {4, 8}; }).find("must hold only 4") != std::string::npos);
    CHECK(wrong([](plan& p) { p.further_chains.clear(); }).find("stages has 8 entries") != std::string::npos);
    CHECK(wrong([](plan& p) { p.cut.stages[4].device = 0; }) ==
          "file: stages[4].device must be 1 under folded placement");
    CHECK(wrong([](plan& p) { p.cut.kind = placement::interleaved; }) ==
          "file: further_chains must be absent unless placement is folded in one wave");
    CHECK(wrong([](plan& p) { p.data_degree = 2; }) == "file: further_chains must be absent unless data_degree is 1");
    // A plan without its second backbone is a different run.
    plan other = drawn.made.plan;
    other.further_chains.clear();
    CHECK(fingerprint_of(other) != fingerprint_of(drawn.made.plan));
    CHECK(complaint_of([&] {
              static_cast<void>(step_model{other, drawn.made.costs});
          }).find("one entry per further backbone of the costs (1), not 0") != std::string::npos);
    CHECK(complaint_of([&] {
              static_cast<void>(print_profile(drawn.made.costs));
          }).find("split a table of several backbones") != std::string::npos);
    CHECK(complaint_of([&] {
              static_cast<void>(join_costs(drawn.made.costs, drawn.second));
          }).find("split a table of several backbones") != std::string::npos);
    CHECK(complaint_of([&] { static_cast<void>(split_costs(drawn.first)); }) ==
          "cascade: the costs must be of exactly two backbones");
}
