#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

namespace detail {

/// Bytes of a chain of contiguous stages, up to a constant: `cut[c]` for a cut before layer c, minus `kept` of a stage.
struct chain_bytes {
    std::vector<std::int64_t> cut{};
    std::vector<std::int64_t> kept{}; ///< [a * (n + 1) + b]
    std::size_t width{};

    constexpr chain_bytes(const cost_table& costs, bool with_skips, skip_routing routing) :
        width(costs.layers.size() + 1) {
        const std::size_t n = costs.layers.size();
        cut.assign(n + 1, 0);
        kept.assign(width * width, 0);
        for (std::size_t c = 1; c < n; ++c) { cut[c] = costs.layers[c - 1].sent_bytes() + costs.conditioning_bytes; }
        if (!with_skips) { return; }
        for (const skip_cost& edge : costs.skips) {
            const auto from = static_cast<std::size_t>(edge.from);
            const auto to = static_cast<std::size_t>(edge.to);
            if (routing == skip_routing::relayed) {
                for (std::size_t c = from + 1; c <= to; ++c) { cut[c] += edge.bytes; }
                continue;
            }
            for (std::size_t a = 0; a <= from; ++a) {
                for (std::size_t b = to + 1; b <= n; ++b) { kept[a * width + b] += edge.bytes; }
            }
        }
    }

    [[nodiscard]] constexpr std::int64_t of_stage(std::size_t a, std::size_t b) const noexcept {
        return cut[a] - kept[a * width + b];
    }
};

/// First layers of `stages` contiguous stages with the least greatest load and, within `slack` of it, the fewest bytes.
/// Stage s runs at `speed[s mod P]`. Dynamic program over prefixes, O(stages n^2). Requires 1 <= stages <= layers.
[[nodiscard]] constexpr std::vector<int> chain_cut(const cost_table& costs, int stages, double slack,
                                                   const chain_bytes& bytes, const std::vector<double>& speed) {
    const std::size_t n = costs.layers.size();
    const auto parts = static_cast<std::size_t>(stages);
    std::vector<double> load(n + 1, 0.0);
    for (std::size_t l = 0; l != n; ++l) { load[l + 1] = load[l] + costs.layers[l].load_us(); }

    const double none = std::numeric_limits<double>::infinity();
    std::vector<double> least(n + 1, none); // least[b]: greatest load of the first p stages over layers [0, b)
    least[0] = 0.0;
    for (std::size_t p = 1; p <= parts; ++p) {
        const double own_speed = speed[(p - 1) % speed.size()];
        for (std::size_t b = n; b + 1 > p; --b) {
            double best = none;
            for (std::size_t a = p - 1; a < b; ++a) {
                best = std::min(best, std::max(least[a], (load[b] - load[a]) / own_speed));
            }
            least[b] = best;
        }
        std::fill(least.begin(), least.begin() + static_cast<std::ptrdiff_t>(p), none);
    }

    const double limit = least[n] * (1.0 + slack) * (1.0 + 1e-9);
    struct prefix {
        bool any{};
        std::int64_t bytes{};
        double greatest{};
        std::size_t cut{};
    };
    std::vector<prefix> best((parts + 1) * (n + 1), prefix{});
    best[0].any = true;
    for (std::size_t p = 1; p <= parts; ++p) {
        const double own_speed = speed[(p - 1) % speed.size()];
        for (std::size_t b = p; b <= n; ++b) {
            prefix& here = best[p * (n + 1) + b];
            for (std::size_t a = p - 1; a < b; ++a) {
                const prefix& before = best[(p - 1) * (n + 1) + a];
                const double own = (load[b] - load[a]) / own_speed;
                if (!before.any || own > limit) { continue; }
                const std::int64_t sent = before.bytes + bytes.of_stage(a, b);
                const double greatest = std::max(before.greatest, own);
                if (!here.any || sent < here.bytes || (sent == here.bytes && greatest < here.greatest)) {
                    here = {true, sent, greatest, a};
                }
            }
        }
    }
    std::vector<int> first(parts, 0);
    std::size_t end = n;
    for (std::size_t p = parts; p != 0; --p) {
        end = best[p * (n + 1) + end].cut;
        first[p - 1] = static_cast<int>(end);
    }
    return first;
}

[[nodiscard]] constexpr partition chain_partition(const cost_table& costs, placement kind, int devices, int chunks,
                                                  double slack, skip_routing routing,
                                                  const std::vector<double>& device_speed) {
    check_costs(costs);
    if (devices < 1) { throw input_error("devices: it must be at least 1"); }
    if (chunks < 1) { throw input_error("waves: it must be at least 1"); }
    if (!(slack >= 0.0) || slack > std::numeric_limits<double>::max()) {
        throw input_error("slack: it must be a number of at least 0");
    }
    check_device_speed(device_speed, devices);
    const std::int64_t stages = std::int64_t{devices} * chunks;
    if (stages > static_cast<std::int64_t>(costs.layers.size())) {
        throw infeasible_error("no " + std::string{name_of(kind)} + " partition: it needs " + std::to_string(stages) +
                               " stages, but the model has " + std::to_string(costs.layers.size()) +
                               (costs.layers.size() == 1 ? " layer" : " layers"));
    }
    const chain_bytes bytes{costs, kind == placement::sequential, routing};
    std::vector<double> speed = device_speed;
    if (speed.empty()) { speed.push_back(1.0); }
    const std::vector<int> first = chain_cut(costs, static_cast<int>(stages), slack, bytes, speed);
    partition cut{kind, devices, chunks, {}};
    for (std::size_t s = 0; s != first.size(); ++s) {
        const std::size_t next = s + 1 == first.size() ? costs.layers.size() : static_cast<std::size_t>(first[s + 1]);
        const auto index = static_cast<int>(s);
        cut.stages.push_back({index, device_of(kind, index, devices), first[s], static_cast<int>(next) - 1});
    }
    return cut;
}

} // namespace detail

PULSE_CONSTEXPR partition sequential_partition(const cost_table& costs, int devices,
                                               const sequential_options& options) {
    return detail::chain_partition(costs, placement::sequential, devices, 1, options.slack, options.routing,
                                   options.device_speed);
}

PULSE_CONSTEXPR partition interleaved_partition(const cost_table& costs, int devices, int chunks,
                                                const std::vector<double>& device_speed) {
    return detail::chain_partition(costs, placement::interleaved, devices, chunks, 0.0, skip_routing::direct,
                                   device_speed);
}

} // namespace pulse
