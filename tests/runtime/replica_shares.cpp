#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/threads/transport.hpp>

#include "replica_grids.hpp"

namespace replicated_pipelines {

using namespace pulse;

TEST_CASE("shares of a layer are neighbours that cover it and are equal but for one element") {
    for (const std::size_t n : {0U, 1U, 2U, 3U, 7U, 8U, 9U, 100U, 1001U}) {
        for (const int shares : {1, 2, 3, 4, 7, 16}) {
            std::size_t next = 5;
            std::size_t least = n;
            std::size_t most = 0;
            for (int d = 0; d != shares; ++d) {
                const element_range mine = share_of({5, n}, shares, d);
                CHECK(mine.first == next);
                next = mine.first + mine.size;
                least = std::min(least, mine.size);
                most = std::max(most, mine.size);
            }
            CHECK(next == 5 + n);
            CHECK(most <= least + 1);
        }
    }
    // Elements times shares would overflow.
    constexpr std::size_t huge = ~std::size_t{0} / 2;
    CHECK(share_of({0, huge}, 4, 3).first + share_of({0, huge}, 4, 3).size == huge);
    CHECK(share_of({0, huge}, 4, 1).size <= huge / 4 + 1);
}

TEST_CASE("a grid gives every pair of pipeline device and replica a rank, and the rank its place back") {
    for (const rank_layout layout : {rank_layout::pipeline_inside, rank_layout::replicas_inside}) {
        for (const auto& grid : grids) {
            const int pipeline = grid.first, replicas = grid.second;
            const rank_grid world{layout, pipeline, replicas};
            std::vector<bool> seen(static_cast<std::size_t>(world.size()));
            for (int p = 0; p != pipeline; ++p) {
                for (int r = 0; r != replicas; ++r) {
                    const int rank = world.rank_of(p, r);
                    REQUIRE(rank >= 0);
                    REQUIRE(rank < world.size());
                    CHECK(!seen[static_cast<std::size_t>(rank)]);
                    seen[static_cast<std::size_t>(rank)] = true;
                    CHECK(place_of(world, rank) == replica_place{world, p, r});
                }
            }
        }
    }
}

TEST_CASE(
    "every replica ends up with the weights of all, through the circles of any nodes, and as many bytes are sent") {
    for (const auto& [replicas, together] :
         {std::pair{2, 1}, {3, 1}, {4, 1}, {4, 2}, {6, 2}, {8, 2}, {8, 4}, {12, 4}, {5, 1}}) {
        const rank_grid grid{rank_layout::replicas_inside, 1, replicas};
        std::vector<element_range> layers;
        std::size_t size = 0;
        for (const std::size_t n : {7U, 0U, 40U, 1U, 3U, 96U}) {
            layers.push_back({size, n});
            size += n;
        }
        const std::span<const element_range> all{layers};
        std::mutex mutex;
        std::int64_t sent = 0;
        int wrong = 0;
        const int members = together; // clang 14 cannot capture structured bindings
        const int count = replicas;
        threads::run_ranks(count, {.blocking = count % 2 == 0}, [&](threads::transport& transport) {
            replica_place place = place_of(grid, transport.rank());
            place.node_replicas = members;
            std::vector<int> values(size, -1);
            const auto each = [&](int r, auto use) {
                for (const element_range& share : shares_of(all, count, r)) {
                    for (std::size_t i = share.first; i != share.first + share.size; ++i) { use(values[i]); }
                }
            };
            each(place.replica, [&](int& v) { v = place.replica; });
            weight_exchange exchange{place, all, std::span{values}};
            exchange.run(transport);
            const std::lock_guard lock{mutex};
            for (int r = 0; r != count; ++r) {
                each(r, [&](int v) { wrong += v == r ? 0 : 1; });
            }
            sent += transport.sent().gradient;
        });
        CAPTURE(count);
        CAPTURE(members);
        CHECK(wrong == 0);
        CHECK(sent == static_cast<std::int64_t>((static_cast<std::size_t>(count) - 1) * size * sizeof(int)));
    }
}

} // namespace replicated_pipelines
