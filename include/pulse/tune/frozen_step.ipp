#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/tune/frozen_step.hpp>

namespace pulse {

namespace detail {

/// The work of one step of one pipeline, on every device; an activation that goes on elsewhere takes the slowest link.
[[nodiscard]] inline frozen_work frozen_work_of(const cost_table& costs, const tune_candidate& c,
                                                const candidate_step& step) {
    frozen_work work{costs.frozen, c.microbatches * costs.microbatch_size, {}, {}};
    const int devices = step.problem.devices;
    const auto slower = [](double a, double b) { return a <= 0 ? b : b <= 0 ? a : std::min(a, b); };
    for (int from = 0; from != devices; ++from) {
        for (int to = 0; to != devices && !step.world.links.empty(); ++to) {
            if (from == to) { continue; }
            const link& line = step.world.links[static_cast<std::size_t>(from * devices + to)];
            work.link.latency_us = std::max(work.link.latency_us, line.latency_us);
            work.link.bandwidth_gb_per_s = slower(work.link.bandwidth_gb_per_s, line.bandwidth_gb_per_s);
        }
    }
    return work;
}

/// Hosts by choice, with the bytes that they take.
class host_search {
public:
    host_search(const cost_table& costs, const tune_candidate& c, const prepared_candidate& prepared) :
        costs_{costs}, prepared_{prepared}, plain_{frozen_work_of(costs, c, prepared.step)},
        busy_{busy_us(prepared.step.problem)}, reader_bytes_(busy_.size(), 0) {
        for (const frozen_component& f : costs.frozen) {
            const stage& reads =
                f.feeds == frozen_use::target ? prepared.cut.stages.back() : prepared.cut.stages.front();
            reader_bytes_[static_cast<std::size_t>(reads.device)] += 2 * f.result_bytes * plain_.samples;
        }
    }

    /// Components of `single` on one device each, the others wherever there is room; empty where there is none.
    [[nodiscard]] std::vector<frozen_placement> with(unsigned single) const {
        frozen_placement made{plain_, reader_bytes_, std::vector<std::int64_t>(busy_.size(), 0)};
        made.work.hosts.resize(busy_.size());
        std::vector<double> load = busy_;
        for (const bool one : {true, false}) {
            for (std::size_t f = 0; f != costs_.frozen.size(); ++f) {
                if (((single >> f & 1U) != 0) != one) { continue; }
                std::vector<std::size_t> hosts = devices_with_room(f, made);
                if (hosts.empty()) { return {}; }
                if (one) {
                    const auto at = [&](std::size_t a, std::size_t b) { return load[a] < load[b]; };
                    hosts = {*std::min_element(hosts.begin(), hosts.end(), at)};
                    load[hosts.front()] += least_work_us(costs_.frozen[f], plain_.samples);
                }
                for (const std::size_t d : hosts) { add(f, d, made); }
            }
        }
        for (std::size_t d = 0; d != busy_.size(); ++d) {
            if (!fits(d, made.kept_bytes[d] + made.live_bytes[d])) { return {}; } // results alone
            std::sort(made.work.hosts[d].begin(), made.work.hosts[d].end());
        }
        return {std::move(made)};
    }

private:
    const cost_table& costs_;
    const prepared_candidate& prepared_;
    frozen_work plain_;
    std::vector<double> busy_;
    std::vector<std::int64_t> reader_bytes_;

    [[nodiscard]] std::int64_t live_of(std::size_t f) const {
        std::int64_t most = 0;
        for (const frozen_layer& l : costs_.frozen[f].layers) { most = std::max(most, l.live_bytes); }
        return most;
    }
    [[nodiscard]] bool fits(std::size_t d, std::int64_t bytes) const {
        return prepared_.limit_bytes == 0 || prepared_.fixed_bytes[d] + bytes <= prepared_.limit_bytes;
    }
    [[nodiscard]] std::vector<std::size_t> devices_with_room(std::size_t f, const frozen_placement& made) const {
        std::vector<std::size_t> hosts{};
        for (std::size_t d = 0; d != busy_.size(); ++d) {
            const std::int64_t live = std::max(made.live_bytes[d], live_of(f));
            if (fits(d, made.kept_bytes[d] + costs_.frozen[f].parameter_bytes() + live)) { hosts.push_back(d); }
        }
        return hosts;
    }
    void add(std::size_t f, std::size_t d, frozen_placement& made) const {
        made.work.hosts[d].push_back(static_cast<int>(f));
        made.kept_bytes[d] += costs_.frozen[f].parameter_bytes();
        made.live_bytes[d] = std::max(made.live_bytes[d], live_of(f));
    }
};

PULSE_INLINE memory_error no_room_for_frozen(const cost_table& costs, const prepared_candidate& prepared) {
    const frozen_component* most = nullptr;
    for (const frozen_component& f : costs.frozen) {
        if (most == nullptr || f.parameter_bytes() > most->parameter_bytes()) { most = &f; }
    }
    const std::int64_t beside = *std::min_element(prepared.fixed_bytes.begin(), prepared.fixed_bytes.end());
    const std::int64_t needed = beside + most->parameter_bytes();
    return {needed, "no device has room for frozen components, the greatest of which is " + most->name.str() +
                        ": its parameters are " + std::to_string(most->parameter_bytes()) + " bytes, beside at least " +
                        std::to_string(beside) + " of parameters, their copies, room for replicas and workspace of " +
                        std::to_string(prepared.limit_bytes)};
}

/// Predicts a step whose passes and tasks end at `makespan_us`, in which tasks take `encoding_us` of all devices.
inline void predict_filled(evaluated_candidate& made, double makespan_us, double encoding_us) {
    const frozen_placement& where = made.frozen;
    const double step_us = where.passes_step_us + std::max(0.0, makespan_us - where.passes_makespan_us);
    const double devices = made.planned.pipeline_degree;
    const double busy_us = (1 - where.passes_bubble_ratio) * where.passes_step_us + encoding_us / devices;
    predict_step(made.planned, step_us, step_us > 0 ? std::max(0.0, 1 - busy_us / step_us) : 0.0);
}

PULSE_INLINE filled_schedule encode_first(const schedule& passes, const frozen_work& work,
                                          const std::vector<std::int64_t>& room) {
    const std::size_t devices = passes.devices.size();
    filled_schedule made{passes, std::vector<std::vector<frozen_task>>(devices), 0};
    std::vector<double> free_us(devices, 0.0);
    std::vector<std::pair<std::vector<int>, int>> choosy{}; // those that have fewer hosts, first
    for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
        choosy.emplace_back();
        choosy.back().second = c;
        for (int d = 0; d != static_cast<int>(devices); ++d) {
            if (work.may_host(c, d)) { choosy.back().first.push_back(d); }
        }
    }
    std::stable_sort(choosy.begin(), choosy.end(),
                     [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
    for (const auto& [hosts, c] : choosy) {
        const frozen_component& of = work.components[static_cast<std::size_t>(c)];
        const int even = (work.samples + static_cast<int>(hosts.size()) - 1) / static_cast<int>(hosts.size());
        std::int64_t live = 1;
        for (const frozen_layer& l : of.layers) { live = std::max(live, l.live_bytes); }
        for (int sample = 0; sample != work.samples;) {
            const int d = *std::min_element(hosts.begin(), hosts.end(), [&](int a, int b) {
                return free_us[static_cast<std::size_t>(a)] < free_us[static_cast<std::size_t>(b)];
            });
            const auto at = static_cast<std::size_t>(d);
            int samples = std::min({of.max_chunk, even, work.samples - sample});
            if (!room.empty()) {
                samples = std::max(1, static_cast<int>(std::min<std::int64_t>(samples, room[at] / live)));
            }
            const double end = free_us[at] + of.duration_us(samples);
            const int last = static_cast<int>(of.layers.size()) - 1;
            made.tasks[at].push_back({c, 0, last, sample, samples, d, free_us[at], end});
            free_us[at] = end;
            sample += samples;
        }
    }
    const double first_us = *std::max_element(free_us.begin(), free_us.end());
    for (auto& list : made.passes.devices) {
        for (timed_pass& p : list) {
            p.start_us += first_us;
            p.end_us += first_us;
        }
    }
    return made;
}

PULSE_INLINE std::vector<std::int64_t> held_by_tasks(const frozen_work& work,
                                                     const std::vector<std::vector<frozen_task>>& tasks) {
    std::vector<std::multimap<double, std::int64_t>> changes(tasks.size());
    const auto hold = [&](int device, double from, double to, std::int64_t bytes) {
        changes[static_cast<std::size_t>(device)].emplace(from, bytes);
        changes[static_cast<std::size_t>(device)].emplace(to, -bytes);
    };
    std::map<std::pair<int, int>, std::map<int, const frozen_task*>> chains{};
    for (const auto& list : tasks) {
        for (const frozen_task& t : list) {
            chains[{t.component, t.first_sample}][t.first_layer] = &t;
            const auto& layers = work.components[static_cast<std::size_t>(t.component)].layers;
            std::int64_t live = 0;
            for (int l = t.first_layer; l <= t.last_layer; ++l) {
                live = std::max(live, layers[static_cast<std::size_t>(l)].live_bytes);
            }
            hold(t.device, t.start_us, t.end_us, live * t.samples);
        }
    }
    for (const auto& [of, chain] : chains) {
        const frozen_task* before = nullptr;
        for (const auto& [layer, t] : chain) {
            if (before != nullptr) {
                const auto& layers = work.components[static_cast<std::size_t>(t->component)].layers;
                const std::int64_t bytes =
                    layers[static_cast<std::size_t>(before->last_layer)].output_bytes * t->samples;
                hold(before->device, before->end_us, t->start_us, bytes);
                if (t->device != before->device) { hold(t->device, before->end_us, t->start_us, bytes); }
            }
            before = t;
        }
    }
    std::vector<std::int64_t> most(tasks.size(), 0);
    for (std::size_t d = 0; d != tasks.size(); ++d) {
        std::int64_t level = 0;
        for (auto at = changes[d].begin(); at != changes[d].end();) {
            // What ends at a time is gone when what begins then is there.
            const auto same = changes[d].equal_range(at->first);
            for (at = same.first; at != same.second; ++at) { level += at->second; }
            most[d] = std::max(most[d], level);
        }
    }
    return most;
}

} // namespace detail

PULSE_INLINE double frozen_step_bound_us(const cost_table& costs, const tune_candidate& c, const candidate_step& step,
                                         frozen_mode mode, double known_us) {
    const frozen_work work = detail::frozen_work_of(costs, c, step);
    if (mode == frozen_mode::first) {
        double all_us = 0;
        for (const frozen_component& f : work.components) { all_us += least_work_us(f, work.samples); }
        return step_bound_us(step, known_us) + all_us / step.problem.devices;
    }
    // After passes and tasks a device steps its parameters, which it computes nothing else beside.
    double optimizer_us = std::numeric_limits<double>::infinity();
    for (std::size_t d = 0; d != static_cast<std::size_t>(step.problem.devices); ++d) {
        optimizer_us = std::min(optimizer_us, step.world.optimizer_us_of(d));
    }
    const double together = detail::frozen_bound_us(step.problem, work, known_us);
    return std::max(step_bound_us(step, known_us), together + optimizer_us);
}

PULSE_INLINE std::vector<frozen_placement> frozen_placements(const cost_table& costs, const tune_candidate& c,
                                                             const prepared_candidate& prepared, frozen_mode mode) {
    const detail::host_search search{costs, c, prepared};
    struct choice {
        double makespan_us{};
        std::int64_t bytes{};
        frozen_placement where{};
    };
    std::vector<choice> found{};
    // Beyond a few components, those with the most weights would need to be chosen; all models have fewer.
    const auto components = static_cast<unsigned>(std::min<std::size_t>(costs.frozen.size(), 4));
    for (unsigned single = 0; single != 1U << components; ++single) {
        if (single != 0 && c.pipeline_degree == 1) { break; }
        for (frozen_placement& where : search.with(single)) {
            std::int64_t bytes = 0;
            for (const std::int64_t b : where.kept_bytes) { bytes += b; }
            const schedule none{std::vector<std::vector<timed_pass>>(where.kept_bytes.size())};
            const double makespan_us = mode == frozen_mode::first
                                           ? detail::encode_first(none, where.work, {}).makespan_us()
                                           : detail::frozen_bound_us(prepared.step.problem, where.work, 0);
            found.push_back({makespan_us, bytes, std::move(where)});
        }
    }
    double best_us = std::numeric_limits<double>::infinity();
    for (const choice& one : found) { best_us = std::min(best_us, one.makespan_us); }
    // Filling comes no nearer than that to its bound.
    const auto rank = [&](const choice& one) { return one.makespan_us <= best_us * 1.001 ? best_us : one.makespan_us; };
    std::stable_sort(found.begin(), found.end(), [&](const choice& a, const choice& b) {
        return rank(a) != rank(b) ? rank(a) < rank(b) : a.bytes < b.bytes;
    });
    std::vector<frozen_placement> all{};
    for (choice& one : found) { all.push_back(std::move(one.where)); }
    return all;
}

PULSE_INLINE prepared_candidate beside_frozen(prepared_candidate prepared, const frozen_placement& where) {
    prepared.frozen_bytes = where.kept_bytes;
    for (std::size_t d = 0; d != prepared.fixed_bytes.size(); ++d) {
        prepared.frozen_bytes[d] += where.live_bytes[d];
        prepared.fixed_bytes[d] += prepared.frozen_bytes[d];
    }
    return prepared;
}

PULSE_INLINE void expect_frozen(evaluated_candidate& made, const prepared_candidate& prepared,
                                const frozen_placement& where, frozen_mode mode) {
    made.frozen = where;
    const prediction& alone = made.planned.predicted;
    made.frozen.passes_makespan_us = made.planned.order.makespan_us();
    made.frozen.passes_step_us = alone.step_us;
    made.frozen.passes_bubble_ratio = alone.bubble_ratio;
    const double makespan_us =
        mode == frozen_mode::first
            ? detail::encode_first(made.planned.order, where.work, {}).makespan_us()
            : detail::frozen_bound_us(prepared.step.problem, where.work, made.frozen.passes_makespan_us);
    detail::predict_filled(made, makespan_us, where.work_us());
}

PULSE_INLINE void fill_frozen(evaluated_candidate& made, const prepared_candidate& prepared, frozen_mode mode,
                              double passes_bound_us, std::int64_t placements) {
    frozen_placement& where = made.frozen;
    auto& peaks = made.planned.predicted.peak_memory_bytes;
    // What the passes hold at their peak is never there for the tasks: less than could be, and sure.
    schedule_problem problem = prepared.step.problem;
    problem.holds.clear();
    for (std::size_t d = 0; d != peaks.size() && prepared.limit_bytes > 0; ++d) {
        problem.memory_limit_bytes.push_back(prepared.limit_bytes - (peaks[d] - where.live_bytes[d]));
    }
    filled_schedule filled = detail::encode_first(made.planned.order, where.work, problem.memory_limit_bytes);
    if (mode != frozen_mode::first) {
        filled_schedule between =
            fill_schedule(problem, made.planned.order, where.work, passes_bound_us, {.placements = placements});
        const bool better = between.makespan_us() <= filled.makespan_us();
        if (mode == frozen_mode::bubbles || better) { filled = std::move(between); }
    }
    const std::vector<std::int64_t> held = detail::held_by_tasks(where.work, filled.tasks);
    for (std::size_t d = 0; d != peaks.size(); ++d) {
        peaks[d] += held[d] - where.live_bytes[d];
        where.live_bytes[d] = held[d];
    }
    double encoding_us = 0;
    for (const auto& list : filled.tasks) {
        for (const frozen_task& t : list) { encoding_us += t.end_us - t.start_us; }
    }
    detail::predict_filled(made, filled.makespan_us(), encoding_us);
    made.planned.order = std::move(filled.passes);
    made.planned.frozen_tasks = std::move(filled.tasks);
    made.planned.frozen_hosts = where.work.hosts;
}

} // namespace pulse
