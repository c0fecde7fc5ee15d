#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cudnn.h>

#include <emulated/scalars.hpp>

/// What the descriptors of cuDNN's graph API hold, and where the values of a tensor are while a graph runs.
namespace emulated_cuda::cudnn {

struct refusal {
    cudnnStatus_t status;
    std::string message;
};
[[noreturn]] inline void refuse(cudnnStatus_t status, const std::string& message) { throw refusal{status, message}; }
[[noreturn]] inline void bad(const std::string& message) { refuse(CUDNN_STATUS_BAD_PARAM, message); }
[[noreturn]] inline void unsupported(const std::string& message) { refuse(CUDNN_STATUS_NOT_SUPPORTED, message); }

struct node;
using part = std::shared_ptr<node>;

struct value {
    int type{};
    std::int64_t count{};
    std::vector<std::byte> bytes{};
    std::vector<part> parts{};
};

/// The attributes of a descriptor.
struct node {
    int type{};
    bool final{};
    std::map<int, value> attributes{};

    [[nodiscard]] bool has(int name) const { return attributes.count(name) != 0; }
    [[nodiscard]] const value& at(int name) const {
        const auto found = attributes.find(name);
        if (found == attributes.end()) {
            bad("descriptor " + std::to_string(type) + " has no attribute " + std::to_string(name));
        }
        return found->second;
    }
    template <class T>
    [[nodiscard]] std::vector<T> all(int name) const {
        const value& v = at(name);
        if (v.bytes.size() != static_cast<std::size_t>(v.count) * sizeof(T)) { bad("attribute has another size"); }
        std::vector<T> made(static_cast<std::size_t>(v.count));
        if (!made.empty()) { std::memcpy(made.data(), v.bytes.data(), v.bytes.size()); }
        return made;
    }
    template <class T>
    [[nodiscard]] T one(int name) const {
        const value& v = at(name);
        if (v.count != 1 || v.bytes.size() != sizeof(T)) {
            bad("attribute " + std::to_string(name) + " is not one value");
        }
        T found{};
        std::memcpy(&found, v.bytes.data(), sizeof(T));
        return found;
    }
    [[nodiscard]] part child(int name) const {
        const value& v = at(name);
        if (v.parts.size() != 1) { bad("attribute " + std::to_string(name) + " is not one descriptor"); }
        return v.parts[0];
    }
    template <class T>
    void put(int name, int kind, const T& one_value) {
        value v{kind, 1, std::vector<std::byte>(sizeof(T)), {}};
        std::memcpy(v.bytes.data(), &one_value, sizeof(T));
        attributes[name] = v;
    }
    void put(int name, const part& child_node) {
        attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {child_node}};
    }
};

/// The object behind a cudnnBackendDescriptor_t.
struct holder {
    part held{};
};

inline part& of(cudnnBackendDescriptor_t descriptor) {
    if (descriptor == nullptr) { refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null descriptor"); }
    return static_cast<holder*>(descriptor)->held;
}

inline std::size_t size_of_type(int type) {
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_INT32:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_BEHAVIOR_NOTE: return 4;
    default: unsupported("attribute type " + std::to_string(type));
    }
}

inline number number_of(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_FLOAT: return number::f32;
    case CUDNN_DATA_HALF: return number::f16;
    case CUDNN_DATA_BFLOAT16: return number::bf16;
    default: unsupported("data type " + std::to_string(type));
    }
}

struct tensor_facts {
    std::int64_t id{};
    number type{};
    std::vector<std::int64_t> dims, strides;
    std::int64_t alignment{};
    bool is_virtual{};
    bool by_value{};

    explicit tensor_facts(const node& n) {
        if (n.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) { bad("not a tensor"); }
        id = n.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
        type = number_of(n.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
        dims = n.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
        strides = n.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
        alignment = n.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
        is_virtual = n.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && n.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
        by_value = n.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && n.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
        if (dims.size() != strides.size() || dims.empty()) { bad("tensor of different numbers of dims and strides"); }
        if (alignment <= 0 || alignment % size_of(type) != 0) { bad("alignment of a tensor"); }
        for (const std::int64_t d : dims) {
            if (d <= 0) { bad("dimension of a tensor"); }
        }
    }
    [[nodiscard]] std::int64_t offset(const std::array<std::int64_t, 4>& at) const {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i != 4; ++i) { sum += (dims[i] == 1 ? 0 : at[i]) * strides[i]; }
        return sum;
    }
    [[nodiscard]] std::int64_t extent() const {
        std::int64_t last = 0;
        for (std::size_t i = 0; i != dims.size(); ++i) { last += (dims[i] - 1) * strides[i]; }
        return last + 1;
    }
    /// Of the values, without the gaps between them.
    [[nodiscard]] std::int64_t bytes() const {
        std::int64_t count = 1;
        for (const std::int64_t d : dims) { count *= d; }
        return count * size_of(type);
    }
};

inline void require_image(const tensor_facts& t) {
    if (t.dims.size() != 4) { unsupported("a tensor that is not of 4 dimensions"); }
}

/// Where the values of a tensor are while a graph runs: bound memory, or the storage of a virtual tensor.
class memory {
public:
    std::map<std::int64_t, void*> bound{};

    /// Copies a by-value number from the host now: it may be gone later.
    void keep_value(const tensor_facts& t) {
        const auto found = bound.find(t.id);
        if (found == bound.end() || found->second == nullptr) { bad("number " + std::to_string(t.id) + " is missing"); }
        std::memcpy(&values_[t.id], found->second, sizeof(float));
    }
    [[nodiscard]] void* of(const tensor_facts& t) {
        if (t.by_value) { return &values_.at(t.id); }
        if (!t.is_virtual) {
            const auto found = bound.find(t.id);
            if (found == bound.end() || found->second == nullptr) {
                bad("tensor " + std::to_string(t.id) + " has no pointer");
            }
            if (reinterpret_cast<std::uintptr_t>(found->second) % static_cast<std::uintptr_t>(t.alignment) != 0) {
                refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor " + std::to_string(t.id));
            }
            return found->second;
        }
        std::vector<std::byte>& own = virtuals_[t.id];
        own.resize(static_cast<std::size_t>(t.extent() * size_of(t.type)));
        return own.data();
    }

private:
    std::map<std::int64_t, std::vector<std::byte>> virtuals_{};
    std::map<std::int64_t, float> values_{};
};

template <class F>
void for_each(const std::vector<std::int64_t>& dims, F f) {
    std::array<std::int64_t, 4> at{};
    for (at[0] = 0; at[0] != dims[0]; ++at[0]) {
        for (at[1] = 0; at[1] != dims[1]; ++at[1]) {
            for (at[2] = 0; at[2] != dims[2]; ++at[2]) {
                for (at[3] = 0; at[3] != dims[3]; ++at[3]) { f(at); }
            }
        }
    }
}

} // namespace emulated_cuda::cudnn
