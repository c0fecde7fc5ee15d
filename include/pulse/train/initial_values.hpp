#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <pulse/model/parameter.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/runtime/parameters.hpp>

namespace pulse::train {

/// Initial weights (see initialise) of all layers that a rank owns, in the order of its parameters: the start of an
/// optimizer with master weights. `owned` is rank_parameters of the Model, with any types in any space.
template <class Model, class Parameters>
[[nodiscard]] std::vector<float> initial_values(const Parameters& owned, std::uint64_t seed) {
    std::vector<float> values(owned.values().size());
    for (const auto& block : owned.blocks()) {
        const std::span<float> mine = std::span{values}.subspan(block.first, block.size);
        nn::initialise<float>(parameters_of<Model>(block.layer), seed, mine);
    }
    return values;
}

/// Sets the weights that are not trained to their initial values. Checkpoints do not hold these weights: whoever has
/// other values calls upload_frozen(), and again after a resume.
template <class Model, class T, class A, class Space>
void initialise_frozen(rank_parameters<T, A, Space>& owned, std::uint64_t seed) {
    for (const auto& block : owned.frozen_blocks()) {
        std::vector<T> values(block.size);
        nn::initialise<T>(frozen_parameters_of<Model>(block.layer), seed, values);
        owned.upload_frozen(block, values);
    }
}

/// Loads the weights that are not trained from an open folder, such as diffusers::weights. Throws as from.read does.
template <class Model, class T, class A, class Space, class Weights>
void read_frozen(rank_parameters<T, A, Space>& owned, const Weights& from) {
    for (const auto& block : owned.frozen_blocks()) {
        std::vector<T> scalars;
        for (const parameter& what : frozen_parameters_of<Model>(block.layer)) {
            std::vector<float> values(static_cast<std::size_t>(what.elements()));
            from.read(what, 0, std::span<float>{values});
            std::ranges::transform(values, std::back_inserter(scalars), [](float v) { return static_cast<T>(v); });
        }
        owned.upload_frozen(block, scalars);
    }
}

/// Returns `values`, a rank's trained weights as from initial_values, each replaced by the frozen one of the same name
/// in its layer, if any: a ControlNet starts as a copy of its original, wherever that came from.
template <class Model, class T, class A, class Space>
[[nodiscard]] std::vector<float> with_locked_values(rank_parameters<T, A, Space>& owned, std::vector<float> values) {
    for (const auto& block : owned.frozen_blocks()) {
        const std::vector<T> locked = owned.download_frozen(block);
        const std::vector<parameter> originals = frozen_parameters_of<Model>(block.layer);
        std::size_t to = owned.of(block.layer).first;
        for (const parameter& copy : parameters_of<Model>(block.layer)) {
            std::size_t from = 0;
            for (const parameter& original : originals) {
                const auto count = static_cast<std::size_t>(original.elements());
                for (std::size_t i = 0; copy.name == original.name && i != count; ++i) {
                    values[to + i] = static_cast<float>(locked[from + i]);
                }
                from += count;
            }
            to += static_cast<std::size_t>(copy.elements());
        }
    }
    return values;
}

} // namespace pulse::train
