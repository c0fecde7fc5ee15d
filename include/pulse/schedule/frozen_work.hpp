#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// The work of frozen components in one step of one pipeline, beside its passes: every layer of every component, once
/// on each sample.
///
/// Results are read a step later, so only the order of a component's layers, the devices and their memory constrain it.
struct frozen_work {
    std::vector<frozen_component> components{};
    /// Microbatches x microbatch size.
    int samples{};
    /// Per device: the components whose weights it has; empty: every device has all.
    std::vector<std::vector<int>> hosts{};
    /// Carries an activation whose next layer runs on another device.
    pulse::link link{};
    /// Per device: microseconds of work after its last pass and task; empty: none.
    std::vector<double> after_us{};
    /// [component][layer]: the one device that has the layer. Where this or a component's list is empty, each host of
    /// the component has all of its layers.
    std::vector<std::vector<int>> split{};

    [[nodiscard]] constexpr bool may_host(int component, int device) const {
        if (hosts.empty()) { return true; }
        const auto& here = hosts[static_cast<std::size_t>(device)];
        return std::find(here.begin(), here.end(), component) != here.end();
    }
    [[nodiscard]] constexpr bool may_host(int component, int layer, int device) const {
        const auto c = static_cast<std::size_t>(component);
        if (split.empty() || split[c].empty()) { return may_host(component, device); }
        return split[c][static_cast<std::size_t>(layer)] == device;
    }
};

/// Layers first_layer to last_layer of a component, one call each, on `samples` samples from first_sample on; times in
/// microseconds from the start of the step.
struct frozen_task {
    int component{};
    int first_layer{};
    int last_layer{};
    int first_sample{};
    int samples{};
    int device{};
    double start_us{};
    double end_us{};

    [[nodiscard]] constexpr bool operator==(const frozen_task&) const = default;
};

namespace detail {

/// End of the last pass or task.
[[nodiscard]] constexpr double last_end_us(const schedule& passes,
                                           const std::vector<std::vector<frozen_task>>& tasks) noexcept {
    double last = passes.makespan_us();
    for (const auto& list : tasks) {
        for (const frozen_task& t : list) { last = t.end_us > last ? t.end_us : last; }
    }
    return last;
}

} // namespace detail

/// A schedule with its frozen work: the passes, moved where tasks delay them, and the tasks of each device by start.
struct filled_schedule {
    schedule passes{};
    std::vector<std::vector<frozen_task>> tasks{};
    /// A makespan that no order of passes and tasks can beat.
    double lower_bound_us{};

    [[nodiscard]] constexpr double makespan_us() const noexcept { return detail::last_end_us(passes, tasks); }
    [[nodiscard]] constexpr double gap() const noexcept { return gap_of(makespan_us(), lower_bound_us); }
    [[nodiscard]] constexpr bool operator==(const filled_schedule&) const = default;
};

/// Least microseconds that layers [first, last] of a component take on `samples` samples, summed over all devices: the
/// time with the fewest calls.
[[nodiscard]] constexpr double least_work_us(const frozen_component& component, int first, int last, int samples) {
    const int calls = (samples + component.max_chunk - 1) / component.max_chunk;
    double sum = 0;
    for (int l = first; l <= last; ++l) {
        const frozen_layer& layer = component.layers[static_cast<std::size_t>(l)];
        sum += calls * layer.call_us + samples * layer.sample_us;
    }
    return sum;
}
[[nodiscard]] constexpr double least_work_us(const frozen_component& component, int samples) {
    return least_work_us(component, 0, static_cast<int>(component.layers.size()) - 1, samples);
}

namespace detail {

/// Consecutive layers of a component that the same devices have.
struct frozen_part {
    int component{};
    int first_layer{};
    int last_layer{};
    std::vector<int> hosts{};
};

/// The parts of all components of valid work, component by component, in layer order.
[[nodiscard]] constexpr std::vector<frozen_part> parts_of(const frozen_work& work, int devices) {
    std::vector<frozen_part> parts{};
    for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
        const int layers = static_cast<int>(work.components[static_cast<std::size_t>(c)].layers.size());
        for (int first = 0, end = 0; first != layers; first = end) {
            parts.push_back({c, first, layers - 1, {}});
            for (int d = 0; d != devices; ++d) {
                if (work.may_host(c, first, d)) { parts.back().hosts.push_back(d); }
            }
            // Either one device has a layer, or all hosts have all layers.
            const int host = parts.back().hosts.front();
            for (end = first; end != layers && work.may_host(c, end, host); ++end) { parts.back().last_layer = end; }
        }
    }
    return parts;
}

} // namespace detail

/// Microseconds that the passes keep each device busy.
[[nodiscard]] constexpr std::vector<double> busy_us(const schedule_problem& problem) {
    std::vector<double> busy(static_cast<std::size_t>(problem.devices), 0.0);
    for (const stage_timing& s : problem.stages) {
        const double once = s.forward_us + s.backward_input_us + (problem.split_backward ? s.backward_weight_us : 0.0);
        busy[static_cast<std::size_t>(s.device)] += once * problem.microbatches + s.preview_us * problem.previews;
    }
    return busy;
}

/// Throws input_error, naming field and component, unless the work can be done beside `problem`: components are valid
/// (check_frozen), samples and times are not negative, and each component has a host among the devices.
constexpr void require_valid(const frozen_work& work, const schedule_problem& problem) {
    check_frozen(work.components);
    const auto fail = [](const std::string& what) { throw input_error("frozen_work." + what); };
    if (work.samples < 0) { fail("samples: must be at least 0, not " + std::to_string(work.samples)); }
    if (!(work.link.latency_us >= 0) || !(work.link.bandwidth_gb_per_s >= 0)) { fail("link: must not be negative"); }
    if (!work.hosts.empty() && work.hosts.size() != static_cast<std::size_t>(problem.devices)) {
        fail("hosts: must have one list per device (" + std::to_string(problem.devices) + "), not " +
             std::to_string(work.hosts.size()));
    }
    if (!work.after_us.empty() && work.after_us.size() != static_cast<std::size_t>(problem.devices)) {
        fail("after_us: must have one value per device (" + std::to_string(problem.devices) + "), not " +
             std::to_string(work.after_us.size()));
    }
    for (const double after : work.after_us) {
        if (!(after >= 0)) { fail("after_us: must not be negative"); }
    }
    const int components = static_cast<int>(work.components.size());
    std::vector<char> hosted(work.components.size(), work.hosts.empty() ? 1 : 0);
    for (const auto& here : work.hosts) {
        for (const int c : here) {
            if (c < 0 || c >= components) { fail("hosts: there is no component " + std::to_string(c)); }
            hosted[static_cast<std::size_t>(c)] = 1;
        }
    }
    if (!work.split.empty() && work.split.size() != work.components.size()) {
        fail("split: must have one list per component (" + std::to_string(components) + "), not " +
             std::to_string(work.split.size()));
    }
    for (std::size_t c = 0; c != work.split.size(); ++c) {
        const auto& owners = work.split[c];
        if (owners.empty()) { continue; }
        const std::string of = "split: component " + work.components[c].name.str() + ": ";
        if (owners.size() != work.components[c].layers.size()) {
            fail(of + "must have one device per layer (" + std::to_string(work.components[c].layers.size()) +
                 "), not " + std::to_string(owners.size()));
        }
        for (const int d : owners) {
            if (d < 0 || d >= problem.devices || !work.may_host(static_cast<int>(c), d)) {
                fail(of + "device " + std::to_string(d) + " has a layer but is not a host");
            }
        }
    }
    for (std::size_t c = 0; c != work.components.size(); ++c) {
        if (hosted[c] == 0) { fail("hosts: no device hosts component " + work.components[c].name.str()); }
        if (!(least_work_us(work.components[c], work.samples) < 1e300)) {
            fail("components: " + work.components[c].name.str() + " takes infinitely long");
        }
    }
}

} // namespace pulse
