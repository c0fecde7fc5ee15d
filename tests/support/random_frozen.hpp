#pragma once

#include <algorithm>
#include <cstddef>
#include <random>

#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>

namespace pulse::test {

/// Draws frozen tasks for all components of `costs`: any devices, any times that their chains allow.
inline void draw_frozen_tasks(plan& to, const cost_table& costs, std::mt19937& random) {
    const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    const int samples = to.microbatches * to.microbatch_size;
    const double end_us = 1.5 * to.order.makespan_us() + 1;
    to.frozen_tasks.assign(static_cast<std::size_t>(to.cut.devices), {});
    to.frozen_hosts.assign(static_cast<std::size_t>(to.cut.devices), {});
    for (int c = 0; c != static_cast<int>(costs.frozen.size()); ++c) {
        for (auto& hosted : to.frozen_hosts) { hosted.push_back(c); }
        const frozen_component& component = costs.frozen[static_cast<std::size_t>(c)];
        const int layers = static_cast<int>(component.layers.size());
        for (int first = 0; first != samples;) {
            const int end = between(first + 1, samples);
            double start_us = 0;
            for (int l = 0; l != layers;) {
                const int last = between(l, layers - 1);
                // Some samples may continue on another device than others.
                const int split = between(first + 1, end);
                double next_us = start_us;
                for (int from = first; from != end; from = from == first ? split : end) {
                    const int device = between(0, to.cut.devices - 1);
                    const double at = start_us + (end_us - start_us) * (between(1, 99) * 0.01);
                    const int count = (from == first ? split : end) - from;
                    next_us = std::max(next_us, at);
                    to.frozen_tasks[static_cast<std::size_t>(device)].push_back(
                        {c, l, last, from, count, device, at, at + component.duration_us(l, last, count)});
                }
                start_us = next_us;
                l = last + 1;
            }
            first = end;
        }
    }
    for (auto& tasks : to.frozen_tasks) {
        std::sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.start_us < b.start_us; });
    }
}

} // namespace pulse::test
