#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <plan/random_plan.hpp>
#include <support/drawn_cases.hpp>
#include <pulse/core/error.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/recomputed_stages.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using namespace pulse::test;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace recomputed_stages {

namespace {

std::vector<char> flags_of(std::size_t mask, std::size_t stages) {
    std::vector<char> flags(stages, 0);
    for (std::size_t s = 0; s != stages; ++s) { flags[s] = static_cast<char>(mask >> s & 1); }
    return flags;
}

std::vector<std::int64_t> peaks_of(planned_model& of, const std::vector<char>& flags) {
    of.planned.spare_sends = 0;
    of.planned.recompute = stage_recomputation{flags};
    return peak_bytes(of.planned, of.costs, {});
}

double again_us(const planned_model& of, const std::vector<char>& flags) {
    double sum = 0;
    for (const stage& s : of.planned.cut.stages) {
        for (int l = s.first_layer; l <= s.last_layer && flags[static_cast<std::size_t>(s.index)] != 0; ++l) {
            sum += of.costs.layers[static_cast<std::size_t>(l)].forward_us;
        }
    }
    return sum;
}

/// Draws a limit per device between its peaks with all stages recomputed and with none, or slightly below.
memory_limits draw_limits(planned_model& of, std::mt19937& random) {
    const std::size_t stages = of.planned.cut.stages.size();
    const auto none = peaks_of(of, std::vector<char>(stages, 0));
    const auto all = peaks_of(of, std::vector<char>(stages, 1));
    std::vector<std::int64_t> limits{};
    for (std::size_t d = 0; d != none.size(); ++d) {
        const auto [low, high] = std::minmax(none[d], all[d]);
        const std::int64_t from = random() % 40 == 0 ? low - 1 : low;
        limits.push_back(std::max<std::int64_t>(1, std::uniform_int_distribution<std::int64_t>{from, high}(random)));
    }
    return memory_limits{limits};
}

} // namespace

TEST_CASE("the stages that are chosen take the least time of all choices that fit, tried one by one") {
    random_plans make{71};
    std::mt19937 random{72};
    int plans = 0;
    int some = 0;
    int more_than_all = 0;
    while (plans != drawn_cases(120)) {
        planned_model c = make();
        const std::size_t stages = c.planned.cut.stages.size();
        if (stages > 8) { continue; }
        ++plans;
        for (layer_cost& layer : c.costs.layers) { layer.forward_us = std::max(layer.forward_us, 0.5); }
        const memory_limits limits = draw_limits(c, random);
        std::optional<double> least{};
        for (std::size_t mask = 0; mask != std::size_t{1} << stages; ++mask) {
            const auto flags = flags_of(mask, stages);
            if (limits.worst_over(peaks_of(c, flags)) >= 0) { continue; }
            least = std::min(least.value_or(again_us(c, flags)), again_us(c, flags));
        }
        const std::vector<char> chosen = choose_recomputed_stages(c.planned, c.costs, {}, limits);
        CAPTURE(plans);
        REQUIRE(chosen.empty() != least.has_value());
        if (!least) { continue; }
        more_than_all += limits.worst_over(peaks_of(c, std::vector<char>(stages, 1))) >= 0 ? 1 : 0;
        REQUIRE(limits.worst_over(peaks_of(c, chosen)) < 0);
        REQUIRE(again_us(c, chosen) == doctest::Approx(*least));
        const auto count = std::count(chosen.begin(), chosen.end(), 1);
        some += count > 0 && count < static_cast<std::ptrdiff_t>(stages) ? 1 : 0;
    }
    MESSAGE("of " << plans << " plans, some stages: " << some << ", fewer bytes than all of them: " << more_than_all);
    CHECK(some > drawn_cases(40));
    CHECK(more_than_all > 0);
}

TEST_CASE("among many stages of a device the choice fits, and without the last that was taken it does not") {
    std::mt19937 random{73};
    int taken = 0;
    for (int n = 0; n != drawn_cases(20); ++n) {
        planned_model c{};
        plan& p = c.planned;
        p.microbatches = 3;
        p.cut = {placement::interleaved, 1, exhausted_stages + 4, {}};
        p.order.devices.resize(1);
        const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
        for (int s = 0; s != exhausted_stages + 4; ++s) {
            p.cut.stages.push_back({s, 0, s, s});
            layer_cost layer{};
            layer.forward_us = layer.backward_input_us = layer.backward_weight_us = draw(1, 9);
            layer.saved_bytes = 64 * draw(1, 99);
            layer.output_bytes = 64;
            c.costs.layers.push_back(layer);
        }
        double at = 0;
        const auto add = [&](pass op, int s, int m) {
            p.order.devices[0].push_back({op, s, m, at, at + 1});
            at += 1;
        };
        for (int m = 0; m != p.microbatches; ++m) {
            for (const stage& s : p.cut.stages) { add(pass::forward, s.index, m); }
        }
        for (int m = 0; m != p.microbatches; ++m) {
            for (int s = exhausted_stages + 4; s-- != 0;) {
                add(pass::backward_input, s, m);
                add(pass::backward_weight, s, m);
            }
        }
        const memory_limits limits = draw_limits(c, random);
        const std::vector<char> chosen = choose_recomputed_stages(p, c.costs, {}, limits);
        if (chosen.empty()) { continue; }
        REQUIRE(limits.worst_over(peaks_of(c, chosen)) < 0);
        // The stage that was chosen last saves least for its time.
        std::optional<std::size_t> last{};
        const auto worth = [&](std::size_t s) {
            return static_cast<double>(c.costs.layers[s].saved_bytes) / c.costs.layers[s].forward_us;
        };
        for (std::size_t s = 0; s != chosen.size(); ++s) {
            if (chosen[s] != 0 && (!last || worth(s) <= worth(*last))) { last = s; }
        }
        if (!last) { continue; }
        std::vector<char> fewer = chosen;
        fewer[*last] = 0;
        CHECK(limits.worst_over(peaks_of(c, fewer)) >= 0);
        ++taken;
    }
    CHECK(taken > drawn_cases(10));
}

namespace {

/// A plan of a known model on four devices within `limit_bytes`, if any fits.
std::optional<plan> plan_of_ddpm(const cost_table& costs, recomputation kind, placement on, std::int64_t limit_bytes,
                                 schedule_method method = schedule_method::list) {
    tune_candidate c{};
    c.pipeline_degree = 4;
    c.microbatches = 8;
    c.kind = on;
    c.recompute = kind;
    c.method = method;
    c.split_backward = method == schedule_method::zb_v; // otherwise a deferred W would hold what stages save
    candidate_options options{};
    options.memory_limit_bytes = limit_bytes;
    options.list = {.effort = list_effort::one, .improved_runs = 1, .patience = 1, .explored_runs = 0};
    try {
        const planned made = plan_candidate(costs, c, pulse::link{.latency_us = 5, .bandwidth_gb_per_s = 20}, options);
        const step_model model{made.plan, made.costs};
        const auto report = check(made.plan, model, lower(made.plan, model));
        REQUIRE_MESSAGE(report.ok(), report.violation);
        if (limit_bytes > 0) {
            REQUIRE(memory_limits{limit_bytes}.worst_over(made.plan.predicted.peak_memory_bytes) < 0);
        }
        REQUIRE(made.plan.predicted.lower_bound_us <= made.plan.predicted.step_us * (1 + 1e-9));
        return made.plan;
    } catch (const memory_error&) { return std::nullopt; }
}

std::int64_t peak_of(const plan& made) {
    return *std::max_element(made.predicted.peak_memory_bytes.begin(), made.predicted.peak_memory_bytes.end());
}

} // namespace

TEST_CASE("where not recomputing lacks memory, recomputing some stages is faster than all and than fewer in flight") {
    static constexpr auto graph = graph_of<ddpm_cifar10>();
    const cost_table costs = analytic_costs(graph.view(), a100_80gb, 16, 4);
    for (const placement on : {placement::folded, placement::sequential, placement::interleaved}) {
        INFO(name_of(on));
        const plan none = plan_of_ddpm(costs, recomputation::none, on, 0).value();
        const plan all = plan_of_ddpm(costs, recomputation::stages, on, 0).value();
        // If memory suffices, nothing is recomputed.
        const plan roomy = plan_of_ddpm(costs, recomputation::selective, on, 0).value();
        CHECK(roomy.recompute == stage_recomputation{std::vector<char>(roomy.cut.stages.size(), 0)});
        CHECK(roomy.predicted == none.predicted);
        for (const int part : {1, 2}) {
            const std::int64_t limit = peak_of(all) + (peak_of(none) - peak_of(all)) * part / 8;
            const auto without = plan_of_ddpm(costs, recomputation::none, on, limit);
            const auto whole = plan_of_ddpm(costs, recomputation::stages, on, limit);
            const auto mixed = plan_of_ddpm(costs, recomputation::selective, on, limit);
            REQUIRE(whole);
            REQUIRE(mixed);
            const double without_us = without ? without->predicted.step_us : std::numeric_limits<double>::infinity();
            MESSAGE(name_of(on) << ", " << limit << " bytes: none " << without_us << " us, stages "
                                << whole->predicted.step_us << ", selective " << mixed->predicted.step_us);
            CHECK(mixed->predicted.step_us < whole->predicted.step_us);
            CHECK(mixed->predicted.step_us < without_us);
        }
    }
}

TEST_CASE("a tuning takes the mixed plan where it is the fastest, and not where nothing lacks memory") {
    static constexpr auto graph = graph_of<ddpm_cifar10>();
    const auto best_of = [](std::vector<recomputation> kinds, std::int64_t limit_bytes) {
        tune_options space{};
        space.global_batch = 128;
        space.microbatch_sizes = {16};
        space.pipeline_degrees = {4};
        space.placements = {placement::sequential, placement::folded};
        space.waves = {1};
        space.split_backwards = {false};
        space.recomputations = std::move(kinds);
        space.memory_limit_bytes = limit_bytes;
        return tune([](int samples) { return analytic_costs(graph.view(), a100_80gb, samples, 4); },
                    one_node(4, {.latency_us = 5, .bandwidth_gb_per_s = 20}), space);
    };
    const std::vector<recomputation> fixed{recomputation::none, recomputation::skips, recomputation::stages};
    const std::vector<recomputation> every = tune_options{}.recomputations;
    const tuning mixed = best_of(every, 900'000'000);
    CHECK(mixed.plan.recompute.kind == recomputation::selective);
    CHECK(mixed.plan.predicted.step_us < best_of(fixed, 900'000'000).plan.predicted.step_us);
    CHECK(memory_limits{900'000'000}.worst_over(mixed.plan.predicted.peak_memory_bytes) < 0);
    CHECK(mixed.plan.predicted.lower_bound_us <= mixed.plan.predicted.step_us * (1 + 1e-9));
    for (const std::int64_t roomy : {std::int64_t{0}, std::int64_t{80'000'000'000}}) {
        const tuning made = best_of(every, roomy);
        CHECK(made.plan == best_of(fixed, roomy).plan);
        for (const tune_row& row : made.rows) {
            if (row.candidate.recompute.kind == recomputation::selective) { CHECK(!row.evaluated()); }
        }
    }
}

TEST_CASE("where nothing limits memory, the bound of a tuning that must choose is below its step") {
    static constexpr auto graph = graph_of<ddpm_cifar10>();
    for (const int devices : {1, 4}) {
        tune_options space{};
        space.global_batch = 64;
        space.microbatch_sizes = {16};
        space.pipeline_degrees = {devices};
        space.recomputations = {recomputation::selective};
        const tuning made = tune([](int samples) { return analytic_costs(graph.view(), a100_80gb, samples, 4); },
                                 one_node(devices, {.latency_us = 5, .bandwidth_gb_per_s = 20}), space);
        CHECK(made.plan.predicted.lower_bound_us <= made.plan.predicted.step_us * (1 + 1e-9));
        CHECK(made.best_row().bound_us <= made.plan.predicted.step_us * (1 + 1e-9));
    }
}

TEST_CASE("methods of a fixed pattern recompute the stages that memory makes necessary") {
    static constexpr auto graph = graph_of<ddpm_cifar10>();
    const cost_table costs = analytic_costs(graph.view(), a100_80gb, 16, 4);
    const auto plan_of = [&](recomputation kind, std::int64_t limit_bytes) {
        return plan_of_ddpm(costs, kind, placement::folded, limit_bytes, schedule_method::zb_v).value();
    };
    const plan none = plan_of(recomputation::none, 0);
    const plan all = plan_of(recomputation::stages, 0);
    const plan mixed = plan_of(recomputation::selective, (peak_of(none) + peak_of(all)) / 2);
    CHECK(peak_of(mixed) <= (peak_of(none) + peak_of(all)) / 2);
    CHECK(mixed.predicted.step_us <= all.predicted.step_us);
}

TEST_CASE("a cascade recomputes the stages that memory makes necessary") {
    static constexpr auto graph = graph_of<ddpm_cifar10>();
    const cost_table costs = analytic_costs(graph.view(), a100_80gb, 16, 4);
    const auto plan_of = [&](recomputation kind, std::int64_t limit_bytes) {
        tune_candidate c{};
        c.pipeline_degree = 4;
        c.microbatches = 8;
        c.split_backward = false;
        c.recompute = kind;
        candidate_options options{};
        options.memory_limit_bytes = limit_bytes;
        options.list = {.effort = list_effort::one, .improved_runs = 1, .patience = 1, .explored_runs = 0};
        return plan_cascade(costs, costs, c, one_node(4, {.latency_us = 5, .bandwidth_gb_per_s = 20}), options).plan;
    };
    const plan none = plan_of(recomputation::none, 0);
    const plan all = plan_of(recomputation::stages, 0);
    CHECK(plan_of(recomputation::selective, 0).recompute == stage_recomputation{std::vector<char>(16, 0)});
    const std::int64_t limit = (peak_of(none) + peak_of(all)) / 2;
    CHECK_THROWS_AS((void)plan_of(recomputation::none, limit), infeasible_error);
    const plan mixed = plan_of(recomputation::selective, limit);
    CHECK(memory_limits{limit}.worst_over(mixed.predicted.peak_memory_bytes) < 0);
    CHECK(mixed.predicted.step_us < plan_of(recomputation::stages, limit).predicted.step_us);
}

} // namespace recomputed_stages
