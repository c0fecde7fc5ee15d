#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stop_token>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <glpk.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/prove/certify.hpp>
#include <pulse/schedule/prove/disjunctive_program.hpp>
#include <pulse/schedule/prove/glpk.hpp>
#include <pulse/schedule/prove/scaled_times.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>

#include "brute_solver.hpp"
#include "every_schedule.hpp"
#include "small_problems.hpp"

namespace {

using namespace pulse;
using detail::device_orders;
using detail::disjunctive_program;
using detail::index_problem;
using detail::scaled_times;
using detail::timed_from_orders;
using detail::window_problem;
using detail::window_problem_of;
using detail::window_propagator;
using detail::window_state;
using detail::window_state_of;
using test::cost_of;
using test::worst_violation;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// A program over `count` columns with values 0..3, and rows that some values satisfy.
ilp_model random_program(std::mt19937& random, int count) {
    const auto up_to = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    ilp_model out{};
    for (int j = 0; j != count; ++j) { out.add_column({0.0, 3.0, 1.0 * up_to(-5, 5), true}); }
    for (int i = 0; i != 4; ++i) {
        std::vector<ilp_term> terms{};
        for (int j = 0; j != count; ++j) {
            if (up_to(0, 2) != 0) { terms.push_back({j, 1.0 * up_to(-4, 6)}); }
        }
        const double low = up_to(-4, 8);
        out.add_row(i % 2 == 0 ? low : -infinity, i == 2 ? low + 3 : i % 2 == 0 ? infinity : low + 4, terms);
    }
    return out;
}

/// The least cost over all values; infinite if the program has no solution.
double exhaustive(const ilp_model& model) {
    double best = infinity;
    std::vector<double> values(model.columns.size(), 0);
    for (std::size_t code = 0; code != std::size_t{1} << (2 * values.size()); ++code) {
        for (std::size_t j = 0; j != values.size(); ++j) { values[j] = static_cast<double>(code >> (2 * j) & 3U); }
        if (worst_violation(model, values) == 0) { best = std::min(best, cost_of(model, values)); }
    }
    return best;
}

/// The schedule that runs the microbatches one by one.
schedule one_by_one(const schedule_problem& problem) {
    const auto index = index_problem(problem);
    device_orders orders(index.on_device.size());
    for (std::size_t d = 0; d != orders.size(); ++d) {
        for (int k = 0; k != problem.microbatches; ++k) {
            for (const int op : index.on_device[d]) {
                orders[d].push_back({index.pass_of(op).op, index.pass_of(op).stage, k});
            }
        }
    }
    return timed_from_orders(problem, orders);
}

/// A scheduling program that takes GLPK some hundred nodes, and more with every microbatch, and a schedule known in
/// advance.
struct hard_program {
    schedule_problem problem{};
    window_problem facts{};
    schedule_bound bound{};
    window_state state{};
    schedule known{};

    explicit hard_program(int microbatches = 4) :
        problem{test::chain_problem({0, 1, 1, 0}, 2, microbatches, false, 3, 2, 4, 0.6, 1)} {
        problem.memory_limit_bytes = {4, 4};
        known = list_schedule(problem, {list_effort::one, 0, 0, 0});
        facts = window_problem_of(problem);
        bound = bound_schedule(problem);
        state = window_state_of(facts, bound, known.makespan_us());
        REQUIRE(window_propagator{facts}.narrow(state));
    }
};

} // namespace

TEST_CASE("GLPK finds what trying all values finds") {
    std::mt19937 random{7};
    glpk_solver solver{};
    int solved = 0;
    int impossible = 0;
    for (int round = 0; round != 150; ++round) {
        auto model = random_program(random, 5);
        const double best = exhaustive(model);
        ilp_request request{};
        if (round % 3 == 1 && best < infinity) { request.known_bound = best; }
        const auto answer = solver.solve(model, request);
        REQUIRE(answer.closed());
        if (best == infinity) {
            ++impossible;
            CHECK(answer.status == ilp_status::infeasible);
            CHECK(answer.bound == infinity);
            continue;
        }
        ++solved;
        CHECK(answer.status == ilp_status::optimal);
        CHECK(worst_violation(model, answer.values) < 1e-6);
        CHECK(cost_of(model, answer.values) == doctest::Approx(best));
        CHECK(answer.bound == doctest::Approx(best));
    }
    CHECK(solved > 50);
    CHECK(impossible > 20);
}

TEST_CASE("implied rows change no optimum") {
    std::mt19937 random{9};
    glpk_solver solver{};
    for (int round = 0; round != 60; ++round) {
        const auto model = random_program(random, 5);
        const double best = exhaustive(model);
        if (best == infinity) { continue; }
        // An implied row, like those that weak combinations of the others give: the cost is at least the optimum.
        auto more = model;
        std::vector<ilp_term> cost{};
        for (int j = 0; j != 5; ++j) { cost.push_back({j, model.columns[static_cast<std::size_t>(j)].cost}); }
        more.add_row(best, infinity, cost, true);
        const auto helped = solver.solve(more, {});
        CHECK(cost_of(model, helped.values) == doctest::Approx(best));
    }
    // At least half of seven must be taken: the relaxation takes 3.5, the implied row demands 4.
    ilp_model half{};
    std::vector<ilp_term> all{};
    for (int j = 0; j != 7; ++j) { all.push_back({half.add_column({0, 1, 1, true}), 1}); }
    half.add_column({0.25, 1, 1, false}); // so that GLPK cannot round the bound itself
    half.add_row(3.5, infinity, all);
    const auto plain = solver.solve(half, {});
    half.add_row(4, infinity, all, true);
    const auto helped = solver.solve(half, {});
    CHECK(cost_of(half, plain.values) == 4.25);
    CHECK(cost_of(half, helped.values) == 4.25);
    CHECK(helped.nodes < plain.nodes);
}

TEST_CASE("the program's optimum is the best of all schedules") {
    std::mt19937 random{23};
    glpk_solver solver{};
    int solved = 0;
    int better = 0;
    int limited = 0;
    int two_ends = 0;
    int agreed = 0;
    for (int round = 0; round != 150 && solved != 60; ++round) {
        const auto problem = test::small_problem(random, 18);
        const auto known = one_by_one(problem);
        double best = known.makespan_us();
        test::every_schedule all{problem, list_search(problem).makespan_us + 1e-6, 60000,
                                 [&](const schedule& timed) { best = std::min(best, timed.makespan_us()); }};
        if (!all.walk()) { continue; }
        const auto facts = window_problem_of(problem);
        const auto bound = bound_schedule(problem);
        auto state = window_state_of(facts, bound, known.makespan_us());
        REQUIRE(window_propagator{facts}.narrow(state));
        const disjunctive_program program{facts, state, bound};
        ilp_request request{};
        request.known_bound = bound.makespan_us;
        request.limit.nodes = 20000;
        const auto answer = solver.solve(program.model(), request);
        if (!answer.closed()) {
            CHECK(answer.bound <= best + 1e-6);
            continue;
        }
        ++solved;
        better += best < known.makespan_us() - 1e-6 ? 1 : 0;
        limited += problem.memory_limit_bytes.empty() ? 0 : 1;
        two_ends += std::any_of(problem.holds.begin(), problem.holds.end(),
                                [](const memory_hold& h) { return h.end != h.also_end; })
                        ? 1
                        : 0;
        REQUIRE(answer.status == ilp_status::optimal);
        const auto timed = program.decode(problem, answer.values);
        CHECK(describe(find_violation(problem, timed)) == "");
        CHECK(timed.makespan_us() == doctest::Approx(best));
        CHECK(answer.bound == doctest::Approx(best));
        test::brute_solver brute{};
        request.limit.nodes = 3000;
        const auto other = brute.solve(program.model(), request);
        if (other.closed()) {
            ++agreed;
            CHECK(cost_of(program.model(), other.values) == doctest::Approx(best));
        }
    }
    CHECK(agreed > 40);
    MESSAGE(solved << " solved, " << better << " better than what was known, " << limited << " with a limit");
    CHECK(solved == 60);
    CHECK(better > 5);
    CHECK(limited > 20);
    CHECK(two_ends > 5);
}

TEST_CASE("GLPK certifies the same in whatever unit times are given") {
    const hard_program hard{};
    glpk_solver solver{};
    search_limit limit{};
    limit.nodes = 400;
    const certify_options options{60, 200, 400};
    const auto one = certify(hard.problem, hard.bound, hard.known, solver, limit, options);
    CHECK(one.programs > 0);
    CHECK(one.closed);
    // Times given as if nanoseconds, or seconds, were microseconds.
    for (const double scale : {0x1p-20, 0x1p-10, 0x1p10, 0x1p30}) {
        const auto other = certify(scaled_times(hard.problem, scale), scaled_times(hard.bound, scale),
                                   scaled_times(hard.known, scale), solver, limit, options);
        CHECK(other.closed);
        CHECK(other.makespan_us == doctest::Approx(one.makespan_us * scale).epsilon(1e-9).scale(0));
        CHECK(other.lower_bound_us == doctest::Approx(one.lower_bound_us * scale).epsilon(1e-9).scale(0));
    }
}

TEST_CASE("limits and stop requests end a search") {
    const hard_program hard{};
    const disjunctive_program program{hard.facts, hard.state, hard.bound};
    glpk_solver solver{};
    ilp_request request{};

    request.limit.nodes = 40;
    const auto one = solver.solve(program.model(), request);
    const auto two = solver.solve(program.model(), request);
    CHECK(one.status == ilp_status::feasible);
    CHECK(one.nodes <= 41);
    CHECK(one.values == two.values);
    CHECK(one.bound == two.bound);
    CHECK(one.nodes == two.nodes);
    REQUIRE(!one.values.empty());
    CHECK(one.bound <= cost_of(program.model(), one.values) + 1e-9);
    CHECK(worst_violation(program.model(), one.values) < 1e-6);

    const hard_program harder{10};
    const disjunctive_program large{harder.facts, harder.state, harder.bound};
    std::stop_source stop{};
    request.limit = {};
    request.limit.seconds = 60; // ends a search that ignores the stop
    request.limit.stop = stop.get_token();
    {
        const auto begun = std::chrono::steady_clock::now();
        const std::jthread later{[&] {
            std::this_thread::sleep_for(std::chrono::milliseconds{20});
            stop.request_stop();
        }};
        CHECK(!solver.solve(large.model(), request).closed());
        CHECK(stop.stop_requested());
        CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds{60});
    }
    const auto not_begun = solver.solve(program.model(), request);
    CHECK(not_begun.nodes == 0);
    CHECK(not_begun.status == ilp_status::unknown);
    CHECK(not_begun.values.empty());
}

TEST_CASE("an internal error of GLPK becomes an exception, and the next call works") {
    ilp_model large{};
    std::vector<ilp_term> all{};
    for (int j = 0; j != 20000; ++j) { all.push_back({large.add_column({0, 1, 1, true}), 1}); }
    large.add_row(1, infinity, all);
    glpk_solver solver{};
    glp_mem_limit(1); // in megabytes, until the call frees the thread's GLPK
    CHECK_THROWS_WITH_AS((void)solver.solve(large, {}), doctest::Contains("memory"), error);
    const auto answer = solver.solve(large, {});
    CHECK(cost_of(large, answer.values) == doctest::Approx(1));
}

TEST_CASE("threads solve at the same time") {
    const hard_program hard{};
    const disjunctive_program program{hard.facts, hard.state, hard.bound};
    ilp_request request{};
    request.limit.nodes = 30;
    std::vector<ilp_answer> answers(3);
    {
        std::vector<std::jthread> threads{};
        for (auto& answer : answers) {
            threads.emplace_back([&] { answer = glpk_solver{}.solve(program.model(), request); });
        }
    }
    CHECK(answers[0].bound == answers[1].bound);
    CHECK(answers[1].bound == answers[2].bound);
    CHECK(answers[0].nodes == answers[2].nodes);
}

TEST_CASE("a call leaves a thread's GLPK as it found it") {
    const hard_program hard{};
    const disjunctive_program program{hard.facts, hard.state, hard.bound};
    ilp_request request{};
    request.limit.nodes = 3;
    std::jthread{[&] {
        (void)glpk_solver{}.solve(program.model(), request);
        CHECK(glp_init_env() == 0);
        glp_prob* const mine = glp_create_prob();
        glp_add_cols(mine, 7);
        (void)glpk_solver{}.solve(program.model(), request);
        CHECK(glp_get_num_cols(mine) == 7);
        CHECK(glp_init_env() == 1);
        glp_delete_prob(mine);
        glp_free_env();
    }}.join();
}
