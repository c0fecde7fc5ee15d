#include <algorithm>
#include <cstdint>
#include <random>
#include <stop_token>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/tighten_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/validate.hpp>

#include "exact_solver.hpp"
#include "instances.hpp"
#include "small_problems.hpp"

namespace {

using namespace pulse;
using detail::problem_relaxer;
using detail::state_search;
using detail::tighten_bound;

search_limit nodes(std::int64_t count) {
    search_limit limit{};
    limit.nodes = count;
    return limit;
}

} // namespace

TEST_CASE("the tightened bound is the optimum of tiny problems") {
    std::mt19937 random{77};
    int solved = 0;
    int raised = 0;
    int better = 0;
    for (int round = 0; round != 700; ++round) {
        const auto problem = test::limited_problem(random, 3, 1, 3, round);
        if (problem.stages.size() > 4) { continue; }
        // A poor initial schedule leaves something to improve.
        const auto found = list_search(problem, {list_effort::one, 0, 0, 0});
        const auto bound = bound_schedule(problem);
        const auto tight = tighten_bound(problem, bound, found.makespan_us, {});
        CHECK(tight.finished);
        CHECK(tight.lower_bound_us >= std::min(bound.makespan_us, found.makespan_us) * (1 - 1e-12));
        CHECK(tight.lower_bound_us == doctest::Approx(tight.makespan_us).epsilon(1e-9));
        if (tight.better.devices.empty()) {
            CHECK(tight.makespan_us == found.makespan_us);
        } else {
            REQUIRE(describe(find_violation(problem, tight.better)) == "");
            CHECK(tight.better.makespan_us() < found.makespan_us);
            ++better;
        }
        raised += tight.lower_bound_us > bound.makespan_us * (1 + 1e-9) ? 1 : 0;
        test::exact_solver solver{problem, found.makespan_us + 1e-6, 60000};
        if (!solver.solve()) { continue; }
        ++solved;
        CHECK(tight.lower_bound_us <= solver.best() * (1 + 1e-9));
        CHECK(tight.makespan_us <= std::min(solver.best(), found.makespan_us) * (1 + 1e-9));
    }
    MESSAGE(solved << " solved, bound raised in " << raised << ", schedule improved in " << better);
    CHECK(solved > 250);
    CHECK(raised > 50);
    CHECK(better > 20);
}

TEST_CASE("a search that is cut short never lowers the bound and never passes a schedule") {
    std::mt19937 random{78};
    int raised = 0;
    for (int round = 0; round != 60; ++round) {
        const auto problem = test::limited_problem(random, 4, 2, 8, round);
        const auto bound = bound_schedule(problem);
        const auto poor = list_search(problem, {list_effort::one, 0, 0, 0});
        const auto good = list_search(problem, {list_effort::one, 1, 1, 50});
        double last = std::min(bound.makespan_us, poor.makespan_us);
        for (const std::int64_t most : {0, 300, 3000}) {
            const auto tight = tighten_bound(problem, bound, poor.makespan_us, nodes(most));
            CHECK(tight.lower_bound_us >= std::min(bound.makespan_us, poor.makespan_us) * (1 - 1e-12));
            CHECK(tight.lower_bound_us <= good.makespan_us * (1 + 1e-9));
            CHECK(tight.lower_bound_us <= tight.makespan_us);
            CHECK((tight.finished || tight.nodes >= most));
            if (!tight.better.devices.empty()) { CHECK(is_valid(problem, tight.better)); }
            raised += tight.lower_bound_us > last * (1 + 1e-9) ? 1 : 0;
            last = tight.lower_bound_us;
        }
    }
    CHECK(raised > 10);
}

TEST_CASE("a relaxation to some devices has no longer optimum than the problem") {
    std::mt19937 random{79};
    const auto never = [] { return false; };
    for (int round = 0; round != 150; ++round) {
        const auto problem = test::limited_problem(random, 3, 1, 4, round);
        const auto makespan = list_search(problem, {list_effort::one, 0, 0, 20}).makespan_us;
        const problem_relaxer relaxer{problem, bound_schedule(problem)};
        for (int d = 0; d != problem.devices; ++d) {
            for (const bool turned : {false, true}) {
                state_search search{relaxer.relax({d}, turned)};
                const auto found = search.run({makespan * (1 + 1e-9), 100000, 100000, never});
                REQUIRE(found.finished);
                CHECK(found.makespan_us <= makespan * (1 + 1e-12));
                CHECK_FALSE(found.order.empty());
            }
        }
    }
}

TEST_CASE("a tightened bound depends on its arguments alone and stops when asked") {
    std::mt19937 random{80};
    for (int round = 0; round != 20; ++round) {
        const auto problem = test::limited_problem(random, 3, 2, 6, round);
        const auto bound = bound_schedule(problem);
        const double upper = list_search(problem, {list_effort::one, 0, 0, 0}).makespan_us;
        const auto one = tighten_bound(problem, bound, upper, nodes(2000));
        const auto two = tighten_bound(problem, bound, upper, nodes(2000));
        CHECK(one.lower_bound_us == two.lower_bound_us);
        CHECK(one.better == two.better);
        CHECK(one.nodes == two.nodes);
        std::stop_source source{};
        source.request_stop();
        search_limit stopped{};
        stopped.stop = source.get_token();
        CHECK(tighten_bound(problem, bound, upper, stopped).nodes == 0);
    }
    auto bad = test::chain_problem({0, 1}, 2, 3, true, 1, 1, 1);
    const auto bound = bound_schedule(bad);
    bad.microbatches = 0;
    CHECK_THROWS_AS((void)tighten_bound(bad, bound, 100, {}), input_error);
}
