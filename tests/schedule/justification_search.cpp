#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/improve/gap_filler.hpp>
#include <pulse/schedule/improve/justification_search.hpp>
#include <pulse/schedule/improve/sequence_graph.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/validate.hpp>

#include "random_runs.hpp"

namespace {

using namespace pulse;
using detail::gap_filler;
using detail::index_problem;
using detail::indexed_problem;
using detail::justification_search;
using detail::make_sequence_graph;
using detail::search_budget;
using detail::sequence_state;

/// The placed instances and their places.
struct placed_runs {
    std::vector<std::vector<int>> lists{};
    std::vector<double> start{};
};

/// Whether the placed instances' bytes stay within the limit of `device` at every start, counted hold by hold.
bool fits(const schedule_problem& problem, const indexed_problem& index, const placed_runs& runs, int device) {
    if (problem.memory_limit_bytes.empty()) { return true; }
    const auto& list = runs.lists[static_cast<std::size_t>(device)];
    std::vector<int> place(runs.start.size(), std::numeric_limits<int>::max());
    for (std::size_t i = 0; i != list.size(); ++i) { place[static_cast<std::size_t>(list[i])] = static_cast<int>(i); }
    for (int i = 0; i != static_cast<int>(list.size()); ++i) {
        std::int64_t held = 0;
        for (const auto& h : problem.holds) {
            for (int k = 0; h.device == device && k != index.microbatches; ++k) {
                const auto at = [&](stage_pass p) {
                    return place[static_cast<std::size_t>(index.op_of(p) * index.microbatches + k)];
                };
                held += at(h.begin) <= i && std::max(at(h.end), at(h.also_end)) >= i ? h.bytes : 0;
            }
        }
        if (held > problem.memory_limit_bytes[static_cast<std::size_t>(device)]) { return false; }
    }
    return true;
}

} // namespace

TEST_CASE("serial generation puts every instance at the earliest place that the rules leave") {
    std::mt19937 random{61};
    int limited = 0;
    int impossible = 0;
    for (int round = 0; round != 150; ++round) {
        const auto problem = test::random_problem(random, round, 4);
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        sequence_state state{graph};
        REQUIRE(state.assign(test::random_sequences(random, problem, index)));
        // an order that differs from that of the starts, as a search would request
        auto order = state.order();
        for (std::size_t i = 1; i < order.size(); ++i) {
            const int a = order[i - 1];
            const int b = order[i];
            const int m = graph.microbatches;
            const bool waits = b % m == a % m || (a / m == b / m);
            if (!waits && random() % 2 == 0) { std::swap(order[i - 1], order[i]); }
        }
        gap_filler filler{graph, false};
        const double span = filler.fill(order);
        placed_runs runs{std::vector<std::vector<int>>(static_cast<std::size_t>(graph.devices)),
                         std::vector<double>(order.size(), 0.0)};
        double expected = 0;
        for (const int x : order) {
            const int o = x / graph.microbatches;
            const int k = x % graph.microbatches;
            const auto d = static_cast<std::size_t>(index.device[static_cast<std::size_t>(o)]);
            const double length = index.duration[static_cast<std::size_t>(o)];
            const auto end = [&](int y) {
                const auto op = static_cast<std::size_t>(y / graph.microbatches);
                return runs.start[static_cast<std::size_t>(y)] + index.duration[op];
            };
            double ready = k == 0 ? 0.0 : end(x - 1);
            for (const auto& link : index.before[static_cast<std::size_t>(o)]) {
                const double weight = index.duration[static_cast<std::size_t>(link.op)] + link.lag_us;
                ready =
                    std::max(ready, runs.start[static_cast<std::size_t>(link.op * graph.microbatches + k)] + weight);
            }
            auto& list = runs.lists[d];
            bool found = false;
            for (std::size_t i = 0; i <= list.size() && !found; ++i) {
                const double from = i == 0 ? ready : std::max(ready, end(list[i - 1]));
                const bool room = i == list.size() || from + length <= runs.start[static_cast<std::size_t>(list[i])];
                // an instance of zero length comes after all that have ended by then
                const bool behind = i == list.size() || end(list[i]) > ready;
                if (!room || !behind) { continue; }
                list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), x);
                found = fits(problem, index, runs, static_cast<int>(d));
                if (!found) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(i)); }
                if (found) { runs.start[static_cast<std::size_t>(x)] = from; }
            }
            if (!found) {
                expected = std::numeric_limits<double>::infinity();
                break;
            }
            expected = std::max(expected, end(x));
        }
        CHECK(span == expected);
        if (expected == std::numeric_limits<double>::infinity()) {
            ++impossible;
            continue;
        }
        CHECK(filler.sequences() == runs.lists);
        bool same = true;
        for (const auto& list : filler.lists()) {
            for (const auto& p : list) {
                same = same && p.start_us == runs.start[static_cast<std::size_t>(p.instance)];
            }
        }
        CHECK(same);
        limited += problem.memory_limit_bytes.empty() ? 0 : 1;
    }
    CHECK(limited > 20);
    CHECK(impossible > 0);
}

TEST_CASE("iterated justification finds schedules, of the makespan that it says, never a longer one") {
    std::mt19937 random{62};
    detail::random_numbers numbers{};
    int gained = 0;
    int limited = 0;
    for (int round = 0; round != 150; ++round) {
        // with many microbatches only some are placed again
        auto problem = test::random_problem(random, round);
        if (round % 2 == 1) { problem.microbatches = 20; }
        const bool timeless = round % 4 == 2;
        for (auto& s : problem.stages) {
            if (timeless) { break; }
            s.forward_us = std::max(s.forward_us, 0.5);
            s.backward_input_us = std::max(s.backward_input_us, 0.5);
            s.backward_weight_us = std::max(s.backward_weight_us, 0.5);
        }
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        const auto before = test::random_sequences(random, problem, index);
        justification_search search{graph};
        REQUIRE(search.take(before));
        const double was = search.best_us();
        const search_limit limit{.nodes = 200};
        search_budget budget{limit};
        const bool better = search.anneal(30.0, std::int64_t{1} << 40, 0, numbers, budget);
        CHECK(budget.nodes() == 200);
        CHECK((timeless || search.refused() == 0));
        CHECK(better == (search.best_us() < was));
        sequence_state state{graph};
        REQUIRE(state.assign(search.best()));
        CHECK(state.makespan_us() <= search.best_us() * (1 + 1e-12));
        CHECK(search.best_us() <= was);
        CHECK(describe(find_violation(problem, test::schedule_of(index, state, search.best()))) == "");
        gained += better ? 1 : 0;
        limited += better && !problem.memory_limit_bytes.empty() ? 1 : 0;
    }
    CHECK(gained > 40);
    CHECK(limited > 20);
}
