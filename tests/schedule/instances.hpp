#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::test {

inline int up_to(std::mt19937& random, int low, int high) {
    return std::uniform_int_distribution<int>{low, high}(random);
}

/// When the last device finishes the work after its passes and tasks.
inline double end_us(const frozen_work& work, const filled_schedule& filled) {
    double last = 0;
    for (std::size_t d = 0; d != filled.tasks.size(); ++d) {
        double end = filled.passes.devices[d].empty() ? 0.0 : filled.passes.devices[d].back().end_us;
        if (!filled.tasks[d].empty()) { end = std::max(end, filled.tasks[d].back().end_us); }
        last = std::max(last, end + (work.after_us.empty() ? 0.0 : work.after_us[d]));
    }
    return last;
}

/// A chain over `devices[s]` with equal stages, a lag where the device changes, and one hold of `bytes` per stage.
constexpr schedule_problem chain_problem(const std::vector<int>& devices, int device_count, int microbatches,
                                         bool split, double f, double b, double w, double lag = 0,
                                         std::int64_t bytes = 1) {
    schedule_problem p{};
    p.devices = device_count;
    p.microbatches = microbatches;
    p.split_backward = split;
    const int stages = static_cast<int>(devices.size());
    for (int s = 0; s != stages; ++s) {
        const int here = devices[static_cast<std::size_t>(s)];
        p.stages.push_back({here, f, split ? b : b + w, split ? w : 0});
        const stage_pass last{split ? pass::backward_weight : pass::backward_input, s};
        p.holds.push_back({here, {pass::forward, s}, last, last, bytes});
        if (split) { p.dependencies.push_back({{pass::backward_input, s}, last, 0}); }
        if (s + 1 == stages) { break; }
        const double way = devices[static_cast<std::size_t>(s) + 1] == here ? 0.0 : lag;
        p.dependencies.push_back({{pass::forward, s}, {pass::forward, s + 1}, way});
        p.dependencies.push_back({{pass::backward_input, s + 1}, {pass::backward_input, s}, way});
    }
    p.dependencies.push_back({{pass::forward, stages - 1}, {pass::backward_input, stages - 1}, 0});
    return p;
}

constexpr std::vector<int> placed(placement kind, int devices, int waves) {
    std::vector<int> out{};
    for (int s = 0; s != stage_count(kind, devices, waves); ++s) { out.push_back(device_of(kind, s, devices)); }
    return out;
}

/// A cut model in which everything that `make_problem` reads is random.
struct instance {
    cost_table costs{};
    partition cut{};
    problem_options options{};
};

inline instance random_instance(std::mt19937& random, int most_devices, int most_waves, int most_microbatches) {
    const auto up_to = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    instance out{};
    auto& cut = out.cut;
    cut.kind = static_cast<placement>(up_to(0, 9) < 7 ? 0 : up_to(1, 2));
    cut.devices = up_to(1, most_devices);
    cut.waves = cut.kind == placement::sequential ? 1 : up_to(1, most_waves);
    int next = 0;
    for (int s = 0; s != stage_count(cut.kind, cut.devices, cut.waves); ++s) {
        const int layers = up_to(1, 2);
        cut.stages.push_back({s, device_of(cut.kind, s, cut.devices), next, next + layers - 1});
        next += layers;
    }
    const bool whole = up_to(0, 1) == 0;
    const auto duration = [&] {
        if (up_to(0, 9) == 0) { return 0.0; }
        return whole ? up_to(1, 6) * 1.0 : std::uniform_real_distribution<double>{0.1, 5}(random);
    };
    for (int l = 0; l != next; ++l) {
        layer_cost c{};
        c.forward_us = duration();
        c.backward_input_us = duration();
        c.backward_weight_us = duration();
        c.saved_bytes = up_to(0, 8);
        c.output_bytes = up_to(0, 4);
        c.deferred_bytes = up_to(0, 3);
        out.costs.layers.push_back(c);
    }
    const int edges = up_to(0, next);
    for (int e = 0; e != edges && next > 1; ++e) {
        int from = up_to(0, next - 1);
        int to = up_to(0, 2) == 0 ? up_to(0, next - 1) : next - 1 - from;
        if (from == to) { continue; }
        if (from > to) { std::swap(from, to); }
        const auto made = out.costs.layers[static_cast<std::size_t>(from)].output_bytes;
        out.costs.skips.push_back({from, to, up_to(0, 3) == 0 ? up_to(1, 4) : made});
    }
    out.costs.conditioning_bytes = up_to(0, 2);
    out.costs.input_bytes = up_to(0, 3);
    auto& options = out.options;
    options.microbatches = up_to(1, most_microbatches);
    options.split_backward = up_to(0, 1) == 0;
    options.routing = static_cast<skip_routing>(up_to(0, 1));
    options.recompute = static_cast<recomputation>(up_to(0, 2));
    const double lags[] = {0, 0.15, 0.6};
    options.link.latency_us = lags[up_to(0, 2)];
    options.link.bandwidth_gb_per_s = up_to(0, 1) == 0 ? 0.0 : 0.01;
    return out;
}

/// The problem of a random instance; three out of four have a limit of one to two and a half microbatches.
inline schedule_problem limited_problem(std::mt19937& random, int most_devices, int most_waves, int most_microbatches,
                                        int round) {
    const auto drawn = random_instance(random, most_devices, most_waves, most_microbatches);
    auto problem = make_problem(drawn.costs, drawn.cut, drawn.options);
    if (round % 4 == 0) { return problem; }
    for (const auto& peaks : detail::profile_memory(problem, detail::index_problem(problem)).peak_from) {
        const auto alone = peaks.front();
        problem.memory_limit_bytes.push_back(alone + alone * std::uniform_int_distribution<int>{0, 6}(random) / 4);
    }
    return problem;
}

/// Draws owners of the components' layers from their hosts.
inline std::vector<std::vector<int>> random_split(std::mt19937& random, const frozen_work& work, int devices) {
    std::vector<std::vector<int>> owners(work.components.size());
    for (int c = 0; c != static_cast<int>(owners.size()); ++c) {
        std::vector<int> hosts{};
        for (int d = 0; d != devices; ++d) {
            if (work.may_host(c, d)) { hosts.push_back(d); }
        }
        if (random() % 2 == 0) { continue; }
        const auto at = static_cast<std::size_t>(c);
        for (std::size_t l = 0; l != work.components[at].layers.size(); ++l) {
            owners[at].push_back(hosts[random() % hosts.size()]);
        }
    }
    return owners;
}

} // namespace pulse::test
