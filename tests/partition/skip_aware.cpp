#include <pulse/partition/skip_aware.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <pulse/partition/report.hpp>
#include <pulse/partition/validate.hpp>

#include "../support/check_both.hpp"
#include "exhaustive.hpp"
#include "random_table.hpp"

namespace {

using namespace pulse;
using test::random_table;
using test::skip_pattern;

// Compares objective and invariants only: which of several equal cuts is chosen is unspecified.
void check_equally_good(const partition& found, const partition& oracle, const cost_table& costs,
                        const skip_aware_options& options) {
    check_partition(found, costs);
    const partition_report ours = report_of(found, costs, skip_routing::direct, options.device_speed);
    const partition_report best = report_of(oracle, costs, skip_routing::direct, options.device_speed);
    CHECK(ours.bytes.total() == best.bytes.total());
    CHECK(ours.imbalance_us == best.imbalance_us);
    CHECK(ours.max_load_us == best.max_load_us);
}

std::int64_t device_bytes(const partition& cut, const cost_table& costs, const memory_model& memory, int device) {
    std::int64_t sum = 0;
    for (const stage& part : cut.stages) {
        for (int l = part.first_layer; part.device == device && l <= part.last_layer; ++l) {
            sum += memory.bytes_of(costs.layers[static_cast<std::size_t>(l)]);
        }
    }
    return sum;
}

// Most layers for which C(n-1, 2PW-1) stays small enough for the oracle.
int most_layers(int devices, int waves) {
    switch (devices * waves) {
    case 1: return 14;
    case 2: return 14;
    case 3: return 13;
    case 4: return 12;
    case 6: return 17;
    default: return 20;
    }
}

constexpr cost_table u_shape(int layers) {
    cost_table costs{};
    for (int l = 0; l != layers; ++l) {
        layer_cost layer{};
        layer.forward_us = 1 + l % 3;
        layer.output_bytes = 100 + 10 * l;
        costs.layers.push_back(layer);
    }
    for (int l = 0; 2 * l + 2 < layers; ++l) { costs.skips.push_back({l, layers - 1 - l, 64}); }
    return costs;
}

constexpr bool compiles_to_the_optimum(int devices, int waves) {
    const cost_table costs = u_shape(9);
    const partition cut = skip_aware_partition(costs, devices, waves);
    check_partition(cut, costs);
    const partition_report ours = report_of(cut, costs);
    const partition_report best = report_of(*test::exhaustive_partition(costs, devices, waves), costs);
    return ours.max_load_us == best.max_load_us && ours.bytes == best.bytes && ours.imbalance_us == best.imbalance_us;
}

} // namespace

TEST_CASE("the folded optimum equals exhaustive search") {
    std::mt19937 random{2026};
    std::map<std::string, int> feasible;
    std::map<std::string, int> infeasible;
    int cases = 0;
    int open_cuts = 0;
    for (int devices = 1; devices <= 4; ++devices) {
        for (int waves = 1; waves <= 3; ++waves) {
            if (devices * waves > 9) { continue; }
            for (const skip_pattern pattern : {skip_pattern::none, skip_pattern::nested, skip_pattern::nested_gaps,
                                               skip_pattern::fan_out, skip_pattern::crossing, skip_pattern::anything}) {
                for (int repeat = 0; repeat != 48; ++repeat) {
                    const int least = 2 * devices * waves;
                    const int most = std::max(most_layers(devices, waves), least + 1);
                    const int layers = std::max(1, std::uniform_int_distribution<int>{least - 1, most}(random));
                    cost_table costs = layers == 1 ? random_table(random, 1, skip_pattern::none)
                                                   : random_table(random, layers, pattern);
                    skip_aware_options options{};
                    options.slack = std::array{0.0, 0.0, 0.25, 1.0}[random() % 4U];
                    if (random() % 3U == 0U) {
                        options.memory.state_factor = 1 + static_cast<int>(random() % 4U);
                        options.memory.in_flight = 1 + static_cast<int>(random() % 4U);
                        std::int64_t total = 0;
                        for (const layer_cost& layer : costs.layers) { total += options.memory.bytes_of(layer); }
                        const auto limit = [&] {
                            return 1 + total * (8 + static_cast<int>(random() % 8U)) / (8 * devices);
                        };
                        options.memory.limit_bytes = limit();
                        if (random() % 2U == 0U) {
                            options.memory.device_limit_bytes.assign(static_cast<std::size_t>(devices), 0);
                        }
                        for (std::int64_t& own : options.memory.device_limit_bytes) {
                            own = random() % 8U == 0U ? 0 : limit();
                        }
                    }
                    if (random() % 2U == 0U) { options.device_speed = test::random_speeds(random, devices); }
                    CAPTURE(devices);
                    CAPTURE(waves);
                    CAPTURE(layers);
                    CAPTURE(repeat);
                    const auto found = find_skip_aware_partition(costs, devices, waves, options);
                    const auto oracle = test::exhaustive_partition(costs, devices, waves, options);
                    REQUIRE(found.has_value() == oracle.has_value());
                    ++cases;
                    const std::string kind = std::to_string(devices) + "x" + std::to_string(waves);
                    ++(found ? feasible : infeasible)[kind];
                    if (!found) { continue; }
                    check_equally_good(*found, *oracle, costs, options);
                    for (int d = 0; d != devices; ++d) {
                        const std::int64_t limit = options.memory.limit_of(d);
                        CHECK((limit == 0 || device_bytes(*found, costs, options.memory, d) <= limit));
                    }
                    for (const stage& s : found->stages) {
                        open_cuts += costs.layers[static_cast<std::size_t>(s.last_layer)].open_bytes > 0 ? 1 : 0;
                    }
                }
            }
        }
    }
    MESSAGE(cases << " tables");
    CHECK(cases >= 2000);
    CHECK(open_cuts >= 100);
    // The draw must reach both answers, or the law says little.
    for (int devices = 2; devices <= 4; ++devices) {
        for (int waves = 1; waves <= 2; ++waves) {
            const std::string kind = std::to_string(devices) + "x" + std::to_string(waves);
            CAPTURE(kind);
            CHECK(feasible[kind] >= 40);
            CHECK(infeasible[kind] >= 20);
        }
    }
}

TEST_CASE("the same search runs when a program is compiled") {
    CHECK_BOTH(compiles_to_the_optimum(1, 1));
    CHECK_BOTH(compiles_to_the_optimum(2, 1));
    CHECK_BOTH(compiles_to_the_optimum(3, 1));
    CHECK_BOTH(compiles_to_the_optimum(2, 2));
}

TEST_CASE("an impossible fold says what binds") {
    const auto reason = [](const cost_table& costs, int devices, int waves, const skip_aware_options& options) {
        try {
            static_cast<void>(skip_aware_partition(costs, devices, waves, options));
        } catch (const infeasible_error& e) { return std::string{e.what()}; }
        return std::string{"feasible"};
    };
    cost_table costs = u_shape(12);
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        costs.layers[l].name = label{std::string_view{"l"}} + static_cast<unsigned>(l);
        costs.layers[l].parameter_bytes = 10;
    }

    SUBCASE("too few layers") {
        CHECK(reason(costs, 7, 1, {}) ==
              "no folded partition over 7 devices with 1 wave: it needs 14 stages, but the model has 12 layers");
        CHECK(reason(costs, 1 << 30, 1 << 30, {}).find("but the model has 12 layers") != std::string::npos);
    }
    SUBCASE("a memory limit, with the smallest that would suffice") {
        skip_aware_options options{};
        options.memory = {.limit_bytes = 1, .state_factor = 3, .in_flight = 0};
        CHECK(reason(costs, 3, 1, options) ==
              "no folded partition over 3 devices with 1 wave fits the memory limit of 1 "
              "bytes per device: the smallest that would suffice is 120 bytes");
        options.memory.limit_bytes = 119;
        CHECK(reason(costs, 3, 1, options) != "feasible");
        options.memory.limit_bytes = 120;
        CHECK(reason(costs, 3, 1, options) == "feasible");
        options.memory.limit_bytes = 359;
        CHECK(reason(costs, 1, 1, options).find("the smallest that would suffice is 360 bytes") != std::string::npos);
    }
    SUBCASE("the skip that binds, and how many devices it allows") {
        costs.skips.insert(costs.skips.begin() + 2, {0, 7, 64});
        CHECK(
            reason(costs, 4, 1, {}) ==
            "no folded partition over 4 devices with 1 wave keeps both ends of every skip on one device: skip l0 -> l7 "
            "(layers 0 and 7) prevents it; at most 2 devices are possible");
    }
    SUBCASE("no single skip to blame") {
        costs.skips.insert(costs.skips.end(), {{0, 7, 64}, {0, 7, 64}});
        CHECK(reason(costs, 4, 1, {})
                  .find("skip l0 -> l7 (layers 0 and 7) prevents it together with the skips listed "
                        "before it; at most 2 devices are possible") != std::string::npos);
    }
}

TEST_CASE("bad arguments are refused by name") {
    const cost_table costs = u_shape(12);
    const auto refused = [](const cost_table& table, int devices, int waves, const skip_aware_options& options) {
        try {
            static_cast<void>(find_skip_aware_partition(table, devices, waves, options));
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{};
    };
    CHECK(refused(costs, 0, 1, {}).rfind("devices:", 0) == 0);
    CHECK(refused(costs, 2, 0, {}).rfind("waves:", 0) == 0);
    CHECK(refused(costs, 2, 1, {.slack = -0.1}).rfind("slack:", 0) == 0);
    CHECK(refused(costs, 2, 1, {.slack = std::numeric_limits<double>::quiet_NaN()}).rfind("slack:", 0) == 0);
    CHECK(refused(costs, 2, 1, {.memory = {.limit_bytes = -1}}).rfind("memory:", 0) == 0);
    skip_aware_options options{};
    options.memory.device_limit_bytes = {1};
    CHECK(refused(costs, 2, 1, options).rfind("memory: device_limit_bytes must have one value per device", 0) == 0);
    options.memory.device_limit_bytes = {1, -1};
    CHECK(refused(costs, 2, 1, options) == "memory: device_limit_bytes must be at least 0");
    options.memory.device_limit_bytes.clear();
    options.device_speed = {1.0, 1.0, 1.0};
    CHECK(refused(costs, 2, 1, options).rfind("device_speed:", 0) == 0);
    options.device_speed = {1.0, std::numeric_limits<double>::infinity()};
    CHECK(refused(costs, 2, 1, options) == "device_speed: device 1: it must be a number above 0");
    CHECK(refused({}, 2, 1, {}).find("layers") != std::string::npos);
    cost_table bad = costs;
    bad.skips.push_back({4, 4, 1});
    CHECK(refused(bad, 2, 1, {}).find("skip") != std::string::npos);
    bad = costs;
    bad.skips.push_back({4, 12, 1});
    CHECK(refused(bad, 2, 1, {}).find("skip") != std::string::npos);
    bad = costs;
    bad.layers[3].backward_input_us = std::numeric_limits<double>::infinity();
    CHECK(refused(bad, 2, 1, {}).find("a time is negative or not finite") != std::string::npos);
    bad = costs;
    for (const std::int64_t bytes : {std::int64_t{-1}, (std::int64_t{1} << 40) + 1}) {
        bad.layers[3].saved_bytes = bytes;
        CHECK(refused(bad, 2, 1, {}).find("a byte count must be from 0 to 2^40") != std::string::npos);
    }
}

TEST_CASE("a search that would grow too large says so") {
    std::mt19937 random{7};
    const cost_table costs = random_table(random, 60, skip_pattern::none);
    CHECK_THROWS_WITH_AS(static_cast<void>(find_skip_aware_partition(costs, 4, 2, {.region_limit = 1000})),
                         "partition: more than 1000 closed regions (region_limit); use fewer waves or a larger "
                         "region_limit",
                         error);
}
