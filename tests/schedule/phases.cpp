#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/phases.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/certificate.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"
#include "random_runs.hpp"

namespace {

namespace phases_test {

using namespace pulse;

using phase_set = std::set<std::string, std::less<>>;

phase_set all_phases() { return {synthesis_phases.begin(), synthesis_phases.end()}; }

/// The result of 1000 nodes without some phases, with a prover that counts its calls and proves nothing.
synthesis found_without(const schedule_problem& problem, const phase_set& without, int* proofs = nullptr) {
    synthesis_options options{};
    options.limit = search_limit{};
    options.limit.nodes = 1000;
    options.without = without;
    const auto idle = [proofs](const schedule_bound& bound, const schedule& best, const search_limit&) {
        if (proofs != nullptr) { ++*proofs; }
        return certificate{bound.makespan_us, best, best.makespan_us(), false, 1, 0, 0};
    };
    return detail::synthesize_proving(problem, options, {}, idle);
}

/// Most have little memory; the last two stay open.
std::vector<schedule_problem> some_problems() {
    std::mt19937 random{71};
    std::vector<schedule_problem> out{};
    for (int k = 0; k != 8; ++k) { out.push_back(test::random_problem(random, k, 12)); }
    out.push_back(test::chain_problem(test::placed(placement::folded, 4, 1), 4, 24, true, 1, 1, 1));
    out.back().memory_limit_bytes.assign(4, 8);
    out.push_back(test::chain_problem(test::placed(placement::folded, 4, 2), 4, 16, false, 3, 4, 2, 0.5));
    out.back().memory_limit_bytes.assign(4, 16);
    return out;
}

void check_certified(const schedule_problem& problem, const synthesis& found) {
    CHECK(describe(find_violation(problem, found.best)) == "");
    CHECK(found.makespan_us == found.best.makespan_us());
    CHECK(found.lower_bound_us <= found.makespan_us);
    CHECK(found.finished == found.proved());
}

} // namespace phases_test

} // namespace

TEST_CASE("the turns of a synthesis name its phases, all of them") {
    std::set<std::string_view> named{};
    for (const auto turns : {std::span<const pulse::detail::phase>{pulse::detail::opening_phases},
                             std::span<const pulse::detail::phase>{pulse::detail::repeated_phases}}) {
        for (const auto& turn : turns) { named.insert(turn.name); }
    }
    CHECK(named == std::set<std::string_view>(pulse::synthesis_phases.begin(), pulse::synthesis_phases.end()));
}

TEST_CASE("without any one phase, or all of them, a synthesis is a valid schedule with a bound that holds") {
    using namespace phases_test;
    for (const auto& problem : some_problems()) {
        check_certified(problem, found_without(problem, all_phases()));
        for (const std::string& phase : all_phases()) {
            CAPTURE(phase);
            check_certified(problem, found_without(problem, {phase}));
        }
    }
}

TEST_CASE("phases that are left out do not run, and each of the others does something by itself") {
    using namespace phases_test;
    phase_set moved{};
    for (const auto& problem : some_problems()) {
        int proofs = 0;
        const auto none = found_without(problem, all_phases(), &proofs);
        CHECK(proofs == 0);
        CHECK(none.makespan_us == list_schedule(problem, {list_effort::one, 0, 0, 0}).makespan_us());
        CHECK(none.lower_bound_us == std::min(lower_bound_us(problem), none.makespan_us));
        for (const std::string& phase : all_phases()) {
            phase_set others = all_phases();
            others.erase(phase);
            const auto found = found_without(problem, others, &proofs);
            CHECK(found.makespan_us <= none.makespan_us);
            CHECK(found.lower_bound_us >= none.lower_bound_us);
            if (found.makespan_us < none.makespan_us || found.lower_bound_us > none.lower_bound_us) {
                moved.insert(phase);
            }
        }
        if (proofs > 0) { moved.insert("solver"); }
    }
    for (const std::string& phase : all_phases()) {
        CAPTURE(phase);
        CHECK(moved.contains(phase));
    }
}

TEST_CASE("a synthesis whose remaining phases all finish ends even without a limit") {
    using namespace phases_test;
    synthesis_options lists_alone{};
    lists_alone.limit = search_limit{};
    lists_alone.without = all_phases();
    lists_alone.without.erase("lists");
    for (const auto& problem : some_problems()) {
        const auto found = synthesize(problem, lists_alone);
        check_certified(problem, found);
        CHECK(found.makespan_us == list_schedule(problem).makespan_us());
    }
}

TEST_CASE("a phase that there is not is refused, with those that there are") {
    using namespace phases_test;
    const auto problem = test::chain_problem({0, 1}, 2, 2, true, 1, 1, 1);
    CHECK_THROWS_WITH_AS((void)found_without(problem, {"walk"}),
                         doctest::Contains("'walk' is not a phase; the phases are known_orders, lists, devices"),
                         input_error);
}
