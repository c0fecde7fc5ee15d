#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/plan/gradient_places.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/cascade_runner.hpp>
#include <pulse/runtime/extent_step.hpp>
#include <pulse/runtime/frozen_runner.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/skip_cache.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_runner.hpp>
#include <pulse/runtime/step_memory.hpp>

namespace pulse::detail {

/// All devices' programs for steps of one extent, and the memory that this rank's program needs.
template <class Model, backend B>
struct laid_step {
    resizing size;
    step_model model;
    std::vector<program> programs; ///< of all devices
    memory_layout layout;

    using model_traits = model_parameters<Model, B>;

    laid_step(const extent_step& of, int device) :
        size{model_traits::resized(of.extent)}, model{*of.planned, model_traits::fitting(
                                                                       *of.costs, of.planned->microbatch_size, size)},
        programs{lower(*of.planned, model)}, layout{lay_out(model, programs[static_cast<std::size_t>(device)])} {}
};

/// A laid_step with its buffers, layers and passes looked up and the slots of its transfers proved. Everything that it
/// is constructed from must outlive it.
template <class Model, backend B>
struct ready_step {
    using space = space_of<B>;

    const laid_step<Model, B>& laid;
    prepared_program prepared;
    basic_step_memory<space> memory;
    stage_runner<Model, B> runner;
    skip_cache<typename B::scalar> skips;
    typename space::sections sections;
    frozen_runner<space> frozen;
    std::shared_ptr<const rank_transfers> transfers; ///< null unless the transport starts them in slots

    template <class Parameters>
    ready_step(B& math, const any_transport& transport, const laid_step<Model, B>& of, int device, int batch,
               const step_room<space>& room, frozen_rooms& results, Parameters& parameters) :
        laid{of},
        prepared{of.model, instructions(device), of.layout}, memory{of.layout, room}, runner{math,  of.model,   of.size,
                                                                                             batch, parameters, memory},
        skips{static_cast<std::size_t>(of.model.edge_count()), most_in_flight(of.model, instructions(device))},
        sections{math, instructions(device)}, frozen{of.model.frozen(), device, memory, results},
        transfers{transport.prepare(of.model, of.programs, device)} {}
    ready_step(const ready_step&) = delete;
    ready_step& operator=(const ready_step&) = delete;

    [[nodiscard]] const program& instructions(int device) const noexcept {
        return laid.programs[static_cast<std::size_t>(device)];
    }
};

template <class Model, class B>
using laid_steps = std::vector<std::unique_ptr<const laid_step<Model, B>>>;

template <class Model, class B>
[[nodiscard]] laid_steps<Model, B> lay_out_steps(const std::vector<extent_step>& of, int device) {
    laid_steps<Model, B> all;
    for (const extent_step& one : of) { all.push_back(std::make_unique<const laid_step<Model, B>>(one, device)); }
    return all;
}
/// Where the gradients of a device's stages are stored in the steps of all extents.
template <class Model, class B>
[[nodiscard]] gradient_places gradients_of(const laid_steps<Model, B>& laid, int device) {
    std::vector<const program*> all;
    for (const auto& one : laid) { all.push_back(&one->programs[static_cast<std::size_t>(device)]); }
    return place_gradients(laid.front()->model, {.scalar_bytes = sizeof(typename B::scalar)}, all);
}
template <class Model, class B>
[[nodiscard]] std::vector<const memory_layout*> layouts_of(const laid_steps<Model, B>& laid) {
    std::vector<const memory_layout*> all;
    for (const auto& one : laid) { all.push_back(&one->layout); }
    return all;
}
template <class Model, class B, class Parameters>
[[nodiscard]] std::vector<std::unique_ptr<ready_step<Model, B>>> ready_steps(
    B& math, const any_transport& transport, const std::vector<std::unique_ptr<const laid_step<Model, B>>>& laid,
    int device, int batch, const step_room<space_of<B>>& room, frozen_rooms& results, Parameters& parameters) {
    std::vector<std::unique_ptr<ready_step<Model, B>>> all;
    for (const auto& one : laid) {
        all.push_back(
            std::make_unique<ready_step<Model, B>>(math, transport, *one, device, batch, room, results, parameters));
    }
    return all;
}
/// Bytes of the memory that steps of all extents have used.
template <class Model, class B>
[[nodiscard]] step_bytes used_by(const std::vector<std::unique_ptr<ready_step<Model, B>>>& steps) noexcept {
    step_bytes most;
    for (const auto& one : steps) { most.grow_to(one->memory.used()); }
    return most;
}

} // namespace pulse::detail
