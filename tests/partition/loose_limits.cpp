#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/partition/validate.hpp>
#include <pulse/profile/cost_table.hpp>

#include "random_table.hpp"

// With many devices and limits that most cuts satisfy, the search's pruning must not change the result. One wave is
// small enough for a dynamic program over all pairs of ends without pruning.

namespace {

using namespace pulse;
using test::random_table;
using test::skip_pattern;

/// Bytes in one direction, imbalance, greatest load.
using cut_cost = std::tuple<std::int64_t, double, double>;

/// All folds of a table over P >= 2 devices in one wave: region R(d) is [i, j), and device d has its layers outside
/// R(d+1).
class every_fold {
public:
    every_fold(const cost_table& costs, int devices, const skip_aware_options& options) :
        costs_(costs), devices_(devices), options_(options), layers_(static_cast<int>(costs.layers.size())) {
        load_.assign(costs.layers.size() + 1, 0.0);
        memory_.assign(costs.layers.size() + 1, 0);
        for (std::size_t l = 0; l != costs.layers.size(); ++l) {
            load_[l + 1] = load_[l] + costs.layers[l].load_us();
            memory_[l + 1] = memory_[l] + options.memory.bytes_of(costs.layers[l]);
        }
    }

    [[nodiscard]] std::optional<cut_cost> best() const {
        const auto least = walk(false, 1e300);
        if (!least) { return std::nullopt; }
        return walk(true, std::get<2>(*least) * (1 + options_.slack) * (1 + load_tolerance));
    }

private:
    const cost_table& costs_;
    int devices_;
    const skip_aware_options& options_;
    int layers_;
    std::vector<double> load_{};
    std::vector<std::int64_t> memory_{};

    [[nodiscard]] double load(int from, int to) const {
        return load_[static_cast<std::size_t>(to)] - load_[static_cast<std::size_t>(from)];
    }
    [[nodiscard]] std::int64_t memory(int from, int to) const {
        return memory_[static_cast<std::size_t>(to)] - memory_[static_cast<std::size_t>(from)];
    }
    /// The cost that device d adds with layers [i, i2) and [j2, j); empty if it may not have them.
    [[nodiscard]] std::optional<cut_cost> device(int d, int i, int i2, int j2, int j, bool all, double limit) const {
        const double speed = detail::speed_of(options_.device_speed, d);
        const double head = load(i, i2);
        const double tail = load(j2, j);
        const std::int64_t most = options_.memory.limit_of(d);
        if ((head + tail) / speed > limit) { return std::nullopt; }
        if (most != 0 && memory(i, i2) + memory(j2, j) > most) { return std::nullopt; }
        for (const skip_cost& edge : costs_.skips) {
            const auto has = [&](int l) { return (l >= i && l < i2) || (l >= j2 && l < j); };
            if (has(edge.from) != has(edge.to)) { return std::nullopt; }
        }
        std::int64_t bytes = 0;
        if (d + 1 != devices_) {
            for (const int cut : {i2, j2}) {
                bytes += costs_.layers[static_cast<std::size_t>(cut - 1)].sent_bytes() + costs_.conditioning_bytes;
            }
        }
        return all ? cut_cost{bytes, std::abs(head - tail) / speed, (head + tail) / speed}
                   : cut_cost{0, 0.0, (head + tail) / speed};
    }
    [[nodiscard]] std::optional<cut_cost> walk(bool all, double limit) const {
        const auto n = static_cast<std::size_t>(layers_) + 1;
        const auto at = [n](int i, int j) { return static_cast<std::size_t>(i) * n + static_cast<std::size_t>(j); };
        std::vector<std::optional<cut_cost>> inside(n * n);
        for (int d = devices_ - 1; d >= 0; --d) {
            std::vector<std::optional<cut_cost>> here(n * n);
            for (int i = d; i <= (d == 0 ? 0 : layers_); ++i) {
                for (int j = d == 0 ? layers_ : i + 2; j <= layers_ - d; ++j) {
                    auto& best = here[at(i, j)];
                    const auto offer = [&best](std::optional<cut_cost> own, const cut_cost& rest) {
                        if (!own) { return; }
                        std::get<0>(*own) += std::get<0>(rest);
                        std::get<1>(*own) += std::get<1>(rest);
                        std::get<2>(*own) = std::max(std::get<2>(*own), std::get<2>(rest));
                        if (!best || *own < *best) { best = own; }
                    };
                    for (int i2 = i + 1; i2 < j; ++i2) {
                        if (d + 1 == devices_) {
                            offer(device(d, i, i2, i2, j, all, limit), {});
                            continue;
                        }
                        for (int j2 = j - 1; j2 > i2; --j2) {
                            const auto& rest = inside[at(i2, j2)];
                            if (rest) { offer(device(d, i, i2, j2, j, all, limit), *rest); }
                        }
                    }
                }
            }
            inside = std::move(here);
        }
        return inside[at(0, layers_)];
    }
};

} // namespace

TEST_CASE("with many devices and loose limits the cut is the one that trying all folds finds") {
    std::mt19937 random{77};
    int found_some = 0;
    int found_none = 0;
    for (int round = 0; round != 600; ++round) {
        const int devices = 2 + static_cast<int>(random() % 7U);
        const int layers = 2 * devices + static_cast<int>(random() % 12U);
        const auto pattern = std::array{skip_pattern::none, skip_pattern::none, skip_pattern::anything}[random() % 3U];
        cost_table costs = random_table(random, layers, pattern);
        if (random() % 2U == 0U) { // few distinct sizes: many cuts with the fewest bytes
            for (layer_cost& layer : costs.layers) { layer.output_bytes = 8 + 8 * (layer.output_bytes / 8 % 2); }
        }
        if (random() % 6U == 0U) { costs.layers[random() % costs.layers.size()].forward_us = 2000.0; }
        skip_aware_options options{};
        options.slack = std::array{0.0, 0.1, 0.5, 1.0, 4.0}[random() % 5U];
        if (random() % 2U == 0U) { options.device_speed = test::random_speeds(random, devices); }
        if (random() % 3U == 0U) {
            std::int64_t total = 0;
            for (const layer_cost& layer : costs.layers) { total += options.memory.bytes_of(layer); }
            options.memory.limit_bytes = 1 + 2 * total / devices;
        }
        CAPTURE(round);
        CAPTURE(devices);
        CAPTURE(layers);
        const auto found = find_skip_aware_partition(costs, devices, 1, options);
        const auto best = every_fold{costs, devices, options}.best();
        REQUIRE(found.has_value() == best.has_value());
        ++(found ? found_some : found_none);
        if (!found) { continue; }
        check_partition(*found, costs);
        const partition_report ours = report_of(*found, costs, skip_routing::direct, options.device_speed);
        CHECK(ours.bytes.boundary_forward == std::get<0>(*best));
        CHECK(ours.imbalance_us == std::get<1>(*best));
        CHECK(ours.max_load_us == std::get<2>(*best));
    }
    CHECK(found_some > 300);
    CHECK(found_none > 30);
}

TEST_CASE("a loose limit does not leave every region in the search") {
    // The limits scale with the regions searched; without bounds the search needs over 50 times as many.
    const auto ends = [](const cost_table& costs, double slack, std::int64_t work) {
        try {
            return find_skip_aware_partition(costs, 24, 1, {.slack = slack, .work_limit = work}).has_value();
        } catch (const error& e) {
            CHECK(std::string{e.what()}.find("work_limit") != std::string::npos);
            return false;
        }
    };
    std::mt19937 random{78};
    cost_table costs{};
    for (int l = 0; l != 300; ++l) {
        layer_cost layer{};
        layer.forward_us = 1 + static_cast<int>(random() % 1000U);
        layer.output_bytes = static_cast<std::int64_t>(1 + random() % 16U) << 16U;
        costs.layers.push_back(layer);
    }
    cost_table like = costs;
    for (layer_cost& layer : like.layers) { layer.output_bytes = 1 << 20; }
    cost_table heavy = like;
    for (layer_cost& layer : heavy.layers) { layer.forward_us = 1.0; }
    heavy.layers[150].forward_us = 300.0;

    CHECK(ends(costs, 0.5, 1'500'000));
    CHECK(ends(like, 0.5, 400'000));
    CHECK(ends(heavy, 0.0, 6'000'000));
    CHECK_FALSE(ends(costs, 0.5, 1000));
}
