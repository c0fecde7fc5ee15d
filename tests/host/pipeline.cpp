#include <doctest/doctest.h>

#include <cstdint>
#include <random>

#include <nn/small_uvit.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <pulse/host/backend.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Random plans of Model on oneDNN, at most `ranks` ranks, against the same model without a pipeline.
template <class Model>
void check_pipelines(unsigned seed, int plans, int ranks) {
    using math = host::onednn_backend;
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int done = 0; done != plans;) {
        plan p;
        p.pipeline_degree = 1 + done % ranks;
        p.microbatches = draw(1, 4);
        p.microbatch_size = 2;
        p.split_backward = draw(0, 1) == 1;
        const auto kind = static_cast<placement>(done % 8 == 7 ? 1 : 0);
        p.routing = skip_routing::relayed;
        p.recompute = static_cast<recomputation>(draw(0, 2));
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(float));
        p.cut = draw_cut(costs, kind, p.pipeline_degree, draw(1, 2), random);
        if (p.cut.stages.empty()) { continue; }
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        INFO("plan " << done << ", P " << p.pipeline_degree << ", stages " << p.cut.stages.size());
        const std::uint64_t data = random();
        const auto run = resident::serves(p.recompute) ? run_pipelined<Model, math, resident>(p, data)
                                                       : run_pipelined<Model, math, recomputed>(p, data);
        const auto want = run_unpipelined<Model, math>(p.microbatch_size, p.microbatches, data);
        REQUIRE(run.gradients == want.gradients);
        REQUIRE(run.losses == want.losses);
        REQUIRE(run.planned_bytes == run.measured_bytes);
        if (kind == placement::folded) { REQUIRE(run.sent.skip == 0); }
        ++done;
    }
}

} // namespace

TEST_CASE("a UNet on oneDNN has the same gradients, bit for bit, however it is pipelined") {
    check_pipelines<ddpm_tiny>(21, 16, 4);
}

TEST_CASE("a U-ViT on oneDNN has the same gradients, bit for bit, however it is pipelined") {
    check_pipelines<small_uvit>(22, 9, 3);
}
