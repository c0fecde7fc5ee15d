#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/schedule/validate_fill.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_hosts.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/tuner.hpp>

#include "beside_encoders.hpp"
#include "mentions.hpp"

namespace tune_frozen_tests {

using namespace pulse::test;

namespace {

tuning planned_with(double share, plan_request asked) {
    return plan_for([share](int samples) { return beside_encoders(samples, share); }, asked);
}

std::int64_t peak_of(const tuning& found) {
    const auto& peaks = found.plan.predicted.peak_memory_bytes;
    return *std::max_element(peaks.begin(), peaks.end());
}

/// Checks that the tasks are all the work beside the passes, and that the plan predicts what the simulator and an exact
/// layout find.
void check_filled(const tuning& found) {
    require_valid(found.plan, "plan");
    const tune_candidate& c = found.best_row().candidate;
    tune_options options{};
    options.kept = adamw_memory(4);
    schedule_problem problem =
        prepare_candidate(found.costs, *request(frozen_mode::tuned).cluster, found.plan.cut, c, options, 0)
            .step.problem;
    problem.holds.clear();
    CHECK(found.frozen.work.hosts == found.plan.frozen_hosts);
    CHECK_NOTHROW(validate_fill(problem, found.frozen.work, found.plan.order, found.plan.frozen_tasks));
    const prediction& expected = found.plan.predicted;
    CHECK(expected.step_us >= expected.lower_bound_us * (1 - 1e-9));
    CHECK(expected.peak_memory_bytes == peak_bytes(found.plan, found.costs, found.kept));
    if (found.plan.pipeline_degree == 1 && found.plan.data_degree > 1) { return; } // reductions overlap passes
    const step_model model{found.plan, found.costs};
    const simulation ran = simulate(found.plan, model, lower(found.plan, model), found.world);
    CHECK(expected.step_us == doctest::Approx(ran.step_us));
    CHECK(expected.bubble_ratio == doctest::Approx(ran.bubble_ratio));
}

} // namespace

TEST_CASE("a plan does not change if nothing is frozen, or if the frozen results come from elsewhere") {
    const tuning alone = plan_for(backbone, request(frozen_mode::none));
    CHECK(alone.plan.frozen_tasks.empty());
    CHECK(plan_for(backbone, request(frozen_mode::tuned)).plan == alone.plan);
    const tuning none = planned_with(0.5, request(frozen_mode::none));
    CHECK(none.plan == alone.plan);
    CHECK(none.evaluations == alone.evaluations);
}

TEST_CASE("frozen work is done once, no step beats its bound, and what is tuned is no worse than encoding first") {
    double shorter_us = 0;
    for (const double share : {0.05, 0.4, 1.0}) {
        CAPTURE(share);
        const tuning none = planned_with(share, request(frozen_mode::none));
        const tuning first = planned_with(share, request(frozen_mode::first));
        const tuning bubbles = planned_with(share, request(frozen_mode::bubbles));
        const tuning tuned = planned_with(share, request(frozen_mode::tuned));
        for (const tuning* one : {&first, &bubbles, &tuned}) {
            check_filled(*one);
            CHECK(one->plan.predicted.step_us >= none.plan.predicted.step_us * (1 - 1e-9));
        }
        CHECK(tuned.plan.predicted.step_us <= first.plan.predicted.step_us * (1 + 1e-9));
        CHECK(tuned.plan.predicted.step_us <= bubbles.plan.predicted.step_us * (1 + 1e-9));
        CHECK(tuned.plan.predicted.step_us > shorter_us);
        shorter_us = tuned.plan.predicted.step_us;
        for (std::size_t d = 0; d != first.plan.frozen_tasks.size(); ++d) {
            for (const frozen_task& t : first.plan.frozen_tasks[d]) {
                CHECK(t.end_us <= first.plan.order.devices[d].front().start_us);
            }
        }
        // The chosen filling adds less than its work, as it uses the pipeline's bubbles.
        const double work_us = tuned.frozen.work_us() / tuned.plan.pipeline_degree;
        if (tuned.plan.pipeline_degree > 1) {
            CHECK(tuned.plan.predicted.step_us < tuned.frozen.passes_step_us + work_us);
        }
    }
}

TEST_CASE("hosts that memory has no room for are dropped, and what fits nowhere is refused by its name") {
    plan_request asked = request(frozen_mode::bubbles);
    asked.pipeline_degree = 4;
    asked.microbatch_size = 1;
    const auto planned_in = [&](std::int64_t text_bytes, std::int64_t limit) {
        asked.memory_limit_bytes = limit;
        return plan_for([&](int samples) { return beside_encoders(samples, 0.4, text_bytes); }, asked);
    };
    asked.frozen = frozen_mode::none;
    const std::int64_t passes = peak_of(planned_in(0, 0));
    asked.frozen = frozen_mode::bubbles;
    const std::int64_t text_bytes = 2 * passes;
    const tuning wide = planned_in(text_bytes, 0);
    check_filled(wide);
    const std::int64_t limit = peak_of(wide) - 1;
    const tuning tight = planned_in(text_bytes, limit);
    check_filled(tight);
    CHECK(peak_of(tight) <= limit);
    int hosts = 0;
    for (const auto& here : tight.plan.frozen_hosts) {
        hosts += static_cast<int>(std::count(here.begin(), here.end(), 1));
    }
    CHECK(hosts >= 1);
    // First the text encoder only fits if split by layers, then not even one layer fits.
    const tuning split = planned_in(text_bytes, text_bytes);
    check_filled(split);
    CHECK(peak_of(split) <= text_bytes);
    REQUIRE(split.frozen.work.split.size() == 2);
    const std::vector<int> owners = split.frozen.work.split[1];
    REQUIRE(owners.size() == 4);
    CHECK(owners.front() != owners.back());
    for (const auto& tasks : split.plan.frozen_tasks) {
        for (const frozen_task& t : tasks) {
            for (int l = t.first_layer; t.component == 1 && l <= t.last_layer; ++l) {
                CHECK(t.device == owners[static_cast<std::size_t>(l)]);
            }
        }
    }
    try {
        static_cast<void>(planned_in(8 * text_bytes, text_bytes));
        FAIL_CHECK("nothing was thrown");
    } catch (const infeasible_error& e) {
        CHECK(mentions(e.what(), "no room for the frozen components, whole or by layers"));
        CHECK(mentions(e.what(), "of them in text"));
    }
}

TEST_CASE("calls have as many samples as memory has room for, at least one") {
    plan_request asked = request(frozen_mode::bubbles);
    asked.pipeline_degree = 4;
    asked.microbatch_size = 1;
    const auto planned_in = [&](int most_samples, std::int64_t limit) {
        asked.memory_limit_bytes = limit;
        return plan_for(
            [&](int samples) {
                cost_table costs = beside_encoders(samples, 0.4);
                for (frozen_component& one : costs.frozen) {
                    one.max_chunk = most_samples;
                    for (frozen_layer& l : one.layers) {
                        l.live_bytes = 20'000'000;
                        l.call_us = l.sample_us *= 0.5;
                    }
                }
                return costs;
            },
            asked);
    };
    const auto largest_call = [](const tuning& found) {
        int most = 0;
        for (const auto& tasks : found.plan.frozen_tasks) {
            for (const frozen_task& t : tasks) { most = std::max(most, t.samples); }
        }
        return most;
    };
    const tuning single = planned_in(1, 0);
    const tuning wide = planned_in(8, 0);
    CHECK(largest_call(single) == 1);
    CHECK(largest_call(wide) > 1);
    CHECK(largest_call(wide) <= 8);
    CHECK(wide.plan.predicted.step_us < single.plan.predicted.step_us);
    REQUIRE(peak_of(single) < peak_of(wide));
    for (int part = 0; part <= 8; ++part) {
        CAPTURE(part);
        const std::int64_t limit = peak_of(single) + (peak_of(wide) - peak_of(single)) * part / 8;
        const tuning found = planned_in(8, limit);
        check_filled(found);
        CHECK(peak_of(found) <= limit);
        CHECK(found.plan.predicted.step_us >= wide.plan.predicted.step_us * (1 - 0.01));
    }
}

TEST_CASE("where the largest calls of several components have no room side by side, smaller ones are tried") {
    cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    for (frozen_component& one : costs.frozen) {
        one.max_chunk = 8;
        for (frozen_layer& l : one.layers) {
            l.live_bytes = 20'000'000;
            l.call_us += 0.95 * l.sample_us;
            l.sample_us *= 0.05;
        }
    }
    const tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    limited_candidate limited{costs, c, 300'000'000};
    const evaluated_candidate alone =
        evaluate_beside_frozen(costs, c, limited.ready, frozen_mode::bubbles,
                               [&](const prepared_candidate& one) { return evaluate_candidate(costs, c, one, {}); });
    const std::vector<std::int64_t>& peaks = alone.planned.predicted.peak_memory_bytes;
    const std::int64_t one_sample = *std::max_element(peaks.begin(), peaks.end());
    for (int more = 0; more <= 8; ++more) {
        CAPTURE(more);
        const std::int64_t limit = one_sample + more * 10'000'000;
        limited.ready.limits = limit;
        evaluated_candidate filled{};
        REQUIRE_NOTHROW(filled = fill_frozen(costs, alone, limited.ready, frozen_mode::bubbles, 0, 20'000));
        const std::vector<std::int64_t>& bytes = filled.planned.predicted.peak_memory_bytes;
        CHECK(*std::max_element(bytes.begin(), bytes.end()) <= limit);
        CHECK(bytes == peak_bytes(filled.planned, costs, adamw_memory(4)));
    }
}

TEST_CASE("a component that one device has room for lives there, and its weights are counted") {
    const cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    candidate_options options{};
    options.kept = adamw_memory(4);
    options.kept.scratch.frozen_bytes = 50'000;
    const cluster four = *request(frozen_mode::none).cluster;
    const partition cut = cut_candidate(costs, c, options.kept, 0);
    prepared_candidate ready = prepare_candidate(costs, four, cut, c, options, 0);
    const auto free = frozen_placements(costs, c, ready, frozen_mode::bubbles);
    CHECK(free.size() == 4); // two components, each everywhere or on one device
    // Only device 2 has room for the text encoder.
    const std::int64_t limit = *std::max_element(ready.fixed_bytes.begin(), ready.fixed_bytes.end()) + 3'000'000;
    ready.limits = limit;
    for (std::size_t d = 0; d != 4; ++d) { ready.fixed_bytes[d] = limit - (d == 2 ? 1'500'000 : 200'000); }
    for (const frozen_placement& where : frozen_placements(costs, c, ready, frozen_mode::bubbles)) {
        for (int d = 0; d != 4; ++d) {
            CHECK(where.work.may_host(1, d) == (d == 2));
            const auto at = static_cast<std::size_t>(d);
            std::int64_t weights = 0;
            for (int f = 0; f != 2; ++f) {
                const frozen_component& of = costs.frozen[static_cast<std::size_t>(f)];
                for (int l = 0; l != static_cast<int>(of.layers.size()); ++l) {
                    if (where.work.may_host(f, l, d)) { weights += of.parameter_bytes(l, l); }
                }
            }
            // Results of two steps are kept where the first stage reads them.
            const std::int64_t results = cut.stages.front().device == d ? 2 * 8 * (800 + 900) : 0;
            const std::int64_t scratch = weights > 0 ? options.kept.scratch.of_frozen_networks() : 0;
            CHECK(where.kept_bytes[at] == weights + results + scratch);
        }
    }
}

TEST_CASE("of three placements the one with the shortest step counts, and others only where memory is short") {
    const cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    limited_candidate limited{costs, c, 3'000'000};
    prepared_candidate& ready = limited.ready;
    for (std::size_t d = 0; d != 4; ++d) { ready.fixed_bytes[d] = limited.limit - (d == 2 ? 1'200'000 : 800'000); }
    std::vector<std::vector<std::int64_t>> asked{};
    const auto bytes_of = [](const frozen_placement& where) {
        std::vector<std::int64_t> bytes = where.kept_bytes;
        for (std::size_t d = 0; d != bytes.size(); ++d) { bytes[d] += where.live_bytes[d]; }
        return bytes;
    };
    // The n-th placement tried takes step_us[n], or does not fit if that is 0.
    const auto choose = [&](const std::vector<double>& step_us, bool wants_more) {
        asked.clear();
        return evaluate_beside_frozen(costs, c, ready, frozen_mode::bubbles, [&](const prepared_candidate& beside) {
            asked.push_back(beside.frozen_bytes);
            const double step = step_us.at(asked.size() - 1);
            if (step == 0) { throw memory_error(1'000 * static_cast<std::int64_t>(asked.size()), "short"); }
            evaluated_candidate made{};
            made.planned.pipeline_degree = 4;
            made.planned.predicted.step_us = step;
            made.planned.order.devices.resize(4);
            if (wants_more) { made.room_bytes.resize(4); }
            return made;
        });
    };
    static_cast<void>(choose({1e9}, false));
    CHECK(asked.size() == 1);
    for (std::size_t fastest = 0; fastest != 3; ++fastest) {
        std::vector<double> step_us(3, 2e9);
        step_us[fastest] = 1e9;
        const evaluated_candidate found = choose(step_us, true);
        REQUIRE(asked.size() == 3);
        CHECK(bytes_of(found.frozen) == asked[fastest]);
    }
    const evaluated_candidate last = choose({0, 0, 1e9}, true);
    CHECK(bytes_of(last.frozen) == asked.back());
    try {
        static_cast<void>(choose({0, 0, 0}, true));
        FAIL_CHECK("nothing was thrown");
    } catch (const memory_error& e) { CHECK(e.bytes == 1'000); }
}

TEST_CASE("what is pruned would not have been chosen, as bounds are held against steps that were reached") {
    for (const double share : {0.05, 0.4, 1.0}) {
        CAPTURE(share);
        tune_options space{};
        space.devices = 4;
        space.global_batch = 16;
        space.kept = adamw_memory(4);
        const auto costs = [share](int samples) { return beside_encoders(samples, share); };
        const cluster four = *request(frozen_mode::tuned).cluster;
        const tuning quick = tune(costs, four, space);
        space.prune = false;
        const tuning all = tune(costs, four, space);
        const double best_us = quick.best_row().step_us;
        CHECK(best_us <= all.best_row().step_us * (1 + 1e-9));
        int pruned = 0;
        for (const tune_row& row : quick.rows) {
            pruned += row.verdict == tune_verdict::bound ? 1 : 0;
            if (row.verdict == tune_verdict::bound) { CHECK(row.bound_us >= best_us * (1 - 1e-9)); }
            if (row.verdict == tune_verdict::slower) { CHECK(row.step_us >= best_us); }
        }
        CHECK(pruned > 0);
        for (const tune_row& row : all.rows) {
            const bool has_step = row.verdict == tune_verdict::slower || row.verdict == tune_verdict::best;
            if (has_step) { CHECK(row.step_us >= row.bound_us * (1 - 1e-9)); }
        }
    }
}

TEST_CASE("a way to encode that a model without frozen components has no use for is refused") {
    for (const frozen_mode mode : {frozen_mode::first, frozen_mode::bubbles}) {
        try {
            static_cast<void>(plan_for(backbone, request(mode)));
            FAIL_CHECK("nothing was thrown");
        } catch (const input_error& e) { CHECK(mentions(e.what(), "the model has no frozen components")); }
    }
}

} // namespace tune_frozen_tests
