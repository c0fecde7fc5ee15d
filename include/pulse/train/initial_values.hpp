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

/// Gives the weights that are not trained their initial values. A checkpoint does not have them: whoever has others
/// puts them into frozen_values(), and again after a resume.
template <class Model, class T, class A, class Space>
void initialise_frozen(rank_parameters<T, A, Space>& owned, std::uint64_t seed) {
    for (const auto& block : owned.frozen_blocks()) {
        std::vector<T> values(block.size);
        nn::initialise<T>(frozen_parameters_of<Model>(block.layer), seed, values);
        Space::template upload<T>(values, owned.frozen_values().data() + block.first);
    }
}

} // namespace pulse::train
