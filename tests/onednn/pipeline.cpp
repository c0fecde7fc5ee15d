#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <nn/small_text.hpp>
#include <nn/small_uvit.hpp>
#include <support/drawn_cases.hpp>
#include <support/drawn_recomputation.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Compares random plans of Model on oneDNN, with at most `ranks` ranks, with the same model without a pipeline;
/// resizable models use extents of one to four steps. Returns how many cuts were inside layers.
template <class Model>
int check_pipelines(unsigned seed, int plans, int ranks) {
    using math = onednn::backend;
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    int inside = 0;
    for (int done = 0; done != plans;) {
        plan p;
        p.pipeline_degree = 1 + done % ranks;
        p.microbatches = draw(1, 4);
        p.microbatch_size = 2;
        p.split_backward = draw(0, 1) == 1;
        const auto kind = static_cast<placement>(done % 8 == 7 ? 1 : 0);
        p.routing = skip_routing::relayed;
        extent to{};
        if constexpr (resizable_model<Model>) {
            to = {steps_of<Model>().height * draw(1, 4), steps_of<Model>().width * draw(1, 4)};
        }
        const auto graph = graph_of<Model>(resize<Model>(to));
        const cost_table costs = blank_costs(graph.view(), p.microbatch_size, sizeof(float));
        p.cut = draw_cut(costs, kind, p.pipeline_degree, draw(1, 2), random);
        if (p.cut.stages.empty()) { continue; }
        p.recompute = drawn_recomputation(draw, p.cut.stages.size());
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        INFO("plan " << done << ", P " << p.pipeline_degree << ", stages " << p.cut.stages.size() << ", extent "
                     << to.height << " x " << to.width);
        const std::uint64_t data = random();
        const auto run = run_pipelined<Model, math>(p, data, {}, 1, to);
        const auto want = run_unpipelined<Model, math>(p.microbatch_size, p.microbatches, data, 0, to);
        REQUIRE(run.gradients == want.gradients);
        REQUIRE(run.losses == want.losses);
        REQUIRE(run.planned_bytes == run.measured_bytes);
        const traffic expected = traffic_of(p.cut, costs, p.routing);
        REQUIRE(run.sent.skip == expected.skip() * p.microbatches);
        REQUIRE(run.sent.boundary == expected.boundary() * p.microbatches);
        if (kind == placement::folded) { REQUIRE(run.sent.skip == 0); }
        for (const stage& s : p.cut.stages) {
            inside += part_places<Model>[static_cast<std::size_t>(s.first_layer)].part != 0 ? 1 : 0;
        }
        ++done;
    }
    return inside;
}

/// Checks that plain gradient descent on one random microbatch lowers the loss below `share` of the first.
template <class Model>
void check_descent(float rate, int steps, double share) {
    onednn::backend math;
    unpipelined<Model, onednn::backend> run{math, 17};
    drawn_task<Model, float> task{drawn_data<Model, float>{5, 2, 1}};
    double first = 0.0;
    for (int step = 0; step != steps; ++step) {
        auto tape = run.forward(2, task.inputs[0], task.times[0], task.texts[0], task.known[0]);
        std::vector<float> gradient(run.output(tape).size());
        task.loss(0, run.output(tape).data(), gradient.data());
        if (step == 0) { first = task.losses[0]; }
        run.clear_gradients();
        run.backward(tape, std::move(gradient));
        const auto descend = [&](std::vector<float>& values, const std::vector<float>& slopes) {
            for (std::size_t i = 0; i != values.size(); ++i) { values[i] -= rate * slopes[i]; }
        };
        for (std::size_t l = 0; l != Model::layer_count; ++l) { descend(run.parameters[l], run.gradients[l]); }
        descend(run.conditioning_parameters, run.conditioning_gradients);
        math.weights_changed();
    }
    INFO(Model::name.chars, ": loss ", first, " at first, then ", task.losses[0]);
    CHECK(task.losses[0] < share * first);
}

} // namespace

TEST_CASE("a UNet on oneDNN has the same gradients, bit for bit, however it is pipelined") {
    CHECK(check_pipelines<ddpm_tiny>(21, drawn_cases(80), 4) > drawn_cases(20));
}

TEST_CASE("a U-ViT on oneDNN has the same gradients, bit for bit, however it is pipelined") {
    CHECK(check_pipelines<small_uvit>(22, 9, 3) > 1);
}

TEST_CASE("models with text and labels on oneDNN have the same gradients, bit for bit, however they are pipelined") {
    CHECK(check_pipelines<small_sd>(23, drawn_cases(60), 4) > drawn_cases(20));
    CHECK(check_pipelines<small_sdxl>(24, drawn_cases(60), 4) > drawn_cases(20));
    CHECK(check_pipelines<small_hunyuan_v11>(25, drawn_cases(24), 4) > drawn_cases(10));
    check_pipelines<labelled_uvit>(26, 4, 2);
}

TEST_CASE("models with text and labels learn on oneDNN") {
    check_descent<small_sd>(0.01F, 20, 0.7);
    check_descent<small_sdxl>(0.01F, 20, 0.7);
    check_descent<small_hunyuan_v11>(0.002F, 20, 0.7);
    check_descent<labelled_uvit>(0.01F, 20, 0.7);
}
