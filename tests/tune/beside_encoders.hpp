#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/tune/candidate_cut.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/zoo/ddpm.hpp>

namespace tune_frozen_tests {

using namespace pulse;

inline cost_table backbone(int samples) {
    static constexpr auto graph = graph_of<ddpm_fmnist>();
    return analytic_costs(graph.view(), cpu_core, samples, sizeof(float));
}

inline double load_us(const cost_table& costs) {
    double sum = 0;
    for (const layer_cost& l : costs.layers) { sum += l.load_us(); }
    return sum / costs.microbatch_size;
}

/// The backbone with a light encoder that has much work, as for images, and a heavy one with little, as for texts;
/// together they have `share` of the backbone's load.
inline cost_table beside_encoders(int samples, double share, std::int64_t text_bytes = 4'000'000) {
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

inline plan_request request(frozen_mode mode) {
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

/// A candidate on the devices of request(), each limited to the fixed bytes of the fullest one plus `room_bytes`.
struct limited_candidate {
    prepared_candidate ready;
    std::int64_t limit{};

    limited_candidate(const cost_table& costs, const tune_candidate& c, std::int64_t room_bytes) :
        ready{prepared(costs, c)}, limit{*std::max_element(ready.fixed_bytes.begin(), ready.fixed_bytes.end()) +
                                         room_bytes} {
        ready.limits = limit;
    }

private:
    static prepared_candidate prepared(const cost_table& costs, const tune_candidate& c) {
        candidate_options options{};
        options.kept = adamw_memory(4);
        const partition cut = cut_candidate(costs, c, options.kept, 0);
        return prepare_candidate(costs, *request(frozen_mode::none).cluster, cut, c, options, 0);
    }
};

} // namespace tune_frozen_tests
