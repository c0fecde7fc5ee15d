#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include <support/random_plan.hpp>
#include <support/replicated.hpp>
#include <support/toy_model.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/executor.hpp>

#include "world.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

using small = toy_model<7, 6, wiring::nested, true>;
using math = reference::backend<float>;

} // namespace

TEST_CASE("replicas on processes add up their gradients in their order, bit for bit, whatever sends wait for") {
    std::mt19937 random{61};
    for (int repeat = 0; repeat != 8; ++repeat) {
        plan p;
        p.pipeline_degree = world_size() % 3 == 0 ? 3 : 1 + repeat % 2;
        p.data_degree = world_size() / p.pipeline_degree;
        p.node_replicas = repeat % 4 >= 2 ? 2 : 1;
        if (!p.has_even_groups()) { p.node_replicas = 1; }
        p.microbatches = 1 + repeat % 3;
        p.split_backward = repeat % 2 == 0;
        const cost_table costs = blank_costs(graph_of<small>().view(), 1, sizeof(float));
        while (p.cut.stages.empty()) {
            p.cut = draw_cut(costs, static_cast<placement>(repeat % 3), p.pipeline_degree, 1, random);
        }
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        const std::uint64_t seed = random();
        const executor_options how{static_cast<rank_layout>(repeat % 2), repeat >= 4};
        const auto want = added_gradients<small, math>(p, seed);
        INFO("repeat ", repeat);
        const std::string text = error_of(
            [&](mpi::transport& transport) {
                math backend;
                executor<small, math> rank{backend, transport, p, costs, how};
                const auto replica = static_cast<std::size_t>(rank.place().replica);
                drawn_task<small, float> task{drawn_data<small, float>{seed + replica, 1, p.microbatches}};
                for (const auto& block : rank.parameters().blocks()) {
                    const auto drawn = task.data.parameters(block.layer, block.size);
                    std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
                }
                for (int step = 0; step != 2; ++step) {
                    std::fill(rank.parameters().gradients().begin(), rank.parameters().gradients().end(),
                              std::numeric_limits<float>::quiet_NaN());
                    rank.step(task);
                }
                for (const auto& block : rank.parameters().blocks()) {
                    const auto& sum = want.at(block.layer);
                    const auto found = rank.parameters().gradients_of(block.layer);
                    const element_range all{0, sum.size()};
                    const element_range mine =
                        how.sharded_optimizer ? share_of(all, p.data_degree, rank.place().replica) : all;
                    for (std::size_t i = mine.first; i != mine.first + mine.size; ++i) {
                        if (found[i] != sum[i]) { throw error{"a sum over replicas is wrong"}; }
                    }
                }
            },
            {.synchronous = repeat % 4 >= 2});
        CHECK(text == std::string{});
    }
}
