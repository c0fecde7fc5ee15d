#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <support/drawn_cases.hpp>
#include <support/drawn_recomputation.hpp>
#include <support/locked_models.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/replicated.hpp>
#include <support/toy_model.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace previewed_pipelines {

namespace {

using math = reference::backend<float>;

struct tally {
    int plans{};
    int replicated{};
    int sent_predictions{};
    int kept_predictions{};
    int recomputed[4]{};
    int split{};
    int relayed{};
};

template <class Model>
plan draw_plan(int attempt, std::mt19937& random) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (;;) {
        plan p;
        p.pipeline_degree = 1 + attempt % 4;
        p.data_degree = attempt % 5 == 0 ? 2 : 1;
        p.microbatches = draw(1, 6);
        p.previews = draw(0, 3) == 0 ? draw(1, p.microbatches) : (p.microbatches + 1) / 2;
        p.microbatch_size = draw(1, 3);
        p.split_backward = draw(0, 1) == 1;
        const auto kind = static_cast<placement>(draw(0, 5) < 4 ? 0 : draw(1, 2));
        p.routing = kind == placement::interleaved || draw(0, 1) == 0 ? skip_routing::direct : skip_routing::relayed;
        p.spare_sends = attempt % 4;
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(float));
        p.cut = draw_cut(costs, kind, p.pipeline_degree, 1 + attempt / 4 % 2, random);
        if (p.cut.stages.empty()) { continue; }
        p.recompute = drawn_recomputation(draw, p.cut.stages.size());
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random, p.previews);
        return p;
    }
}

/// Whether the programs send predictions from the last stage to the first exactly if their devices differ.
bool predictions_move(const plan& p, const step_model& model, const std::vector<program>& programs) {
    const bool apart = p.cut.stages.front().device != p.cut.stages.back().device;
    int sent = 0;
    for (const program& one : programs) {
        for (const instruction& what : one.instructions) {
            const auto* out = std::get_if<op::send>(&what);
            sent += out != nullptr && out->message.kind == message_kind::prediction ? 1 : 0;
        }
    }
    return sent == (apart ? model.previews() : 0);
}

/// Compares random plans of one model with the same two passes without a pipeline.
template <class Model>
void check_plans(unsigned seed, int plans, tally& seen) {
    std::mt19937 random{seed};
    for (int done = 0; done != plans; ++done) {
        const plan p = draw_plan<Model>(done, random);
        INFO("seed " << seed << ", plan " << done << ", P " << p.pipeline_degree << ", " << name_of(p.cut.kind)
                     << ", M " << p.microbatches << ", previews " << p.previews);
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(float));
        const step_model model{p, costs};
        const std::vector<program> programs = lower(p, model);
        REQUIRE(check(p, model, programs).violation == "");
        REQUIRE(predictions_move(p, model, programs));
        const std::uint64_t data = random();
        ++seen.plans;
        ++(p.cut.stages.front().device != p.cut.stages.back().device ? seen.sent_predictions : seen.kept_predictions);
        ++seen.recomputed[static_cast<int>(p.recompute.kind)];
        seen.split += p.split_backward ? 1 : 0;
        seen.relayed += p.routing == skip_routing::relayed ? 1 : 0;
        if (p.data_degree > 1) {
            ++seen.replicated;
            const auto run = run_replicated<Model, math, conditioned_task>(p, data, {.most_delay_us = 20});
            const auto want = added_gradients<Model, math>(p, data);
            for (const auto& gradients : run.gradients) { REQUIRE(gradients == want); }
            continue;
        }
        const auto run = run_pipelined<Model, math, conditioned_task>(p, data, {}, 1 + done % 2);
        const auto want = run_unpipelined<Model, math>(p.microbatch_size, p.microbatches, data, p.previews);
        REQUIRE(run.gradients == want.gradients);
        REQUIRE(run.losses == want.losses);
        REQUIRE(run.planned_bytes == run.measured_bytes);
        REQUIRE(run.planned_live == run.measured_live);
        REQUIRE(run.planned_block == run.written_block);
    }
}

using toy = toy_model<1, 18, wiring::nested, true>;

std::string refusal_of(const auto& run) {
    try {
        run();
    } catch (const error& e) { return e.what(); }
    return {};
}

} // namespace

TEST_CASE("a pipelined step with previews has the gradients of the same two passes without a pipeline, bit for bit") {
    tally seen;
    check_plans<toy>(1, drawn_cases(44), seen);
    check_plans<toy_model<2, 18, wiring::crossing, false>>(2, drawn_cases(32), seen);
    check_plans<toy_model<3, 18, wiring::fan_out, true>>(3, drawn_cases(32), seen);
    check_plans<toy_model<4, 16, wiring::neighbours, true>>(4, drawn_cases(32), seen);
    check_plans<toy_model<5, 12, wiring::none, true>>(5, drawn_cases(16), seen);
    check_plans<locked_toy<1, 18, wiring::nested, false, 5>>(6, drawn_cases(16), seen);
    CHECK(seen.plans == drawn_cases(172));
    CHECK(seen.replicated > drawn_cases(20));
    CHECK(seen.sent_predictions > drawn_cases(10));
    CHECK(seen.kept_predictions > drawn_cases(50));
    for (const int of_kind : seen.recomputed) { CHECK(of_kind > drawn_cases(15)); }
    CHECK(seen.split > drawn_cases(40));
    CHECK(seen.relayed > drawn_cases(30));
}

TEST_CASE("what a preview predicts changes the step") {
    std::mt19937 random{3};
    plan p = draw_plan<toy>(2, random);
    const auto with = run_unpipelined<toy, math>(p.microbatch_size, p.microbatches, 7, p.previews);
    const auto without = run_unpipelined<toy, math>(p.microbatch_size, p.microbatches, 7);
    CHECK(with.losses != without.losses);
}

TEST_CASE("previews and a task that takes predictions go together") {
    std::mt19937 random{4};
    plan p = draw_plan<toy>(1, random);
    CHECK(refusal_of([&] { (void)run_pipelined<toy, math>(p, 1); }) ==
          "pulse: the plan has previews, so the input of this run's task must take a prediction");
    p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
    p.previews = 0;
    CHECK(refusal_of([&] { (void)run_pipelined<toy, math, conditioned_task>(p, 1); }) ==
          "pulse: the input of this run's task takes a prediction, but the plan has no previews");
}

} // namespace previewed_pipelines
