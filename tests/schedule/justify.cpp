#include <random>

#include <doctest/doctest.h>

#include <pulse/schedule/improve/justify.hpp>
#include <pulse/schedule/validate.hpp>

#include "random_runs.hpp"

TEST_CASE("justification keeps every rule and never ends later") {
    using namespace pulse;
    using detail::index_problem;
    using detail::justify;
    using detail::make_sequence_graph;
    using detail::sequence_state;
    std::mt19937 random{21};
    int gained = 0;
    int limited = 0;
    for (int round = 0; round != 400; ++round) {
        const auto problem = test::random_problem(random, round);
        const auto index = index_problem(problem);
        const auto graph = make_sequence_graph(problem, index);
        const auto before = test::random_sequences(random, problem, index);
        sequence_state state{graph};
        REQUIRE(state.assign(before));
        const double was = state.makespan_us();
        const auto after = justify(graph, before);
        REQUIRE(state.assign(after));
        CHECK(state.makespan_us() <= was);
        CHECK(describe(find_violation(problem, test::schedule_of(index, state, after))) == "");
        gained += state.makespan_us() < was * (1 - 1e-9) ? 1 : 0;
        limited += state.makespan_us() < was * (1 - 1e-9) && !problem.memory_limit_bytes.empty() ? 1 : 0;
    }
    CHECK(gained > 100);
    CHECK(limited > 50);
}
