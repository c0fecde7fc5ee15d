#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <pulse/plan/plan.hpp>
#include <pulse/tune/candidate_plan.hpp>

#include "small_table.hpp"

// Separate from tests that plan at run time: this file instantiates little of the planner.

using namespace pulse;
using namespace pulse::test;

namespace {

constexpr bool plans_in_the_compiler() {
    candidate_options quick{};
    quick.list = {.effort = list_effort::one, .improved_runs = 1, .patience = 1, .explored_runs = 0};
    const plan made =
        plan_candidate(small_table(), {.pipeline_degree = 2, .microbatches = 2}, pulse::link{}, quick).plan;
    return made.cut.stages.size() == 4 && made.predicted.skip_bytes == 0 &&
           made.predicted.step_us >= made.predicted.lower_bound_us && made.predicted.peak_memory_bytes.size() == 2;
}
static_assert(plans_in_the_compiler(), "a plan is a constant expression");

} // namespace

TEST_CASE("room is taken away as far as the layout exceeds the limit, and never below what one microbatch holds") {
    std::mt19937 random{83};
    const auto draw = [&random](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)); };
    int floored = 0;
    int unchanged = 0;
    for (int round = 0; round != 500; ++round) {
        const std::int64_t limit = 100;
        std::vector<std::int64_t> room{};
        std::vector<std::int64_t> least{};
        std::vector<std::int64_t> peaks{};
        for (int d = 0; d != 3; ++d) {
            least.push_back(draw(60));
            room.push_back(least.back() + draw(4) * draw(20));
            peaks.push_back(limit - 20 + draw(round % 2 == 0 ? 20 : 60));
        }
        const auto before = room;
        const bool changed = pulse::detail::tighten(room, least, peaks, limit);
        CHECK(changed == (room != before));
        for (std::size_t d = 0; d != room.size(); ++d) {
            CHECK(room[d] >= least[d]);
            CHECK(room[d] <= before[d]);
            const std::int64_t excess = std::max<std::int64_t>(0, peaks[d] - limit);
            CHECK((room[d] == before[d] - excess || (room[d] == least[d] && before[d] - excess < least[d])));
            floored += before[d] - excess < least[d] ? 1 : 0;
        }
        unchanged += changed ? 0 : 1;
    }
    CHECK(floored > 100);
    CHECK(unchanged > 50);
}
