#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include <support/drawn_recomputation.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// The reference backend with random delays in every linear: ranks drift apart in every possible way. Seeds are
/// numbered, so every run of the test draws the same sequences; which rank gets which depends on the threads.
struct drifting : reference::backend<float> {
    inline static std::atomic<unsigned> next_seed{1};
    std::mt19937 random{next_seed++};

    void linear(const linear_shape& shape, auto... args) {
        std::this_thread::sleep_for(std::chrono::microseconds{std::uniform_int_distribution<int>{0, 200}(random)});
        reference::backend<float>::linear(shape, args...);
    }
};

template <class Model>
void check_strict_rendezvous(unsigned seed, int plans) {
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int done = 0; done != plans;) {
        plan p;
        p.pipeline_degree = draw(2, 4);
        p.microbatches = draw(1, 4);
        p.split_backward = draw(0, 1) == 1;
        p.spare_sends = draw(0, 3);
        const auto kind = static_cast<placement>(draw(0, 2));
        p.routing = kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
        const cost_table costs = blank_costs(graph_of<Model>().view(), 1, sizeof(float));
        p.cut = draw_cut(costs, kind, p.pipeline_degree, draw(1, 2), random);
        if (p.cut.stages.empty()) { continue; }
        p.recompute = drawn_recomputation(draw, p.cut.stages.size());
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        INFO("seed " << seed << ", plan " << done);
        const threads::link_options link{.latency_us = 5, .blocking = true};
        const auto run = run_pipelined<Model, drifting>(p, 7, link, 2);
        const auto want = run_unpipelined<Model, reference::backend<float>>(p.microbatch_size, p.microbatches, 7);
        REQUIRE(run.gradients == want.gradients);
        ++done;
    }
}

} // namespace

TEST_CASE("no program deadlocks when sends block until they are received and ranks drift") {
    check_strict_rendezvous<toy_model<1, 18, wiring::nested, true>>(11, 12);
    check_strict_rendezvous<toy_model<2, 18, wiring::crossing, false>>(12, 12);
}
