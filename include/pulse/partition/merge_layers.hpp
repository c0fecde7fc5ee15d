#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <pulse/core/label.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// A cost table in which some neighbouring layers are merged.
struct merged_layers {
    cost_table costs{};
    std::vector<int> first{}; ///< of each merged layer, in the original table; then the number of layers there

    /// Translates a partition of `costs` to the original table.
    [[nodiscard]] constexpr partition of_layers(partition cut) const {
        for (stage& s : cut.stages) {
            s.first_layer = first[static_cast<std::size_t>(s.first_layer)];
            s.last_layer = first[static_cast<std::size_t>(s.last_layer) + 1] - 1;
        }
        return cut;
    }
};

namespace detail {

/// Merges layer `at` and the next one, under the name of the first.
constexpr void merge_with_next(std::vector<layer_cost>& all, std::size_t at) {
    layer_cost& to = all[at];
    layer_cost next = all[at + 1];
    next.name = to.name;
    next.forward_us += to.forward_us;
    next.backward_input_us += to.backward_input_us;
    next.backward_weight_us += to.backward_weight_us;
    next.parameter_bytes += to.parameter_bytes;
    next.factored_elements += to.factored_elements;
    next.frozen_parameter_bytes += to.frozen_parameter_bytes;
    next.saved_bytes += to.saved_bytes + to.output_bytes;
    next.deferred_bytes += to.deferred_bytes + to.gradient_bytes();
    next.workspace_bytes = std::max(next.workspace_bytes, to.workspace_bytes);
    to = next;
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

} // namespace detail

/// Merges neighbouring layers, those with the least time together first, until at most `most` layers are left or every
/// further merge would cross the end of a skip. For searches whose work grows fast with the number of layers, such as
/// folds in several waves.
///
/// A merged layer saves its inner outputs and defers their gradients. Requires a table of one backbone that passes
/// check_costs.
[[nodiscard]] constexpr merged_layers merge_layers(const cost_table& layers, std::size_t most) {
    merged_layers made{layers, {}};
    std::vector<layer_cost>& all = made.costs.layers;
    for (std::size_t l = 0; l <= all.size(); ++l) { made.first.push_back(static_cast<int>(l)); }
    std::vector<char> ends(all.size() + 1, 0); // [c]: whether a skip ends at layer c, or begins at layer c - 1
    for (const skip_cost& edge : layers.skips) {
        ends[static_cast<std::size_t>(edge.from) + 1] = ends[static_cast<std::size_t>(edge.to)] = 1;
    }
    while (all.size() > most) {
        std::size_t at = all.size();
        for (std::size_t l = 0; l + 1 < all.size(); ++l) {
            if (ends[static_cast<std::size_t>(made.first[l + 1])] != 0) { continue; }
            const double together = all[l].load_us() + all[l + 1].load_us();
            if (at == all.size() || together < all[at].load_us() + all[at + 1].load_us()) { at = l; }
        }
        if (at == all.size()) { break; }
        detail::merge_with_next(all, at);
        made.first.erase(made.first.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    const auto place_of = [&made](int layer) {
        return static_cast<int>(std::upper_bound(made.first.begin(), made.first.end(), layer) - made.first.begin()) - 1;
    };
    for (skip_cost& edge : made.costs.skips) {
        edge.from = place_of(edge.from);
        edge.to = place_of(edge.to);
    }
    return made;
}

/// The name of the layer of which <layer>#<k> is a part; the name of a whole layer is returned unchanged.
[[nodiscard]] constexpr std::string_view whole_layer(const label& name) noexcept {
    return name.view().substr(0, name.view().find('#'));
}

/// The table with whole layers, for users that run them whole: parts named <layer>#<k> become one layer of that name.
[[nodiscard]] constexpr cost_table merge_parts(cost_table costs) {
    std::vector<int> place{}; // of each layer, its position in the new table
    for (std::size_t l = 0; l != costs.layers.size();) {
        place.push_back(static_cast<int>(l));
        if (l + 1 != costs.layers.size() &&
            whole_layer(costs.layers[l].name) == whole_layer(costs.layers[l + 1].name)) {
            detail::merge_with_next(costs.layers, l);
        } else {
            costs.layers[l].name = label{whole_layer(costs.layers[l].name)};
            ++l;
        }
    }
    for (skip_cost& edge : costs.skips) {
        edge.from = place[static_cast<std::size_t>(edge.from)];
        edge.to = place[static_cast<std::size_t>(edge.to)];
    }
    return costs;
}

} // namespace pulse
