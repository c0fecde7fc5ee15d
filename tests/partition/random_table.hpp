#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/profile/cost_table.hpp>

namespace pulse::test {

/// The kind of skips in a random table.
enum class skip_pattern { none, nested, nested_gaps, fan_out, crossing, anything };

/// A table with integer costs, so that ties are exact, and skips of the given pattern.
inline cost_table random_table(std::mt19937& random, int layers, skip_pattern pattern) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    cost_table table{};
    table.model = "random";
    table.device = "none";
    const int style = draw(0, 3); // equal costs, small costs with zeros, wide costs, few heavy layers
    for (int l = 0; l != layers; ++l) {
        layer_cost cost{};
        cost.name = label{std::string_view{"layer"}} + static_cast<unsigned>(l);
        const auto time = [&draw, style]() -> double {
            switch (style) {
            case 0: return 1.0;
            case 1: return draw(0, 3);
            case 2: return draw(0, 1000);
            default: return draw(0, 4) == 0 ? draw(50, 100) : draw(0, 2);
            }
        };
        cost.forward_us = time();
        cost.backward_input_us = time();
        cost.backward_weight_us = time();
        cost.parameter_bytes = draw(0, 50);
        cost.saved_bytes = draw(0, 50);
        cost.output_bytes = draw(0, 4) == 0 ? 0 : draw(1, 20) * 8;
        cost.open_bytes = draw(0, 3) == 0 ? draw(1, 20) * 8 : 0;
        cost.factored_elements = cost.parameter_bytes / 4;
        table.layers.push_back(cost);
    }
    table.conditioning_bytes = draw(0, 1) * 8;
    table.frozen_conditioning_bytes = table.conditioning_bytes > 0 && layers % 2 == 0 ? 6 : 0;
    const auto skip = [&table, &draw](int from, int to) {
        if (from >= 0 && from < to && to < static_cast<int>(table.layers.size())) {
            table.skips.push_back({from, to, draw(0, 9) * 8});
        }
    };
    const int shift = draw(-1, 1); // more encoder layers or more decoder layers
    switch (pattern) {
    case skip_pattern::none: break;
    case skip_pattern::nested:
        for (int l = 0; 2 * l + 1 < layers; ++l) { skip(l, layers - 1 - l + (l == 0 ? 0 : shift)); }
        break;
    case skip_pattern::nested_gaps:
        for (int l = 0; 2 * l + 1 < layers; ++l) {
            if (draw(0, 1) == 1) { skip(l, layers - 1 - l + (l == 0 ? 0 : shift)); }
        }
        break;
    case skip_pattern::fan_out:
        for (int l = 0; 2 * l + 1 < layers; l += 2) {
            skip(l, layers - 1 - l);
            skip(l, layers - 2 - l);
            if (draw(0, 3) == 0) { skip(l, l + 1); }
        }
        break;
    case skip_pattern::crossing:
        for (int l = 0; 2 * l + 2 < layers; l += 2) {
            skip(l, layers - 2 - l);
            if (draw(0, 2) != 0) { skip(l + 1, layers - 1 - l); }
        }
        break;
    case skip_pattern::anything:
        for (int e = draw(0, 4); e > 0; --e) {
            const int from = draw(0, layers - 2);
            skip(from, draw(from + 1, layers - 1));
        }
        break;
    }
    std::shuffle(table.skips.begin(), table.skips.end(), random);
    for (const skip_cost& edge : table.skips) { table.layers[static_cast<std::size_t>(edge.from)].open_bytes = 0; }
    return table;
}

/// Speeds that divide whole numbers exactly.
inline std::vector<double> random_speeds(std::mt19937& random, int devices) {
    std::vector<double> speeds{};
    for (int d = 0; d != devices; ++d) { speeds.push_back(std::array{0.5, 1.0, 1.0, 2.0, 4.0}[random() % 5U]); }
    return speeds;
}

} // namespace pulse::test
