#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include <support/drawn_cases.hpp>
#include <support/drawn_recomputation.hpp>
#include <support/locked_models.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using math = reference::backend<float>;

struct tally {
    int plans{};
    std::map<recomputation, int> recomputed{};
    int split{};
    int crossing_skips{};
    std::int64_t handed_over{};
    /// Folded plans by devices and waves.
    std::map<std::pair<int, int>, int> folded{};
    int full_workspaces{};
};

/// Laws 5, 2 and 7 on random plans of one model, compared with the same model without a pipeline. `fills_workspace`:
/// every layer writes all of its workspace, wherever it stands, as toys do.
template <class Model>
void check_random_plans(unsigned seed, int plans, tally& seen, bool fills_workspace = true) {
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int done = 0, attempt = 0; done != plans; ++attempt) {
        plan p;
        p.pipeline_degree = 1 + attempt % 4;
        const int waves = 1 + attempt / 4 % 2;
        p.microbatches = draw(1, 6);
        p.microbatch_size = draw(1, 3);
        p.split_backward = draw(0, 1) == 1;
        const auto kind = static_cast<placement>(draw(0, 5) < 4 ? 0 : draw(1, 2));
        p.routing = kind == placement::interleaved || draw(0, 1) == 0 ? skip_routing::direct : skip_routing::relayed;
        p.spare_sends = done % 4;
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(float));
        p.cut = draw_cut(costs, kind, p.pipeline_degree, waves, random);
        if (p.cut.stages.empty()) { continue; }
        p.recompute = drawn_recomputation(draw, p.cut.stages.size());
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);

        const int steps = done % 3 == 0 ? 2 : 1;
        const std::uint64_t data = random();
        const auto run = run_pipelined<Model, math>(p, data, {}, steps);
        const auto want = run_unpipelined<Model, math>(p.microbatch_size, p.microbatches, data);

        INFO("seed " << seed << ", plan " << done << ", P " << p.pipeline_degree << ", " << name_of(kind) << ", stages "
                     << p.cut.stages.size() << ", M " << p.microbatches);
        REQUIRE(run.gradients == want.gradients);
        REQUIRE(run.losses == want.losses);
        REQUIRE(run.planned_bytes == run.measured_bytes);
        REQUIRE(run.planned_live == run.measured_live);
        REQUIRE(run.planned_block == run.written_block);
        for (std::size_t rank = 0; rank != run.planned_workspace.size(); ++rank) {
            REQUIRE(run.written_workspace[rank] <= run.planned_workspace[rank]);
            // Only a recompute of stage 0 uses the space for a second conditioning.
            if (p.cut.stages.front().device == static_cast<int>(rank) || !fills_workspace) { continue; }
            REQUIRE(run.written_workspace[rank] == run.planned_workspace[rank]);
            ++seen.full_workspaces;
        }
        if (kind == placement::folded) { REQUIRE(run.sent.skip == 0); }
        const traffic expected = traffic_of(p.cut, costs, p.routing);
        REQUIRE(run.sent.boundary == expected.boundary() * p.microbatches * steps);
        REQUIRE(run.sent.skip == expected.skip() * p.microbatches * steps);
        ++done;
        ++seen.plans;
        if (kind == placement::folded) { ++seen.folded[{p.pipeline_degree, p.cut.waves}]; }
        ++seen.recomputed[p.recompute.kind];
        seen.split += p.split_backward ? 1 : 0;
        seen.crossing_skips += run.sent.skip > 0 ? 1 : 0;
        seen.handed_over += run.sent.handed_over;
    }
}

} // namespace

TEST_CASE("a pipelined step has the gradients of an unpipelined one, bit for bit") {
    tally seen;
    check_random_plans<toy_model<1, 18, wiring::nested, true>>(1, drawn_cases(56), seen);
    check_random_plans<toy_model<2, 18, wiring::crossing, false>>(2, drawn_cases(56), seen);
    check_random_plans<toy_model<3, 18, wiring::fan_out, true>>(3, drawn_cases(56), seen);
    check_random_plans<toy_model<4, 16, wiring::neighbours, true>>(4, drawn_cases(56), seen);
    check_random_plans<toy_model<5, 12, wiring::none, true>>(5, drawn_cases(28), seen);
    check_random_plans<toy_model<6, 17, wiring::nested, false>>(6, drawn_cases(56), seen);
    CHECK(seen.plans == drawn_cases(308));
    for (const auto kind :
         {recomputation::none, recomputation::skips, recomputation::stages, recomputation::selective}) {
        CHECK(seen.recomputed[kind] > drawn_cases(35));
    }
    CHECK(seen.split > drawn_cases(60));
    CHECK(seen.crossing_skips > drawn_cases(10));
    CHECK(seen.handed_over > 0);
    CHECK(seen.full_workspaces > drawn_cases(100));
    for (int devices = 1; devices <= 4; ++devices) {
        for (int waves = 1; waves <= 2; ++waves) {
            INFO("P " << devices << ", W " << waves);
            CHECK(seen.folded[{devices, waves}] >= (all_cases ? 5 : 1));
        }
    }
}

TEST_CASE("layers that are locked or run forward only take part in a pipeline, bit for bit, and weights stay") {
    tally seen;
    check_random_plans<locked_toy<1, 18, wiring::nested, false, 5>>(11, drawn_cases(30), seen);
    check_random_plans<locked_toy<1, 12, wiring::nested, true, 4>>(12, drawn_cases(20), seen);
    check_random_plans<locked_toy<4, 16, wiring::neighbours, false, 3>>(13, drawn_cases(30), seen);
    check_random_plans<control_unet>(14, drawn_cases(30), seen, false);
    CHECK(seen.plans == 3 * drawn_cases(30) + drawn_cases(20));
    CHECK(seen.split > drawn_cases(25));
    CHECK(seen.crossing_skips > drawn_cases(5));
}
