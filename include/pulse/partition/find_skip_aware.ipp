#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/folded_search.hpp>
#include <pulse/partition/layer_sums.hpp>
#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

namespace detail {

/// The least greatest device load, found by trying limits from a lower bound upwards: a tight limit leaves few regions,
/// and any limit that admits a cut admits the best one.
[[nodiscard]] constexpr std::optional<double> least_folded_load(folded_search& search, const layer_sums& sums,
                                                                int waves, const std::vector<double>& speed) {
    double together = 0.0;
    double fastest = 0.0;
    double slowest = std::numeric_limits<double>::infinity();
    for (const double s : speed) {
        together += s;
        fastest = std::max(fastest, s);
        slowest = std::min(slowest, s);
    }
    const double all = sums.load.back() / slowest * (1.0 + load_tolerance);
    double bound = sums.load.back() / together;
    std::vector<double> layers(sums.load.size() - 1, 0.0);
    for (std::size_t l = 0; l != layers.size(); ++l) { layers[l] = sums.load[l + 1] - sums.load[l]; }
    std::sort(layers.begin(), layers.end());
    // A device has one layer or more in each of its 2W stages, so the heaviest layer is not alone.
    double company = layers.back();
    for (std::size_t l = 0; l + 1 != 2 * static_cast<std::size_t>(waves); ++l) { company += layers[l]; }
    bound = std::max(bound, company / fastest);
    // Values above the bound by no more than the rounding of load sums count as equal to it.
    double floor = bound * (1.0 + 1e-12);
    for (double excess = 1.0 / 1024.0;; excess *= 2.0) {
        const double limit = std::min(all, bound * (1.0 + excess));
        if (const std::optional<double> least = search.least_load(limit, floor)) { return least; }
        if (limit >= all) { return std::nullopt; }
        floor = limit; // no cut stays within it
    }
}

/// First layers of the 2W stages of a single device: nested pairs with the least total imbalance. Nothing crosses
/// devices, so this is the search over W devices with one wave, without skips, bytes or a limit.
[[nodiscard]] constexpr std::vector<int> balanced_fold(layer_sums sums, int waves, const skip_aware_options& options) {
    const auto pairs = static_cast<std::size_t>(waves);
    if (waves > 1) {
        sums.forget_edges();
        folded_search search{sums,
                             1,
                             std::vector<double>(pairs, 1.0),
                             std::vector<std::int64_t>(pairs, 0),
                             options.region_limit,
                             options.work_limit};
        return search.best_cut(2.0 * sums.load.back(), 0.0);
    }
    int best = 1;
    double least = std::numeric_limits<double>::infinity();
    for (int m = 1; m < sums.layers; ++m) {
        const double head = sums.load[static_cast<std::size_t>(m)];
        const double tail = sums.load.back() - head;
        const double off = head < tail ? tail - head : head - tail;
        if (off < least) {
            least = off;
            best = m;
        }
    }
    return {0, best};
}

constexpr void check_options(const skip_aware_options& options, int devices, int waves) {
    if (devices < 1) { throw input_error("devices: it must be at least 1"); }
    if (waves < 1) { throw input_error("waves: it must be at least 1"); }
    if (!(options.slack >= 0.0) || options.slack > std::numeric_limits<double>::max()) {
        throw input_error("slack: it must be a number of at least 0");
    }
    if (options.memory.limit_bytes < 0 || options.memory.state_factor < 0 || options.memory.in_flight < 0) {
        throw input_error("memory: limit_bytes, state_factor and in_flight must be at least 0");
    }
    const std::vector<std::int64_t>& limits = options.memory.device_limit_bytes;
    if (!limits.empty() && limits.size() != static_cast<std::size_t>(devices)) {
        throw input_error("memory: device_limit_bytes must have one value per device (" + std::to_string(devices) +
                          "), not " + std::to_string(limits.size()));
    }
    for (const std::int64_t limit : limits) {
        if (limit < 0) { throw input_error("memory: device_limit_bytes must be at least 0"); }
    }
    check_device_speed(options.device_speed, devices);
}

} // namespace detail

PULSE_CONSTEXPR maybe_partition find_skip_aware_partition(const cost_table& costs, int devices, int waves,
                                                          const skip_aware_options& options) {
    check_costs(costs);
    detail::check_options(options, devices, waves);
    const auto layers = static_cast<std::int64_t>(costs.layers.size());
    if (std::int64_t{2} * devices * waves > layers) { return {}; }

    const detail::layer_sums sums{costs, options.memory};
    std::vector<int> first{};
    if (devices == 1) {
        const std::int64_t limit = options.memory.limit_of(0);
        if (limit != 0 && sums.memory.back() > limit) { return {}; }
        first = detail::balanced_fold(sums, waves, options);
    } else {
        std::vector<double> speed{};
        std::vector<std::int64_t> limits{};
        for (int d = 0; d != devices; ++d) {
            speed.push_back(detail::speed_of(options.device_speed, d));
            limits.push_back(options.memory.limit_of(d));
        }
        detail::folded_search search{sums, waves, speed, limits, options.region_limit, options.work_limit};
        const std::optional<double> least = detail::least_folded_load(search, sums, waves, speed);
        if (!least) { return {}; }
        first = search.best_cut(*least * (1.0 + options.slack) * (1.0 + load_tolerance), *least);
    }

    partition cut{placement::folded, devices, waves, {}};
    for (std::size_t s = 0; s != first.size(); ++s) {
        const int next = s + 1 == first.size() ? static_cast<int>(layers) : first[s + 1];
        const auto index = static_cast<int>(s);
        cut.stages.push_back({index, device_of(placement::folded, index, devices), first[s], next - 1});
    }
    return cut;
}

} // namespace pulse
