#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cudnn.h>

#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/cudnn/engines.cuh>

namespace pulse::cuda::cudnn {

/// A graph made ready for one device with one engine; runs any number of times, also inside CUDA graphs.
class ready_engine {
public:
    ready_engine() = default;

    /// Throws cudnn_error if the engine cannot be made ready.
    ready_engine(const target& device, const engine_config& engine) {
        begin(device);
        engine_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.config);
        finish();
    }
    /// Restores the engine from JSON that another run left; throws cudnn_error if this cuDNN rejects it.
    ready_engine(const target& device, const std::string& json) {
        begin(device);
        engine_.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, json);
        finish();
    }

    [[nodiscard]] explicit operator bool() const noexcept { return engine_.get() != nullptr; }
    /// Bytes of device memory that a run needs besides its tensors, aligned to 256.
    [[nodiscard]] std::int64_t workspace_bytes() const noexcept { return workspace_; }
    /// The engine as cuDNN's JSON, valid only for the same cuDNN version on the same kind of device.
    [[nodiscard]] std::string json() const {
        const std::vector<char> text = engine_.get_all<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
        std::string made{text.begin(), text.end()};
        while (!made.empty() && made.back() == '\0') { made.pop_back(); }
        return made;
    }

    /// A pointer for a tensor of the graph: device memory, or host memory for a scalar by value.
    struct binding {
        std::int64_t id;
        const void* data;
    };
    /// Enqueues the engine on the handle's stream; every tensor that is not virtual needs its pointer.
    void run(cudnnHandle_t handle, std::span<const binding> bindings, void* workspace) const {
        std::vector<std::int64_t> ids;
        std::vector<void*> pointers;
        ids.reserve(bindings.size());
        pointers.reserve(bindings.size());
        for (const binding& b : bindings) {
            ids.push_back(b.id);
            pointers.push_back(const_cast<void*>(b.data));
        }
        descriptor pack{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
        pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
            .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
            .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
            .finalize("variant pack");
        check(cudnnBackendExecute(handle, engine_.get(), pack.get()), "cudnnBackendExecute");
    }

private:
    void begin(const target& device) {
        engine_ = descriptor{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
        if (device.handle != nullptr) { engine_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, device.handle); }
        if (device.properties.get() != nullptr) {
            engine_.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.properties);
        }
    }
    void finish() {
        engine_.finalize("execution plan");
        workspace_ = engine_.get_one<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    }

    descriptor engine_{};
    std::int64_t workspace_{};
};

} // namespace pulse::cuda::cudnn
