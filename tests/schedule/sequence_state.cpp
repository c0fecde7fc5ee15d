#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/improve/gap_filler.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>

#include "random_runs.hpp"

namespace {

using namespace pulse;
using detail::index_problem;
using detail::make_sequence_graph;
using detail::sequence_graph;
using detail::sequence_state;

/// The sequences of a state.
std::vector<std::vector<int>> sequences_of(const sequence_state& state) {
    std::vector<std::vector<int>> out(static_cast<std::size_t>(state.graph().devices));
    for (const int x : state.order()) {
        const auto op = static_cast<std::size_t>(state.graph().op[static_cast<std::size_t>(x)]);
        out[static_cast<std::size_t>(state.graph().device[op])].push_back(x);
    }
    return out;
}

/// The same instances in a random order in which each follows its dependencies and its operation's earlier
/// microbatches.
std::vector<int> shuffled_part(const sequence_graph& graph, std::vector<int> part, std::mt19937& random) {
    std::vector<int> out{};
    const auto waits = [&](int x) {
        const auto o = static_cast<std::size_t>(graph.op[static_cast<std::size_t>(x)]);
        const auto left = [&](int y) { return std::find(part.begin(), part.end(), y) != part.end(); };
        bool any = x % graph.microbatches != 0 && left(x - 1);
        for (int e = graph.first_before[o]; e != graph.first_before[o + 1]; ++e) {
            any = any || left(x + graph.before[static_cast<std::size_t>(e)].shift);
        }
        return any;
    };
    while (!part.empty()) {
        const auto at = part.begin() + static_cast<std::ptrdiff_t>(random() % part.size());
        if (waits(*at)) { continue; }
        out.push_back(*at);
        part.erase(at);
    }
    return out;
}

/// Bytes over the limits, summed over all instances, by the problem's holds.
std::int64_t excess_of(const schedule_problem& problem, const detail::indexed_problem& index,
                       const sequence_state& state) {
    const auto timed = detail::to_schedule(index, sequences_of(state), state.starts());
    std::int64_t excess = 0;
    for (std::size_t d = 0; d != problem.memory_limit_bytes.size(); ++d) {
        for (const std::int64_t level : detail::hold_levels(problem, timed.devices[d], static_cast<int>(d))) {
            excess += std::max<std::int64_t>(0, level - problem.memory_limit_bytes[d]);
        }
    }
    return excess;
}

/// A state built step by step must equal one built from its sequences at once.
void check_as_from_scratch(const sequence_state& state) {
    sequence_state fresh{state.graph()};
    REQUIRE(fresh.assign(sequences_of(state)));
    CHECK(state.makespan_us() == fresh.makespan_us());
    CHECK(state.excess() == fresh.excess());
    bool same = true;
    for (int x = 0; x != state.graph().instances(); ++x) {
        same = same && state.start(x) == fresh.start(x) && state.tail(x) == fresh.tail(x) &&
               state.prev(x) == fresh.prev(x) && state.next(x) == fresh.next(x) &&
               state.held_after(x) == fresh.held_after(x) &&
               state.order()[static_cast<std::size_t>(state.place(x))] == x;
    }
    CHECK(same);
}

} // namespace

TEST_CASE("another order of a part brings starts, tails, memory and makespan to what they are from scratch") {
    std::mt19937 random{43};
    int over = 0;
    int moved = 0;
    for (int round = 0; round != 120; ++round) {
        const auto problem = test::random_problem(random, round, 5);
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        sequence_state state{graph};
        REQUIRE(state.assign(test::random_sequences(random, problem, index)));
        for (int move = 0; move != 10; ++move) {
            const int size = std::uniform_int_distribution<int>{1, graph.instances()}(random);
            const int from = std::uniform_int_distribution<int>{0, graph.instances() - size}(random);
            const auto first = state.order().begin() + from;
            const auto part = shuffled_part(graph, {first, first + size}, random);
            moved += std::equal(part.begin(), part.end(), first) ? 0 : 1;
            state.reorder(from, part);
            CHECK(std::equal(part.begin(), part.end(), state.order().begin() + from));
            check_as_from_scratch(state);
            CHECK(state.excess() == excess_of(problem, index, state));
            over += state.excess() > 0 ? 1 : 0;
        }
    }
    CHECK(moved > 500);
    CHECK(over > 100);
}

TEST_CASE("dependencies are transitive, and an operation's rank is the number of operations before it") {
    std::mt19937 random{44};
    for (int round = 0; round != 60; ++round) {
        const auto problem = test::random_problem(random, round, 2);
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        const auto n = static_cast<std::size_t>(graph.ops);
        std::vector<char> leads(n * n, 0);
        for (const auto& d : problem.dependencies) {
            leads[static_cast<std::size_t>(index.op_of(d.before)) * n +
                  static_cast<std::size_t>(index.op_of(d.after))] = 1;
        }
        for (std::size_t by = 0; by != n; ++by) {
            for (std::size_t a = 0; a != n; ++a) {
                for (std::size_t b = 0; b != n; ++b) {
                    if (leads[a * n + by] != 0 && leads[by * n + b] != 0) { leads[a * n + b] = 1; }
                }
            }
        }
        std::vector<char> found{};
        std::vector<int> rank(n, 0);
        for (const double way : least_paths(index)) {
            rank[found.size() % n] += leads[found.size()];
            found.push_back(way >= 0 ? 1 : 0);
        }
        CHECK(found == leads);
        CHECK(graph.rank == rank);
        for (int& r : rank) { r = -r; }
        CHECK(mirrored(graph).rank == rank);
    }
}
