#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/improve/sequence_search.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/validate.hpp>

#include "random_runs.hpp"

namespace {

using namespace pulse;
using detail::index_problem;
using detail::make_sequence_graph;
using detail::search_budget;
using detail::sequence_graph;
using detail::sequence_search;
using detail::sequence_state;

/// The sequences that a state stands for.
std::vector<std::vector<int>> sequences_of(const sequence_state& state) {
    std::vector<std::vector<int>> out(static_cast<std::size_t>(state.graph().devices));
    for (const int x : state.order()) {
        const auto op = static_cast<std::size_t>(state.graph().op[static_cast<std::size_t>(x)]);
        out[static_cast<std::size_t>(state.graph().device[op])].push_back(x);
    }
    return out;
}

/// The same instances in a random order in which each comes after all that it waits for and its operation's earlier
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

/// A state that was brought here step by step is the one that its sequences give at once.
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
            over += state.excess() > 0 ? 1 : 0;
        }
    }
    CHECK(moved > 500);
    CHECK(over > 100);
}

TEST_CASE("a swap brings starts, tails, memory and makespan to what they are from scratch") {
    std::mt19937 random{41};
    int swapped = 0;
    int refused = 0;
    int over = 0;
    for (int round = 0; round != 120; ++round) {
        const auto problem = test::random_problem(random, round, 5);
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        sequence_state state{graph};
        REQUIRE(state.assign(test::random_sequences(random, problem, index)));
        std::uniform_int_distribution<int> any{0, graph.instances() - 1};
        for (int move = 0; move != 60; ++move) {
            const int u = any(random);
            if (!state.may_swap(u)) { continue; }
            const double was = state.makespan_us();
            const auto held = state.excess();
            const auto effect = state.judge(u);
            const auto order = state.order();
            if (!state.swap(u)) {
                ++refused;
                CHECK(state.order() == order);
                continue;
            }
            ++swapped;
            CHECK(state.excess() == held + effect.excess_change);
            CHECK(state.makespan_us() <= std::max(was, effect.through_us) * (1 + 1e-12));
            CHECK(state.makespan_us() >= effect.through_us * (1 - 1e-12));
            check_as_from_scratch(state);
            const auto sequences = sequences_of(state);
            const auto found = find_violation(problem, test::schedule_of(index, state, sequences));
            CHECK((found.rule == schedule_rule::none || found.rule == schedule_rule::memory));
            CHECK((state.excess() > 0) == (found.rule == schedule_rule::memory));
            over += state.excess() > 0 ? 1 : 0;
        }
    }
    CHECK(swapped > 1000);
    CHECK(refused > 0);
    CHECK(over > 100);
}

TEST_CASE("annealing a part of the step leaves the rest in order and what it finds is a schedule") {
    std::mt19937 random{42};
    detail::random_numbers numbers{};
    const search_limit limit{};
    search_budget budget{limit};
    int gained = 0;
    for (int round = 0; round != 120; ++round) {
        const auto problem = test::random_problem(random, round);
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        sequence_search search{graph};
        const auto before = test::random_sequences(random, problem, index);
        REQUIRE(search.take(before));
        const double was = search.best_us();
        sequence_state state{graph};
        REQUIRE(state.assign(before));
        const auto order = state.order();
        const double from = 0.25 * (round % 3);
        const double to = from + 0.5;
        const double mean = search.mean_us();
        if (mean == 0) { continue; }
        (void)search.anneal({2 * mean, 0.1 * mean, 20000, from, to}, 0, numbers, budget);
        REQUIRE(state.assign(search.best()));
        CHECK(state.excess() == 0);
        CHECK(state.makespan_us() <= was * (1 + 1e-12));
        CHECK(describe(find_violation(problem, test::schedule_of(index, state, search.best()))) == "");
        gained += state.makespan_us() < was * (1 - 1e-9) ? 1 : 0;

        const auto outside = [&](int x) {
            const auto place = static_cast<double>(std::find(order.begin(), order.end(), x) - order.begin());
            const auto count = static_cast<double>(order.size());
            return place < static_cast<int>(from * count) || place >= static_cast<int>(to * count);
        };
        const auto after = search.best();
        for (std::size_t d = 0; d != before.size(); ++d) {
            for (std::size_t i = 0; i != before[d].size(); ++i) {
                if (outside(before[d][i])) { CHECK(after[d][i] == before[d][i]); }
            }
        }
    }
    CHECK(gained > 15);
}
