#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <variant>

#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/skip_cache.hpp>

using namespace pulse;
using detail::most_in_flight;
using namespace pulse::test;

TEST_CASE("a skip cache keeps references, by edge and microbatch, up to what the plan says") {
    float a = 1;
    float b = 2;
    skip_cache<float> cache{3, 2};
    cache.stash(edge_id{1}, microbatch_id{4}, &a);
    cache.stash(edge_id{1}, microbatch_id{5}, &b);
    cache.stash(edge_id{2}, microbatch_id{4}, &b);
    CHECK(cache.fetch(edge_id{1}, microbatch_id{4}) == &a);
    CHECK(cache.fetch(edge_id{1}, microbatch_id{5}) == &b);
    CHECK(cache.fetch(edge_id{2}, microbatch_id{4}) == &b);
    CHECK(cache.held() == 3);
    CHECK_THROWS_AS(cache.stash(edge_id{1}, microbatch_id{6}, &a), error);
    CHECK_THROWS_AS(static_cast<void>(cache.fetch(edge_id{0}, microbatch_id{4})), error);
    cache.drop(edge_id{1}, microbatch_id{4});
    CHECK_THROWS_AS(static_cast<void>(cache.fetch(edge_id{1}, microbatch_id{4})), error);
    cache.stash(edge_id{1}, microbatch_id{6}, &a);
    CHECK(cache.fetch(edge_id{1}, microbatch_id{6}) == &a);
    CHECK(cache.most_held() == 3);
}

TEST_CASE("a rank's skip cache has room for what its program stashes at once, and for no more") {
    using model_type = toy_model<3, 18, wiring::fan_out, true>;
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    std::mt19937 random{23};
    int fewer_than_microbatches = 0;
    int overfilled = 0;
    for (int done = 0; done != 40; ++done) {
        plan p;
        p.pipeline_degree = 1 + done % 3;
        p.microbatches = 6;
        p.recompute = static_cast<recomputation>(done % 3);
        p.cut = draw_cut(costs, placement::folded, p.pipeline_degree, 1, random);
        REQUIRE_FALSE(p.cut.stages.empty());
        p.order = draw_order(p.cut, p.microbatches, true, random);
        const step_model model{p, costs};
        for (const program& of_rank : lower(p, model)) {
            const int room = most_in_flight(model, of_rank);
            // The oracle: at every instruction, the microbatches of an edge that are stashed before it and read after
            // it.
            std::map<int, std::set<int>> held;
            std::size_t most = 0;
            float tensor = 0;
            skip_cache<float> exact{static_cast<std::size_t>(model.edge_count()), room};
            skip_cache<float> less{static_cast<std::size_t>(model.edge_count()), std::max(room - 1, 0)};
            bool full = false;
            for (const instruction& what : of_rank.instructions) {
                if (const auto* s = std::get_if<op::stash>(&what)) {
                    held[index_of(s->edge)].insert(index_of(s->microbatch));
                    most = std::max(most, held[index_of(s->edge)].size());
                    exact.stash(s->edge, s->microbatch, &tensor);
                    try {
                        less.stash(s->edge, s->microbatch, &tensor);
                    } catch (const error&) { full = true; }
                } else if (const auto* r = std::get_if<op::release>(&what)) {
                    for (int e = 0; e != model.edge_count(); ++e) {
                        if (r->buffer != buffer_id{buffer_kind::activation, model.edge(e).from, r->buffer.microbatch}) {
                            continue;
                        }
                        held[e].erase(index_of(r->buffer.microbatch));
                        exact.drop(edge_id{e}, r->buffer.microbatch);
                        less.drop(edge_id{e}, r->buffer.microbatch);
                    }
                }
            }
            REQUIRE(static_cast<std::size_t>(room) == most);
            REQUIRE(full == (room > 0));
            fewer_than_microbatches += room > 0 && room < p.microbatches ? 1 : 0;
            overfilled += full ? 1 : 0;
        }
        threads::run_ranks(p.pipeline_degree, {}, [&](threads::transport& transport) {
            reference::backend<float> math;
            const executor<model_type, reference::backend<float>> rank{math, transport, p, costs};
            if (rank.skips().in_flight() != most_in_flight(rank.model(), rank.instructions())) {
                throw error{"the executor gives its skip cache another room"};
            }
        });
    }
    CHECK(fewer_than_microbatches > 10);
    CHECK(overfilled > 10);
}
