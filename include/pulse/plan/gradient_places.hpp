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

/// Where the gradients of a rank's stages lie in its one array of them.
struct gradient_places {
    /// By stage: from where its values lie among the rank's to where its gradients do, a multiple of
    /// gradient_alignment; 0 of stages of other devices.
    std::vector<std::int64_t> shifts{};
    std::int64_t elements{}; ///< of the whole array

    [[nodiscard]] constexpr bool operator==(const gradient_places&) const = default;
};

namespace detail {

/// The instructions of a program from a stage's first backward pass to its last; right behind that stands the sum over
/// replicas, and gradients are there until the next stage's first.
struct gradient_life {
    int first{-1};
    int last{-1};

    [[nodiscard]] constexpr bool overlaps(const gradient_life& other) const noexcept {
        return first <= other.last && other.first <= last;
    }
};

/// By stage.
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

/// The places of a device's gradients, given its programs at all extents of a run: one stage behind the other, unless
/// the plan releases gradients and stages can share memory, as those can whose gradients are never there at one time.
/// The largest stage is placed first, each as far in front as it fits. Throws input_error for a release of a cascade.
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
    if (!model.further_chains().empty()) { throw input_error("pulse: plan: gradient_release: a cascade has none"); }
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

/// Bytes of gradients that a device has beyond gradient_bytes_on, for its order of passes.
[[nodiscard]] constexpr std::int64_t further_gradient_bytes(const step_model& model, const parameter_memory& kept,
                                                            const std::vector<const program*>& of_device) {
    if (!model.gradient_release()) { return 0; }
    const std::int64_t least = least_gradients_on(model, of_device.front()->device, kept);
    return (place_gradients(model, kept, of_device).elements - least) * kept.gradient_bytes;
}

} // namespace pulse
