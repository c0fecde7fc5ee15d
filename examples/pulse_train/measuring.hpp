#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/measure_links.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/measure_updates.hpp>
#include <pulse/tune/scaled_costs.hpp>

#include "run_inputs.hpp"
#include "setup.hpp"

namespace pulse_train {

/// The bytes of one table with the times of another.
[[nodiscard]] inline pulse::cost_table with_times(pulse::cost_table bytes, const pulse::cost_table& times) {
    bytes.device = times.device;
    bytes.optimizer_gb_per_s = times.optimizer_gb_per_s;
    for (std::size_t l = 0; l != bytes.layers.size(); ++l) {
        bytes.layers[l].forward_us = times.layers[l].forward_us;
        bytes.layers[l].backward_input_us = times.layers[l].backward_input_us;
        bytes.layers[l].backward_weight_us = times.layers[l].backward_weight_us;
    }
    return bytes;
}

/// Measurements of a run's own ranks.
struct measurements {
    /// Costs of the model at each extent of the run, by microbatch size.
    std::map<int, std::vector<pulse::cost_table>> costs{};
    pulse::cluster machine{};
    /// Networks to run in the bubbles; empty: none. They replace the components of `costs`, if any.
    std::vector<pulse::frozen_component> frozen{};

    /// Costs with times for their microbatch size: measured, or scaled in proportion from the next smaller measured
    /// size; unchanged if nothing was measured.
    [[nodiscard]] pulse::cost_table timed(pulse::cost_table bytes, std::size_t extent) const {
        if (costs.empty()) { return bytes; }
        const int microbatch_size = bytes.microbatch_size;
        auto found = costs.upper_bound(microbatch_size);
        if (found != costs.begin()) { found = std::prev(found); }
        return with_times(std::move(bytes), pulse::scaled_costs(found->second.at(extent), microbatch_size));
    }
};

/// Speeds of unlike devices, relative to rank 0's kind, from times of the same layers on each; devices of one kind get
/// the same speed. Collective.
inline void measure_speeds(const pulse::any_transport& among, const pulse::cost_table& costs, pulse::cluster& machine) {
    std::vector<double> times(machine.unlike.size());
    double& mine = times[static_cast<std::size_t>(among.rank())];
    for (const pulse::layer_cost& l : costs.layers) {
        mine += l.forward_us + l.backward_input_us + l.backward_weight_us;
    }
    among.sum(times);
    const auto mean_of = [&](const pulse::label& kind) {
        double sum = 0;
        int alike = 0;
        for (std::size_t r = 0; r != times.size(); ++r) {
            if (machine.unlike[r].device != kind) { continue; }
            sum += times[r];
            ++alike;
        }
        return sum / alike;
    };
    const double first = mean_of(machine.unlike.front().device);
    for (pulse::unlike_device& device : machine.unlike) {
        const double own = mean_of(device.device);
        device.relative_speed = own > 0 ? std::clamp(first / own, 0.001, 1000.0) : 1.0;
    }
}

/// The speed of this rank's device according to rank 0, the only rank that reads the file. Collective.
[[nodiscard]] inline double own_speed(const pulse::any_transport& among, const pulse::cluster& machine) {
    std::vector<double> speeds(static_cast<std::size_t>(among.size()));
    for (std::size_t r = 0; among.rank() == 0 && r != speeds.size(); ++r) {
        const auto device = static_cast<int>(r);
        speeds[r] = device < machine.devices() ? machine.speed_of(device) : 1.0;
    }
    among.sum(speeds);
    return speeds[static_cast<std::size_t>(among.rank())];
}

/// Scales layer times to a device of speed 1 and averages them over all ranks. Collective.
inline void make_common(const pulse::any_transport& among, pulse::cost_table& costs, double speed) {
    std::vector<double> shared;
    for (const pulse::layer_cost& l : costs.layers) {
        for (const double us : {l.forward_us, l.backward_input_us, l.backward_weight_us}) {
            shared.push_back(us * speed);
        }
    }
    among.sum(shared);
    for (double& value : shared) { value /= among.size(); }
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        costs.layers[l].forward_us = shared[3 * l];
        costs.layers[l].backward_input_us = shared[3 * l + 1];
        costs.layers[l].backward_weight_us = shared[3 * l + 2];
    }
}

/// Rate of the optimizer on a device of speed 1, the mean over all ranks, for a rank's share of the parameters.
/// Collective.
template <class Math>
[[nodiscard]] double common_update_rate(const Math& math, const pulse::any_transport& among,
                                        const pulse::parameter_memory& kept, const pulse::cost_table& costs,
                                        double speed) {
    constexpr std::int64_t beyond_caches = std::int64_t{1} << 24;
    std::int64_t parameters = 0;
    for (const pulse::layer_cost& layer : costs.layers) { parameters += layer.parameter_bytes / kept.scalar_bytes; }
    among.sum({});
    double rate = pulse::train::measured_update_rate(pulse::train::updates_of(math), kept,
                                                     std::min(parameters / among.size(), beyond_caches)) /
                  speed;
    among.sum({&rate, 1});
    return rate / among.size();
}

/// Measures links and the speeds of unlike devices if `links`, the optimizer, and the layers in every extent at the
/// first of `sizes`, and at the others while time remains. All ranks measure at once, because they may share cores,
/// memory or devices, and a time is the mean over them. Collective; rank 0 has the result.
template <class Model, class Side>
[[nodiscard]] measurements measure(const Side& side, run_inputs in, const pulse::cluster& known, bool links,
                                   const std::vector<int>& sizes) {
    constexpr double seconds_of_links = 1;
    constexpr double seconds_of_layers = 4;
    using clock = std::chrono::steady_clock;
    // There is no plan yet, so the ranks form one pipeline.
    in.plan.pipeline_degree = in.args.ranks;
    in.plan.data_degree = 1;
    measurements made;
    side.run_ranks(in, [&](auto&& among) {
        auto math = pulse::backend_on<typename Side::math>(among, in.args.threads);
        measurements mine;
        mine.machine = known;
        if (links) {
            pulse::link_measurement how = side.memory_of_rank();
            how.machine = machine_name();
            how.seconds = seconds_of_links;
            how.settle = [&] { Side::wait(math); };
            mine.machine = pulse::measure_links(among, how);
        }
        std::vector<int> timed = sizes;
        const bool speeds = links && !mine.machine.unlike.empty();
        if (timed.empty() && speeds) { timed = {1}; }
        double spent = 0;
        double last = 0;
        for (const int size : timed) {
            // The next size takes about twice the time.
            if (!mine.costs.empty() && spent + 2 * last > seconds_of_layers) { break; }
            double took = 0;
            for (const pulse::extent_share& to : in.extents) {
                among.sum({});
                const auto start = clock::now();
                mine.costs[size].push_back(side.template measured_costs<Model>(math, size, to.extent));
                took += std::chrono::duration<double>(clock::now() - start).count();
            }
            among.sum({&took, 1});
            last = took / among.size();
            spent += last;
        }
        if (speeds) { measure_speeds(among, mine.costs.rbegin()->second.front(), mine.machine); }
        const double speed = own_speed(among, mine.machine);
        if (sizes.empty()) { mine.costs.clear(); }
        double update_rate = 0;
        for (auto& [size, costs] : mine.costs) {
            for (pulse::cost_table& one : costs) {
                make_common(among, one, speed);
                if (update_rate == 0) { update_rate = common_update_rate(math, among, in.kept, one, speed); }
                one.optimizer_gb_per_s = update_rate;
            }
        }
        if (among.rank() == 0) { made = std::move(mine); }
    });
    return made;
}

/// Measures what the arguments' files do not provide (read_known): layers, and links unless `knows_links`. Collective;
/// rank 0 has all.
template <class Model, class Side>
void measure_unknown(const Side& side, const run_inputs& in, measurements& known, bool knows_links = false) {
    const arguments& a = in.args;
    const bool links = !knows_links && a.plan_file.empty() && a.cluster.empty();
    std::vector<int> sizes = a.measures_layers() ? microbatch_sizes(a) : std::vector<int>{};
    if (a.processes != nullptr && !a.plan_file.empty()) {
        // only rank 0 has read it, and only rank 0 may have been asked for a profile
        double size = a.processes->rank() == 0 && !sizes.empty() ? in.plan.microbatch_size : 0;
        a.processes->sum({&size, 1});
        sizes.assign(size > 0 ? 1 : 0, static_cast<int>(size));
    }
    if (!links && sizes.empty()) { return; }
    if (a.processes == nullptr || a.processes->rank() == 0) {
        const std::string at = in.extents.size() > 1 ? " at " + std::to_string(in.extents.size()) + " sizes" : "";
        std::printf("measuring %s%s ...\n", links ? "layers and links" : "the layers", at.c_str());
        std::fflush(stdout);
    }
    measurements measured = measure<Model>(side, in, known.machine, links, sizes);
    if (links) { known.machine = measured.machine; }
    known.costs.merge(measured.costs);
}

} // namespace pulse_train
