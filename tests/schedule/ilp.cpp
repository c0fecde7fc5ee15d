#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/prove/disjunctive_program.hpp>
#include <pulse/schedule/prove/ilp_model.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/validate.hpp>

#include "brute_solver.hpp"
#include "every_schedule.hpp"
#include "small_problems.hpp"

namespace {

using namespace pulse;
using detail::disjunctive_program;
using detail::window_problem;
using detail::window_problem_of;
using detail::window_propagator;
using detail::window_state;
using detail::window_state_of;
using test::cost_of;
using test::whole_columns;
using test::worst_violation;

/// Whether `timed` respects the windows and settled orders of `state`.
bool agrees(const window_problem& facts, const window_state& state, const schedule& timed) {
    bool holds = true;
    const double slack = 1e-6;
    for (const auto& passes : timed.devices) {
        for (std::size_t i = 0; i != passes.size(); ++i) {
            const int b = facts.index.op_of({passes[i].op, passes[i].stage});
            const int l = passes[i].microbatch;
            holds = holds && passes[i].start_us >= state.start[facts.at(b, l)] - slack;
            // A semi-active schedule may end before its cutoff, so passes are only compared with their due times.
            holds = holds && passes[i].end_us <= state.due[facts.at(b, l)] + slack;
            for (std::size_t j = 0; j != i; ++j) {
                const int a = facts.index.op_of({passes[j].op, passes[j].stage});
                if (a != b) {
                    holds = holds && state.surely_before(facts, b, a, passes[j].microbatch) <= l &&
                            passes[j].microbatch < state.perhaps_before(facts, a, b, l);
                }
            }
        }
    }
    return holds;
}

/// Two devices, little memory, and holds that end with the later of two W passes that no dependency orders.
schedule_problem two_ended_problem(std::mt19937& random) {
    auto problem = test::chain_problem({0, 1, 1, 0}, 2, 2 + static_cast<int>(random() % 2U), true, 3, 2, 4, 0.6, 1);
    for (auto& s : problem.stages) {
        s.forward_us *= std::uniform_real_distribution<double>{0.5, 1.5}(random);
        s.backward_weight_us *= std::uniform_real_distribution<double>{0.5, 1.5}(random);
    }
    for (auto& h : problem.holds) { h.also_end = {pass::backward_weight, 3 - h.begin.stage}; }
    problem.memory_limit_bytes = {2 + static_cast<std::int64_t>(random() % 2U), 2};
    return problem;
}

/// The instance pairs that are still open, in the order of the program's integer columns.
std::vector<std::pair<std::size_t, std::size_t>> open_pairs(const window_problem& facts, const window_state& state) {
    std::vector<std::pair<std::size_t, std::size_t>> out{};
    const int m = facts.index.microbatches;
    for (const auto& ops : facts.index.on_device) {
        for (const int a : ops) {
            for (const int b : ops) {
                for (int l = 0; a < b && l != m; ++l) {
                    for (int k = 0; k != m; ++k) {
                        if (state.open(facts, a, k, b, l)) { out.emplace_back(facts.at(a, k), facts.at(b, l)); }
                    }
                }
            }
        }
    }
    return out;
}

/// The values of such a program's columns for a schedule whose makespan is at most the cutoff.
std::vector<double> values_of(const window_problem& facts,
                              const std::vector<std::pair<std::size_t, std::size_t>>& pairs, const ilp_model& model,
                              const schedule& timed) {
    std::vector<double> values(model.columns.size(), 1.0);
    std::vector<std::size_t> rank(static_cast<std::size_t>(facts.index.ops() * facts.index.microbatches), 0);
    values[0] = std::max(timed.makespan_us(), model.columns[0].lower);
    for (const auto& passes : timed.devices) {
        for (std::size_t i = 0; i != passes.size(); ++i) {
            const auto at = static_cast<std::size_t>(facts.index.instance_of(passes[i]));
            rank[at] = i;
            values[1 + at] = passes[i].start_us;
        }
    }
    std::size_t both = 1 + rank.size();
    for (const auto& [a, b] : pairs) { values[both++] = rank[a] < rank[b] ? 1 : 0; }
    // The last columns say whether both ends of a hold are over, as far as their two rows allow.
    for (const ilp_row& row : model.rows) {
        const ilp_term& end = model.terms[row.first];
        const auto last = static_cast<std::size_t>(model.terms[row.first + row.count - 1].column);
        if (last < both || std::isinf(row.lower)) { continue; }
        const double over = end.coefficient * values[static_cast<std::size_t>(end.column)] - row.lower;
        values[last] = std::min(values[last], over);
    }
    return values;
}

/// The schedule whose start times are the values themselves.
schedule as_it_stands(const window_problem& facts, const std::vector<double>& values) {
    schedule out{};
    for (const auto& ops : facts.index.on_device) {
        auto& passes = out.devices.emplace_back();
        for (const int op : ops) {
            const stage_pass p = facts.index.pass_of(op);
            for (int k = 0; k != facts.index.microbatches; ++k) {
                const double start = values[1 + facts.at(op, k)];
                passes.push_back({p.op, p.stage, k, start, start + facts.duration(op)});
            }
        }
        // A pass of zero length may start, up to rounding, with the pass that follows it.
        std::sort(passes.begin(), passes.end(), [](const auto& x, const auto& y) {
            const double sx = std::round(x.start_us * 1e6);
            const double sy = std::round(y.start_us * 1e6);
            return sx != sy ? sx < sy : x.end_us < y.end_us;
        });
        for (std::size_t i = 1; i < passes.size(); ++i) {
            passes[i].start_us = std::max(passes[i].start_us, passes[i - 1].start_us);
        }
    }
    return out;
}

} // namespace

TEST_CASE("windows hold in every schedule that meets the cutoff, and are refused only when there is none") {
    std::mt19937 random{11};
    int walked = 0;
    int refused = 0;
    int settled = 0;
    for (int round = 0; round != 260; ++round) {
        const auto problem = test::small_problem(random, 20);
        const auto known = list_search(problem);
        const auto facts = window_problem_of(problem);
        const auto bound = bound_schedule(problem);
        const double cutoff = known.lower_bound_us +
                              (known.makespan_us - known.lower_bound_us + 0.02 * known.makespan_us) * (round % 4) / 3;
        auto state = window_state_of(facts, bound, cutoff);
        const auto before = state.ahead;
        window_propagator propagator{facts};
        const bool possible = propagator.narrow(state);
        int schedules = 0;
        int wrong = 0;
        int broken = 0;
        std::vector<double> values{};
        std::vector<disjunctive_program> program{};
        if (possible) { program.emplace_back(facts, state, bound); }
        const auto pairs = open_pairs(facts, state);
        test::every_schedule all{problem, cutoff, 100000, [&](const schedule& timed) {
                                     ++schedules;
                                     if (!possible) { return; }
                                     wrong += agrees(facts, state, timed) ? 0 : 1;
                                     values = values_of(facts, pairs, program.front().model(), timed);
                                     broken += worst_violation(program.front().model(), values) > 1e-6 ? 1 : 0;
                                 }};
        const bool complete = all.walk();
        CHECK(wrong == 0);
        CHECK(broken == 0);
        if (!possible) { CHECK(schedules == 0); }
        if (!complete) { continue; }
        ++walked;
        refused += possible ? 0 : 1;
        settled += state.ahead != before ? 1 : 0;
        if (!values.empty()) {
            const auto timed = program.front().decode(problem, values);
            CHECK(describe(find_violation(problem, timed)) == "");
            CHECK(timed.makespan_us() <= values[0] + 1e-6);
        }
    }
    CHECK(walked > 150);
    CHECK(refused > 10);
    CHECK(settled > 100);
}

TEST_CASE("every solution of a program is a schedule as it stands, whatever orders are asked for") {
    std::mt19937 random{67};
    int solutions = 0;
    int limited = 0;
    int long_ones = 0;
    int both_ends = 0;
    for (int round = 0; round != 150; ++round) {
        const auto problem = round % 3 == 2 ? two_ended_problem(random) : test::small_problem(random, 24);
        const auto facts = window_problem_of(problem);
        const auto bound = bound_schedule(problem);
        const double cutoff = list_search(problem).makespan_us * (round % 2 == 0 ? 1.5 : 1.05);
        auto state = window_state_of(facts, bound, cutoff);
        if (!window_propagator{facts}.narrow(state)) { continue; }
        const disjunctive_program program{facts, state, bound};
        const int open = whole_columns(program.model());
        const int first = open == 0 ? 0 : 1 + static_cast<int>(bound.head.size());
        for (int attempt = 0; attempt != 6; ++attempt) {
            auto model = program.model();
            for (int x = first; x != first + open; ++x) {
                auto& c = model.columns[static_cast<std::size_t>(x)];
                if (random() % 4U != 0U) { c.lower = c.upper = static_cast<double>(random() % 2U); }
            }
            ilp_request request{};
            request.limit.nodes = 40;
            const auto answer = test::brute_solver{}.solve(model, request);
            if (answer.values.empty()) { continue; }
            const schedule timed = as_it_stands(facts, answer.values);
            CHECK(describe(find_violation(problem, timed)) == "");
            CHECK(timed.makespan_us() <= answer.values[0] + 1e-6);
            CHECK(answer.values[0] <= cutoff * (1 + 1e-9));
            ++solutions;
            limited += problem.memory_limit_bytes.empty() ? 0 : 1;
            long_ones += answer.values[0] > cutoff / 1.04 ? 1 : 0;
            both_ends += static_cast<int>(model.columns.size()) > first + open ? 1 : 0;
        }
    }
    MESSAGE(solutions << " solutions, " << limited << " under a limit, " << long_ones << " near the cutoff, "
                      << both_ends << " with holds of two ends");
    CHECK(solutions > 200);
    CHECK(limited > 50);
    CHECK(long_ones > 10);
    CHECK(both_ends > 40);
}

TEST_CASE("a program has a whole column for every open pair") {
    const auto problem = test::chain_problem({0, 1, 1, 0}, 2, 2, true, 1, 1, 1);
    const auto facts = window_problem_of(problem);
    const auto bound = bound_schedule(problem);
    auto state = window_state_of(facts, bound, bound.makespan_us + 3);
    REQUIRE(window_propagator{facts}.narrow(state));
    const disjunctive_program program{facts, state, bound};
    const auto open = static_cast<int>(open_pairs(facts, state).size());
    REQUIRE(open > 0);
    CHECK(open == whole_columns(program.model()));
    CHECK_NOTHROW(require_valid(program.model()));
}

TEST_CASE("ill-formed programs are refused by name") {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    ilp_model good{};
    const int x = good.add_column({0, 3, 1, true});
    const int y = good.add_column({});
    good.add_row(1, infinity, {{x, 1}, {y, 2}});
    CHECK_NOTHROW(require_valid(good));
    CHECK(cost_of(good, {2, 5}) == 2);
    CHECK(worst_violation(good, {1, 0}) == 0);
    CHECK(worst_violation(good, {0, 0.25}) == 0.5);
    CHECK(worst_violation(good, {3.25, 0}) == 0.25);
    const auto refuses = [](const ilp_model& model, const char* words) {
        CHECK_THROWS_WITH_AS(require_valid(model), doctest::Contains(words), input_error);
    };
    auto bad = good;
    bad.columns[0].lower = 4;
    refuses(bad, "column 0 has no value");
    bad = good;
    bad.columns[1].cost = std::numeric_limits<double>::quiet_NaN();
    refuses(bad, "column 1 has a cost");
    bad = good;
    bad.rows[0].lower = infinity;
    refuses(bad, "row 0 has no value");
    bad = good;
    bad.terms[1].column = 2;
    refuses(bad, "row 0 names a column that does not exist");
    bad = good;
    bad.terms[1].column = 0;
    refuses(bad, "row 0 names a column twice");
    bad = good;
    bad.terms[0].coefficient = infinity;
    refuses(bad, "row 0 has a coefficient");
    bad = good;
    bad.rows[0].count = 3;
    refuses(bad, "row 0 refers to terms that do not exist");
}
