#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/construct/periodic_pattern.hpp>
#include <pulse/schedule/construct/periodic_search.hpp>
#include <pulse/schedule/validate.hpp>

#include "random_runs.hpp"

namespace {

using namespace pulse;
using detail::index_problem;
using detail::indexed_problem;
using detail::make_sequence_graph;
using detail::periodic_pattern;
using detail::periodic_search;
using detail::search_budget;
using detail::sequence_state;

/// Repeats the pattern for all microbatches at exactly its times.
schedule repeated(const schedule_problem& problem, const indexed_problem& index, const periodic_pattern& pattern) {
    schedule out{};
    for (const auto& sequence : unroll(index, pattern)) {
        out.devices.emplace_back();
        for (const int x : sequence) {
            const int op = x / problem.microbatches;
            const int k = x % problem.microbatches;
            const auto p = index.pass_of(op);
            const double at = pattern.start[static_cast<std::size_t>(op)] + k * pattern.period_us;
            out.devices.back().push_back({p.op, p.stage, k, at, at + index.duration[static_cast<std::size_t>(op)]});
        }
    }
    return out;
}

/// Two passes at one time would have no defined order, so none may have zero length.
void lengthen(schedule_problem& problem) {
    for (auto& s : problem.stages) {
        s.forward_us = std::max(s.forward_us, 0.5);
        s.backward_input_us = std::max(s.backward_input_us, 0.5);
        s.backward_weight_us = std::max(s.backward_weight_us, 0.5);
    }
}

} // namespace

TEST_CASE("a pattern repeats without conflict, and its closed form of memory is the peak of the repetition") {
    std::mt19937 random{31};
    detail::random_numbers numbers{};
    const search_limit limit{};
    search_budget budget{limit};
    int fitting = 0;
    int deep = 0;
    int early = 0;
    for (int round = 0; round != 150; ++round) {
        auto problem = test::random_problem(random, round);
        lengthen(problem);
        const auto index = index_problem(problem);
        double load = 0;
        for (int d = 0; d != index.devices; ++d) { load = std::max(load, index.load_us(d)); }
        periodic_search search{problem, index, load * (1 + 0.1 * (round % 4))};
        const std::int64_t moves_before = budget.nodes();
        const auto goal = round % 3 == 0 ? periodic_search::goal::fitting : periodic_search::goal::shortest;
        search.anneal(goal, search.mean_us(), 0.1 * search.mean_us(), 500, numbers, budget);
        const std::int64_t moves = budget.nodes() - moves_before;
        early += goal == periodic_search::goal::fitting && search.excess() == 0 && moves < 500 ? 1 : 0;
        CHECK((moves == 500 || moves == 0 || (goal == periodic_search::goal::fitting && search.excess() == 0)));
        CHECK((moves < 500 || goal == periodic_search::goal::shortest || search.excess() > 0));
        const auto& pattern = search.best();
        const double span = *std::max_element(pattern.start.begin(), pattern.start.end()) + load;
        auto many = problem;
        many.microbatches = 2 * static_cast<int>(span / pattern.period_us) + 3;
        many.memory_limit_bytes = {};
        deep += span > 2 * pattern.period_us ? 1 : 0;
        const auto timed = repeated(many, index_problem(many), pattern);
        CHECK(describe(find_violation(many, timed)) == "");
        const auto peaks = peak_holds(many, timed);

        std::int64_t excess = 0;
        for (std::size_t d = 0; d != problem.memory_limit_bytes.size(); ++d) {
            excess += std::max<std::int64_t>(0, peaks[d] - problem.memory_limit_bytes[d]);
        }
        CHECK(search.excess() == excess);
        fitting += excess == 0 && !problem.memory_limit_bytes.empty() ? 1 : 0;
    }
    CHECK(fitting > 20);
    CHECK(deep > 50);
    CHECK(early > 20);
}

TEST_CASE("a pattern within memory unrolls to a schedule within memory") {
    std::mt19937 random{32};
    detail::random_numbers numbers{};
    const search_limit limit{};
    search_budget budget{limit};
    int fitting = 0;
    for (int round = 0; round != 150; ++round) {
        auto problem = test::random_problem(random, round, 12);
        lengthen(problem);
        const auto index = index_problem(problem);
        double load = 0;
        for (int d = 0; d != index.devices; ++d) { load = std::max(load, index.load_us(d)); }
        periodic_search search{problem, index, 1.1 * load};
        search.anneal(periodic_search::goal::shortest, search.mean_us(), 0.1 * search.mean_us(), 1000, numbers, budget);
        const auto sequences = unroll(index, search.best());
        const auto graph = make_sequence_graph(problem, index);
        sequence_state state{graph};
        REQUIRE(state.assign(sequences));
        const auto violation = find_violation(problem, test::schedule_of(index, state, sequences));
        CHECK((violation.rule == schedule_rule::none || violation.rule == schedule_rule::memory));
        CHECK((state.excess() > 0) == (violation.rule == schedule_rule::memory));
        if (search.excess() == 0) {
            CHECK(describe(violation) == "");
            ++fitting;
        }
    }
    CHECK(fitting > 50);
}
