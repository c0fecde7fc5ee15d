#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <support/drawn_recomputation.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/core/error.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/executor.hpp>

#include "world.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// The reference backend with occasional random delays in linear: ranks drift apart in every possible way.
struct drifting_math : reference::backend<float> {
    std::mt19937 random;

    explicit drifting_math(unsigned seed) : random{seed} {}

    void linear(const linear_shape& shape, auto... args) {
        const int microseconds = std::uniform_int_distribution<int>{-200, 40}(random);
        if (microseconds > 0) { std::this_thread::sleep_for(std::chrono::microseconds{microseconds}); }
        reference::backend<float>::linear(shape, args...);
    }
};

template <class Model>
plan draw_plan(std::mt19937& random, int ranks) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (;;) {
        plan p;
        p.pipeline_degree = ranks;
        p.microbatches = draw(1, 4);
        p.split_backward = draw(0, 1) == 1;
        p.spare_sends = draw(0, 3);
        const auto kind = static_cast<placement>(draw(0, 2));
        p.routing = kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
        const cost_table costs = blank_costs(graph_of<Model>().view(), 1, sizeof(float));
        p.cut = draw_cut(costs, kind, ranks, draw(1, 2), random, 500);
        if (p.cut.stages.empty()) { continue; }
        p.recompute = drawn_recomputation(draw, p.cut.stages.size());
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        return p;
    }
}

/// Runs two steps of a plan on this rank; its gradients must equal those of the step without a pipeline, bit for bit.
template <class Model>
void run_plan(mpi::transport& among, const plan& planned, unsigned number, const run_result<float>& want) {
    drifting_math math{number * 8 + static_cast<unsigned>(among.rank())};
    const cost_table costs = blank_costs(graph_of<Model>().view(), planned.microbatch_size, sizeof(float));
    executor<Model, drifting_math> rank{math, among, planned, costs};
    drawn_task<Model, float> task{drawn_data<Model, float>{7, planned.microbatch_size, planned.microbatches}};
    for (const auto& block : rank.parameters().blocks()) {
        const auto drawn = task.data.parameters(block.layer, block.size);
        std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
    }
    for (int s = 0; s != 2; ++s) {
        std::fill(rank.parameters().gradients().begin(), rank.parameters().gradients().end(),
                  std::numeric_limits<float>::quiet_NaN());
        poison(rank.memory());
        rank.step(task);
    }
    for (const auto& block : rank.parameters().blocks()) {
        const auto g = rank.parameters().gradients_of(block.layer);
        const auto& expected = want.gradients.at(block.layer);
        if (!std::equal(g.begin(), g.end(), expected.begin(), expected.end())) {
            throw error{"plan " + std::to_string(number) + ": another gradient of layer " +
                        std::to_string(block.layer)};
        }
    }
}

/// Runs plans on 2, 3, ... ranks of the world in turn; every rank draws the same ones.
template <class Model>
void check_plans(unsigned seed, int plans, const mpi::options& how) {
    std::map<int, run_result<float>> want;
    for (int m = 1; m <= 4; ++m) { want[m] = run_unpipelined<Model, reference::backend<float>>(1, m, 7); }
    const int most = std::min(world_size(), 4);
    std::map<int, std::vector<std::pair<unsigned, plan>>> of_ranks;
    std::mt19937 random{seed};
    for (int i = 0; i != plans; ++i) {
        const int ranks = 2 + i % (most - 1);
        of_ranks[ranks].emplace_back(static_cast<unsigned>(i), draw_plan<Model>(random, ranks));
    }
    for (const auto& group : of_ranks) {
        const first_ranks members{group.first};
        if (members.get() == MPI_COMM_NULL) { continue; }
        CHECK(error_of(
                  [&](mpi::transport& among) {
                      for (const auto& numbered : group.second) {
                          const plan& p = numbered.second;
                          run_plan<Model>(among, p, numbered.first, want.at(p.microbatches));
                      }
                  },
                  how, members.get()) == "");
    }
}

} // namespace

TEST_CASE("no program deadlocks where a send waits for its receive and ranks drift, and gradients are the same bits") {
    const mpi::options strict{.timeout_s = 60, .synchronous = true};
    check_plans<toy_model<1, 18, wiring::nested, true>>(21, 250, strict);
    check_plans<toy_model<2, 18, wiring::crossing, false>>(22, 250, strict);
}

TEST_CASE("gradients are the same bits where sends are under way while ranks compute") {
    check_plans<toy_model<1, 18, wiring::nested, true>>(23, 60, {.timeout_s = 60});
    check_plans<toy_model<2, 18, wiring::crossing, false>>(24, 60, {.timeout_s = 60, .chunk_bytes = 8});
}
