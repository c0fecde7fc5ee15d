// Planning at compile time: Stable Diffusion 2.1 is described, cut for four devices, scheduled for eight microbatches,
// lowered to programs and checked. At run time the compiler's plan is compared with the program's.

#include <cstdint>
#include <string_view>
#include <vector>

#include <support/check_both.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;

namespace {

constexpr int devices = 4;
constexpr int microbatches = 8;
constexpr auto graph = graph_of<sd21>();

/// What a static_assert can hold of a plan: no vector leaves a constant expression.
struct verdict {
    int stages{};
    std::int64_t skip_bytes_moved{};
    bool schedule_is_valid{};
    double gap{};
    double makespan_us{};
    bool programs_are_right{};
    std::int64_t most_live_bytes{};

    [[nodiscard]] constexpr bool operator==(const verdict&) const = default;
};

/// Drops the last `drop` instructions of the last program: a plan that must not pass.
constexpr verdict plan_sd21(int drop = 0) {
    const cost_table costs = analytic_costs(graph.view(), v100_32gb, 1, 2);
    plan made{};
    made.model = costs.model;
    made.pipeline_degree = devices;
    made.microbatches = microbatches;
    made.microbatch_size = costs.microbatch_size;
    made.cut = skip_aware_partition(costs, devices);

    const schedule_problem problem =
        make_problem(costs, made.cut, {.microbatches = microbatches, .link = nvlink2_pair});
    list_result found = list_search(problem, {list_effort::one, 0, 0, 0});
    made.order = found.order;

    const step_model model{made, costs};
    std::vector<program> programs = lower(made, model);
    for (int i = 0; i != drop; ++i) { programs.back().instructions.pop_back(); }
    std::vector<std::int64_t> live_peaks{};
    const bool refused = first_violation(made, model, programs, live_peaks).has_value();

    verdict v{};
    v.stages = static_cast<int>(made.cut.stages.size());
    v.skip_bytes_moved = traffic_of(made.cut, costs, made.routing).skip();
    v.schedule_is_valid = is_valid(problem, made.order);
    v.gap = found.gap();
    v.makespan_us = found.makespan_us;
    v.programs_are_right = !refused;
    for (const std::int64_t bytes : live_peaks) {
        if (bytes > v.most_live_bytes) { v.most_live_bytes = bytes; }
    }
    return v;
}

constexpr verdict planned = plan_sd21();

static_assert(sd21::parameter_count() == 865'910'724);
static_assert(planned.stages == 2 * devices);
static_assert(planned.skip_bytes_moved == 0);
static_assert(planned.schedule_is_valid);
static_assert(planned.gap >= 0.0 && planned.gap < 0.05);
static_assert(planned.programs_are_right);
static_assert(planned.most_live_bytes > 0 && planned.most_live_bytes < v100_32gb.memory_bytes);

} // namespace

TEST_SUITE("constexpr") {
    TEST_CASE("the program plans sd21 as the compiler did") { CHECK(plan_sd21() == planned); }
}

TEST_CASE("the check that the compiler ran refuses a program without its end") {
    CHECK(plan_sd21(0).programs_are_right);
    CHECK(!plan_sd21(1).programs_are_right);
}
