#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <pulse/nn/initialise.hpp>
#include <pulse/runtime/parameters.hpp>

namespace pulse::train {

/// The initial weights (see initialise) of all layers that a rank owns, in the order of its parameters: what an
/// optimizer with master weights starts from. `owned` is rank_parameters of the Model, of any types and any space.
template <class Model, class Parameters>
[[nodiscard]] std::vector<float> initial_values(const Parameters& owned, std::uint64_t seed) {
    std::vector<float> values(owned.values().size());
    for (const auto& block : owned.blocks()) {
        const std::span<float> mine = std::span{values}.subspan(block.first, block.size);
        nn::initialise<float>(parameters_of<Model>(block.layer), seed, mine);
    }
    return values;
}

} // namespace pulse::train
