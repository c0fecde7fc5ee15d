#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/drawn_recomputation.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/replicated.hpp>
#include <support/toy_model.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulator.hpp>

#include "replica_grids.hpp"
#include "telling_transport.hpp"

using namespace pulse;
using namespace pulse::test;

namespace replicated_pipelines {

namespace {

using toy = toy_model<1, 18, wiring::nested, true>;
using math = reference::backend<float>;

template <class Model>
plan draw_plan(int pipeline, int replicas, std::mt19937& random, int scalar_bytes = 4) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (;;) {
        plan p;
        p.pipeline_degree = pipeline;
        p.data_degree = replicas;
        p.node_replicas = drawn_node_replicas(draw, replicas);
        p.microbatches = draw(1, 4);
        p.microbatch_size = draw(1, 2);
        p.split_backward = draw(0, 1) == 1;
        p.spare_sends = draw(0, 3);
        const auto kind = static_cast<placement>(draw(0, 4) < 3 ? 0 : draw(1, 2));
        p.routing = kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, scalar_bytes);
        p.cut = draw_cut(costs, kind, pipeline, draw(1, 2), random);
        if (p.cut.stages.empty()) { continue; }
        p.recompute = drawn_recomputation(draw, p.cut.stages.size());
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        return p;
    }
}

/// Every replica has the sums, or its own shares of them; and the traffic matches the plan.
template <class Model, class Backend>
void check_sums(const plan& p, std::uint64_t seed, const replicated_options& options) {
    const auto run = run_replicated<Model, Backend>(p, seed, options);
    const auto want = added_gradients<Model, Backend>(p, seed);
    std::size_t seen = 0;
    for (int r = 0; r != p.data_degree; ++r) {
        for (const auto& [layer, values] : want) {
            const auto& found = run.gradients[static_cast<std::size_t>(r)].at(layer);
            REQUIRE(found.size() == values.size());
            const element_range all{0, values.size()};
            const element_range mine = options.how.sharded_optimizer ? share_of(all, p.data_degree, r) : all;
            const auto at = static_cast<std::ptrdiff_t>(mine.first);
            REQUIRE(std::equal(values.begin() + at, values.begin() + at + static_cast<std::ptrdiff_t>(mine.size),
                               found.begin() + at));
            seen += mine.size;
        }
    }
    const step_model model{p,
                           blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(typename Backend::scalar))};
    parameter_memory kept = adamw_memory(sizeof(typename Backend::scalar));
    kept.sharded = options.how.sharded_optimizer;
    std::int64_t bytes = 0;
    for (int s = 0; s != model.stage_count(); ++s) { bytes += all_reduce_bytes(model, s, p.data_degree, kept); }
    REQUIRE(run.sent.gradient == bytes * options.steps);
    // The simulator moves what the transport counted of every kind. New weights are missing: the optimizer does not run
    // here.
    const rank_grid grid{options.how.layout, p.pipeline_degree, p.data_degree};
    const cluster two_nodes{.name = "two",
                            .nodes = 2,
                            .devices_per_node = (grid.size() + 1) / 2,
                            .memory_bytes = 0,
                            .intra_node = {1, 1},
                            .inter_node = {5, 0.1}};
    simulation_options world = simulated_on(two_nodes, grid, replica_exchange::direct, p.node_replicas);
    world.kept = kept;
    const simulation simulated = simulate(p, model, lower(p, model), world);
    std::int64_t weights = 0;
    for (int d = 0; d != model.device_count() && options.how.sharded_optimizer; ++d) {
        weights += (p.data_degree - 1) * parameter_bytes_on(model, d);
    }
    REQUIRE(run.sent.gradient == options.steps * (simulated.replica_bytes - weights));
    REQUIRE(run.sent.boundary == options.steps * p.data_degree * simulated.boundary_bytes);
    REQUIRE(run.sent.skip == options.steps * p.data_degree * simulated.skip_bytes);
    REQUIRE((run.sent.boundary > 0) == (p.pipeline_degree > 1));
    for (int rank = 0; rank != grid.size(); ++rank) {
        REQUIRE(run.replica_bytes[static_cast<std::size_t>(rank)] ==
                replica_bytes_on(model, grid.device_of(rank), p.data_degree, kept));
    }
    std::size_t elements = 0;
    for (const auto& [layer, values] : want) { elements += values.size(); }
    REQUIRE(seen == elements * static_cast<std::size_t>(options.how.sharded_optimizer ? 1 : p.data_degree));
}

} // namespace

TEST_CASE(
    "gradients summed over replicas are those added in pairs of neighbours, whatever nodes they are in, bit for bit") {
    std::mt19937 random{31};
    for (int repeat = 0; repeat != 6; ++repeat) {
        for (const auto& grid : grids) {
            const int pipeline = grid.first, replicas = grid.second;
            const plan p = draw_plan<toy>(pipeline, replicas, random);
            replicated_options options;
            options.how = {static_cast<rank_layout>(repeat % 2), repeat % 3 == 2};
            options.steps = 1 + repeat % 2;
            options.most_delay_us = repeat < 2 ? 0 : 100;
            options.drift_seed = static_cast<unsigned>(random());
            INFO("repeat ", repeat, ", P ", pipeline, ", D ", replicas);
            check_sums<toy, math>(p, random(), options);
        }
    }
}

TEST_CASE("sums over replicas deadlock nowhere when posts return only when their messages have arrived") {
    std::mt19937 random{32};
    for (int repeat = 0; repeat != 4; ++repeat) {
        for (const auto& grid : {std::pair{2, 2}, {4, 2}, {2, 3}, {3, 3}, {2, 4}, {1, 6}, {1, 8}}) {
            const int pipeline = grid.first, replicas = grid.second;
            const plan p = draw_plan<toy>(pipeline, replicas, random);
            replicated_options options;
            options.link = {.latency_us = 5, .blocking = true};
            options.how.layout = static_cast<rank_layout>(repeat % 2);
            options.most_delay_us = 50;
            options.drift_seed = static_cast<unsigned>(random());
            INFO("repeat ", repeat, ", P ", pipeline, ", D ", replicas);
            check_sums<toy, math>(p, random(), options);
        }
    }
}

TEST_CASE("what replicas exchange is posted in the rounds that the simulator prices") {
    std::mt19937 random{36};
    int grouped = 0;
    for (int repeat = 0; repeat != 20; ++repeat) {
        const int replicas = repeat % 3 == 0 ? 2 + repeat % 5 : 4 << repeat % 2;
        const plan p = draw_plan<toy>(1 + repeat % 2, replicas, random);
        const executor_options how{static_cast<rank_layout>(repeat / 2 % 2), repeat % 3 == 2};
        const rank_grid grid{how.layout, p.pipeline_degree, replicas};
        const cluster nodes{.name = "three",
                            .nodes = 3,
                            .devices_per_node = (grid.size() + 2) / 3,
                            .memory_bytes = 0,
                            .intra_node = {1, 1},
                            .inter_node = {5, 0.1}};
        simulation_options world = simulated_on(nodes, grid, replica_exchange::direct, p.node_replicas);
        world.kept.sharded = how.sharded_optimizer;
        const std::vector<told> ranks = tell_step<toy, math>(p, how);
        for (int d = 0; d != p.pipeline_degree; ++d) {
            const std::vector<replica_round>& priced = world.replica_rounds[static_cast<std::size_t>(d)];
            const auto stages = static_cast<std::size_t>(
                std::count_if(p.cut.stages.begin(), p.cut.stages.end(), [&](const stage& s) { return s.device == d; }));
            const auto ways = static_cast<std::size_t>(gradient_ways(world.kept));
            // By round there and back: messages that leave a node, messages that enter it, and the shares per message.
            std::vector<std::map<int, int>> out(2 * priced.size());
            std::vector<std::map<int, int>> in(2 * priced.size());
            std::vector<int> shares(2 * priced.size(), 0);
            for (int r = 0; r != replicas; ++r) {
                const int me = grid.rank_of(d, r);
                replica_place place = place_of(grid, me);
                place.node_replicas = p.node_replicas;
                // Large groups are split between rounds.
                std::vector<telling_transport::posted> posts;
                for (const auto& group : ranks[static_cast<std::size_t>(me)].groups) {
                    posts.insert(posts.end(), group.begin(), group.end());
                }
                REQUIRE(posts.size() == 2 * ways * priced.size() * stages);
                // The way back takes the circles of the way there in reverse.
                std::vector<replica_circle> circles = place.circles();
                const std::vector<replica_circle> there = circles;
                if (ways == 2) { circles.insert(circles.end(), there.rbegin(), there.rend()); }
                std::size_t at = 0;
                for (std::size_t s = 0; s != stages; ++s) {
                    std::size_t round = 0;
                    for (const replica_circle& circle : circles) {
                        for (int ahead = 1; ahead != circle.size; ++ahead, ++round) {
                            for (int one = 0; one != 2; ++one, ++at) {
                                const bool sends = posts[at].sends;
                                const int number = circle.here + (sends ? ahead : circle.size - ahead);
                                REQUIRE(posts[at].peer == place.rank_of_replica(circle.replica(number % circle.size)));
                                REQUIRE(sends != posts[at ^ 1U].sends);
                                shares[round] = circle.shares;
                                if (!sends || s != 0 || nodes.node_of(me) == nodes.node_of(posts[at].peer)) {
                                    continue;
                                }
                                ++out[round][nodes.node_of(me)];
                                ++in[round][nodes.node_of(posts[at].peer)];
                            }
                        }
                    }
                }
                grouped += there.size() > 1 ? 1 : 0;
            }
            for (std::size_t j = 0; j != priced.size() * ways; ++j) {
                const auto rank = static_cast<std::size_t>(d);
                const int number = static_cast<int>(j % priced.size()) + 1;
                const replica_round now =
                    j < priced.size() ? world.round(rank, number) : world.round_back(rank, number);
                int most = 0;
                for (const auto* way : {&out[j], &in[j]}) {
                    for (const auto& of_node : *way) { most = std::max(most, of_node.second); }
                }
                CHECK(now.shared == (most != 0));
                CHECK(now.messages == std::max(most, 1));
                CHECK(now.shares == shares[j]);
            }
        }
    }
    CHECK(grouped > 20);
}

TEST_CASE("messages of replicas that are under way at once have rooms of their own, in the bytes that are planned") {
    std::mt19937 random{37};
    for (int repeat = 0; repeat != 12; ++repeat) {
        const plan p = draw_plan<toy>(1 + repeat % 2, repeat < 6 ? 2 + repeat % 3 : 2 * (repeat % 3) + 4, random);
        const rank_grid grid{rank_layout::pipeline_inside, p.pipeline_degree, p.data_degree};
        const step_model model{p, blank_costs(graph_of<toy>().view(), p.microbatch_size, sizeof(float))};
        const std::vector<told> ranks = tell_step<toy, math>(p, {});
        for (int rank = 0; rank != grid.size(); ++rank) {
            const told& mine = ranks[static_cast<std::size_t>(rank)];
            const std::int64_t planned =
                replica_bytes_on(model, grid.device_of(rank), p.data_degree, adamw_memory(sizeof(float)));
            std::int64_t most = 0;
            for (const auto& group : mine.groups) {
                std::vector<telling_transport::tensor> all;
                std::int64_t received = 0;
                const bool shares = group.front().message.kind == message_kind::gradient_share;
                int sent = 0;
                for (const auto& one : group) {
                    // All peers get the same sums.
                    if (one.sends && sent++ != 0 && !shares) { continue; }
                    for (const auto& t : one.tensors) {
                        for (const auto& other : all) { REQUIRE(!t.overlaps(other)); }
                        all.push_back(t);
                        if (one.sends || !shares) { continue; }
                        received += static_cast<std::int64_t>(t.bytes);
                        REQUIRE(std::any_of(mine.blocks.begin(), mine.blocks.end(), [&](const auto& block) {
                            return t.inside(block) && static_cast<std::int64_t>(block.bytes) == planned;
                        }));
                    }
                }
                most = std::max(most, received);
            }
            CHECK(most <= planned);
            // The plan also counts an element per layer and each share's alignment. With two circles the bound is too
            // loose: shares of the second take less, as the first circle has added them.
            if (p.node_replicas > 1 || p.data_degree > 4) { continue; }
            CHECK(most + (p.data_degree - 1) * static_cast<std::int64_t>(64 + 20 * sizeof(float)) >= planned);
        }
    }
}

TEST_CASE("more parts than are posted together are cut between rounds, by every replica alike") {
    std::mt19937 random{38};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (const int replicas : {2, 5, 6}) {
        const rank_grid grid{rank_layout::pipeline_inside, 1, replicas};
        std::vector<element_range> layers; // some have fewer elements than replicas
        std::size_t size = 0;
        for (int l = 0; l != 500; ++l) {
            layers.push_back({size, static_cast<std::size_t>(draw(0, 8))});
            size += layers.back().size;
        }
        std::mutex mutex;
        std::vector<std::vector<std::size_t>> ends(static_cast<std::size_t>(replicas));
        threads::run_ranks(replicas, {}, [&](threads::transport& plain) {
            telling_transport transport{plain};
            const auto me = static_cast<std::size_t>(plain.rank());
            std::vector<int> values(size, -1);
            const auto each = [&](int r, auto use) {
                for (const element_range& share : shares_of(std::span<const element_range>{layers}, replicas, r)) {
                    for (std::size_t i = share.first; i != share.first + share.size; ++i) { use(values[i]); }
                }
            };
            each(plain.rank(), [&](int& v) { v = plain.rank(); });
            weight_exchange exchange{place_of(grid, plain.rank()), std::span<const element_range>{layers},
                                     std::span{values}};
            exchange.run(transport);
            bool good = true;
            for (int r = 0; r != replicas; ++r) {
                each(r, [&](int v) { good = good && v == r; });
            }
            std::vector<std::size_t> mine;
            for (const auto& group : transport.groups) {
                std::size_t parts = 0;
                for (const auto& one : group) { parts += one.tensors.size(); }
                good = good && (parts <= most_parts_together || group.size() <= 2); // a round has two messages
                mine.push_back(group.size());
            }
            const std::lock_guard lock{mutex};
            CHECK(good);
            ends[me] = mine;
        });
        for (const auto& of_rank : ends) { CHECK(of_rank == ends.front()); }
        CHECK((ends.front().size() == 1) == (replicas == 2));
    }
}

TEST_CASE("gradients in double are summed over replicas too") {
    using small = toy_model<7, 6, wiring::nested, true>;
    std::mt19937 random{33};
    for (const bool sharded : {false, true}) {
        const plan p = draw_plan<small>(2, 3, random, sizeof(double));
        replicated_options options;
        options.how.sharded_optimizer = sharded;
        check_sums<small, reference::backend<double>>(p, random(), options);
    }
}

TEST_CASE("a rank that fails while gradients are summed stops all ranks with its error and its place") {
    std::mt19937 random{34};
    for (const auto kind : {message_kind::gradient_share, message_kind::gradient_sum}) {
        for (const int bad : {0, 3, 5}) {
            for (const bool blocking : {false, true}) {
                const plan p = draw_plan<toy>(2, 3, random);
                replicated_options options;
                options.link.blocking = blocking;
                options.most_delay_us = 50;
                options.fails = bad;
                options.fails_at = kind;
                std::string text;
                try {
                    static_cast<void>(run_replicated<toy, math>(p, 3, options));
                } catch (const error& e) { text = e.what(); }
                INFO(text);
                CHECK(text.starts_with("rank " + std::to_string(bad) + ", instruction "));
                CHECK(text.find("the network is broken") != std::string::npos);
            }
        }
    }
}

namespace {

/// Every weight gradient takes at least 1 ms.
struct slow_math : math {
    void linear_backward_weight(const linear_shape& shape, auto... args) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
        math::linear_backward_weight(shape, args...);
    }
};

} // namespace

TEST_CASE("the gradients of the stage that is done first are summed beside later passes") {
    using model_type = toy_model<7, 6, wiring::nested, false>;
    plan p;
    p.pipeline_degree = 2;
    p.data_degree = 2;
    p.microbatches = 3;
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    std::mt19937 random{35};
    p.cut = draw_cut(costs, placement::folded, 2, 1, random);
    p.order = draw_order(p.cut, p.microbatches, true, random);
    // The smallest stage sends about 40 bytes; the 3 ms that this takes are several weight gradients.
    threads::run_ranks(4, {.latency_us = 1500}, [&](threads::transport& transport) {
        slow_math backend;
        executor<model_type, slow_math> rank{backend, transport, p, costs};
        drawn_task<model_type, float> task{{1, 1, p.microbatches}};
        rank.record(2 * rank.instructions().instructions.size());
        rank.step(task);
        rank.step(task);
        const auto passes = rank.recorded().events();
        const auto sums = rank.recorded().reductions();
        if (sums.size() != 4) { throw error{"a step has not two sums on every rank"}; }
        int beside = 0;
        std::int64_t least_ns = 1'000'000'000;
        for (const trace_event& e : passes) {
            const auto& done = rank.instructions().instructions[static_cast<std::size_t>(e.instruction)];
            if (std::holds_alternative<op::all_reduce>(done)) { least_ns = std::min(least_ns, e.end_ns - e.start_ns); }
        }
        if (least_ns >= 1'500'000) { throw error{"what starts a sum waits for its messages"}; }
        for (const reduction_event& sum : sums) {
            const auto* what = std::get_if<op::all_reduce>(
                &rank.instructions().instructions[static_cast<std::size_t>(sum.instruction)]);
            if (what == nullptr) { throw error{"a sum was started by another instruction than all_reduce"}; }
            if (sum.end_ns - sum.start_ns < 2 * 1'500'000) { throw error{"a sum took less than its two messages"}; }
            for (const trace_event& e : passes) {
                const auto& done = rank.instructions().instructions[static_cast<std::size_t>(e.instruction)];
                if (!is_compute(done)) { continue; }
                if (e.start_ns >= sum.start_ns && e.end_ns <= sum.end_ns) { ++beside; }
            }
        }
        if (rank.place().device == 0 && beside < 2) { throw error{"nothing ran beside a sum over replicas"}; }
    });
}

} // namespace replicated_pipelines
