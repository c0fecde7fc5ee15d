#pragma once

#include <cstddef>
#include <vector>

#include <plan/random_plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace shared_link_tests {

using pulse_test::random_plans;

using programs = std::vector<pulse::program>;

/// Links with positive latency, so that every message takes time; randomly shared.
inline pulse::simulation_options contended(random_plans& make, int ranks) {
    pulse::simulation_options o{};
    const auto pairs = static_cast<std::size_t>(ranks * ranks);
    const int shared = make.between(1, 4);
    for (std::size_t pair = 0; pair != pairs; ++pair) {
        o.links.push_back({make.between(1, 40) * 0.37, make.coin() ? 0.0 : make.between(1, 200) * 1.1e-3});
        o.routes.push_back({make.between(-1, shared - 1), make.between(-1, shared - 1)});
    }
    o.between_replicas = {make.between(0, 9) * 1.0, 0.01};
    o.optimizer_us = make.between(0, 10);
    for (int r = 0; r != ranks && make.engine()() % 2 == 0; ++r) {
        o.device_speed.assign(static_cast<std::size_t>(ranks), 1.0);
        for (double& s : o.device_speed) { s = make.between(1, 8) * 0.5; }
        break;
    }
    for (int r = 0; r != ranks; ++r) {
        o.replica_routes.push_back({make.between(-1, shared - 1), make.between(-1, shared - 1)});
    }
    if (make.between(0, 3) == 0) { o.replica_routes.clear(); }
    return o;
}

/// Random rounds for every rank, where the first may have several shares; state that replicas may share; and gradients
/// that may be wider than weights.
inline void draw_replicas(random_plans& make, pulse::simulation_options& o, int ranks, int replicas) {
    for (int r = 0; r != ranks && make.between(0, 3) != 0; ++r) {
        o.replica_rounds.emplace_back();
        bool several = make.coin();
        for (int left = replicas - 1; left > 0;) {
            several = several && left > 1 && make.coin();
            const int shares = several ? make.between(2, left) : 1;
            o.replica_rounds.back().push_back(
                {{make.between(0, 9) * 1.3, make.between(1, 50) * 1e-3}, make.between(1, 3), make.coin(), shares});
            left -= shares;
        }
        if (r + 1 == ranks) { break; }
    }
    if (o.replica_rounds.size() != static_cast<std::size_t>(ranks)) { o.replica_rounds.clear(); }
    if (make.coin()) {
        o.kept = {.scalar_bytes = make.coin() ? 2 : 4, .gradient_bytes = 4, .state_bytes = 16, .sharded = true};
    }
    for (int r = 0; r != ranks && o.optimizer_us > 5; ++r) { o.device_optimizer_us.push_back(make.between(0, 20)); }
}

} // namespace shared_link_tests
