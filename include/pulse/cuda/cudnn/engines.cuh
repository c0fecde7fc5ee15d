#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cudnn.h>

#include <pulse/core/owner.hpp>
#include <pulse/cuda/capture_guard.cuh>
#include <pulse/cuda/cudnn/descriptor.cuh>

namespace pulse::cuda::cudnn {

/// Calls cudnnDestroy while no stream is captured, because it waits for the device.
inline cudnnStatus_t close_library(cudnnHandle_t handle) {
    const std::unique_lock no_capture{capture_guard()};
    return cudnnDestroy(handle);
}

/// Owns a handle: cuDNN on the current device, with its work on one stream.
class library {
public:
    library() {
        const std::unique_lock no_capture{capture_guard()};
        check(cudnnCreate(handle_.place()), "cudnnCreate");
    }

    [[nodiscard]] cudnnHandle_t get() const noexcept { return handle_.get(); }
    void use(cudaStream_t stream) { check(cudnnSetStream(get(), stream), "cudnnSetStream"); }

private:
    owner<cudnnHandle_t, close_library> handle_{};
};

/// The device that engines are made for, given by its handle, or by its properties alone, which needs no device.
struct target {
    cudnnHandle_t handle{};
    descriptor properties{};

    /// A device described in cuDNN's JSON of device properties.
    [[nodiscard]] static target described(const std::string& json) {
        descriptor made{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR};
        made.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json).finalize("device properties");
        return {nullptr, made};
    }
};

/// Which engines may compute a result.
struct engine_rules {
    bool tensor_float{true};            ///< float factors may be rounded to TF32, and sums transformed (FFT, Winograd)
    bool allow_run_time_compiled{true}; ///< engines that are compiled when they are made ready: about a second each
    bool deterministic{true};           ///< no engines whose results may differ between runs in their last bits

    /// The rules that a kept choice depends on.
    [[nodiscard]] std::string text() const {
        return std::string{deterministic ? "" : "any order, "} + (tensor_float ? "TF32, " : "plain sums, ");
    }
};

/// An engine with its settings, as cuDNN's heuristics propose it.
struct engine_config {
    descriptor config{};
    bool run_time_compiled{};
};

/// Whether the rules exclude an engine. Those that add partial sums in less than float are always excluded. Where
/// floats may not be rounded, so are Winograd's and Fourier's, which do not sum the products themselves and lose bits
/// of their own.
[[nodiscard]] inline bool is_excluded(const descriptor& engine, const engine_rules& rules) {
    const auto notes = engine.get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
    return std::any_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
        switch (note) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return rules.deterministic;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return !rules.tensor_float;
        default: return false;
        }
    });
}

/// The engines that one heuristic proposes for a graph, best first; empty if it supports none.
[[nodiscard]] inline std::vector<engine_config> proposals(const descriptor& graph, const target& device,
                                                          cudnnBackendHeurMode_t mode, const engine_rules& rules) {
    descriptor heuristic{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (device.properties.get() != nullptr) { heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.properties); }
    try {
        heuristic.finalize("engine heuristics");
    } catch (const cudnn_error& e) {
        // "Not supported" is an answer; everything else is an error.
        if (CUDNN_STATUS_CATEGORY(e.code) == CUDNN_STATUS_NOT_SUPPORTED) { return {}; }
        throw;
    }
    std::vector<engine_config> kept;
    const std::int64_t found = heuristic.count_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS);
    for (descriptor& config :
         heuristic.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, found)) {
        const std::vector<descriptor> engine =
            config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
        if (engine.empty() || is_excluded(engine.front(), rules)) { continue; }
        const auto notes = engine.front().get_all<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE);
        const bool compiled =
            std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
        if (compiled && !rules.allow_run_time_compiled) { continue; }
        kept.push_back({std::move(config), compiled});
    }
    return kept;
}

/// The engines for a graph: the proposals of mode A, then those of the fallback, best first. Empty if cuDNN has none.
[[nodiscard]] inline std::vector<engine_config> engines_for(const descriptor& graph, const target& device,
                                                            const engine_rules& rules) {
    std::vector<engine_config> all = proposals(graph, device, CUDNN_HEUR_MODE_A, rules);
    for (engine_config& one : proposals(graph, device, CUDNN_HEUR_MODE_FALLBACK, rules)) {
        all.push_back(std::move(one));
    }
    return all;
}

} // namespace pulse::cuda::cudnn
