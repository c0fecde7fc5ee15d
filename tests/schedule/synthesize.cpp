#include <cstddef>
#include <cstdint>
#include <random>
#include <stop_token>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/list_scheduler.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;

synthesis_options by_nodes(std::int64_t nodes) {
    synthesis_options out{};
    out.limit = search_limit{};
    out.limit.nodes = nodes;
    return out;
}

/// A random problem whose memory, two times of three, is a little more than one microbatch alone needs.
schedule_problem random_problem(std::mt19937& random, int round) {
    const auto instance = test::random_instance(random, 4, 2, 8);
    auto problem = make_problem(instance.costs, instance.cut, instance.options);
    if (round % 3 != 0) {
        auto alone = problem;
        alone.microbatches = 1;
        const int tenths = std::uniform_int_distribution<int>{10, 30}(random);
        for (const auto need : peak_holds(alone, gpipe(alone))) {
            problem.memory_limit_bytes.push_back(need * tenths / 10);
        }
    }
    return problem;
}

} // namespace

TEST_CASE("a synthesized schedule is valid, above the bound, and no worse than lists and what was known") {
    std::mt19937 random{11};
    int gained = 0;
    for (int round = 0; round != 150; ++round) {
        const auto problem = random_problem(random, round);
        const auto listed = list_search(problem);
        const auto found = synthesize(problem, by_nodes(3000));
        CHECK(describe(find_violation(problem, found.best)) == "");
        CHECK(found.makespan_us == found.best.makespan_us());
        CHECK(found.makespan_us >= found.lower_bound_us * (1 - 1e-12));
        CHECK(found.makespan_us <= listed.makespan_us);
        CHECK(found.finished == found.proved());
        gained += found.makespan_us < listed.makespan_us * (1 - 1e-9) ? 1 : 0;

        const schedule known[] = {found.best};
        CHECK(synthesize(problem, by_nodes(1), known).makespan_us <= found.makespan_us);
        search_limit few{};
        few.nodes = 500;
        CHECK(improve_schedule(problem, bound_schedule(problem), listed.order, few).makespan_us <= listed.makespan_us);
    }
    CHECK(gained > 10);
}

TEST_CASE("a synthesis limited by nodes repeats itself") {
    std::mt19937 random{12};
    for (int round = 0; round != 10; ++round) {
        const auto problem = random_problem(random, round);
        const auto one = synthesize(problem, by_nodes(2000));
        const auto two = synthesize(problem, by_nodes(2000));
        CHECK(one.best == two.best);
        CHECK(one.nodes == two.nodes);
    }
}
