#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include <partition/random_table.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuner.hpp>

#include "drawn_space.hpp"
#include "mentions.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// Parameters around the size of a bucket of gradients, layers without any, and links that take as long as passes.
void draw_large_gradients(std::mt19937& random, drawn_space& s) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (layer_cost& l : s.costs.layers) { l.parameter_bytes = draw(0, 2) == 0 ? 0 : draw(1, 60) * 1'000'000; }
    s.costs.layers.front().parameter_bytes = 0;
    s.machine.intra_node.bandwidth_gb_per_s = 100.0 * draw(1, 300);
    s.machine.inter_node.bandwidth_gb_per_s = 100.0 * draw(1, 100);
    s.options.memory_gb_per_s = 0;
}

std::vector<std::size_t> first_of(const std::vector<std::size_t>& ranking, std::size_t count) {
    return {ranking.begin(), ranking.begin() + static_cast<std::ptrdiff_t>(std::min(count, ranking.size()))};
}

template <class Error>
std::string refusal(const drawn_space& s) {
    try {
        static_cast<void>(s.run());
    } catch (const Error& e) { return e.what(); }
    return "nothing was thrown";
}

const tune_row* find_row(const tuning& made, tune_verdict verdict) {
    for (const tune_row& row : made.rows) {
        if (row.verdict == verdict) { return &row; }
    }
    return nullptr;
}

/// Eight equal layers with nested skips on two nodes of two devices.
drawn_space plain_space() {
    drawn_space s;
    std::mt19937 random{7};
    s.costs = draw_costs(random, 8, skip_pattern::nested);
    for (layer_cost& l : s.costs.layers) {
        l.forward_us = l.backward_input_us = l.backward_weight_us = 10;
        l.parameter_bytes = 800;
        l.saved_bytes = 160;
    }
    s.machine = {.name = "four",
                 .nodes = 2,
                 .devices_per_node = 2,
                 .memory_bytes = 0,
                 .intra_node = {.latency_us = 0.1, .bandwidth_gb_per_s = 1.0},
                 .inter_node = {.latency_us = 1.0, .bandwidth_gb_per_s = 0.1}};
    s.options.global_batch = 16;
    return s;
}

} // namespace

TEST_CASE("pruning by bounds changes neither the choice nor the ranking, and no step beats its bound") {
    std::mt19937 random{5001};
    int compared = 0;
    int pruned = 0;
    int evaluated = 0;
    for (int i = 0; i != 24; ++i) {
        drawn_space s = draw_space(random);
        if (i % 4 == 1) { draw_large_gradients(random, s); }
        const std::size_t ranked = i % 2 == 0 ? 1 : 4;
        s.options.ranked = ranked;
        INFO("space " << i);
        s.options.prune = false;
        const tuning all = s.run();
        if (i % 3 == 0) {
            // Again with a memory limit under which many candidates fail in one way or another.
            std::int64_t most = 0;
            for (const tune_row& row : all.rows) { most = std::max(most, row.peak_memory_bytes); }
            s.options.memory_limit_bytes = std::max<std::int64_t>(most * 6 / 10, 1);
        }
        tuning whole;
        try {
            whole = s.run();
        } catch (const infeasible_error&) {
            s.options.prune = true;
            CHECK_THROWS_AS(static_cast<void>(s.run()), infeasible_error);
            continue;
        }
        CHECK(whole.count(tune_verdict::bound) == 0);
        for (const tune_row& row : whole.rows) {
            if (!row.evaluated()) { continue; }
            INFO(to_text(row.candidate));
            REQUIRE(row.bound_us <= row.step_us * (1 + 1e-9));
            REQUIRE(row.step_us >= whole.best_row().step_us);
            ++evaluated;
        }
        s.options.prune = true;
        const tuning quick = s.run();
        REQUIRE(quick.rows.size() == whole.rows.size());
        REQUIRE(first_of(quick.ranking, ranked) == first_of(whole.ranking, ranked));
        REQUIRE(quick.plan == whole.plan);
        for (std::size_t r = 0; r != quick.rows.size(); ++r) {
            const tune_row& row = quick.rows[r];
            if (row.verdict != tune_verdict::bound) { continue; }
            // What was dropped is not better than what was kept.
            REQUIRE(whole.rows[r].verdict != tune_verdict::best);
            if (whole.rows[r].evaluated()) { REQUIRE(row.bound_us <= whole.rows[r].step_us * (1 + 1e-9)); }
            ++pruned;
        }
        REQUIRE(quick.evaluations <= whole.evaluations);
        ++compared;
    }
    CHECK(compared > 16);
    CHECK(pruned > 50);
    CHECK(evaluated > 500);
}

TEST_CASE("the chosen plan is sound, its samples are the global batch, and its memory fits by the exact layout") {
    std::mt19937 random{5002};
    int limited = 0;
    for (int i = 0; i != 16; ++i) {
        drawn_space s = draw_space(random);
        s.options.ranked = 1;
        for (const int percent : {0, 80, 60, 40}) {
            INFO("space " << i << " at " << percent << " %");
            tuning made;
            try {
                made = s.run();
            } catch (const infeasible_error&) { break; }
            const plan& best = made.plan;
            const cost_table costs = scaled_costs(s.costs, best.microbatch_size);
            REQUIRE(best.microbatch_size * best.microbatches * best.data_degree == s.options.global_batch);
            REQUIRE(best.pipeline_degree * best.data_degree == s.machine.devices());
            const step_model model{best, costs};
            const auto programs = lower(best, model);
            const check_report report = check(best, model, programs);
            REQUIRE_MESSAGE(report.ok(), report.violation);
            const auto peaks = peak_bytes(best, costs, parameter_memory_of(s.options, made.best_row().candidate));
            REQUIRE(peaks == best.predicted.peak_memory_bytes);
            const std::int64_t most = *std::max_element(peaks.begin(), peaks.end());
            REQUIRE(most == made.best_row().peak_memory_bytes);
            if (s.options.memory_limit_bytes > 0) {
                REQUIRE(most <= s.options.memory_limit_bytes);
                ++limited;
            }
            REQUIRE(best.predicted.lower_bound_us <= best.predicted.step_us * (1 + 1e-9));
            REQUIRE(best.predicted.samples_per_s * best.predicted.step_us ==
                    doctest::Approx(1e6 * s.options.global_batch));
            s.options.memory_limit_bytes = most * (percent == 0 ? 80 : percent) / 100;
            if (s.options.memory_limit_bytes == 0) { break; }
        }
    }
    CHECK(limited > 10);
}

TEST_CASE("what is fixed stays fixed") {
    drawn_space s = plain_space();
    s.options.placements = {placement::interleaved};
    s.options.chunks = {4};
    s.options.pipeline_degrees = {2};
    s.options.microbatch_sizes = {2};
    s.options.split_backwards = {false};
    s.options.routings = {skip_routing::relayed};
    s.options.recomputations = {recomputation::skips};
    s.options.layouts = {rank_layout::replicas_inside};
    const tuning made = s.run();
    REQUIRE(made.rows.size() == 1);
    const plan& best = made.plan;
    CHECK(best.cut.kind == placement::interleaved);
    CHECK(best.cut.stages.size() == 8);
    CHECK(best.pipeline_degree == 2);
    CHECK(best.data_degree == 2);
    CHECK(best.microbatch_size == 2);
    CHECK(best.microbatches == 4);
    CHECK_FALSE(best.split_backward);
    CHECK(best.routing == skip_routing::relayed);
    CHECK(best.recompute == recomputation::skips);
    CHECK(made.best_row().candidate.layout == rank_layout::replicas_inside);

    s = plain_space();
    s.options.data_degrees = {4};
    CHECK(s.run().plan.pipeline_degree == 1);
    s.options.data_degrees = {};
    s.options.microbatches = {16};
    for (const tune_row& row : s.run().rows) { CHECK(row.candidate.microbatches == 16); }
    s.options.devices = 2;
    const tuning fewer = s.run();
    CHECK(fewer.plan.pipeline_degree * fewer.plan.data_degree == 2);
}

TEST_CASE("every candidate that lost says why") {
    drawn_space s = plain_space();
    s.options.ranked = 1;
    s.options.slacks = {0.0, 1e-6};
    s.costs.skips = {{0, 7, 8}, {1, 5, 8}, {2, 6, 8}}; // the last two cross: no fold over four devices
    for (skip_cost& e : s.costs.skips) { e.bytes = s.costs.layers[static_cast<std::size_t>(e.from)].output_bytes; }
    s.options.memory_limit_bytes =
        5 * 800 * 6; // six layers' parameters and their copies: one device alone is too small
    s.options.microbatch_sizes = {1, 2, 3, 16};
    s.machine.devices_per_node = 2;
    const tuning made = s.run();
    CHECK(made.indivisible == 3 + 2); // 3 with every degree; 16 with two and four replicas
    std::size_t sum = 0;
    for (const std::size_t count : made.counts) { sum += count; }
    CHECK(sum == made.rows.size());
    for (const tune_row& row : made.rows) { CHECK(row.reason.empty() == (row.verdict == tune_verdict::best)); }

    const tune_row* memory = find_row(made, tune_verdict::memory);
    REQUIRE(memory != nullptr);
    CHECK(mentions(memory->reason, "memory: device 0 needs"));
    CHECK(mentions(memory->reason, "parameters and their copies 32000"));
    CHECK(mentions(memory->reason, "bytes of 24000"));
    const tune_row* cut = find_row(made, tune_verdict::cut);
    REQUIRE(cut != nullptr);
    bool edge = false;
    for (const tune_row& row : made.rows) { edge = edge || mentions(row.reason, "skip layer"); }
    CHECK(edge);
    const tune_row* same = find_row(made, tune_verdict::same);
    REQUIRE(same != nullptr);
    CHECK(mentions(same->reason, "same: "));
    const tune_row* bound = find_row(made, tune_verdict::bound);
    REQUIRE(bound != nullptr);
    CHECK(mentions(bound->reason, "bound"));
    CHECK(bound->step_us == 0);
    CHECK(bound->bound_us > made.best_row().step_us);
    s.options.prune = false;
    const tuning whole = s.run();
    const tune_row* slower = find_row(whole, tune_verdict::slower);
    REQUIRE(slower != nullptr);
    CHECK(mentions(slower->reason, "slower than the best by"));

    s.options.memory_limit_bytes = 100;
    const std::string text = refusal<infeasible_error>(s);
    CHECK(mentions(text, "no feasible plan"));
    CHECK(mentions(text, "bytes of 100"));
    s.options.memory_limit_bytes = 0;
    s.options.global_batch = 17;
    s.options.microbatch_sizes = {2};
    CHECK(mentions(refusal<infeasible_error>(s), "global batch of 17"));
}

TEST_CASE("bad options and bad costs are refused by name") {
    const auto with = [](auto change) {
        drawn_space s = plain_space();
        change(s.options);
        return refusal<input_error>(s);
    };
    CHECK(mentions(with([](tune_options& o) { o.global_batch = 0; }), "global_batch"));
    CHECK(mentions(with([](tune_options& o) { o.devices = 5; }), "devices: 5"));
    CHECK(mentions(with([](tune_options& o) { o.pipeline_degrees = {3}; }), "pipeline_degrees: 3"));
    CHECK(mentions(with([](tune_options& o) { o.data_degrees = {8}; }), "data_degrees: 8"));
    CHECK(mentions(with([](tune_options& o) { o.microbatch_sizes = {0}; }), "microbatch_sizes"));
    CHECK(mentions(with([](tune_options& o) { o.microbatches = {-1}; }), "microbatches"));
    CHECK(mentions(with([](tune_options& o) { o.waves = {}; }), "waves"));
    CHECK(mentions(with([](tune_options& o) { o.chunks = {0}; }), "chunks"));
    CHECK(mentions(with([](tune_options& o) { o.placements = {}; }), "placements"));
    CHECK(mentions(with([](tune_options& o) { o.methods = {}; }), "methods"));
    CHECK(mentions(with([](tune_options& o) { o.slacks = {}; }), "slacks"));
    CHECK(mentions(with([](tune_options& o) { o.slacks = {0.0, -0.5}; }), "slacks: -0.5"));
    CHECK(mentions(with([](tune_options& o) { o.memory_gb_per_s = -1; }), "memory_gb_per_s"));
    CHECK(mentions(with([](tune_options& o) { o.refined = -1; }), "refined"));
    CHECK(mentions(with([](tune_options& o) { o.ranked = 0; }), "ranked"));
    CHECK(mentions(with([](tune_options& o) { o.kept.state_bytes = -1; }), "state_bytes"));
    CHECK(mentions(with([](tune_options& o) { o.memory_limit_bytes = -1; }), "memory_limit_bytes"));
    const drawn_space s = plain_space();
    CHECK_THROWS_AS(static_cast<void>(tune([&](int) { return s.costs; }, s.machine, s.options)), input_error);
}

TEST_CASE("a stopped search returns the best so far, and says that it did not finish") {
    drawn_space s = plain_space();
    std::stop_source source;
    s.options.stop = source.get_token();
    s.options.prune = false;
    std::size_t schedules = 0;
    s.options.progress = [&](const tune_progress& p) {
        CHECK(p.done <= p.total);
        if (p.stage == "schedules" && ++schedules == 4) { source.request_stop(); }
    };
    const tuning made = s.run();
    CHECK_FALSE(made.finished);
    CHECK(made.evaluations == 4);
    CHECK(made.plan.predicted.step_us > 0);
    CHECK(made.count(tune_verdict::not_reached) > 0);
    // Stopped before anything was found.
    CHECK(mentions(refusal<error>(s), "stopped"));
}

TEST_CASE("a search that is stopped while it refines did not finish either") {
    drawn_space s = plain_space();
    std::stop_source source;
    s.options.stop = source.get_token();
    s.options.refine = [&](const schedule_problem& problem) {
        source.request_stop();
        synthesis found{};
        found.best = list_schedule(problem);
        return found;
    };
    const tuning made = s.run();
    CHECK_FALSE(made.finished);
    CHECK(made.count(tune_verdict::not_reached) == 0);
}

TEST_CASE("refinement looks again at the best few and never makes the choice worse") {
    std::mt19937 random{5003};
    for (int i = 0; i != 8; ++i) {
        drawn_space s = draw_space(random);
        const tuning before = s.run();
        int asked = 0;
        s.options.refined = 2;
        s.options.refine = [&](const schedule_problem& problem) {
            ++asked;
            synthesis found{};
            found.best = list_schedule(problem, {.effort = list_effort::rules});
            return found;
        };
        const tuning after = s.run();
        CHECK(asked == static_cast<int>(std::min<std::size_t>(2, before.ranking.size())));
        CHECK(after.best_row().step_us <= before.best_row().step_us);
        CHECK(after.plan.predicted.step_us == after.best_row().step_us);
    }
}

TEST_CASE("a proof of the refinement becomes the bound of the step, where it holds for every order") {
    drawn_space s = plain_space();
    s.machine.nodes = 1;
    s.options.pipeline_degrees = {2};
    s.options.microbatch_sizes = {1};
    s.options.placements = {placement::sequential};
    s.options.routings = {skip_routing::direct};
    s.options.split_backwards = {true};
    s.options.recomputations = {recomputation::none};
    // The tuner believes what is proved: above the step it can come from nowhere else.
    const double proved = 2 * s.run().best_row().step_us;
    s.options.refine = [&](const schedule_problem& problem) {
        synthesis found{};
        found.best = list_schedule(problem);
        found.lower_bound_us = proved;
        return found;
    };
    const tuning after = s.run();
    CHECK(after.plan.predicted.lower_bound_us == doctest::Approx(proved));
    CHECK(after.best_row().bound_us == after.plan.predicted.lower_bound_us);
    // A recompute may hide behind a transfer: what is proved of the problem is not proved of the step.
    s.options.recomputations = {recomputation::stages};
    CHECK(s.run().plan.predicted.lower_bound_us != doctest::Approx(proved));
}

TEST_CASE(
    "a refined order that takes too much memory is asked again with less, and its proof is not that of every order") {
    drawn_space s = plain_space();
    s.machine.nodes = 1;
    s.options.pipeline_degrees = {2};
    s.options.microbatch_sizes = {1};
    s.options.placements = {placement::sequential};
    s.options.split_backwards = {false};
    s.options.recomputations = {recomputation::none};
    for (layer_cost& l : s.costs.layers) { l.saved_bytes = 4000; }
    s.options.memory_limit_bytes = s.run().best_row().peak_memory_bytes;
    int free = 0;
    int limited = 0;
    s.options.refined = 1;
    s.options.refine = [&](const schedule_problem& problem) {
        synthesis found{};
        if (problem.memory_limit_bytes.empty()) {
            ++free;
            found.best = baseline_schedule(problem, schedule_method::gpipe);
        } else {
            ++limited;
            found.best = list_schedule(problem, {.effort = list_effort::rules});
            found.lower_bound_us = 1e9;
        }
        return found;
    };
    const tuning made = s.run();
    CHECK(free == 1);
    CHECK(limited >= 1);
    CHECK(limited <= 2);
    CHECK(made.best_row().peak_memory_bytes <= s.options.memory_limit_bytes);
    CHECK(made.best_row().bound_us <= made.best_row().step_us * (1 + 1e-9));
}

TEST_CASE(
    "one device is no candidate of a method or a split that it cannot have, and an empty space says what it lacks") {
    drawn_space s = plain_space();
    for (const schedule_method method : baseline_methods) {
        CAPTURE(name_of(method));
        s.options.methods = {method};
        left_out_candidates left_out{};
        bool alone = false;
        for (const tune_candidate& c : enumerate_candidates(s.options, 4, 2, left_out)) {
            alone = alone || c.pipeline_degree == 1;
            CHECK((c.pipeline_degree == 1 ? schedule_method::list : method) == c.method);
        }
        CHECK(alone == (method == schedule_method::gpipe));
        CHECK((left_out.unmet > 0) == (method != schedule_method::gpipe));
        CHECK(left_out.why.empty() == (method == schedule_method::gpipe));
    }
    s.options.methods = {schedule_method::gpipe, schedule_method::list};
    s.options.pipeline_degrees = {1};
    left_out_candidates left_out{};
    const auto both = enumerate_candidates(s.options, 4, 2, left_out);
    s.options.methods = {schedule_method::list};
    CHECK(both == enumerate_candidates(s.options, 4, 2, left_out));
    CHECK_FALSE(both.empty());
    s.options.split_backwards = {true};
    CHECK(mentions(refusal<infeasible_error>(s), "split backward needs more than one device"));
    s = plain_space();
    s.options.methods = {schedule_method::zb_v};
    s.options.waves = {2};
    const std::string text = refusal<infeasible_error>(s);
    CHECK(mentions(text, "zb-v needs"));
    CHECK_FALSE(mentions(text, "multiply"));
    s = plain_space();
    s.options.methods = {schedule_method::interleaved};
    s.options.pipeline_degrees = {4};
    s.options.microbatches = {2};
    CHECK(mentions(refusal<infeasible_error>(s), "as many microbatches as devices"));
}

TEST_CASE("where nothing fits, the refusal names the candidate that needs least") {
    drawn_space s = plain_space();
    s.options.memory_limit_bytes = 100;
    const std::string text = refusal<infeasible_error>(s);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    left_out_candidates left_out{};
    for (const tune_candidate& c : enumerate_candidates(s.options, 4, 2, left_out)) {
        const cost_table costs = scaled_costs(s.costs, c.microbatch_size);
        try {
            std::int64_t most = 0;
            const parameter_memory kept = parameter_memory_of(s.options, c);
            for (const least_memory& need : least_memory_of(costs, cut_candidate(costs, c, kept, 100), c.split_backward,
                                                            c.routing, c.recompute, kept, c.data_degree)) {
                most = std::max(most, need.total_bytes());
            }
            least = std::min(least, most);
        } catch (const infeasible_error&) { continue; }
    }
    CHECK(mentions(text, "needs " + std::to_string(least) + " bytes of 100"));
}

TEST_CASE("memory is judged by the exact layout: what fits is taken as it is, and what is refused fits in no order") {
    std::mt19937 random{5004};
    int taken = 0;
    int alone = 0;
    for (int i = 0; i != 12; ++i) {
        drawn_space s = draw_space(random);
        INFO("space " << i);
        s.options.prune = false;
        const int devices = s.machine.devices();
        left_out_candidates left_out{};
        auto all = enumerate_candidates(s.options, devices, s.machine.nodes, left_out);
        std::shuffle(all.begin(), all.end(), random);
        for (std::size_t k = 0; k != std::min<std::size_t>(all.size(), 32); ++k) {
            const tune_candidate& c = all[k];
            INFO(to_text(c));
            const cost_table costs = scaled_costs(s.costs, c.microbatch_size);
            const parameter_memory kept = parameter_memory_of(s.options, c);
            partition cut{};
            try {
                cut = cut_candidate(costs, c, kept, 0);
            } catch (const infeasible_error&) { continue; }
            const auto least =
                least_memory_of(costs, cut, c.split_backward, c.routing, c.recompute, kept, c.data_degree);
            const auto prepared = [&](std::int64_t limit) {
                return prepare_candidate(costs, s.machine, cut, c, s.options, limit);
            };
            const evaluated_candidate free = evaluate_candidate(costs, c, prepared(0), s.options.list);
            const auto& peaks = free.planned.predicted.peak_memory_bytes;
            for (std::size_t d = 0; d != peaks.size(); ++d) { REQUIRE(least[d].total_bytes() <= peaks[d]); }
            // With just what it takes, it is found again.
            const std::int64_t most = *std::max_element(peaks.begin(), peaks.end());
            const evaluated_candidate fits = evaluate_candidate(costs, c, prepared(most), s.options.list);
            REQUIRE(fits.planned == free.planned);
            ++taken;
            if (c.pipeline_degree != 1 || c.method != schedule_method::list) { continue; }
            // One device can always run its microbatches one after the other.
            tune_candidate once = c;
            once.microbatches = 1;
            const auto one = evaluate_candidate(
                costs, once, prepare_candidate(costs, s.machine, cut, once, s.options, 0), s.options.list);
            const std::int64_t enough = one.planned.predicted.peak_memory_bytes.front();
            REQUIRE(least.front().total_bytes() <= enough);
            REQUIRE(evaluate_candidate(costs, c, prepared(enough), s.options.list).planned.predicted.step_us ==
                    doctest::Approx(free.planned.predicted.step_us));
            ++alone;
        }
    }
    CHECK(taken > 150);
    CHECK(alone > 15);
}

TEST_CASE("replicas take room for each other's gradients, and sharing the optimizer's state leaves a D-th part of it") {
    drawn_space s = plain_space();
    s.machine.nodes = 1;
    s.machine.devices_per_node = 8;
    s.options.pipeline_degrees = {2};
    s.options.microbatch_sizes = {1};
    s.options.placements = {placement::sequential};
    s.options.routings = {skip_routing::direct};
    s.options.split_backwards = {false};
    s.options.recomputations = {recomputation::none};
    s.options.sharded_optimizers = {false, true};
    const auto peak_of = [](const tuning& made, bool sharded) {
        std::int64_t peak = 0;
        for (const tune_row& row : made.rows) {
            if (row.candidate.sharded_optimizer == sharded) { peak = row.peak_memory_bytes; }
        }
        return peak;
    };
    for (const int replicas : {1, 2, 4}) {
        CAPTURE(replicas);
        s.options.devices = 2 * replicas;
        s.options.global_batch = 2 * replicas;
        s.options.memory_limit_bytes = 0;
        const tuning free = s.run();
        REQUIRE(free.rows.size() == (replicas == 1 ? 1 : 2));
        // Four layers of 100 parameters on each device, in one stage; the rest is the same for any number of replicas.
        const std::int64_t parameters = std::int64_t{4} * 800;
        const plan& best = free.plan;
        plan alone = best;
        alone.data_degree = 1;
        const cost_table costs = scaled_costs(s.costs, 1);
        const std::int64_t passes = peak_bytes(alone, costs, s.options.kept)[0] - 5 * parameters;
        const std::int64_t share = replica_share_bytes(parameters / 4, 4, replicas, 4);
        const auto peaks = peak_bytes(best, costs, s.options.kept);
        CHECK(peaks[0] == passes + 5 * parameters + (replicas - 1) * share);
        if (replicas == 1) { continue; }
        CHECK(peak_bytes(best, costs, {.sharded = true})[0] ==
              passes + 2 * parameters + 3 * parameters / replicas + (replicas - 1) * share);
        REQUIRE(peak_of(free, true) < peak_of(free, false));
        // Both send as much: shares and sums, or shares and weights.
        CHECK(free.rows[0].gradient_bytes == free.rows[1].gradient_bytes);
        // Where only one fits, it is taken, and the other says what it lacks.
        s.options.memory_limit_bytes = peak_of(free, true);
        const tuning made = s.run();
        CHECK(made.best_row().candidate.sharded_optimizer);
        CHECK(mentions(to_text(made.best_row().candidate), "sharded optimizer"));
        const tune_row* other = find_row(made, tune_verdict::memory);
        REQUIRE(other != nullptr);
        CHECK_FALSE(other->candidate.sharded_optimizer);
        CHECK(mentions(other->reason, "gradients of other replicas"));
    }
    s.options.kept.scalar_bytes = 0;
    CHECK(mentions(refusal<input_error>(s), "scalar_bytes"));
    s.options.kept = {.gradient_bytes = 0};
    CHECK(mentions(refusal<input_error>(s), "gradient_bytes"));
    s.options.kept = {};
    s.options.sharded_optimizers = {};
    CHECK(mentions(refusal<input_error>(s), "sharded_optimizers"));
}
