#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/prove/certify.hpp>
#include <pulse/schedule/synthesize_with.hpp>

#include "brute_solver.hpp"
#include "hard_problem.hpp"
#include "small_problems.hpp"

namespace certify_tests {

using namespace pulse;

namespace {

/// A solver that records its requests. `settles`: it ignores limits and reports 0 nodes, as if every program were easy.
struct counting_solver {
    bool settles{};
    std::int64_t nodes{};
    std::int64_t programs{};
    std::int64_t most_nodes{};
    int most_pairs{};
    std::size_t most_instances{};
    bool knows_bounds{true};
    test::brute_solver brute{};

    ilp_answer solve(const ilp_model& model, const ilp_request& request) {
        most_nodes = std::max(most_nodes, request.limit.nodes);
        const int whole = test::whole_columns(model);
        most_pairs = std::max(most_pairs, whole);
        most_instances = std::max(most_instances, model.columns.size() - 1 - static_cast<std::size_t>(whole));
        knows_bounds = knows_bounds && request.known_bound == model.columns.front().lower;
        ++programs;
        auto answer = brute.solve(model, settles ? ilp_request{} : request);
        if (settles) { answer.nodes = 0; }
        nodes += answer.nodes;
        return answer;
    }
};

/// A solver that calls anything a solution: earlier operations first (long, memory-hungry), or any orders.
struct careless_solver {
    std::mt19937 random{5};

    ilp_answer solve(const ilp_model& model, const ilp_request&) {
        ilp_answer out{};
        out.status = ilp_status::optimal;
        const bool earlier_first = random() % 2U == 0U;
        for (const auto& c : model.columns) {
            const double share = std::uniform_real_distribution<double>{0, 1}(random);
            const double order = earlier_first || share < 0.5 ? 1 : 0;
            out.values.push_back(c.integer ? order : c.lower + share * (c.upper - c.lower));
        }
        return out;
    }
};

/// A solver that reports its first programs as infeasible, whatever they are.
struct hasty_solver {
    int wrong{};

    ilp_answer solve(const ilp_model&, const ilp_request&) {
        ilp_answer out{};
        if (wrong-- > 0) { out.status = ilp_status::infeasible; }
        return out;
    }
};

} // namespace

TEST_CASE("a solver gets the parts that it may have, is counted, and ends the search where it can") {
    std::mt19937 random{53};
    int programs = 0;
    int needed = 0;
    int full = 0;
    for (int round = 0; round != 20; ++round) {
        const auto problem = hard_problem(random, 3);
        const auto known = list_schedule(problem, {list_effort::one, 0, 0, 0});
        const auto bound = bound_schedule(problem);
        search_limit limit{};
        limit.nodes = 30000;
        counting_solver few{};
        const certify_options some{6, 9, 400};
        const auto one = certify(problem, bound, known, few, limit, some);
        CHECK(one.programs == few.programs);
        CHECK(one.nodes >= few.nodes);
        CHECK(few.most_nodes <= 9);
        CHECK(few.most_pairs <= 6);
        CHECK(few.knows_bounds);
        programs += static_cast<int>(few.programs);
        full = std::max(full, few.most_pairs);

        counting_solver none{};
        CHECK(certify(problem, bound, known, none, limit, {1000, 9, bound.head.size() - 1}).programs == 0);
        counting_solver all{};
        all.settles = true;
        limit.nodes = 12;
        CHECK(certify(problem, bound, known, all, limit, {1000, 1, bound.head.size()}).closed);
        silent_solver silent{};
        needed += certify(problem, bound, known, silent, limit).closed ? 0 : 1;
    }
    CHECK(programs > 20);
    CHECK(full == 6);
    MESSAGE(needed << " need the solver");
    CHECK(needed > 3);
}

TEST_CASE("what a solver gets wrong is not believed, or keeps bound and schedule together") {
    std::mt19937 random{59};
    int closed = 0;
    int believed = 0;
    for (int round = 0; round != 20; ++round) {
        const auto problem = hard_problem(random, 4);
        const auto known = list_schedule(problem, {list_effort::one, 0, 0, 0});
        const auto bound = bound_schedule(problem);
        search_limit limit{};
        limit.nodes = 30000;
        silent_solver silent{};
        const auto right = certify(problem, bound, known, silent, limit);
        REQUIRE(right.closed);
        careless_solver careless{};
        const auto one = certify(problem, bound, known, careless, limit, {1000, 50, 400});
        CHECK(one.closed);
        CHECK(one.makespan_us == doctest::Approx(right.makespan_us).epsilon(1e-9).scale(0));
        CHECK(one.lower_bound_us <= one.makespan_us);
        closed += one.programs > 0 ? 1 : 0;

        hasty_solver hasty{1 + round % 5};
        const auto other = certify(problem, bound, known, hasty, limit, {1000, 50, 400},
                                   [](const synthesis_progress& p) { CHECK(p.lower_bound_us <= p.makespan_us); });
        CHECK(other.lower_bound_us <= other.makespan_us);
        CHECK(describe(find_violation(problem, other.best)) == "");
        believed += other.makespan_us > right.makespan_us * (1 + 1e-9) ? 1 : 0;
    }
    CHECK(closed > 10);
    CHECK(believed > 0);
}

TEST_CASE("synthesis with a solver proves what it finds") {
    std::mt19937 random{37};
    int proved = 0;
    for (int round = 0; round != 25; ++round) {
        const auto instance = test::random_instance(random, 3, 1, 4);
        const auto problem = make_problem(instance.costs, instance.cut, instance.options);
        test::brute_solver solver{};
        synthesis_options options{};
        options.limit = {};
        options.limit.nodes = 4000;
        const auto one = synthesize(problem, options, solver);
        const auto two = synthesize(problem, options, solver);
        CHECK(describe(find_violation(problem, one.best)) == "");
        CHECK(one.makespan_us == one.best.makespan_us());
        CHECK(one.lower_bound_us <= one.makespan_us);
        CHECK(one.best == two.best);
        CHECK(one.lower_bound_us == two.lower_bound_us);
        CHECK(one.nodes == two.nodes);
        CHECK(one.nodes <= 4200);
        proved += one.proved() ? 1 : 0;
        const schedule known[] = {one.best};
        const auto again = synthesize(problem, options, solver, known);
        CHECK(again.makespan_us <= one.makespan_us);
    }
    CHECK(proved > 20);
}

} // namespace certify_tests
