#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse::test {

namespace exhaustive {

/// One cut, judged from the definition, layer by layer.
struct judged_cut {
    bool allowed{true};
    double greatest_load{};
    std::int64_t bytes{};
    double imbalance{};
};

/// `last[s]` is the last layer of stage s; `devices_in_order` has the device of every stage.
[[nodiscard]] constexpr judged_cut judge(const cost_table& costs, const std::vector<int>& last,
                                         const std::vector<int>& devices_in_order, int devices,
                                         const skip_aware_options& options) {
    const memory_model& memory = options.memory;
    const std::size_t stages = last.size();
    std::vector<double> stage_load(stages, 0.0);
    std::vector<double> device_load(static_cast<std::size_t>(devices), 0.0);
    std::vector<std::int64_t> device_bytes(static_cast<std::size_t>(devices), 0);
    std::vector<int> home(costs.layers.size(), 0);
    std::size_t s = 0;
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        if (static_cast<int>(l) > last[s]) { ++s; }
        const layer_cost& layer = costs.layers[l];
        const auto d = static_cast<std::size_t>(devices_in_order[s]);
        const double load = layer.forward_us + layer.backward_input_us + layer.backward_weight_us;
        home[l] = devices_in_order[s];
        stage_load[s] += load;
        device_load[d] += load;
        device_bytes[d] += memory.state_factor * layer.parameter_bytes;
        device_bytes[d] += memory.in_flight * (layer.saved_bytes + layer.output_bytes);
    }
    judged_cut out{};
    for (const skip_cost& edge : costs.skips) {
        const auto to = static_cast<std::size_t>(edge.to);
        if (home[static_cast<std::size_t>(edge.from)] == home[to]) { continue; }
        out.allowed = false;
    }
    for (std::size_t d = 0; d != device_bytes.size(); ++d) {
        const std::int64_t limit =
            memory.device_limit_bytes.empty() ? memory.limit_bytes : memory.device_limit_bytes[d];
        if (limit != 0 && device_bytes[d] > limit) { out.allowed = false; }
    }
    const std::vector<double>& speed = options.device_speed;
    for (std::size_t d = 0; d != device_load.size(); ++d) {
        const double load = speed.empty() ? device_load[d] : device_load[d] / speed[d];
        if (load > out.greatest_load) { out.greatest_load = load; }
    }
    for (std::size_t l = 0; l + 1 < costs.layers.size(); ++l) {
        if (home[l] != home[l + 1]) {
            out.bytes += costs.layers[l].output_bytes + costs.layers[l].open_bytes + costs.conditioning_bytes;
        }
    }
    for (std::size_t a = 0, z = stages - 1; a < z; ++a, --z) {
        const double off =
            stage_load[a] > stage_load[z] ? stage_load[a] - stage_load[z] : stage_load[z] - stage_load[a];
        out.imbalance += speed.empty() ? off : off / speed[static_cast<std::size_t>(devices_in_order[a])];
    }
    return out;
}

/// Advances `last` to the next ascending cuts; false after the final ones.
[[nodiscard]] constexpr bool next_cuts(std::vector<int>& last, int layers) {
    const auto stages = static_cast<int>(last.size());
    for (int s = stages - 2; s >= 0; --s) {
        const auto at = static_cast<std::size_t>(s);
        if (last[at] < layers - stages + s) {
            ++last[at];
            for (auto t = at + 1; t + 1 < last.size(); ++t) { last[t] = last[t - 1] + 1; }
            return true;
        }
    }
    return false;
}

} // namespace exhaustive

/// The oracle of find_skip_aware_partition: tries all C(n-1, 2PW-1) cuts, checks every invariant and value from the
/// definition, and returns the best cut under the same objective, if any. For small tables only.
[[nodiscard]] constexpr maybe_partition exhaustive_partition(const cost_table& costs, int devices, int waves = 1,
                                                             const skip_aware_options& options = {}) {
    std::vector<int> order{};
    for (int w = 0; w != waves; ++w) {
        for (int d = 0; d != devices; ++d) { order.push_back(d); }
        for (int d = devices - 1; d >= 0; --d) { order.push_back(d); }
    }
    const auto layers = static_cast<int>(costs.layers.size());
    if (static_cast<int>(order.size()) > layers) { return {}; }
    std::vector<int> first_cuts(order.size(), 0);
    for (std::size_t s = 0; s != order.size(); ++s) { first_cuts[s] = static_cast<int>(s); }
    first_cuts.back() = layers - 1;

    double least = 0.0;
    bool any = false;
    std::vector<int> last = first_cuts;
    do {
        const exhaustive::judged_cut cut = exhaustive::judge(costs, last, order, devices, options);
        if (cut.allowed && (!any || cut.greatest_load < least)) {
            any = true;
            least = cut.greatest_load;
        }
    } while (exhaustive::next_cuts(last, layers));
    if (!any) { return {}; }

    const double most = least * (1.0 + options.slack) * (1.0 + load_tolerance);
    std::vector<int> best{};
    exhaustive::judged_cut best_cut{};
    last = first_cuts;
    do {
        const exhaustive::judged_cut cut = exhaustive::judge(costs, last, order, devices, options);
        if (!cut.allowed || cut.greatest_load > most) { continue; }
        bool better = best.empty();
        if (!better && cut.bytes != best_cut.bytes) {
            better = cut.bytes < best_cut.bytes;
        } else if (!better && cut.imbalance != best_cut.imbalance) {
            better = cut.imbalance < best_cut.imbalance;
        } else if (!better) {
            better = cut.greatest_load < best_cut.greatest_load;
        }
        if (better) {
            best = last;
            best_cut = cut;
        }
    } while (exhaustive::next_cuts(last, layers));

    partition out{placement::folded, devices, waves, {}};
    for (std::size_t s = 0; s != best.size(); ++s) {
        out.stages.push_back({static_cast<int>(s), order[s], s == 0 ? 0 : best[s - 1] + 1, best[s]});
    }
    return out;
}

} // namespace pulse::test
