#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <support/encoded_steps.hpp>
#include <support/random_frozen.hpp>
#include <pulse/core/error.hpp>
#include <pulse/mpi/transport.hpp>

#include "world.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// A plan with frozen tasks, and the results of its steps on thread ranks that encode inline.
struct drawn_plan {
    plan planned{};
    cost_table costs{};
    std::uint64_t seed{};
    std::map<int, encoded_steps> want{};
};
constexpr int steps = 3;

/// Draws plans of `ranks` ranks; every process draws the same ones.
std::vector<drawn_plan> draw_plans(std::mt19937& random, int ranks, int plans) {
    std::vector<drawn_plan> all;
    while (static_cast<int>(all.size()) != plans) {
        const bool replicated = ranks % 2 == 0 && std::uniform_int_distribution<int>{0, 1}(random) == 1;
        drawn_plan one{.planned = draw_encoded_plan(random, replicated ? ranks / 2 : ranks)};
        if (one.planned.cut.stages.empty()) { continue; }
        one.planned.data_degree = replicated ? 2 : 1;
        one.costs = costs_with_frozen(one.planned.microbatch_size);
        one.seed = random();
        encode_tally none;
        one.want = run_encoded(one.planned, one.costs, one.seed, steps, none);
        draw_frozen_tasks(one.planned, one.costs, random);
        all.push_back(std::move(one));
    }
    return all;
}

void check_plans(unsigned seed, int plans, const mpi::options& how) {
    std::mt19937 random{seed};
    for (int ranks = 2; ranks <= std::min(world_size(), 4); ++ranks) {
        const std::vector<drawn_plan> all = draw_plans(random, ranks, plans);
        const first_ranks members{ranks};
        if (members.get() == MPI_COMM_NULL) { continue; }
        const std::string said = error_of(
            [&](mpi::transport& among) {
                for (std::size_t i = 0; i != all.size(); ++i) {
                    const drawn_plan& one = all[i];
                    encode_tally seen;
                    const int forgets = i % 3 == 0 ? 1 : -1;
                    const auto made = run_encoded_rank(among, one.planned, one.costs, one.seed, steps, seen, forgets);
                    const encoded_steps& want = one.want.at(among.rank());
                    if (!made.memory_as_planned || made.losses != want.losses || made.gradients != want.gradients) {
                        throw error{"plan " + std::to_string(i) + ": other bits or another peak"};
                    }
                }
            },
            how, members.get());
        CHECK(said == "");
    }
}

} // namespace

TEST_CASE("frozen tasks on processes give the bits of encoding inline on threads") {
    check_plans(91, 40, {.timeout_s = 60, .synchronous = true}); // a send waits for its receive: nothing may hang
    check_plans(92, 40, {.timeout_s = 60, .chunk_bytes = 8});
}
