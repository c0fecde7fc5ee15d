#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <support/faulty_transport.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/executor.hpp>

#include "world.hpp"

using namespace pulse;
using namespace pulse::test;

namespace lost_messages {

namespace {

using small = toy_model<1, 9, wiring::nested, true>;
using math = reference::backend<float>;
using faulty = faulty_transport<mpi::transport>;

cost_table costs() { return blank_costs(graph_of<small>().view(), 1, sizeof(float)); }

plan draw_plan(int microbatches) {
    std::mt19937 random{5};
    plan p;
    p.pipeline_degree = world_size();
    p.microbatches = microbatches;
    while (p.cut.stages.empty()) { p.cut = draw_cut(costs(), placement::folded, p.pipeline_degree, 1, random); }
    p.order = draw_order(p.cut, p.microbatches, true, random);
    return p;
}

/// Runs two steps with a fault in one rank's messages; returns this rank's error, and counts its sends.
std::string two_steps(const plan& planned, const fault_plan& wrong, double timeout_s, int& sends) {
    return error_of(
        [&](mpi::transport& world) {
            faulty links{world, wrong};
            math backend;
            executor<small, math> rank{backend, links, planned, costs()};
            drawn_task<small, float> task{{7, planned.microbatch_size, planned.microbatches}};
            for (const auto& block : rank.parameters().blocks()) {
                const auto drawn = task.data.parameters(block.layer, block.size);
                std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
            }
            rank.step(task);
            rank.step(task);
            sends = links.sends();
        },
        {.timeout_s = timeout_s});
}

/// Whether a text contains all parts in order.
bool says(const std::string& text, const std::vector<std::string>& parts) {
    std::size_t at = 0;
    for (const std::string& part : parts) {
        at = text.find(part, at);
        if (at == std::string::npos) { return false; }
        at += part.size();
    }
    return text.starts_with(parts.front());
}
bool waited(const std::string& text) {
    return says(text, {"rank ", ", instruction ", " (", "): pulse: rank ", " waited 0.2", " s for boundary",
                       " of microbatch ", " from rank "});
}
bool disagree(const std::string& text) {
    return says(text, {"rank ", ", instruction ", " (", "): pulse: two ranks disagree about the next message", "rank ",
                       " expects boundary", ", rank ", " sends boundary"});
}

} // namespace

TEST_CASE("a message that is never sent ends every rank, with rank, instruction and peer named") {
    for (const int microbatches : {1, 2}) {
        const plan planned = draw_plan(microbatches);
        for (int rank = 0; rank != world_size(); ++rank) {
            // a fault that never comes counts the sends
            int sends = 0;
            CHECK(two_steps(planned, {fault::drop, rank, 1 << 20}, 300, sends) == "");
            CHECK(error_of([&](mpi::transport& world) {
                      double of_rank = world.rank() == rank ? sends : 0;
                      world.sum({&of_rank, 1});
                      sends = static_cast<int>(of_rank);
                  }) == "");
            REQUIRE(sends >= 4);
            // in the first of two steps: the second cannot end
            for (const int at : {0, sends / 2 - 1}) {
                INFO(microbatches << " microbatches, rank " << rank << ", send " << at);
                int unused = 0;
                const std::string text = two_steps(planned, {fault::drop, rank, at}, 0.2, unused);
                // A single microbatch is in one place at a time: without it, all wait. With two, the next one may
                // arrive instead.
                CHECK_MESSAGE((waited(text) || (microbatches == 2 && disagree(text))), text);
            }
        }
    }
}

} // namespace lost_messages
