#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/control.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/nn/initialise.hpp>

#include "arguments.hpp"

namespace pulse_train {

/// Reports once per component, on rank 0, which of its tensors are not read.
inline void tell_unread(const arguments& a, const std::vector<std::string>& unread, const std::string& more = {}) {
    static std::set<std::string> told;
    if (a.processes != nullptr && a.processes->rank() != 0) { return; }
    for (const std::string& of : unread) {
        if (told.insert(of).second) { std::cerr << "pulse_train: " << of << more << '\n'; }
    }
}

/// Calls `act()`; its errors name an option.
template <class Act>
auto within(const std::string& option, const Act& act) {
    try {
        return act();
    } catch (const pulse::input_error& e) { throw pulse::input_error{option + ": " + e.what()}; }
}

/// The initial weights of --from, or null if it provides none. Checks everything that the run reads, or replaces at its
/// end: throws input_error naming the option, the file and the key or the tensors.
template <class Model>
[[nodiscard]] std::unique_ptr<const pulse::diffusers::weights> open_start(const arguments& a) {
    if (a.from.empty()) { return nullptr; }
    std::unique_ptr<const pulse::diffusers::weights> found = within(a.from_option, [&] {
        namespace diffusers = pulse::diffusers;
        static_cast<void>(diffusers::read_pipeline(a.from));
        if (!a.init) { return std::make_unique<diffusers::weights>(diffusers::open_backbone<Model>(a.source())); }
        diffusers::require_fit(diffusers::config_of(Model::config),
                               std::filesystem::path{a.from} / diffusers::backbone_folder(Model::config));
        return std::unique_ptr<diffusers::weights>{};
    });
    if (found != nullptr && !found->unread().empty()) {
        const bool exports = !a.export_to.empty() && !pulse::reads_hint<Model>;
        tell_unread(a, {found->unread()}, exports ? "; " + a.export_option + " leaves them out" : "");
    }
    if (!a.export_to.empty()) {
        within(a.export_option, [&] {
            if constexpr (pulse::reads_hint<Model>) {
                pulse::diffusers::require_control_exportable<Model>(a.export_to);
            } else {
                pulse::diffusers::require_exportable<Model>(a.source(), a.export_to);
            }
        });
    }
    return found;
}

/// The weights of --control-from, or null if there is none. Throws input_error likewise, and naming a ControlNet option
/// if the model is not a ControlNet.
template <class Model>
[[nodiscard]] std::unique_ptr<const pulse::diffusers::weights> open_branch(const arguments& a) {
    if constexpr (pulse::reads_hint<Model>) {
        if (a.control_from.empty()) { return nullptr; }
        auto found = within("--control-from", [&] {
            return std::make_unique<pulse::diffusers::weights>(pulse::diffusers::open_control<Model>(a.control_from));
        });
        if (!found->unread().empty()) { tell_unread(a, {found->unread()}); }
        return found;
    } else {
        if (!a.said_of_control.empty()) {
            throw pulse::input_error{a.said_of_control + ": only for ControlNets, and " + a.model + " is not one"};
        }
        return nullptr;
    }
}

/// The number format of --export.
[[nodiscard]] inline pulse::diffusers::weights_format export_format(const arguments& a) {
    return {a.export_type, static_cast<std::uint64_t>(a.export_shard_bytes)};
}

/// A model's parameters before a step; `all` are those of model_parameters<Model>(), some of which `start` may lack.
/// `start` and `all` must outlive the result.
[[nodiscard]] inline pulse::diffusers::tensor_values first_values(const pulse::diffusers::weights* start,
                                                                  std::uint64_t seed,
                                                                  std::span<const pulse::parameter> all) {
    return [=](std::size_t tensor, const std::function<void(std::span<const float>)>& put) {
        const auto n = static_cast<std::size_t>(all[tensor].elements());
        std::vector<float> values(n);
        if (start != nullptr && start->tensors().contains(all[tensor].name.view())) {
            start->read(all[tensor], 0, values);
            return put(values);
        }
        // A bias is drawn like its weight, which precedes it.
        const bool bias = tensor != 0 && all[tensor].name.view().ends_with(".bias");
        if (bias) { values.resize(n + static_cast<std::size_t>(all[tensor - 1].elements())); }
        pulse::nn::initialise<float>(all.subspan(bias ? tensor - 1 : tensor, bias ? 2 : 1), seed, values);
        put(std::span{values}.last(n));
    };
}

} // namespace pulse_train
