#include <doctest/doctest.h>

#include <new>
#include <random>

#include <support/count_allocations.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

int allocations_of_a_step(placement kind, skip_routing routing, recomputation recompute = recomputation::none,
                          int spare_sends = 2) {
    using model_type = toy_model<1, 18, wiring::nested, true>;
    using math = reference::backend<float>;
    std::mt19937 random{3};
    plan p;
    p.pipeline_degree = 3;
    p.microbatches = 5;
    p.routing = routing;
    p.recompute = recompute;
    p.spare_sends = spare_sends;
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    p.cut = draw_cut(costs, kind, 3, 2, random);
    p.order = draw_order(p.cut, p.microbatches, true, random);
    int seen = 0;
    threads::run_ranks(3, {}, [&](threads::transport& transport) {
        math backend;
        executor<model_type, math> rank{backend, transport, p, costs};
        drawn_task<model_type, float> task{{1, 1, p.microbatches}};
        rank.record(4 * rank.instructions().instructions.size());
        rank.step(task);
        transport.sum({});
        if (transport.rank() == 0) { count_allocations(true); }
        transport.sum({});
        for (int s = 0; s != 3; ++s) { rank.step(task); }
        transport.sum({});
        if (transport.rank() == 0) { seen = count_allocations(false); }
        transport.sum({});
    });
    return seen;
}

} // namespace

TEST_CASE("a step allocates nothing, traced or not") {
    CHECK(allocations_of_a_step(placement::folded, skip_routing::direct) == 0);
    CHECK(allocations_of_a_step(placement::folded, skip_routing::direct, recomputation::skips) == 0);
    CHECK(allocations_of_a_step(placement::folded, skip_routing::direct, recomputation::stages) == 0);
    CHECK(allocations_of_a_step(placement::sequential, skip_routing::relayed) == 0);
    CHECK(allocations_of_a_step(placement::sequential, skip_routing::relayed, recomputation::none, 100) == 0);
    CHECK(allocations_of_a_step(placement::interleaved, skip_routing::direct) == 0);
}

TEST_CASE("the counter of allocations counts") {
    count_allocations(true);
    ::operator delete(::operator new(64)); // called by name: compilers may remove a new-expression with its delete
    CHECK(count_allocations(false) == 1);
}
