#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

namespace detail {

/// Position of a pass when one microbatch runs alone: F0 .. F(S-1), then B and W of S-1 down to 0, each W right after
/// its B; previews come first, in stage order.
[[nodiscard]] constexpr int alone_rank(stage_pass p, int stages) noexcept {
    if (p.op == pass::preview) { return p.stage - stages; }
    if (p.op == pass::forward) { return p.stage; }
    return stages + 2 * (stages - 1 - p.stage) + (p.op == pass::backward_weight ? 1 : 0);
}

} // namespace detail

/// Throws input_error, naming the field, unless `problem` is well-formed for the schedulers and bounds here.
///
/// Checks ranges; that the chain dependencies are complete; that every dependency agrees with `alone_rank`, so none is
/// circular; that a hold's passes run on its device and one of its ends is not before its beginning; and that no hold
/// begins with a W, so running every W right after its B takes the least memory.
constexpr void require_valid(const schedule_problem& problem) {
    const auto fail = [](const char* what) { throw input_error(std::string{"schedule_problem."} + what); };
    const int stages = static_cast<int>(problem.stages.size());
    if (problem.devices < 1) { fail("devices is less than 1"); }
    if (problem.microbatches < 1) { fail("microbatches is less than 1"); }
    if (stages < 1) { fail("stages is empty"); }
    const auto is_time = [](double t) { return t >= 0 && t < 1e300; };
    for (const auto& s : problem.stages) {
        if (s.device < 0 || s.device >= problem.devices) { fail("stages: a device is out of range"); }
        if (!is_time(s.forward_us) || !is_time(s.backward_input_us) || !is_time(s.backward_weight_us) ||
            !is_time(s.preview_us)) {
            fail("stages: a duration is negative or not finite");
        }
    }
    int previous = 0;
    for (const int first : problem.further_chains) {
        if (first <= previous || first >= stages) {
            fail("further_chains: must be ascending stage numbers between 1 and the last stage");
        }
        previous = first;
    }
    if (!problem.further_chains.empty() && !problem.memory_limit_bytes.empty()) {
        fail("memory_limit_bytes: must be empty for several chains");
    }
    if (problem.previews < 0 || problem.previews > problem.microbatches) {
        fail("previews: must be from 0 to microbatches");
    }
    if (problem.previews > 0 && !problem.further_chains.empty()) { fail("previews: must be 0 for several chains"); }
    const auto known = [&](stage_pass p) { return p.stage >= 0 && p.stage < stages && problem.has(p.op); };
    for (const auto& d : problem.dependencies) {
        if (!known(d.before) || !known(d.after)) { fail("dependencies: a pass does not exist"); }
        if (!is_time(d.lag_us)) { fail("dependencies: a lag is negative or not finite"); }
        if (detail::alone_rank(d.before, stages) >= detail::alone_rank(d.after, stages)) {
            fail("dependencies: a pass depends on a later one");
        }
    }
    const auto leads = [&](stage_pass before, stage_pass after) {
        return std::any_of(problem.dependencies.begin(), problem.dependencies.end(),
                           [&](const dependency& d) { return d.before == before && d.after == after; });
    };
    const auto begins_chain = [&](int s) {
        const auto& begins = problem.further_chains;
        return s == 0 || s == stages || std::find(begins.begin(), begins.end(), s) != begins.end();
    };
    for (int s = 0; s != stages; ++s) {
        const stage_pass forward{pass::forward, s};
        const stage_pass backward{pass::backward_input, s};
        const stage_pass turn = begins_chain(s + 1) ? forward : stage_pass{pass::backward_input, s + 1};
        if ((!begins_chain(s) && !leads({pass::forward, s - 1}, forward)) || !leads(turn, backward) ||
            (problem.split_backward && !leads(backward, {pass::backward_weight, s}))) {
            fail("dependencies: the chain F(s) -> F(s+1), F(S-1) -> B(S-1), B(s+1) -> B(s), B(s) -> W(s) is not "
                 "complete");
        }
        const stage_pass next = s + 1 == stages ? stage_pass{pass::forward, 0} : stage_pass{pass::preview, s + 1};
        if (problem.previews > 0 && !leads({pass::preview, s}, next)) {
            fail("dependencies: the chain P(s) -> P(s+1), P(S-1) -> F(0) is not complete");
        }
    }
    for (const auto& h : problem.holds) {
        if (!known(h.begin) || !known(h.end) || !known(h.also_end)) { fail("holds: a pass does not exist"); }
        if (h.bytes < 0) { fail("holds: bytes are negative"); }
        for (const auto p : {h.begin, h.end, h.also_end}) {
            if (problem.stages[static_cast<std::size_t>(p.stage)].device != h.device) {
                fail("holds: a pass runs on another device");
            }
        }
        if (h.begin.op == pass::backward_weight) { fail("holds: a hold begins with a weight pass"); }
        for (const auto p : {h.end, h.also_end}) {
            if ((p.op == pass::preview) != (h.begin.op == pass::preview)) {
                fail("holds: only some passes of a hold are previews");
            }
        }
        const int begin = detail::alone_rank(h.begin, stages);
        if (begin > std::max(detail::alone_rank(h.end, stages), detail::alone_rank(h.also_end, stages))) {
            fail("holds: a hold ends before it begins");
        }
    }
    const std::size_t limits = problem.memory_limit_bytes.size();
    if (limits != 0 && limits != static_cast<std::size_t>(problem.devices)) {
        fail("memory_limit_bytes must be empty or have one value per device");
    }
}

namespace detail {

/// A problem with its passes numbered (stage * passes_per_stage + pass; previews follow, by stage) and its dependencies
/// in both directions. An instance, one operation on one microbatch, is op * microbatches + microbatch.
struct indexed_problem {
    struct link {
        int op{};
        double lag_us{};
    };

    int devices{};
    int microbatches{};
    int passes{};
    int stages{};
    std::vector<int> device{};
    std::vector<double> duration{};
    /// An operation runs on the microbatches [first, end).
    std::vector<int> first{};
    std::vector<int> end{};
    std::vector<std::vector<link>> before{};
    std::vector<std::vector<link>> after{};
    /// All operations in the order of a microbatch that runs alone, and the same per device.
    std::vector<int> alone{};
    std::vector<std::vector<int>> on_device{};

    [[nodiscard]] constexpr int ops() const noexcept { return static_cast<int>(device.size()); }
    [[nodiscard]] constexpr int op_of(stage_pass p) const noexcept {
        return p.op == pass::preview ? stages * passes + p.stage : p.stage * passes + static_cast<int>(p.op);
    }
    [[nodiscard]] constexpr stage_pass pass_of(int op) const noexcept {
        if (is_preview(op)) { return {pass::preview, op - stages * passes}; }
        return {static_cast<pass>(op % passes), op / passes};
    }
    [[nodiscard]] constexpr bool is_preview(int op) const noexcept { return op >= stages * passes; }
    [[nodiscard]] constexpr int instance_of(const timed_pass& p) const noexcept {
        return op_of({p.op, p.stage}) * microbatches + p.microbatch;
    }
    [[nodiscard]] constexpr timed_pass timed(int instance, double start_us = 0) const {
        const int op = instance / microbatches;
        const stage_pass p = pass_of(op);
        const double end_us = start_us + duration[static_cast<std::size_t>(op)];
        return {p.op, p.stage, instance % microbatches, start_us, end_us};
    }
    /// Whether operation `op` runs on the microbatch.
    [[nodiscard]] constexpr bool runs_on(std::size_t op, int microbatch) const {
        return first[op] <= microbatch && microbatch < end[op];
    }
    /// The number of instances: each operation counts once per microbatch that it runs on.
    [[nodiscard]] constexpr std::size_t instances() const {
        std::size_t sum = 0;
        for (std::size_t op = 0; op != first.size(); ++op) { sum += static_cast<std::size_t>(end[op] - first[op]); }
        return sum;
    }
    /// The number of an instance in the mirrored problem, which counts microbatches from the last.
    [[nodiscard]] constexpr int flipped(int instance) const {
        return instance + microbatches - 1 - 2 * (instance % microbatches);
    }
    /// Values of all instances, reordered to the numbering of the mirrored problem.
    [[nodiscard]] constexpr std::vector<double> mirrored(const std::vector<double>& values) const {
        std::vector<double> out{};
        for (int x = 0; out.size() != values.size(); ++x) {
            out.push_back(values[static_cast<std::size_t>(flipped(x))]);
        }
        return out;
    }
    /// Microseconds of work of one microbatch on device `d`, including its preview.
    [[nodiscard]] constexpr double load_us(int d) const {
        double sum = 0;
        for (const int op : on_device[static_cast<std::size_t>(d)]) { sum += duration[static_cast<std::size_t>(op)]; }
        return sum;
    }
};

/// Which problems a scheduler or a bound accepts: one chain without previews, or any.
enum class taken_chains : bool { one, several };

/// Checks `problem` (`require_valid`, and whether `taken` allows its chains and previews) and numbers its passes.
[[nodiscard]] constexpr indexed_problem index_problem(const schedule_problem& problem,
                                                      taken_chains taken = taken_chains::one) {
    require_valid(problem);
    if (taken == taken_chains::one && !problem.further_chains.empty()) {
        throw input_error("schedule_problem.further_chains: only list_search and gpipe accept several chains");
    }
    if (taken == taken_chains::one && problem.previews > 0) {
        throw input_error("schedule_problem.previews: only list_search and gpipe accept previews");
    }
    indexed_problem out{};
    const int stages = static_cast<int>(problem.stages.size());
    out.devices = problem.devices;
    out.microbatches = problem.microbatches;
    out.passes = problem.passes_per_stage();
    out.stages = stages;
    const int ops = stages * (out.passes + (problem.previews > 0 ? 1 : 0));
    const auto n = static_cast<std::size_t>(ops);
    out.before.resize(n);
    out.after.resize(n);
    out.alone.resize(n, 0);
    out.on_device.resize(static_cast<std::size_t>(problem.devices));
    for (int op = 0; op != ops; ++op) {
        const stage_pass p = out.pass_of(op);
        const stage_timing& s = problem.stages[static_cast<std::size_t>(p.stage)];
        out.device.push_back(s.device);
        out.duration.push_back(s.duration_us(p.op));
        out.first.push_back(problem.first_microbatch(p.op));
        out.end.push_back(problem.microbatches);
        out.alone[static_cast<std::size_t>(op)] = op;
    }
    std::sort(out.alone.begin(), out.alone.end(),
              [&](int a, int b) { return alone_rank(out.pass_of(a), stages) < alone_rank(out.pass_of(b), stages); });
    for (const int op : out.alone) {
        out.on_device[static_cast<std::size_t>(out.device[static_cast<std::size_t>(op)])].push_back(op);
    }
    for (const auto& d : problem.dependencies) {
        const int a = out.op_of(d.before);
        const int b = out.op_of(d.after);
        out.after[static_cast<std::size_t>(a)].push_back({b, d.lag_us});
        out.before[static_cast<std::size_t>(b)].push_back({a, d.lag_us});
    }
    return out;
}

/// Builds a schedule from the instances of every device, in order, and their starts.
[[nodiscard]] constexpr schedule to_schedule(const indexed_problem& index,
                                             const std::vector<std::vector<int>>& sequences,
                                             const std::vector<double>& start_us) {
    schedule out{};
    for (const auto& list : sequences) {
        out.devices.emplace_back();
        for (const int x : list) {
            out.devices.back().push_back(index.timed(x, start_us[static_cast<std::size_t>(x)]));
        }
    }
    return out;
}

/// The same problem in reverse: every dependency reversed, microbatches counted from the last.
[[nodiscard]] constexpr indexed_problem mirrored(const indexed_problem& problem) {
    indexed_problem out = problem;
    out.before = problem.after;
    out.after = problem.before;
    for (std::size_t op = 0; op != out.first.size(); ++op) {
        out.first[op] = problem.microbatches - problem.end[op];
        out.end[op] = problem.microbatches - problem.first[op];
    }
    std::reverse(out.alone.begin(), out.alone.end());
    for (auto& ops : out.on_device) { std::reverse(ops.begin(), ops.end()); }
    return out;
}

} // namespace detail

} // namespace pulse
