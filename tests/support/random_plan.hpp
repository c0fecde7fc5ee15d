#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse::test {

/// Draws one of the ways to cut `layers` into `stages`: random cuts until, for a folded placement, one keeps every skip
/// on one device. Returns no stages after `tries` failed cuts.
inline partition draw_cut(const cost_table& costs, placement kind, int devices, int waves, std::mt19937& random,
                          int tries = 4000) {
    const int stages = stage_count(kind, devices, waves);
    const int layers = static_cast<int>(costs.layers.size());
    partition cut{kind, devices, waves, {}};
    if (stages > layers) { return cut; }
    for (int t = 0; t != tries; ++t) {
        std::vector<int> places(static_cast<std::size_t>(layers - 1));
        for (std::size_t i = 0; i != places.size(); ++i) { places[i] = static_cast<int>(i) + 1; }
        std::shuffle(places.begin(), places.end(), random);
        places.resize(static_cast<std::size_t>(stages - 1));
        std::sort(places.begin(), places.end());
        places.push_back(layers);
        cut.stages.clear();
        int first = 0;
        for (int s = 0; s != stages; ++s) {
            const int end = places[static_cast<std::size_t>(s)];
            cut.stages.push_back({s, device_of(kind, s, devices), first, end - 1});
            first = end;
        }
        bool local = true;
        for (const skip_cost& e : costs.skips) {
            local = local && cut.stages[static_cast<std::size_t>(stage_of(cut.stages, e.from))].device ==
                                 cut.stages[static_cast<std::size_t>(stage_of(cut.stages, e.to))].device;
        }
        if (local || kind != placement::folded) { return cut; }
    }
    cut.stages.clear();
    return cut;
}

/// Draws an order that respects dependencies and keeps the microbatches of every pass in order; passes last random
/// times. The last `previews` microbatches have a preview.
inline schedule draw_order(const partition& cut, int microbatches, bool split, std::mt19937& random, int previews = 0) {
    const int stages = static_cast<int>(cut.stages.size());
    const int kinds = split ? 3 : 2;
    const auto slot = [&](int kind, int stage) { return static_cast<std::size_t>(kind * stages + stage); };
    const auto without = static_cast<std::size_t>(microbatches - previews);
    std::vector<std::vector<double>> ends(static_cast<std::size_t>(4 * stages));
    for (int s = 0; s != stages; ++s) { ends[slot(3, s)].resize(without); }
    std::vector<double> free_at(static_cast<std::size_t>(cut.devices), 0.0);
    schedule made;
    made.devices.resize(static_cast<std::size_t>(cut.devices));
    for (int left = stages * (kinds * microbatches + previews); left != 0; --left) {
        std::vector<timed_pass> ready;
        for (int kind = 0; kind != 4; ++kind) {
            if (kind == 2 && !split) { continue; }
            for (int s = 0; s != stages; ++s) {
                const auto m = ends[slot(kind, s)].size();
                if (m == static_cast<std::size_t>(microbatches)) { continue; }
                const auto after = [&](int k, int stage) -> double {
                    const auto& e = ends[slot(k, stage)];
                    return e.size() > m ? e[m] : -1.0;
                };
                double begin = 0;
                if (kind == 0 && s > 0) { begin = after(0, s - 1); }
                if (kind == 0 && s == 0 && m >= without) { begin = after(3, stages - 1); }
                if (kind == 3 && s > 0) { begin = after(3, s - 1); }
                if (kind == 1) { begin = s + 1 == stages ? after(0, s) : after(1, s + 1); }
                if (kind == 2) { begin = after(1, s); }
                if (begin >= 0) { ready.push_back({static_cast<pass>(kind), s, static_cast<int>(m), begin, 0}); }
            }
        }
        timed_pass next = ready[std::uniform_int_distribution<std::size_t>{0, ready.size() - 1}(random)];
        const auto device = static_cast<std::size_t>(cut.stages[static_cast<std::size_t>(next.stage)].device);
        next.start_us = std::max(next.start_us, free_at[device]);
        next.end_us = next.start_us + std::uniform_real_distribution<>{0.0, 5.0}(random);
        free_at[device] = next.end_us;
        ends[slot(static_cast<int>(next.op), next.stage)].push_back(next.end_us);
        made.devices[device].push_back(next);
    }
    return made;
}

} // namespace pulse::test
