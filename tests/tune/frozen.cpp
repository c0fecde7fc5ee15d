#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/validate_fill.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_hosts.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "mentions.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

cost_table backbone(int samples) {
    static constexpr auto graph = graph_of<ddpm_fmnist>();
    return analytic_costs(graph.view(), cpu_core, samples, sizeof(float));
}

double load_us(const cost_table& costs) {
    double sum = 0;
    for (const layer_cost& l : costs.layers) { sum += l.load_us(); }
    return sum / costs.microbatch_size;
}

/// The backbone beside a light encoder with much work, as those of pictures, and a heavy one with little, as those of
/// texts: together `share` of the backbone's load.
cost_table beside_encoders(int samples, double share, std::int64_t text_bytes = 4'000'000) {
    cost_table costs = backbone(samples);
    const double unit = share * load_us(backbone(1));
    frozen_component pictures{"pictures", frozen_use::input, 3000, 800, 1, {}};
    for (const double part : {0.1, 0.3, 0.2, 0.2, 0.1}) {
        pictures.layers.push_back(
            {label{"part"} + static_cast<unsigned>(pictures.layers.size()), 0.0, part * unit, 2'000, 4'000, 20'000});
    }
    frozen_component text{"text", frozen_use::context, 300, 900, 8, {}};
    for (int i = 0; i != 4; ++i) {
        text.layers.push_back(
            {label{"block"} + static_cast<unsigned>(i), 0.01 * unit, 0.0225 * unit, text_bytes / 4, 500, 2'000});
    }
    costs.frozen = {pictures, text};
    return costs;
}

plan_request request(frozen_mode mode) {
    plan_request asked{};
    asked.devices = 4;
    asked.global_batch = 16;
    asked.device = cpu_core;
    asked.cluster = cluster{.name = "four",
                            .nodes = 1,
                            .devices_per_node = 4,
                            .memory_bytes = 0,
                            .intra_node = {.latency_us = 5, .bandwidth_gb_per_s = 2},
                            .inter_node = {}};
    asked.frozen = mode;
    asked.recompute = recomputation::none;
    asked.seconds = 0;
    return asked;
}

tuning planned_with(double share, plan_request asked) {
    return plan_for([share](int samples) { return beside_encoders(samples, share); }, asked);
}

std::int64_t peak_of(const tuning& found) {
    const auto& peaks = found.plan.predicted.peak_memory_bytes;
    return *std::max_element(peaks.begin(), peaks.end());
}

/// That the tasks are all of the work beside the passes, and that the plan predicts what the simulator and an exact
/// layout make of both.
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
    if (found.plan.pipeline_degree == 1 && found.plan.data_degree > 1) { return; } // reduced while passes run
    const step_model model{found.plan, found.costs};
    const simulation ran = simulate(found.plan, model, lower(found.plan, model), found.world);
    CHECK(expected.step_us == doctest::Approx(ran.step_us));
    CHECK(expected.bubble_ratio == doctest::Approx(ran.bubble_ratio));
}

} // namespace

TEST_CASE("where nothing is frozen a plan is what it was, and where results come from elsewhere too") {
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
        // The filling that is chosen costs less than the work that it does, as the pipeline has bubbles.
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
    // The text encoder has room by layers alone, then no layer of it has.
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

TEST_CASE("a component that one device has room for lives there, and its weights are counted") {
    const cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    candidate_options options{};
    options.kept = adamw_memory(4);
    const cluster four = *request(frozen_mode::none).cluster;
    const partition cut = cut_candidate(costs, c, options.kept, 0);
    prepared_candidate ready = prepare_candidate(costs, four, cut, c, options, 0);
    const auto free = frozen_placements(costs, c, ready, frozen_mode::bubbles);
    CHECK(free.size() == 4); // of two components, each everywhere or on one device
    // Room for the text encoder on device 2 alone.
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
            // Results of two steps lie where the first stage reads them.
            const std::int64_t results = cut.stages.front().device == d ? 2 * 8 * (800 + 900) : 0;
            CHECK(where.kept_bytes[at] == weights + results);
        }
    }
}

namespace {

/// Of the devices, each with its layers of the component that comes last on 8 samples.
double greatest_load_us(const cost_table& costs, const prepared_candidate& ready, const std::vector<int>& owners) {
    std::vector<double> load = busy_us(ready.step.problem);
    for (int l = 0; l != static_cast<int>(owners.size()); ++l) {
        load[static_cast<std::size_t>(owners[static_cast<std::size_t>(l)])] +=
            least_work_us(costs.frozen.back(), l, l, 8);
    }
    return *std::max_element(load.begin(), load.end());
}

/// The least of all ways to put the four layers on four devices in turn that fit; infinite where none does.
template <class Fits>
double least_split_us(const cost_table& costs, const prepared_candidate& ready, const Fits& fits) {
    double least_us = std::numeric_limits<double>::infinity();
    for (int code = 0; code != 256; ++code) {
        const std::vector<int> owners{code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3};
        if (std::is_sorted(owners.begin(), owners.end()) && fits(owners)) {
            least_us = std::min(least_us, greatest_load_us(costs, ready, owners));
        }
    }
    return least_us;
}

} // namespace

TEST_CASE("layers that are split lie side by side within the room of each device, the greatest load is the least") {
    const cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    candidate_options options{};
    options.kept = adamw_memory(4);
    const partition cut = cut_candidate(costs, c, options.kept, 0);
    prepared_candidate ready = prepare_candidate(costs, *request(frozen_mode::none).cluster, cut, c, options, 0);
    const std::int64_t limit = *std::max_element(ready.fixed_bytes.begin(), ready.fixed_bytes.end()) + 3'000'000;
    ready.limits = limit;
    constexpr int rooms[]{1, 3, 0, 2}; // of layers of texts
    for (std::size_t d = 0; d != 4; ++d) { ready.fixed_bytes[d] = limit - 100'000 - rooms[d] * 250'000; }
    const detail::host_search search{costs, c, ready};
    const double least_us = least_split_us(costs, ready, [&](const std::vector<int>& owners) {
        for (int d = 0; d != 4; ++d) {
            if (std::count(owners.begin(), owners.end(), d) > rooms[d]) { return false; }
        }
        return true;
    });
    const auto found = search.with({detail::host_way::spread, detail::host_way::split});
    REQUIRE(found.has_value());
    const std::vector<int>& owners = found->work.split[1];
    CHECK(std::is_sorted(owners.begin(), owners.end()));
    CHECK(greatest_load_us(costs, ready, owners) == doctest::Approx(least_us));
    for (int d = 0; d != 4; ++d) {
        const auto layers = std::count(owners.begin(), owners.end(), d);
        CHECK(layers <= rooms[d]);
        CHECK(found->work.may_host(1, d) == (layers != 0));
    }
    const auto ways = search.ways();
    CHECK(std::find(ways.begin(), ways.end(), std::vector{detail::host_way::spread, detail::host_way::split}) !=
          ways.end());
    CHECK(ways.size() == 9);
}

TEST_CASE("a split leaves room for what waits between its parts, however much less or more waits before fewer layers") {
    cost_table costs = beside_encoders(1, 0.4);
    costs.frozen.erase(costs.frozen.begin());
    costs.frozen.front().result_bytes = 0; // so that no device keeps any
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    candidate_options options{};
    options.kept = adamw_memory(4);
    const partition cut = cut_candidate(costs, c, options.kept, 0);
    prepared_candidate ready = prepare_candidate(costs, *request(frozen_mode::none).cluster, cut, c, options, 0);
    const std::int64_t limit = *std::max_element(ready.fixed_bytes.begin(), ready.fixed_bytes.end()) + 1'000;
    ready.limits = limit;
    std::mt19937 random{11};
    const auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1)); };
    int split = 0;
    for (int round = 0; round != 400; ++round) {
        CAPTURE(round);
        std::vector<frozen_layer>& layers = costs.frozen.front().layers;
        std::int64_t input = 0;
        for (frozen_layer& l : layers) {
            l.parameter_bytes = up_to(60);
            l.output_bytes = up_to(100);
            l.live_bytes = input + l.output_bytes + up_to(20);
            l.sample_us = static_cast<double>(1 + up_to(1000)) * 1e-3 * ready.step.problem.stages.front().forward_us;
            input = l.output_bytes;
        }
        std::vector<std::int64_t> room(4);
        for (std::size_t d = 0; d != 4; ++d) {
            room[d] = up_to(400);
            ready.fixed_bytes[d] = limit - room[d];
        }
        const auto taken_by = [&](const std::vector<int>& owners, int d) {
            std::int64_t parameters = 0;
            std::int64_t live = 0;
            std::int64_t waiting = 0;
            for (std::size_t l = 0; l != 4; ++l) {
                const bool here = owners[l] == d;
                if (here) { parameters += layers[l].parameter_bytes, live = std::max(live, layers[l].live_bytes); }
                if (l != 3 && owners[l] != owners[l + 1] && (here || owners[l + 1] == d)) {
                    waiting += layers[l].output_bytes;
                }
            }
            return parameters + live + waiting;
        };
        const auto fits = [&](const std::vector<int>& owners) {
            for (int d = 0; d != 4; ++d) {
                if (taken_by(owners, d) > room[static_cast<std::size_t>(d)]) { return false; }
            }
            return true;
        };
        const double least_us = least_split_us(costs, ready, fits);
        const auto found = detail::host_search{costs, c, ready}.with({detail::host_way::split});
        REQUIRE(found.has_value() == (least_us < std::numeric_limits<double>::infinity()));
        if (!found) { continue; }
        const std::vector<int>& owners = found->work.split.front();
        CHECK(greatest_load_us(costs, ready, owners) == doctest::Approx(least_us));
        for (int d = 0; d != 4; ++d) {
            const auto at = static_cast<std::size_t>(d);
            CHECK(found->kept_bytes[at] + found->live_bytes[at] == taken_by(owners, d));
        }
        split += owners.front() != owners.back() ? 1 : 0;
    }
    CHECK(split > 100);
}

TEST_CASE("of three placements the one with the shortest step counts, and others only where memory is short") {
    const cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    candidate_options options{};
    options.kept = adamw_memory(4);
    const partition cut = cut_candidate(costs, c, options.kept, 0);
    prepared_candidate ready = prepare_candidate(costs, *request(frozen_mode::none).cluster, cut, c, options, 0);
    const std::int64_t limit = *std::max_element(ready.fixed_bytes.begin(), ready.fixed_bytes.end()) + 3'000'000;
    ready.limits = limit;
    for (std::size_t d = 0; d != 4; ++d) { ready.fixed_bytes[d] = limit - (d == 2 ? 1'200'000 : 800'000); }
    std::vector<std::vector<std::int64_t>> asked{};
    const auto bytes_of = [](const frozen_placement& where) {
        std::vector<std::int64_t> bytes = where.kept_bytes;
        for (std::size_t d = 0; d != bytes.size(); ++d) { bytes[d] += where.live_bytes[d]; }
        return bytes;
    };
    // The n-th placement that is tried takes step_us[n], or has no room where that is 0.
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

TEST_CASE("components that have room one by one, but not together, are split") {
    cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    costs.frozen.front() = costs.frozen.back();
    costs.frozen.front().name = "short texts";
    costs.frozen.push_back(costs.frozen.back());
    costs.frozen.back().name = "long texts";
    tune_candidate c{.pipeline_degree = 2, .microbatches = 4};
    candidate_options options{};
    options.kept = adamw_memory(4);
    const partition cut = cut_candidate(costs, c, options.kept, 0);
    prepared_candidate ready = prepare_candidate(costs, *request(frozen_mode::none).cluster, cut, c, options, 0);
    const std::int64_t limit = *std::max_element(ready.fixed_bytes.begin(), ready.fixed_bytes.end()) + 3'000'000;
    ready.limits = limit;
    for (const std::int64_t room : {1'600'000, 1'400'000}) {
        for (std::int64_t& fixed : ready.fixed_bytes) { fixed = limit - room; }
        const auto found = frozen_placements(costs, c, ready, frozen_mode::bubbles);
        CHECK(found.empty() == (room < 1'500'000));
        for (const frozen_placement& where : found) {
            CHECK_FALSE(where.work.split.empty());
            for (std::size_t d = 0; d != 2; ++d) { CHECK(where.kept_bytes[d] + where.live_bytes[d] <= room); }
        }
    }
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
