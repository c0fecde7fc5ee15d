#pragma once

#include <string>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/step_end.hpp>

#include "paper_settings.hpp"

namespace pulse_bench {

/// A method of the tuner, with the choices that its authors allow.
struct paper_method {
    std::string name{};
    pulse::tune_options space{};
};

/// What every method may choose.
[[nodiscard]] inline pulse::tune_options common_space(const paper_setting& in) {
    pulse::tune_options o{};
    o.global_batch = in.global_batch;
    for (int p = 2; p <= in.machine.devices(); p *= 2) { o.pipeline_degrees.push_back(p); }
    // 16-bit values and gradients, 32-bit masters and two moments for every method; no average.
    o.kept = {.scalar_bytes = 2, .gradient_bytes = 2, .state_bytes = 12};
    o.memory_gb_per_s = in.on.memory_gb_per_s * in.on.efficiency;
    o.sharded_optimizers = {false, true};
    o.ranked = 3;
    return o;
}

/// The league's methods that are or may be pipelines, pulse first and relayed 1F1B second.
[[nodiscard]] inline std::vector<paper_method> paper_methods(const paper_setting& in, double refine_seconds) {
    using namespace pulse;
    const tune_options base = common_space(in);
    std::vector<paper_method> all{};
    const auto add = [&](const char* name, auto change) {
        all.push_back({.name = name, .space = base});
        // The executor of pulse exchanges directly; other libraries use rings, which cross nodes least.
        if (all.size() > 1) { all.back().space.exchange = replica_exchange::ring; }
        change(all.back().space);
    };
    add("pulse", [&](tune_options& o) {
        o.placements = {placement::folded};
        o.waves = {1, 2};
        o.slacks = {0.0, 0.05};
        if (refine_seconds > 0) {
            o.refine = [refine_seconds](const schedule_problem& problem) {
                return synthesize(problem, {.limit = {.seconds = refine_seconds}});
            };
        }
    });
    for (const skip_routing routing : {skip_routing::relayed, skip_routing::direct}) {
        const bool relayed = routing == skip_routing::relayed;
        add(relayed ? "1F1B, relayed" : "1F1B, direct", [&](tune_options& o) {
            o.placements = {placement::sequential};
            o.routings = {routing};
            o.methods = {schedule_method::one_f_one_b};
            o.split_backwards = {false};
            o.slacks = {0.0, 0.05};
        });
    }
    for (const skip_routing routing : {skip_routing::relayed, skip_routing::direct}) {
        const bool relayed = routing == skip_routing::relayed;
        add(relayed ? "interleaved, relayed" : "interleaved, direct", [&](tune_options& o) {
            o.placements = {placement::interleaved};
            o.chunks = {2, 4};
            o.routings = {routing};
            o.methods = {schedule_method::interleaved};
            o.split_backwards = {false};
        });
    }
    add("ZB-V, direct", [&](tune_options& o) {
        o.placements = {placement::folded};
        o.fold = fold_cut::balanced;
        o.waves = {1};
        o.routings = {skip_routing::direct};
        o.methods = {schedule_method::zb_v};
        o.split_backwards = {true};
    });
    add("Hanayo, direct", [&](tune_options& o) {
        o.placements = {placement::folded};
        o.fold = fold_cut::balanced;
        o.waves = {1, 2, 4};
        o.routings = {skip_routing::direct};
        o.methods = {schedule_method::hanayo};
        o.split_backwards = {false};
    });
    add("data parallel", [&](tune_options& o) {
        o.pipeline_degrees = {1};
        o.placements = {placement::sequential, placement::interleaved};
    });
    // What pulse_plan chooses among and pulse runs.
    add("any placement", [&](tune_options& o) {
        o.pipeline_degrees = {};
        o.exchange = replica_exchange::direct;
    });
    return all;
}

} // namespace pulse_bench
