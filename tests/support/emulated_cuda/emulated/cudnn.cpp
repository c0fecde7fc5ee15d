#include <emulated/cudnn.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <cudnn.h>

#include <emulated/cudnn_descriptors.hpp>
#include <emulated/cudnn_operations.hpp>
#include <emulated/cudnn_plan_text.hpp>
#include <emulated/runtime.hpp>

struct cudnnContext {
    cudaStream_t stream{};
};

namespace emulated_cuda::cudnn {
namespace {

std::array<std::int64_t, 4> executions{};
std::array<double, 4> costs{};
std::array<bool, 4> refused{};
std::array<bool, 4> compiled{};
std::int64_t plans_made = 0;
std::int64_t plans_restored = 0;
bool takes_fused = true;
compiler found_compiler = compiler::whole;
bool refuses_plans = false;
thread_local std::string last_message;

std::vector<part> operations_of(const node& graph) { return graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).parts; }

[[nodiscard]] bool is_attention(const std::vector<part>& operations) {
    return std::any_of(operations.begin(), operations.end(), [](const part& one) {
        return one->type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR ||
               one->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    });
}
/// Throws if no engine computes the attention: head sizes must be multiples of 8, and at most 128 in the backward pass.
void require_attention(const std::vector<part>& operations) {
    for (const part& one : operations) {
        visit_operation(*one, [](const auto&) {});
        if (one->type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR && forward_attention{*one}.q.dims[3] % 8 != 0) {
            unsupported("a head size of attention");
        }
        if (one->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
            const std::int64_t size = reduction{*one}.x.dims[3];
            if (size % 8 != 0 || size > 128) { unsupported("a head size of attention's gradients"); }
        }
    }
}

/// Throws if no engine computes the graph.
void require_supported(const node& graph) {
    const std::vector<part> operations = operations_of(graph);
    if (is_attention(operations)) { return require_attention(operations); }
    if (operations.empty() || !is_convolution(operations[0]->type)) {
        unsupported("a graph that is not led by a convolution");
    }
    const convolution first{*operations[0]};
    if (operations.size() > 1 && !takes_fused) { unsupported("a fused graph"); }
    if (operations.size() > 1 && first.beta != 0.0) { unsupported("a fused convolution with beta"); }
    const bool of_weight = first.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    const bool narrow = first.x.type != number::f32;
    if (first.type != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR && first.before != first.after) {
        unsupported("a gradient of uneven padding");
    }
    if (of_weight && narrow && first.w.type == number::f32) { unsupported("a 16-bit weight gradient in float"); }
    for (std::size_t i = 1; i != operations.size(); ++i) {
        if (operations[i]->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
            unsupported("an operation after a convolution");
        }
    }
}

void run(const node& graph, memory& where, bool rounds) {
    const std::vector<part> operations = operations_of(graph);
    const bool attends = is_attention(operations);
    if (!attends) { convolution{*operations[0]}.run(where, rounds); }
    for (std::size_t i = attends ? 0 : 1; i != operations.size(); ++i) {
        visit_operation(*operations[i], [&](const auto& operation) { operation.run(where); });
    }
}

// ---- Engines and plans ----

constexpr std::int64_t workspace_of_engine_1 = 4096;

[[nodiscard]] bool is_compiled(const std::vector<part>& operations) {
    return is_attention(operations) || operations.size() > 2;
}

part make_config(const part& graph, std::int64_t engine_index) {
    const part engine = std::make_shared<node>();
    engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    engine->put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    engine->put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, engine_index);
    if (engine_index == 0) {
        engine->put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    }
    if (engine_index == 3) {
        engine->put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                    CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6);
    }
    if (is_compiled(operations_of(*graph)) || compiled.at(static_cast<std::size_t>(engine_index))) {
        engine->put(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    }
    engine->final = true;
    const part config = std::make_shared<node>();
    config->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    config->put(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    config->final = true;
    return config;
}

std::int64_t engine_of(const node& config) {
    return config.child(CUDNN_ATTR_ENGINECFG_ENGINE)->one<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}
part graph_of(const node& config) {
    return config.child(CUDNN_ATTR_ENGINECFG_ENGINE)->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

void finalize(node& n) {
    switch (n.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: static_cast<void>(tensor_facts{n}); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: static_cast<void>(convolution{n}); break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: visit_operation(n, [](const auto&) {}); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!n.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) { bad("a graph without a handle"); }
        static_cast<void>(operations_of(n));
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
        const part graph = n.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        require_supported(*graph);
        const auto mode = n.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
        value results{CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, {}, {}};
        if (found_compiler == compiler::none && is_compiled(operations_of(*graph))) {
            // finalized, and empty
        } else if (mode == CUDNN_HEUR_MODE_A) {
            results.parts = {make_config(graph, 0), make_config(graph, 3), make_config(graph, 1)};
        } else if (mode == CUDNN_HEUR_MODE_FALLBACK) {
            results.parts = {make_config(graph, 2)};
        } else {
            unsupported("heuristic mode " + std::to_string(mode));
        }
        results.count = static_cast<std::int64_t>(results.parts.size());
        n.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = results;
        break;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        if (n.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)) {
            const std::vector<char> text = n.all<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
            const std::string json{text.begin(), text.end()};
            if (json.rfind(json_head, 0) != 0 || json.size() < 2 || json.substr(json.size() - 2) != "\"}") {
                bad("JSON of a plan");
            }
            std::istringstream in{json.substr(std::strlen(json_head))};
            n.put(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, read(in));
            ++plans_restored;
        } else {
            ++plans_made;
        }
        {
            const node& config = *n.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
            require_supported(*graph_of(config));
            // Finalizing loads the plan's kernels.
            if (emulated_cuda::drain_device() != cudaSuccess) {
                refuse(CUDNN_STATUS_EXECUTION_FAILED, "a lost device");
            }
            if (refuses_plans) { refuse(CUDNN_STATUS_EXECUTION_FAILED, "no plan is made ready"); }
            if (found_compiler != compiler::whole && is_compiled(operations_of(*graph_of(config)))) {
                refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED,
                       "Encountered runtime kernel compilation failure at: compilationResult != NVRTC_SUCCESS");
            }
            const std::int64_t bytes = engine_of(config) == 1 ? workspace_of_engine_1 : 0;
            n.put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, bytes);
            std::ostringstream out;
            write(out, config);
            const std::string json = json_head + out.str() + "\"}";
            value v{CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()), std::vector<std::byte>(json.size()), {}};
            std::memcpy(v.bytes.data(), json.data(), json.size());
            n.attributes[CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION] = v;
        }
        break;
    default: unsupported("descriptor type " + std::to_string(n.type));
    }
    n.final = true;
}

template <class F>
cudnnStatus_t guarded(F f) {
    try {
        f();
        return CUDNN_STATUS_SUCCESS;
    } catch (const refusal& r) {
        last_message = "emulated: " + r.message;
        return r.status;
    }
}

} // namespace

void set_cost(int engine, double seconds) { costs.at(static_cast<std::size_t>(engine)) = seconds; }
void set_refused(int engine, bool whether) { refused.at(static_cast<std::size_t>(engine)) = whether; }
void set_compiled(int engine, bool whether) { compiled.at(static_cast<std::size_t>(engine)) = whether; }
std::int64_t executed(int engine) { return executions.at(static_cast<std::size_t>(engine)); }
std::int64_t planned() { return plans_made; }
std::int64_t restored() { return plans_restored; }
void set_compiler(compiler found) { found_compiler = found; }
void set_plans_refused(bool refused) { refuses_plans = refused; }
void set_fused(bool taken) { takes_fused = taken; }

} // namespace emulated_cuda::cudnn

using namespace emulated_cuda::cudnn;

extern "C" {

std::size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED) {
        return "CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED";
    }
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 2000: return "CUDNN_STATUS_BAD_PARAM";
    case 3000: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 5000: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}

void cudnnGetLastErrorString(char* message, std::size_t max_size) {
    std::snprintf(message, max_size, "%s", last_message.c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    *handle = new cudnnContext{};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    emulated_cuda::end_captures(); // it waits for the device
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
    auto* made = new holder{std::make_shared<node>()};
    made->held->type = type;
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    delete static_cast<holder*>(descriptor);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    return guarded([&] { finalize(*of(descriptor)); });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
    return guarded([&] {
        node& n = *of(descriptor);
        if (n.final) { bad("an attribute set after the descriptor was finalized"); }
        if (count < 0 || (count > 0 && elements == nullptr)) { bad("elements of an attribute"); }
        value v{type, count, {}, {}};
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            const auto* parts = static_cast<const cudnnBackendDescriptor_t*>(elements);
            for (std::int64_t i = 0; i != count; ++i) {
                const part& p = of(parts[i]);
                if (!p->final) { refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part of a descriptor"); }
                v.parts.push_back(p);
            }
        } else {
            v.bytes.resize(static_cast<std::size_t>(count) * size_of_type(type));
            if (!v.bytes.empty()) { std::memcpy(v.bytes.data(), elements, v.bytes.size()); }
        }
        n.attributes[name] = v;
    });
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* elements) {
    return guarded([&] {
        const node& n = *of(descriptor);
        if (!n.final) { refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is read"); }
        // An engine without notes reports a count of 0.
        const bool is_note = name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE;
        if (is_note && !n.has(name)) {
            *count = 0;
            return;
        }
        const value& v = n.at(name);
        if (v.type != type) { refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute that is read"); }
        const std::int64_t given = std::min(requested, v.count);
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            auto* to = static_cast<cudnnBackendDescriptor_t*>(elements);
            for (std::int64_t i = 0; i < given; ++i) { of(to[i]) = v.parts[static_cast<std::size_t>(i)]; }
        } else if (given > 0) {
            std::memcpy(elements, v.bytes.data(), static_cast<std::size_t>(given) * size_of_type(type));
        }
        if (count != nullptr) { *count = v.count; }
    });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    return guarded([&] {
        const node& p = *of(plan);
        const node& v = *of(pack);
        const auto ids = v.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
        const auto pointers = v.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
        if (ids.size() != pointers.size()) { bad("a variant pack of different numbers of ids and pointers"); }
        auto* const workspace = v.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
        const auto bytes = p.one<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
        if (bytes > 0 && workspace == nullptr) { bad("no workspace"); }
        const part config = p.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        const part graph = graph_of(*config);
        const std::int64_t engine = engine_of(*config);
        if (refused.at(static_cast<std::size_t>(engine))) { refuse(CUDNN_STATUS_NOT_SUPPORTED, "an engine"); }
        memory where;
        for (std::size_t i = 0; i != ids.size(); ++i) { where.bound[ids[i]] = pointers[i]; }
        std::map<std::int64_t, std::int64_t> bytes_of; // by tensor
        // Errors of execution are reported here already, as the library does.
        for (const part& operation : operations_of(*graph)) {
            for (const auto& [name, a] : operation->attributes) {
                for (const part& child : a.parts) {
                    if (child->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
                        const tensor_facts facts{*child};
                        if (facts.by_value) {
                            where.keep_value(facts);
                        } else if (!facts.is_virtual) {
                            if (!emulated_cuda::is_device(where.of(facts))) {
                                bad("tensor " + std::to_string(facts.id) + " is not in memory of the device");
                            }
                            bytes_of[facts.id] = facts.bytes();
                        }
                    }
                }
            }
        }
        const std::vector<part> operations = operations_of(*graph);
        emulated_cuda::work what{.call = is_attention(operations) ? "attention" : "convolution"};
        for (const auto& [id, moved] : bytes_of) { what.bytes += moved; }
        if (!is_attention(operations)) {
            const convolution first{*operations[0]};
            what.flops = first.flops();
            if (first.beta != 0.0) { what.bytes += first.result().bytes(); }
        }
        const auto body = [=]() mutable {
            auto* const floats = static_cast<float*>(workspace);
            for (std::int64_t i = 0; i < bytes / 4; ++i) { floats[i] = std::numeric_limits<float>::quiet_NaN(); }
            run(*graph, where, engine == 0 || engine == 3);
            ++executions[static_cast<std::size_t>(engine)];
            emulated_cuda::take_time(costs[static_cast<std::size_t>(engine)]);
        };
        const cudaError_t status = emulated_cuda::enqueue_kernel(dim3{1}, dim3{1}, 0, handle->stream, body, what);
        if (status != cudaSuccess) { refuse(CUDNN_STATUS_EXECUTION_FAILED, "the launch"); }
    });
}

} // extern "C"
