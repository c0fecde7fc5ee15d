#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

PULSE_CONSTEXPR std::vector<std::int64_t> detail::hold_levels(const schedule_problem& problem,
                                                              const std::vector<timed_pass>& passes, int device) {
    const auto m = static_cast<std::size_t>(problem.microbatches);
    std::vector<std::size_t> place(problem.stages.size() * 4 * m, passes.size());
    const auto key = [&](stage_pass p, std::size_t k) {
        return (static_cast<std::size_t>(p.stage) * 4 + static_cast<std::size_t>(p.op)) * m + k;
    };
    for (std::size_t i = 0; i != passes.size(); ++i) {
        const auto& p = passes[i];
        place[key({p.op, p.stage}, static_cast<std::size_t>(p.microbatch))] = i;
    }
    std::vector<std::int64_t> change(passes.size() + 2, 0);
    for (const auto& h : problem.holds) {
        if (h.device != device) { continue; }
        for (auto k = static_cast<std::size_t>(problem.first_microbatch(h.begin.op)); k != m; ++k) {
            const std::size_t begin = place[key(h.begin, k)];
            const std::size_t one = place[key(h.end, k)];
            const std::size_t two = place[key(h.also_end, k)];
            change[begin] += h.bytes;
            change[(one > two ? one : two) + 1] -= h.bytes;
        }
    }
    std::vector<std::int64_t> levels(passes.size(), 0);
    std::int64_t level = 0;
    for (std::size_t i = 0; i != passes.size(); ++i) { levels[i] = level += change[i]; }
    return levels;
}

PULSE_CONSTEXPR std::vector<std::int64_t> peak_holds(const schedule_problem& problem, const schedule& timed) {
    std::vector<std::int64_t> peaks{};
    for (std::size_t d = 0; d != timed.devices.size(); ++d) {
        std::int64_t peak = 0;
        for (const auto level : detail::hold_levels(problem, timed.devices[d], static_cast<int>(d))) {
            peak = level > peak ? level : peak;
        }
        peaks.push_back(peak);
    }
    return peaks;
}

PULSE_CONSTEXPR double bubble_ratio(const schedule_problem& problem, const schedule& timed) {
    double busy = 0;
    double previews = 0;
    for (const auto& s : problem.stages) {
        busy += s.forward_us + s.backward_input_us + (problem.split_backward ? s.backward_weight_us : 0.0);
        previews += s.preview_us;
    }
    const double total = problem.devices * timed.makespan_us();
    const double idle = total - busy * problem.microbatches - previews * problem.previews;
    return total > 0 && idle > 0 ? idle / total : 0.0; // rounded sums may make zero idle time negative
}

PULSE_CONSTEXPR schedule_violation find_violation(const schedule_problem& problem, const schedule& timed) {
    using rule = schedule_rule;
    const double slack = time_tolerance_us(timed);
    const auto m = static_cast<std::size_t>(problem.microbatches);
    const int stages = static_cast<int>(problem.stages.size());
    constexpr std::size_t kinds = 4;
    const auto broken = [](rule of, int device, const timed_pass& at, const timed_pass& other, auto found,
                           auto wanted) {
        return schedule_violation{of, device, at, other, static_cast<double>(found), static_cast<double>(wanted)};
    };
    if (timed.devices.size() != static_cast<std::size_t>(problem.devices)) {
        return broken(rule::device_count, 0, {}, {}, timed.devices.size(), problem.devices);
    }
    const auto key = [&](pass op, int s, int k) {
        return (static_cast<std::size_t>(s) * kinds + static_cast<std::size_t>(op)) * m + static_cast<std::size_t>(k);
    };
    std::vector<const timed_pass*> found(static_cast<std::size_t>(stages) * kinds * m, nullptr);
    for (int d = 0; d != problem.devices; ++d) {
        for (const auto& p : timed.devices[static_cast<std::size_t>(d)]) {
            if (p.stage < 0 || p.stage >= stages || p.microbatch < 0 || p.microbatch >= problem.microbatches ||
                static_cast<std::size_t>(p.op) >= kinds || !problem.has(p.op) ||
                p.microbatch < problem.first_microbatch(p.op)) {
                return {rule::unknown_pass, d, p, {}, 0, 0};
            }
            const auto& home = problem.stages[static_cast<std::size_t>(p.stage)];
            if (home.device != d) { return broken(rule::wrong_device, d, p, {}, 0, home.device); }
            auto& first = found[key(p.op, p.stage, p.microbatch)];
            if (first != nullptr) { return {rule::repeated, d, p, *first, 0, 0}; }
            first = &p;
        }
    }
    for (int s = 0; s != stages; ++s) {
        for (std::size_t o = 0; o != kinds; ++o) {
            const auto op = static_cast<pass>(o);
            for (int k = problem.first_microbatch(op); k != problem.microbatches && problem.has(op); ++k) {
                if (found[key(op, s, k)] != nullptr) { continue; }
                return {rule::missing, problem.stages[static_cast<std::size_t>(s)].device, {op, s, k, 0, 0}, {}, 0, 0};
            }
        }
    }
    for (int d = 0; d != problem.devices; ++d) {
        const timed_pass* last = nullptr;
        for (const auto& p : timed.devices[static_cast<std::size_t>(d)]) {
            const double wanted = problem.stages[static_cast<std::size_t>(p.stage)].duration_us(p.op);
            const double length = p.end_us - p.start_us;
            if (!(p.start_us >= 0 && p.start_us < 1e300)) { return {rule::start, d, p, {}, p.start_us, 0}; }
            if (!(length >= wanted - slack && length <= wanted + slack)) {
                return {rule::duration, d, p, {}, length, wanted};
            }
            if (last != nullptr && p.start_us < last->start_us) {
                return {rule::sorted, d, p, *last, p.start_us, last->start_us};
            }
            if (last != nullptr && p.start_us < last->end_us - slack) {
                return {rule::overlap, d, p, *last, p.start_us, last->end_us};
            }
            last = &p;
        }
    }
    for (int d = 0; d != problem.devices; ++d) {
        std::vector<const timed_pass*> newest(static_cast<std::size_t>(stages) * kinds, nullptr);
        for (const auto& p : timed.devices[static_cast<std::size_t>(d)]) {
            auto& before = newest[static_cast<std::size_t>(p.stage) * kinds + static_cast<std::size_t>(p.op)];
            if (before != nullptr && before->microbatch > p.microbatch) { return {rule::fifo, d, p, *before, 0, 0}; }
            before = &p;
        }
    }
    for (const auto& need : problem.dependencies) {
        for (int k = problem.first_microbatch(need.before.op); k != problem.microbatches; ++k) {
            const timed_pass& a = *found[key(need.before.op, need.before.stage, k)];
            const timed_pass& b = *found[key(need.after.op, need.after.stage, k)];
            const double ready = a.end_us + need.lag_us;
            const int device = problem.stages[static_cast<std::size_t>(b.stage)].device;
            if (b.start_us < ready - slack) { return {rule::dependency, device, b, a, b.start_us, ready}; }
        }
    }
    for (std::size_t d = 0; d != problem.memory_limit_bytes.size(); ++d) {
        const auto limit = problem.memory_limit_bytes[d];
        const auto levels = detail::hold_levels(problem, timed.devices[d], static_cast<int>(d));
        for (std::size_t i = 0; i != levels.size(); ++i) {
            if (levels[i] <= limit) { continue; }
            return broken(rule::memory, static_cast<int>(d), timed.devices[d][i], {}, levels[i], limit);
        }
    }
    return {};
}

PULSE_CONSTEXPR bool is_valid(const schedule_problem& problem, const schedule& timed) {
    return !find_violation(problem, timed).broken();
}

PULSE_INLINE std::string describe(const schedule_violation& v) {
    const std::string at = describe(v.at) + " on device " + std::to_string(v.device);
    const std::string found = std::to_string(v.found);
    const std::string wanted = std::to_string(v.wanted);
    const auto whole = [](double x) { return std::to_string(static_cast<std::int64_t>(x)); };
    switch (v.rule) {
    case schedule_rule::none: return {};
    case schedule_rule::device_count:
        return "the schedule must have one list per device (" + whole(v.wanted) + "), not " + whole(v.found);
    case schedule_rule::unknown_pass: return at + " does not exist in the problem";
    case schedule_rule::wrong_device: return at + " belongs on device " + whole(v.wanted);
    case schedule_rule::repeated: return at + " is listed twice";
    case schedule_rule::missing: return at + " is missing";
    case schedule_rule::start: return at + " starts at " + found + " us";
    case schedule_rule::duration: return at + " takes " + found + " us instead of " + wanted + " us";
    case schedule_rule::sorted: return at + " is listed after " + describe(v.other) + ", which starts later";
    case schedule_rule::overlap:
        return at + " starts at " + found + " us, before " + describe(v.other) + " ends at " + wanted + " us";
    case schedule_rule::fifo: return at + " runs after " + describe(v.other);
    case schedule_rule::dependency:
        return at + " starts at " + found + " us, but what it needs from " + describe(v.other) +
               " is available only at " + wanted + " us";
    case schedule_rule::memory:
        return at + " raises the device's memory to " + whole(v.found) + " bytes; the limit is " + whole(v.wanted);
    }
    return {};
}

PULSE_CONSTEXPR void validate(const schedule_problem& problem, const schedule& timed) {
    const auto violation = find_violation(problem, timed);
    if (violation.broken()) { throw input_error("schedule: " + describe(violation)); }
}

} // namespace pulse
