#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Positions of the gradients of a rank's stages in its one gradient array.
struct gradient_places {
    /// Per stage: position of its gradients minus position of its values among the rank's, in elements, a multiple of
    /// gradient_alignment; 0 for stages of other devices.
    std::vector<std::int64_t> shifts{};
    std::int64_t elements{}; ///< size of the whole array

    [[nodiscard]] constexpr bool operator==(const gradient_places&) const = default;
};

namespace detail {

/// Instructions of a program from a stage's first backward pass to its last. The sum over replicas directly follows the
/// last; the gradients stay until the first backward pass of the next stage.
struct gradient_life {
    int first{-1};
    int last{-1};

    [[nodiscard]] constexpr bool overlaps(const gradient_life& other) const noexcept {
        return first <= other.last && other.first <= last;
    }
};

/// The gradient_life of every stage.
[[nodiscard]] constexpr std::vector<gradient_life> gradient_lives(const program& of_rank, int stages) {
    std::vector<gradient_life> lives(static_cast<std::size_t>(stages));
    for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
        const auto touch = [&](stage_id stage) {
            gradient_life& life = lives[static_cast<std::size_t>(index_of(stage))];
            life.last = static_cast<int>(i);
            if (life.first < 0) { life.first = life.last; }
        };
        const instruction& what = of_rank.instructions[i];
        if (const auto* b = std::get_if<op::backward_input>(&what)) { touch(b->stage); }
        if (const auto* w = std::get_if<op::backward_weight>(&what)) { touch(w->stage); }
    }
    return lives;
}

struct placed_gradients {
    int stage{};
    std::int64_t before{}; ///< elements of the device's stages before it
    std::int64_t size{};
    std::int64_t first{-1};
};

} // namespace detail

/// Places a device's gradients, given its programs for all extents of a run. Stages follow one another, unless the plan
/// releases gradients and sharing saves memory: stages whose gradients never live at the same time may overlap, and are
/// placed largest first, each as far in front as it fits. Throws input_error for gradient release in a cascade.
[[nodiscard]] constexpr gradient_places place_gradients(const step_model& model, const parameter_memory& kept,
                                                        const std::vector<const program*>& of_device) {
    gradient_places made{std::vector<std::int64_t>(static_cast<std::size_t>(model.stage_count()), 0), 0};
    std::vector<detail::placed_gradients> stages{};
    for (int s = 0; s != model.stage_count(); ++s) {
        if (model.device_of_stage(s) != of_device.front()->device) { continue; }
        const std::int64_t size = elements_of(parameter_bytes_of(model, s), kept);
        if (size != 0) { stages.push_back({s, made.elements, size}); }
        made.elements += size;
    }
    if (!model.gradient_release()) { return made; }
    if (!model.further_chains().empty()) {
        throw input_error("pulse: plan: gradient_release: must not be set for a cascade");
    }
    std::vector<std::vector<detail::gradient_life>> lives{};
    for (const program* of_extent : of_device) {
        lives.push_back(detail::gradient_lives(*of_extent, model.stage_count()));
    }
    const auto meet = [&](int one, int other) {
        return std::any_of(lives.begin(), lives.end(), [&](const std::vector<detail::gradient_life>& all) {
            return all[static_cast<std::size_t>(one)].overlaps(all[static_cast<std::size_t>(other)]);
        });
    };
    std::sort(stages.begin(), stages.end(), [](const detail::placed_gradients& a, const detail::placed_gradients& b) {
        return a.size != b.size ? a.size > b.size : a.stage < b.stage;
    });
    std::int64_t end = 0;
    for (std::size_t i = 0; i != stages.size(); ++i) {
        detail::placed_gradients& mine = stages[i];
        const std::int64_t least = mine.before % gradient_alignment;
        mine.first = least;
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t k = 0; k != i; ++k) {
                const detail::placed_gradients& other = stages[k];
                if (mine.first + mine.size <= other.first || other.first + other.size <= mine.first) { continue; }
                if (!meet(mine.stage, other.stage)) { continue; }
                const std::int64_t behind = other.first + other.size - least + gradient_alignment - 1;
                mine.first = least + behind / gradient_alignment * gradient_alignment;
                moved = true;
            }
        }
        end = std::max(end, mine.first + mine.size);
    }
    if (end >= made.elements) { return made; }
    made.elements = end;
    for (const detail::placed_gradients& one : stages) {
        made.shifts[static_cast<std::size_t>(one.stage)] = one.first - one.before;
    }
    return made;
}

/// Bytes of gradients that a device needs beyond gradient_bytes_on because of its order of passes.
[[nodiscard]] constexpr std::int64_t further_gradient_bytes(const step_model& model, const parameter_memory& kept,
                                                            const std::vector<const program*>& of_device) {
    if (!model.gradient_release()) { return 0; }
    const std::int64_t least = least_gradients_on(model, of_device.front()->device, kept);
    return (place_gradients(model, kept, of_device).elements - least) * kept.gradient_bytes;
}

} // namespace pulse
