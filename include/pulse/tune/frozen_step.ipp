#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/tune/frozen_hosts.hpp>
#include <pulse/tune/frozen_step.hpp>

namespace pulse {

namespace detail {

PULSE_INLINE memory_error no_room_for_frozen(const cost_table& costs, const prepared_candidate& prepared) {
    const frozen_component* most = nullptr;
    std::int64_t sum = 0;
    for (const frozen_component& f : costs.frozen) {
        sum += f.parameter_bytes();
        if (most == nullptr || f.parameter_bytes() > most->parameter_bytes()) { most = &f; }
    }
    const auto least = std::min_element(prepared.fixed_bytes.begin(), prepared.fixed_bytes.end());
    const std::int64_t beside = *least;
    const std::int64_t limit = prepared.limits.of(static_cast<std::size_t>(least - prepared.fixed_bytes.begin()));
    const std::int64_t needed = beside + sum / static_cast<std::int64_t>(prepared.fixed_bytes.size());
    return {needed, "the devices have no room for the frozen components, whole or by layers: their parameters are " +
                        std::to_string(sum) + " bytes, " + std::to_string(most->parameter_bytes()) + " of them in " +
                        most->name.str() +
                        ", and the passes' parameters, their copies, room for replicas and workspace take at least " +
                        std::to_string(beside) + " of the " + std::to_string(limit) + " bytes of a device"};
}

PULSE_INLINE filled_schedule encode_first(const schedule& passes, const frozen_work& work,
                                          const std::vector<std::int64_t>& room) {
    const std::size_t devices = passes.devices.size();
    filled_schedule made{passes, std::vector<std::vector<frozen_task>>(devices), 0};
    std::vector<double> free_us(devices, 0.0);
    std::vector<std::vector<frozen_part>> chains(work.components.size());
    std::vector<std::pair<std::size_t, std::size_t>> choosy{}; // components with fewer hosts first
    for (frozen_part& part : parts_of(work, static_cast<int>(devices))) {
        const auto c = static_cast<std::size_t>(part.component);
        if (part.first_layer == 0) { choosy.emplace_back(0, c); }
        choosy.back().first += part.hosts.size();
        chains[c].push_back(std::move(part));
    }
    std::stable_sort(choosy.begin(), choosy.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [hosts, c] : choosy) {
        const frozen_component& of = work.components[c];
        const std::vector<frozen_part>& parts = chains[c];
        const int even = (work.samples + static_cast<int>(hosts) - 1) / static_cast<int>(hosts);
        for (int sample = 0; sample != work.samples;) {
            int samples = std::min({of.max_chunk, even, work.samples - sample});
            std::vector<std::size_t> on{};
            for (const frozen_part& part : parts) {
                on.push_back(
                    static_cast<std::size_t>(*std::min_element(part.hosts.begin(), part.hosts.end(), [&](int a, int b) {
                        return free_us[static_cast<std::size_t>(a)] < free_us[static_cast<std::size_t>(b)];
                    })));
                const std::int64_t live = std::max<std::int64_t>(1, of.live_bytes(part.first_layer, part.last_layer));
                if (!room.empty()) {
                    samples = static_cast<int>(std::min<std::int64_t>(samples, room[on.back()] / live));
                }
            }
            samples = std::max(1, samples);
            const auto takes_us = [&](std::size_t i) {
                return of.duration_us(parts[i].first_layer, parts[i].last_layer, samples);
            };
            const auto sent_us = [&](std::size_t i) {
                const auto& last = of.layers[static_cast<std::size_t>(parts[i].last_layer)];
                return work.link.transfer_us(last.output_bytes * samples);
            };
            std::vector<double> start{};
            double ready = 0;
            for (std::size_t i = 0; i != on.size(); ++i) {
                start.push_back(std::max(free_us[on[i]], ready));
                ready = start.back() + takes_us(i) + sent_us(i);
            }
            // Not before the next part can take the output of a part, which would only wait there.
            for (std::size_t i = on.size() - 1; i-- != 0;) {
                start[i] = std::max(start[i], start[i + 1] - sent_us(i) - takes_us(i));
            }
            for (std::size_t i = 0; i != on.size(); ++i) {
                const double end = start[i] + takes_us(i);
                made.tasks[on[i]].push_back({parts[i].component, parts[i].first_layer, parts[i].last_layer, sample,
                                             samples, static_cast<int>(on[i]), start[i], end});
                free_us[on[i]] = end;
            }
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

} // namespace detail

PULSE_INLINE double frozen_step_bound_us(const cost_table& costs, const tune_candidate& c, const candidate_step& step,
                                         double known_us) {
    const frozen_work work = detail::frozen_work_of(costs, c, step);
    return std::max(step_bound_us(step, known_us), detail::frozen_end_bound_us(step.problem, work, known_us));
}

PULSE_INLINE std::vector<frozen_placement> frozen_placements(const cost_table& costs, const tune_candidate& c,
                                                             const prepared_candidate& prepared, frozen_mode mode) {
    const detail::host_search search{costs, c, prepared};
    struct choice {
        double makespan_us{};
        std::ptrdiff_t split{};
        std::int64_t bytes{};
        frozen_placement where{};
    };
    std::vector<choice> found{};
    for (const auto& ways : search.ways()) {
        auto where = search.with(ways);
        if (!where) { continue; }
        std::int64_t bytes = 0;
        for (const std::int64_t b : where->kept_bytes) { bytes += b; }
        const schedule none{std::vector<std::vector<timed_pass>>(where->kept_bytes.size())};
        const double makespan_us = mode == frozen_mode::first
                                       ? detail::encode_first(none, where->work, {}).makespan_us()
                                       : detail::frozen_end_bound_us(prepared.step.problem, where->work, 0);
        const auto split = std::count(ways.begin(), ways.end(), detail::host_way::split);
        found.push_back({makespan_us, split, bytes, std::move(*where)});
    }
    double best_us = std::numeric_limits<double>::infinity();
    for (const choice& one : found) { best_us = std::min(best_us, one.makespan_us); }
    // Filling does not get closer to its bound than this.
    const auto rank = [&](const choice& one) { return one.makespan_us <= best_us * 1.001 ? best_us : one.makespan_us; };
    std::stable_sort(found.begin(), found.end(), [&](const choice& a, const choice& b) {
        return std::tuple{rank(a), a.split, a.bytes} < std::tuple{rank(b), b.split, b.bytes};
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
                                const frozen_placement& where) {
    made.frozen = where;
    const prediction& alone = made.planned.predicted;
    made.frozen.passes_step_us = alone.step_us;
    const double passes_us = made.planned.order.makespan_us();
    const schedule_problem& problem = prepared.step.problem;
    const double more_us = detail::frozen_bound_us(problem, where.work, passes_us) - passes_us;
    const double step_us =
        std::max(alone.step_us + std::max(0.0, more_us), detail::frozen_end_bound_us(problem, where.work, passes_us));
    const double busy_us = (1 - alone.bubble_ratio) * alone.step_us + where.work_us() / made.planned.pipeline_degree;
    detail::predict_step(made.planned, step_us, step_us > 0 ? std::max(0.0, 1 - busy_us / step_us) : 0.0);
}

PULSE_INLINE evaluated_candidate fill_frozen(const cost_table& costs, const evaluated_candidate& alone,
                                             const prepared_candidate& prepared, frozen_mode mode,
                                             double passes_bound_us, std::int64_t placements) {
    const frozen_placement& where = alone.frozen;
    const memory_limits& limits = prepared.limits;
    // The tasks get what remains at the passes' peak: less than possible, but safe.
    schedule_problem problem = prepared.step.problem;
    problem.holds.clear();
    for (std::size_t d = 0; d != where.live_bytes.size() && limits.any(); ++d) {
        const std::int64_t passes = alone.planned.predicted.peak_memory_bytes[d] - where.live_bytes[d];
        problem.memory_limit_bytes.push_back(limits.of(d) - passes);
    }
    const auto with = [&](filled_schedule filled) {
        evaluated_candidate made = alone;
        made.planned.order = std::move(filled.passes);
        made.planned.frozen_tasks = std::move(filled.tasks);
        made.planned.frozen_hosts = where.work.hosts;
        detail::predict_plan(made.planned, costs, prepared, limits, false);
        return made;
    };
    const auto over = [&](const evaluated_candidate& made) {
        return limits.worst_over(made.planned.predicted.peak_memory_bytes);
    };
    bool reorder = true; // until a reordering of the passes exceeds the memory
    const auto fill = [&] {
        return with(fill_schedule(problem, alone.planned.order, where.work, passes_bound_us,
                                  {.placements = placements, .reorder_passes = reorder}));
    };
    for (int attempt = 0;; ++attempt) {
        std::vector<evaluated_candidate> ways{};
        if (mode != frozen_mode::first) {
            try {
                ways.push_back(fill());
                if (reorder && over(ways.back()) >= 0) {
                    reorder = false;
                    ways.back() = fill();
                }
            } catch (const infeasible_error&) {
                if (mode == frozen_mode::bubbles) { throw; }
            }
        }
        if (mode != frozen_mode::bubbles) {
            ways.push_back(with(detail::encode_first(alone.planned.order, where.work, problem.memory_limit_bytes)));
        }
        evaluated_candidate& best = *std::min_element(ways.begin(), ways.end(), [&](const auto& a, const auto& b) {
            const bool fits = over(a) < 0;
            return fits != (over(b) < 0) ? fits : a.planned.predicted.step_us < b.planned.predicted.step_us;
        });
        const int worst = over(best);
        if (worst < 0) { return std::move(best); }
        // A layout counts the areas of all tasks at once.
        const std::vector<std::int64_t>& peaks = best.planned.predicted.peak_memory_bytes;
        if (attempt == 4) {
            throw memory_error(peaks[static_cast<std::size_t>(worst)],
                               "device " + std::to_string(worst) + " needs " +
                                   std::to_string(peaks[static_cast<std::size_t>(worst)]) + " bytes of " +
                                   std::to_string(limits.of(worst)) + " beside the frozen components that it hosts");
        }
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            problem.memory_limit_bytes[d] -= std::max<std::int64_t>(0, peaks[d] - limits.of(d));
        }
    }
}

} // namespace pulse
