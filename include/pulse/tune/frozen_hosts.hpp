#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <pulse/hardware/link.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_placement.hpp>

namespace pulse::detail {

/// The frozen work of one step of one pipeline; an activation that moves to another device takes the slowest link.
[[nodiscard]] inline frozen_work frozen_work_of(const cost_table& costs, const tune_candidate& c,
                                                const candidate_step& step) {
    frozen_work work{costs.frozen, c.microbatches * costs.microbatch_size, {}, {}, {}};
    const int devices = step.problem.devices;
    for (std::size_t d = 0; d != static_cast<std::size_t>(devices); ++d) {
        work.after_us.push_back(update_us(step.world, d, step.parameter_bytes[d], step.replicas));
    }
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

/// Where a component's layers are placed.
enum class host_way : char {
    one,    ///< all on one device
    split,  ///< each on one device, those of a device contiguous
    spread, ///< all on every device that has room
};

/// Finds hosts for a choice of ways, with the bytes that they take.
class host_search {
public:
    host_search(const cost_table& costs, const tune_candidate& c, const prepared_candidate& prepared) :
        costs_{costs}, prepared_{prepared}, plain_{frozen_work_of(costs, c, prepared.step)},
        busy_{busy_us(prepared.step.problem)}, reader_bytes_(busy_.size(), 0) {
        for (const frozen_component& f : costs.frozen) {
            const int first = prepared.cut.stages.front().device;
            const int last = prepared.cut.stages.back().device;
            // The rule of frozen_flow::reads.
            for (int d = 0; d != prepared.step.problem.devices; ++d) {
                const bool begins = d == first && f.feeds != frozen_use::target;
                const bool ends = d == last && (f.feeds == frozen_use::target || f.feeds == frozen_use::input);
                if (begins || ends) {
                    reader_bytes_[static_cast<std::size_t>(d)] += 2 * f.result_bytes * plain_.samples;
                }
            }
        }
    }

    /// All combinations of ways for the components: each spread or on one device, and split if not every device has
    /// room for all components whole.
    [[nodiscard]] std::vector<std::vector<host_way>> ways() const {
        bool tight = false;
        frozen_placement whole = nothing();
        for (std::size_t d = 0; d != busy_.size(); ++d) {
            for (std::size_t f = 0; f != costs_.frozen.size(); ++f) { add(f, 0, last_layer(f), d, whole); }
            tight = tight || !fits(d, whole.kept_bytes[d] + whole.live_bytes[d]);
        }
        std::vector<std::vector<host_way>> all{{}};
        for (std::size_t f = 0; f != costs_.frozen.size(); ++f) {
            std::vector<host_way> its{host_way::spread};
            // With more components, the ones with the most weights should be chosen here; all models have fewer.
            if (f < 4 && busy_.size() > 1) {
                its.push_back(host_way::one);
                if (tight && costs_.frozen[f].layers.size() > 1) { its.push_back(host_way::split); }
            }
            std::vector<std::vector<host_way>> longer{};
            for (const host_way way : its) {
                for (const auto& before : all) {
                    longer.push_back(before);
                    longer.back().push_back(way);
                }
            }
            all = std::move(longer);
        }
        return all;
    }

    /// Hosts for one combination of ways: components with the fewest hosts are placed first, so that the others take
    /// the room that is left; none if there is too little.
    [[nodiscard]] std::optional<frozen_placement> with(const std::vector<host_way>& ways) const {
        frozen_placement made = nothing();
        std::vector<double> load = busy_;
        for (const host_way now : {host_way::one, host_way::split, host_way::spread}) {
            for (std::size_t f = 0; f != ways.size(); ++f) {
                if (ways[f] == now && !place(f, now, made, load)) { return std::nullopt; }
            }
        }
        for (std::size_t d = 0; d != busy_.size(); ++d) {
            if (!fits(d, made.kept_bytes[d] + made.live_bytes[d])) { return std::nullopt; } // results alone
            std::sort(made.work.hosts[d].begin(), made.work.hosts[d].end());
        }
        return made;
    }

private:
    const cost_table& costs_;
    const prepared_candidate& prepared_;
    frozen_work plain_;
    std::vector<double> busy_;
    std::vector<std::int64_t> reader_bytes_;

    [[nodiscard]] frozen_placement nothing() const {
        frozen_placement made{plain_, reader_bytes_, std::vector<std::int64_t>(busy_.size(), 0)};
        made.work.hosts.resize(busy_.size());
        return made;
    }
    [[nodiscard]] int last_layer(std::size_t f) const { return static_cast<int>(costs_.frozen[f].layers.size()) - 1; }
    [[nodiscard]] bool fits(std::size_t d, std::int64_t bytes) const {
        return !prepared_.limits.any() || prepared_.fixed_bytes[d] + bytes <= prepared_.limits.of(d);
    }
    /// Bytes that layers [first, last] of a component need for one sample, with the activations that wait before and
    /// after them while other devices run the other layers.
    [[nodiscard]] std::int64_t live_bytes(std::size_t f, int first, int last) const {
        const frozen_component& of = costs_.frozen[f];
        const auto waits = [&](int layer) { return of.layers[static_cast<std::size_t>(layer)].output_bytes; };
        return of.live_bytes(first, last) + (first > 0 ? waits(first - 1) : 0) +
               (last < last_layer(f) ? waits(last) : 0);
    }
    /// Bytes that layers [first, last] keep: their weights and, if first on the device, the scratch that all share.
    [[nodiscard]] std::int64_t kept_bytes(std::size_t f, int first, int last, std::size_t d,
                                          const frozen_placement& made) const {
        return costs_.frozen[f].parameter_bytes(first, last) +
               (made.work.hosts[d].empty() ? prepared_.step.world.kept.scratch.of_frozen_networks() : 0);
    }
    /// Whether there is room for layers [first, last] of a component besides what is placed already.
    [[nodiscard]] bool has_room(std::size_t f, int first, int last, std::size_t d, const frozen_placement& made) const {
        return fits(d, made.kept_bytes[d] + made.live_bytes[d] + kept_bytes(f, first, last, d, made) +
                           live_bytes(f, first, last));
    }
    [[nodiscard]] std::vector<std::size_t> devices_with_room(std::size_t f, const frozen_placement& made) const {
        std::vector<std::size_t> hosts{};
        for (std::size_t d = 0; d != busy_.size(); ++d) {
            if (has_room(f, 0, last_layer(f), d, made)) { hosts.push_back(d); }
        }
        return hosts;
    }
    void add(std::size_t f, int first, int last, std::size_t d, frozen_placement& made) const {
        made.kept_bytes[d] += kept_bytes(f, first, last, d, made);
        made.work.hosts[d].push_back(static_cast<int>(f));
        made.live_bytes[d] += live_bytes(f, first, last);
    }

    /// Returns false if there is no room.
    [[nodiscard]] bool place(std::size_t f, host_way how, frozen_placement& made, std::vector<double>& load) const {
        if (how == host_way::split) { return split(f, made, load); }
        std::vector<std::size_t> hosts = devices_with_room(f, made);
        if (hosts.empty()) { return false; }
        if (how == host_way::one) {
            const auto at = [&](std::size_t a, std::size_t b) { return load[a] < load[b]; };
            hosts = {*std::min_element(hosts.begin(), hosts.end(), at)};
            load[hosts.front()] += least_work_us(costs_.frozen[f], plain_.samples);
        }
        for (const std::size_t d : hosts) { add(f, 0, last_layer(f), d, made); }
        return true;
    }

    /// Assigns contiguous layers to devices in order, so that the greatest load is smallest: a dynamic program over
    /// where each device's layers end.
    [[nodiscard]] bool split(std::size_t f, frozen_placement& made, std::vector<double>& load) const {
        constexpr double never = std::numeric_limits<double>::infinity();
        const int layers = last_layer(f) + 1;
        const auto ends = static_cast<std::size_t>(layers) + 1;
        const auto work_us = [&](int first, int end) {
            return least_work_us(costs_.frozen[f], first, end - 1, plain_.samples);
        };
        std::vector<double> least(ends, never); // [layers before] the greatest load of the devices so far
        least[0] = 0;
        std::vector<std::vector<int>> begins(busy_.size(), std::vector<int>(ends, 0)); // first layer of the last device
        for (std::size_t d = 0; d != busy_.size(); ++d) {
            std::vector<double> next(ends, never);
            for (int end = 0; end <= layers; ++end) {
                const auto to = static_cast<std::size_t>(end);
                for (int first = end; first >= 0; --first) {
                    // Fewer layers may need more room, as the activation that waits before them may be larger.
                    if (first != end && !has_room(f, first, end - 1, d, made)) { continue; }
                    const double greatest =
                        std::max(least[static_cast<std::size_t>(first)], load[d] + work_us(first, end));
                    if (greatest < next[to]) { next[to] = greatest, begins[d][to] = first; }
                }
            }
            least = std::move(next);
        }
        if (least.back() == never) { return false; }
        std::vector<int> owner(ends - 1, 0);
        int end = layers;
        for (std::size_t d = busy_.size(); d-- != 0;) {
            const int first = begins[d][static_cast<std::size_t>(end)];
            if (first == end) { continue; }
            add(f, first, end - 1, d, made);
            load[d] += work_us(first, end);
            std::fill(owner.begin() + first, owner.begin() + end, static_cast<int>(d));
            end = first;
        }
        made.work.split.resize(costs_.frozen.size());
        made.work.split[f] = std::move(owner);
        return true;
    }
};

} // namespace pulse::detail
