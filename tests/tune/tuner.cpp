#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuner.hpp>

#include "drawn_space.hpp"
#include "mentions.hpp"
#include "plain_space.hpp"

namespace tuner_tests {

namespace {

/// Parameters around the size of a gradient bucket, some layers without any, and links as slow as passes.
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
            // Again with a memory limit under which many candidates fail for various reasons.
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
            // A dropped candidate is no better than a kept one.
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
    CHECK(mentions(with([](tune_options& o) { o.slacks = {0.0, -0.5}; }), "slacks: each must be at least 0, not -0.5"));
    CHECK(mentions(with([](tune_options& o) { o.memory_gb_per_s = -1; }), "memory_gb_per_s"));
    CHECK(mentions(with([](tune_options& o) { o.refined = -1; }), "refined"));
    CHECK(mentions(with([](tune_options& o) { o.ranked = 0; }), "ranked"));
    CHECK(mentions(with([](tune_options& o) { o.kept.state_bytes = -1; }), "state_bytes"));
    CHECK(mentions(with([](tune_options& o) { o.memory_limit_bytes = -1; }), "memory_limit_bytes"));
    drawn_space s = plain_space();
    CHECK_THROWS_AS(static_cast<void>(tune([&](int) { return s.costs; }, s.machine, s.options)), input_error);
    s.options.placements = {placement::folded};
    s.costs.skips.push_back({0, 1 << 30, 8});
    CHECK(mentions(refusal<input_error>(s), "a skip must go forwards between two of the layers"));
}

TEST_CASE("a microbatch size that takes more bytes than a table can count leaves the smaller ones") {
    drawn_space s = plain_space();
    s.costs.skips.clear();
    s.options.pipeline_degrees = {2};
    s.options.waves = {2};
    s.options.recomputations = {recomputation::none};
    for (const bool merged : {false, true}) { // the search over two waves merges 150 layers to 128
        CAPTURE(merged);
        s.costs.layers.resize(merged ? 150 : 8, s.costs.layers.back());
        for (layer_cost& l : s.costs.layers) { l.saved_bytes = std::int64_t{1} << (merged ? 36 : 38); }
        const tuning made = s.run();
        CHECK(made.best_row().candidate.microbatch_size < 8);
        for (const tune_row& row : made.rows) {
            if (row.candidate.microbatch_size < 8 || (merged && row.candidate.kind != placement::folded)) { continue; }
            CHECK(row.verdict == tune_verdict::cut);
            CHECK(mentions(row.reason, "samples takes more than 2^40 bytes in layer"));
        }
    }
    s.options.microbatch_sizes = {8};
    s.options.placements = {placement::folded};
    CHECK(mentions(refusal<infeasible_error>(s), "a microbatch of 8 samples takes more than 2^40 bytes"));
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

} // namespace tuner_tests
