#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse_bench {

/// What the stages of an instance cost.
enum class cost_set : std::uint8_t {
    uniform,  ///< F = B = W and equal bytes everywhere
    random,   ///< F within a factor of 3, B and W within a factor of 2 of it, each stage separately
    u_shaped, ///< devices balanced as by a partitioner, stages unequal; the outer stages keep the most bytes
    heavy,    ///< one stage takes twice as long as the others
};

inline constexpr std::array cost_sets{cost_set::uniform, cost_set::random, cost_set::u_shaped, cost_set::heavy};

[[nodiscard]] constexpr std::string_view name_of(cost_set kind) noexcept {
    constexpr std::array<std::string_view, 4> names{"uniform", "random", "u_shaped", "heavy"};
    return names[static_cast<std::size_t>(kind)];
}

/// One scheduling problem of the grid, with the numbers it is made from.
struct grid_instance {
    int devices{};
    int waves{};
    bool split{};
    /// Whether every device may hold only P full-device activations, as much as 1F1B takes; else memory is free.
    bool limited{};
    int microbatches{};
    cost_set costs{};
    /// Latency of a link, per cent of the mean F.
    int latency_percent{};
    pulse::schedule_problem problem{};

    [[nodiscard]] std::string name() const {
        return "P" + std::to_string(devices) + " W" + std::to_string(waves) + " M" + std::to_string(microbatches) +
               (split ? " split" : " unsplit") + (limited ? " limited " : " free ") + std::string{name_of(costs)} +
               " " + std::to_string(latency_percent) + "%";
    }
};

/// What one stage costs before it becomes part of a problem: whole microseconds, about 100 per pass, and bytes.
struct grid_stage {
    double forward{};
    double backward_input{};
    double backward_weight{};
    std::int64_t bytes{};
};

/// The stages of a folded placement of `devices` and `waves`; equal arguments give equal stages on every machine.
[[nodiscard]] inline std::vector<grid_stage> grid_stages(cost_set kind, int devices, int waves) {
    const int count = 2 * devices * waves;
    std::mt19937 draw{static_cast<unsigned>(1000 * devices + 10 * waves + static_cast<int>(kind))};
    // Distributions differ between standard libraries, the generator does not.
    const auto between = [&](double low, double high) {
        return low + (high - low) * static_cast<double>(draw() % 10001) / 10000.0;
    };
    std::vector<grid_stage> out(static_cast<std::size_t>(count), grid_stage{100, 100, 100, 1000});
    if (kind == cost_set::random) {
        for (auto& s : out) {
            s.forward = std::round(between(50, 150));
            s.backward_input = std::round(s.forward * between(0.8, 1.6));
            s.backward_weight = std::round(s.forward * between(0.6, 1.2));
            s.bytes = std::llround(between(500, 1500));
        }
    }
    if (kind == cost_set::u_shaped) {
        std::vector<double> share(out.size(), 0.0);
        std::vector<double> sum(static_cast<std::size_t>(devices), 0.0);
        for (int s = 0; s != count; ++s) {
            const auto at = static_cast<std::size_t>(s);
            share[at] = (2 * s < count ? 1.0 : 1.3) * between(0.75, 1.25); // decoder layers read the skip as well
            sum[static_cast<std::size_t>(pulse::device_of(pulse::placement::folded, s, devices))] += share[at];
        }
        std::vector<double> load(static_cast<std::size_t>(devices), 0.0);
        for (auto& l : load) { l = 200.0 * waves * between(0.96, 1.04); }
        for (int s = 0; s != count; ++s) {
            const auto at = static_cast<std::size_t>(s);
            const auto d = static_cast<std::size_t>(pulse::device_of(pulse::placement::folded, s, devices));
            const double forward = load[d] * share[at] / sum[d];
            const double depth = std::abs(2 * s + 1 - count) / static_cast<double>(count); // 1 outside, 0 at the turn
            out[at].forward = std::round(forward);
            out[at].backward_input = std::round(forward * between(1.05, 1.25));
            out[at].backward_weight = std::round(forward * between(0.8, 1.0));
            out[at].bytes = std::llround(400 + 1600 * depth * depth);
        }
    }
    if (kind == cost_set::heavy) {
        const auto heavy = static_cast<std::size_t>(draw() % out.size());
        for (std::size_t s = 0; s != out.size(); ++s) {
            const double forward = s == heavy ? 180 : 90;
            out[s] = {forward, std::round(forward * 1.2), std::round(forward * 0.9), s == heavy ? 1800 : 900};
        }
    }
    return out;
}

/// Microseconds of one message between two devices of `instance`: its percentage of the mean F, rounded.
[[nodiscard]] inline double grid_latency_us(const grid_instance& instance, const std::vector<grid_stage>& stages) {
    double mean = 0;
    for (const auto& s : stages) { mean += s.forward / static_cast<double>(stages.size()); }
    return std::round(mean * instance.latency_percent / 100);
}

/// The problem of a chain of `stages` on any placement: stage s on device home[s], lag_us[s] between it and the next in
/// either direction, bytes held from the start of F to the end of the stage's last pass. If `instance` is limited,
/// every device may hold P times the bytes of its stages.
[[nodiscard]] inline pulse::schedule_problem chain_problem(const grid_instance& instance,
                                                           const std::vector<grid_stage>& stages,
                                                           const std::vector<int>& home,
                                                           const std::vector<double>& lag_us) {
    using pulse::pass;
    const int count = static_cast<int>(stages.size());
    pulse::schedule_problem out{};
    out.devices = instance.devices;
    out.microbatches = instance.microbatches;
    out.split_backward = instance.split;
    std::vector<std::int64_t> bytes(static_cast<std::size_t>(instance.devices), 0);
    for (int s = 0; s != count; ++s) {
        const auto at = static_cast<std::size_t>(s);
        const auto& c = stages[at];
        out.stages.push_back({home[at], c.forward, c.backward_input + (instance.split ? 0 : c.backward_weight),
                              instance.split ? c.backward_weight : 0});
        const pulse::stage_pass last{instance.split ? pass::backward_weight : pass::backward_input, s};
        out.holds.push_back({home[at], {pass::forward, s}, last, last, c.bytes});
        bytes[static_cast<std::size_t>(home[at])] += c.bytes;
        if (instance.split) { out.dependencies.push_back({{pass::backward_input, s}, last, 0}); }
        if (s + 1 == count) { break; }
        out.dependencies.push_back({{pass::forward, s}, {pass::forward, s + 1}, lag_us[at]});
        out.dependencies.push_back({{pass::backward_input, s + 1}, {pass::backward_input, s}, lag_us[at]});
    }
    out.dependencies.push_back({{pass::forward, count - 1}, {pass::backward_input, count - 1}, 0});
    for (auto& b : bytes) { b *= instance.devices; }
    if (instance.limited) { out.memory_limit_bytes = bytes; }
    return out;
}

/// The problem for the numbers of `instance`: a chain over the folded placement, with a latency where the device
/// changes. Skips stay on their devices.
[[nodiscard]] inline pulse::schedule_problem grid_problem(const grid_instance& instance) {
    const auto stages = grid_stages(instance.costs, instance.devices, instance.waves);
    const double latency = grid_latency_us(instance, stages);
    std::vector<int> home{};
    for (int s = 0; s != static_cast<int>(stages.size()); ++s) {
        home.push_back(pulse::device_of(pulse::placement::folded, s, instance.devices));
    }
    std::vector<double> lag(stages.size(), 0.0);
    for (std::size_t s = 0; s + 1 < stages.size(); ++s) { lag[s] = home[s + 1] == home[s] ? 0 : latency; }
    return chain_problem(instance, stages, home, lag);
}

/// Which part of the grid is wanted; an empty list means all of it.
struct grid_filter {
    std::vector<int> devices{};
    std::vector<int> waves{};
    std::vector<bool> split{};
    std::vector<bool> limited{};
};

/// P in {2,4,8}, M in {P,2P,4P,8P}, W in {1,2}, split or not, memory free or 1F1B's, four cost sets, latency 0, 5, 20 %
/// of the mean F: 1,152 instances. P = 16 and P = 32, with W = 1 and split only (96 each), have to be asked for.
[[nodiscard]] inline std::vector<grid_instance> schedule_grid(const grid_filter& filter) {
    const auto wants = [](const auto& list, auto value) {
        return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
    };
    std::vector<grid_instance> out{};
    for (const int p : {2, 4, 8, 16, 32}) {
        if (p > 8 ? filter.devices.empty() || !wants(filter.devices, p) : !wants(filter.devices, p)) { continue; }
        for (const int w : {1, 2}) {
            if (!wants(filter.waves, w) || (p > 8 && w > 1)) { continue; }
            for (const bool split : {true, false}) {
                if (!wants(filter.split, split) || (p > 8 && !split)) { continue; }
                for (const bool limited : {false, true}) {
                    if (!wants(filter.limited, limited)) { continue; }
                    for (const int times : {1, 2, 4, 8}) {
                        for (const auto costs : cost_sets) {
                            for (const int latency : {0, 5, 20}) {
                                out.push_back({p, w, split, limited, times * p, costs, latency, {}});
                            }
                        }
                    }
                }
            }
        }
    }
    for (auto& i : out) { i.problem = grid_problem(i); }
    return out;
}

} // namespace pulse_bench
