#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/schedule/validate_fill.hpp>

namespace pulse {

namespace detail {

/// Bytes that a device holds from `begin_us` to `end_us`.
struct held_while {
    double begin_us{};
    double end_us{};
    std::int64_t bytes{};
    const frozen_task* of{};
};

/// The task that first takes the bytes above the limit. An end up to 2 x `slack` after a beginning is before it.
[[nodiscard]] constexpr fill_violation find_overflow(const std::vector<held_while>& holds, std::int64_t limit,
                                                     double slack) {
    struct change {
        double at{};
        std::int64_t bytes{};
        const frozen_task* of{};
    };
    std::vector<change> changes{};
    for (const held_while& h : holds) {
        if (h.bytes == 0 || h.end_us - h.begin_us <= 2 * slack) { continue; }
        changes.push_back({h.begin_us + slack, h.bytes, h.of});
        changes.push_back({h.end_us - slack, -h.bytes, h.of});
    }
    std::sort(changes.begin(), changes.end(),
              [](const change& a, const change& b) { return a.at < b.at || (a.at == b.at && a.bytes < b.bytes); });
    std::int64_t level = 0;
    const frozen_task* last = nullptr;
    for (const change& c : changes) {
        level += c.bytes;
        if (c.of != nullptr) { last = c.of; }
        if (level > limit) {
            return {fill_rule::memory,
                    last != nullptr ? *last : frozen_task{},
                    {},
                    static_cast<double>(level),
                    static_cast<double>(limit)};
        }
    }
    return {};
}

/// Checks a task in the list of `device` by itself.
[[nodiscard]] constexpr fill_violation find_task_violation(const frozen_work& work, const frozen_task& t, int device,
                                                           double slack) {
    using rule = fill_rule;
    const bool known = t.component >= 0 && t.component < static_cast<int>(work.components.size());
    if (!known || t.device != device) { return {rule::unknown_task, t, {}, 0, 0}; }
    const frozen_component& of = work.components[static_cast<std::size_t>(t.component)];
    if (t.first_layer < 0 || t.last_layer < t.first_layer || t.last_layer >= static_cast<int>(of.layers.size()) ||
        t.first_sample < 0 || t.first_sample >= work.samples || t.samples > work.samples - t.first_sample) {
        return {rule::unknown_task, t, {}, 0, 0};
    }
    for (int l = t.first_layer; l <= t.last_layer; ++l) {
        if (!work.may_host(t.component, l, t.device)) { return {rule::wrong_device, t, {}, 0, 0}; }
    }
    if (t.samples < 1 || t.samples > of.max_chunk) {
        return {rule::chunk, t, {}, static_cast<double>(t.samples), static_cast<double>(of.max_chunk)};
    }
    if (!(t.start_us >= 0 && t.start_us < 1e300)) { return {rule::start, t, {}, t.start_us, 0}; }
    const double wanted = of.duration_us(t.first_layer, t.last_layer, t.samples);
    const double length = t.end_us - t.start_us;
    if (!(length >= wanted - slack && length <= wanted + slack)) { return {rule::duration, t, {}, length, wanted}; }
    return {};
}

/// Checks the tasks of one device: each by itself, their order, and overlaps with passes.
[[nodiscard]] constexpr fill_violation find_list_violation(const frozen_work& work,
                                                           const std::vector<timed_pass>& passes,
                                                           const std::vector<frozen_task>& tasks, int device,
                                                           double slack) {
    using rule = fill_rule;
    const frozen_task* last = nullptr;
    for (const frozen_task& t : tasks) {
        if (const auto found = find_task_violation(work, t, device, slack); found.broken()) { return found; }
        if (last != nullptr && t.start_us < last->start_us) {
            return {rule::sorted, t, *last, t.start_us, last->start_us};
        }
        if (last != nullptr && t.start_us < last->end_us - slack) {
            return {rule::overlap, t, *last, t.start_us, last->end_us};
        }
        for (const timed_pass& p : passes) {
            if (t.start_us < p.end_us - slack && p.start_us < t.end_us - slack) {
                return {rule::overlap, t, {}, t.start_us, p.end_us};
            }
        }
        last = &t;
    }
    return {};
}

/// Checks the tasks of all devices together; adds what each device holds between tasks to `holds`.
[[nodiscard]] constexpr fill_violation find_chain_violation(const frozen_work& work,
                                                            const std::vector<std::vector<frozen_task>>& tasks,
                                                            std::vector<std::vector<held_while>>& holds, double slack) {
    using rule = fill_rule;
    std::vector<std::vector<const frozen_task*>> runs{}; // [component][layer, sample]; null where no task runs it
    const auto samples = static_cast<std::size_t>(work.samples);
    for (const frozen_component& c : work.components) { runs.emplace_back(c.layers.size() * samples, nullptr); }
    const auto run_of = [&](int component, int layer, int sample) -> const frozen_task*& {
        const auto at = static_cast<std::size_t>(layer) * samples + static_cast<std::size_t>(sample);
        return runs[static_cast<std::size_t>(component)][at];
    };
    for (const auto& list : tasks) {
        for (const frozen_task& t : list) {
            for (int l = t.first_layer; l <= t.last_layer; ++l) {
                for (int s = t.first_sample; s != t.first_sample + t.samples; ++s) {
                    const frozen_task*& once = run_of(t.component, l, s);
                    if (once != nullptr) { return {rule::repeated, t, *once, 0, 0}; }
                    once = &t;
                }
            }
        }
    }
    for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
        const frozen_component& of = work.components[static_cast<std::size_t>(c)];
        for (int l = 0; l != static_cast<int>(of.layers.size()); ++l) {
            for (int s = 0; s != work.samples; ++s) {
                const frozen_task* now = run_of(c, l, s);
                if (now == nullptr) { return {rule::missing, {c, l, l, s, 1, 0, 0, 0}, {}, 0, 0}; }
                if (l == 0 || now->first_layer != l) { continue; } // a task runs its layers in order
                const frozen_task* before = run_of(c, l - 1, s);
                const bool moves = before->device != now->device;
                const std::int64_t bytes = of.layers[static_cast<std::size_t>(l - 1)].output_bytes;
                const double arrived = before->end_us + (moves ? work.link.transfer_us(bytes * now->samples) : 0.0);
                if (now->start_us < arrived - slack) { return {rule::chain, *now, *before, now->start_us, arrived}; }
                holds[static_cast<std::size_t>(before->device)].push_back(
                    {before->end_us, now->start_us, bytes, before});
                if (moves) {
                    holds[static_cast<std::size_t>(now->device)].push_back({before->end_us, now->start_us, bytes, now});
                }
            }
        }
    }
    return {};
}

/// Adds what each device holds for its running tasks and for its passes.
constexpr void add_running_holds(const schedule_problem& problem, const frozen_work& work, const schedule& passes,
                                 const std::vector<std::vector<frozen_task>>& tasks,
                                 std::vector<std::vector<held_while>>& holds) {
    for (const auto& list : tasks) {
        for (const frozen_task& t : list) {
            const frozen_component& of = work.components[static_cast<std::size_t>(t.component)];
            double at = t.start_us;
            for (int l = t.first_layer; l <= t.last_layer; ++l) {
                const frozen_layer& layer = of.layers[static_cast<std::size_t>(l)];
                const double end = at + layer.duration_us(t.samples);
                holds[static_cast<std::size_t>(t.device)].push_back({at, end, layer.live_bytes * t.samples, &t});
                at = end;
            }
        }
    }
    for (const memory_hold& h : problem.holds) {
        for (int k = problem.first_microbatch(h.begin.op); k != problem.microbatches; ++k) {
            held_while one{0, 0, h.bytes, nullptr};
            for (const timed_pass& p : passes.devices[static_cast<std::size_t>(h.device)]) {
                const stage_pass which{p.op, p.stage};
                if (p.microbatch != k) { continue; }
                if (which == h.begin) { one.begin_us = p.start_us; }
                if (which == h.end || which == h.also_end) { one.end_us = std::max(one.end_us, p.end_us); }
            }
            holds[static_cast<std::size_t>(h.device)].push_back(one);
        }
    }
}

} // namespace detail

PULSE_CONSTEXPR fill_violation find_fill_violation(const schedule_problem& problem, const frozen_work& work,
                                                   const schedule& passes,
                                                   const std::vector<std::vector<frozen_task>>& tasks) {
    require_valid(work, problem);
    const auto devices = static_cast<std::size_t>(problem.devices);
    if (tasks.size() != devices) {
        return {fill_rule::device_count, {}, {}, static_cast<double>(tasks.size()), static_cast<double>(devices)};
    }
    const double slack = 1e-9 * std::max(1.0, detail::last_end_us(passes, tasks));
    for (std::size_t d = 0; d != devices; ++d) {
        const auto found = detail::find_list_violation(work, passes.devices[d], tasks[d], static_cast<int>(d), slack);
        if (found.broken()) { return found; }
    }
    std::vector<std::vector<detail::held_while>> holds(devices);
    if (const auto found = detail::find_chain_violation(work, tasks, holds, slack); found.broken()) { return found; }
    if (problem.memory_limit_bytes.empty()) { return {}; }
    detail::add_running_holds(problem, work, passes, tasks, holds);
    for (std::size_t d = 0; d != devices; ++d) {
        const auto found = detail::find_overflow(holds[d], problem.memory_limit_bytes[d], slack);
        if (found.broken()) { return found; }
    }
    return {};
}

PULSE_INLINE std::string describe(const fill_violation& v) {
    const auto name = [](const frozen_task& t) {
        return "layers " + std::to_string(t.first_layer) + " to " + std::to_string(t.last_layer) + " of component " +
               std::to_string(t.component) + " on samples " + std::to_string(t.first_sample) + " to " +
               std::to_string(t.first_sample + t.samples - 1);
    };
    const std::string at = name(v.at) + " on device " + std::to_string(v.at.device);
    const std::string found = std::to_string(v.found);
    const std::string wanted = std::to_string(v.wanted);
    const auto whole = [](double x) { return std::to_string(static_cast<std::int64_t>(x)); };
    switch (v.rule) {
    case fill_rule::none: return {};
    case fill_rule::device_count:
        return "the tasks must have one list per device (" + whole(v.wanted) + "), not " + whole(v.found);
    case fill_rule::unknown_task: return at + " do not exist in the work, or are in the list of another device";
    case fill_rule::wrong_device: return at + " run on a device that does not host them";
    case fill_rule::chunk:
        return at + " run " + whole(v.found) + " samples in one call; 1 to " + whole(v.wanted) + " are allowed";
    case fill_rule::start: return at + " start at " + found + " us";
    case fill_rule::duration: return at + " take " + found + " us instead of " + wanted + " us";
    case fill_rule::sorted: return at + " are listed after " + name(v.other) + ", which start later";
    case fill_rule::overlap:
        return at + " start at " + found + " us, before other work on the device ends at " + wanted + " us";
    case fill_rule::repeated: return at + " repeat a layer that " + name(v.other) + " also run";
    case fill_rule::missing: return name(v.at) + " are missing";
    case fill_rule::chain:
        return at + " start at " + found + " us, but what they need from " + name(v.other) + " is available only at " +
               wanted + " us";
    case fill_rule::memory:
        return at + " raise the device's memory to " + whole(v.found) + " bytes; the limit is " + whole(v.wanted);
    }
    return {};
}

PULSE_CONSTEXPR void validate_fill(const schedule_problem& problem, const frozen_work& work, const schedule& passes,
                                   const std::vector<std::vector<frozen_task>>& tasks) {
    validate(problem, passes);
    const auto violation = find_fill_violation(problem, work, passes, tasks);
    if (violation.broken()) { throw input_error("frozen tasks: " + describe(violation)); }
}

} // namespace pulse
