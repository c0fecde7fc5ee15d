#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cudnn.h>

#include <pulse/core/error.hpp>

namespace pulse::cuda::cudnn {

/// A cuDNN call failed; the text names the call, the status and cuDNN's own message.
struct cudnn_error : pulse::error {
    cudnn_error(cudnnStatus_t status, const std::string& failed_call, const std::string& more) :
        pulse::error{"cuDNN: " + failed_call + ": " + cudnnGetErrorString(status) + (more.empty() ? "" : ": ") + more},
        code{status}, call{failed_call} {}

    cudnnStatus_t code;
    std::string call;
};

/// Throws cudnn_error unless `status` is success; `call` names what was called.
inline void check(cudnnStatus_t status, std::string_view call) {
    if (status == CUDNN_STATUS_SUCCESS) { return; }
    char message[1024]{};
    cudnnGetLastErrorString(message, sizeof message);
    throw cudnn_error{status, std::string{call}, message};
}

/// cuDNN's tag for attributes of type T.
template <class T>
[[nodiscard]] constexpr cudnnBackendAttributeType_t attribute_type() {
    if constexpr (std::is_same_v<T, std::int64_t>) {
        return CUDNN_TYPE_INT64;
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
        return CUDNN_TYPE_INT32;
    } else if constexpr (std::is_same_v<T, float>) {
        return CUDNN_TYPE_FLOAT;
    } else if constexpr (std::is_same_v<T, double>) {
        return CUDNN_TYPE_DOUBLE;
    } else if constexpr (std::is_same_v<T, bool>) {
        return CUDNN_TYPE_BOOLEAN;
    } else if constexpr (std::is_same_v<T, char>) {
        return CUDNN_TYPE_CHAR;
    } else if constexpr (std::is_same_v<T, void*>) {
        return CUDNN_TYPE_VOID_PTR;
    } else if constexpr (std::is_same_v<T, cudnnHandle_t>) {
        return CUDNN_TYPE_HANDLE;
    } else if constexpr (std::is_same_v<T, cudnnDataType_t>) {
        return CUDNN_TYPE_DATA_TYPE;
    } else if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) {
        return CUDNN_TYPE_CONVOLUTION_MODE;
    } else if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) {
        return CUDNN_TYPE_POINTWISE_MODE;
    } else if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) {
        return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    } else if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) {
        return CUDNN_TYPE_HEUR_MODE;
    } else if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>) {
        return CUDNN_TYPE_NUMERICAL_NOTE;
    } else {
        static_assert(std::is_same_v<T, cudnnBackendBehaviorNote_t>, "pulse: cuDNN has no attributes of this type");
        return CUDNN_TYPE_BEHAVIOR_NOTE;
    }
}

/// A descriptor of cuDNN's graph API: made, given attributes, finalized, then read-only. Copies share the descriptor,
/// and a descriptor keeps alive those that it refers to.
class descriptor {
public:
    descriptor() = default;
    explicit descriptor(cudnnBackendDescriptorType_t type) : state_{std::make_shared<state>()} {
        check(cudnnBackendCreateDescriptor(type, &state_->raw),
              "cudnnBackendCreateDescriptor(" + std::to_string(type) + ")");
        state_->text = "d" + std::to_string(type);
    }

    [[nodiscard]] cudnnBackendDescriptor_t get() const noexcept { return state_ ? state_->raw : nullptr; }

    /// Everything that was set, descriptors included, in the order of setting; graphs with equal texts are equal.
    /// Pointers and handles are left out.
    [[nodiscard]] const std::string& text() const noexcept { return state_->text; }

    template <class T>
    descriptor& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
        check(cudnnBackendSetAttribute(get(), name, attribute_type<T>(), static_cast<std::int64_t>(values.size()),
                                       values.data()),
              label("cudnnBackendSetAttribute", name));
        if constexpr (!std::is_pointer_v<T>) {
            begin_text(name);
            for (const T& value : values) { append_text(value); }
        }
        return *this;
    }
    template <class T>
        requires(!std::same_as<T, descriptor>)
    descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
        return set(name, std::span<const T>{&value, 1});
    }
    template <class T>
    descriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
        return set(name, std::span<const T>{values});
    }
    descriptor& set(cudnnBackendAttributeName_t name, const std::string& text) {
        return set(name, std::span<const char>{text.data(), text.size()});
    }
    descriptor& set(cudnnBackendAttributeName_t name, const descriptor& part) {
        return set(name, std::span<const descriptor>{&part, 1});
    }
    descriptor& set(cudnnBackendAttributeName_t name, std::span<const descriptor> parts) {
        std::vector<cudnnBackendDescriptor_t> raw;
        raw.reserve(parts.size());
        for (const descriptor& part : parts) { raw.push_back(part.get()); }
        check(cudnnBackendSetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       static_cast<std::int64_t>(raw.size()), raw.data()),
              label("cudnnBackendSetAttribute", name));
        begin_text(name);
        for (const descriptor& part : parts) {
            state_->text += " (" + part.text() + ")";
            state_->parts.push_back(part);
        }
        return *this;
    }

    /// Throws cudnn_error with cuDNN's reason when the attributes do not fit together; `what` names the descriptor.
    descriptor& finalize(std::string_view what) {
        check(cudnnBackendFinalize(get()), "cudnnBackendFinalize of " + std::string{what});
        return *this;
    }

    /// How many elements an attribute has.
    template <class T>
    [[nodiscard]] std::int64_t count(cudnnBackendAttributeName_t name) const {
        return count(name, attribute_type<T>());
    }
    [[nodiscard]] std::int64_t count_descriptors(cudnnBackendAttributeName_t name) const {
        return count(name, CUDNN_TYPE_BACKEND_DESCRIPTOR);
    }
    template <class T>
    [[nodiscard]] std::vector<T> get_all(cudnnBackendAttributeName_t name) const {
        const auto asked = static_cast<std::size_t>(count<T>(name));
        std::vector<T> values(asked);
        std::int64_t found = 0;
        if (asked != 0) {
            check(cudnnBackendGetAttribute(get(), name, attribute_type<T>(), static_cast<std::int64_t>(asked), &found,
                                           values.data()),
                  label("cudnnBackendGetAttribute", name));
        }
        values.resize(static_cast<std::size_t>(found));
        return values;
    }
    template <class T>
    [[nodiscard]] T get_one(cudnnBackendAttributeName_t name) const {
        T value{};
        std::int64_t found = 0;
        check(cudnnBackendGetAttribute(get(), name, attribute_type<T>(), 1, &found, &value),
              label("cudnnBackendGetAttribute", name));
        return value;
    }
    /// The first `most` descriptors of an attribute, each of the given type.
    [[nodiscard]] std::vector<descriptor> get_descriptors(cudnnBackendAttributeName_t name,
                                                          cudnnBackendDescriptorType_t type, std::int64_t most) const {
        std::vector<descriptor> found;
        std::vector<cudnnBackendDescriptor_t> raw;
        for (std::int64_t i = 0; i < most; ++i) {
            found.emplace_back(type);
            raw.push_back(found.back().get());
        }
        std::int64_t count = 0;
        if (most > 0) {
            check(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw.data()),
                  label("cudnnBackendGetAttribute", name));
        }
        found.resize(static_cast<std::size_t>(count < most ? count : most));
        for (descriptor& part : found) { part.state_->parts.push_back(*this); }
        return found;
    }

private:
    struct state {
        state() = default;
        state(const state&) = delete;
        state& operator=(const state&) = delete;
        ~state() {
            if (raw != nullptr) { cudnnBackendDestroyDescriptor(raw); }
        }
        cudnnBackendDescriptor_t raw{};
        std::string text{};
        std::vector<descriptor> parts{};
    };

    [[nodiscard]] static std::string label(const char* call, cudnnBackendAttributeName_t name) {
        return std::string{call} + "(attribute " + std::to_string(name) + ")";
    }
    [[nodiscard]] std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
        std::int64_t found = 0;
        check(cudnnBackendGetAttribute(get(), name, type, 0, &found, nullptr), label("cudnnBackendGetAttribute", name));
        return found;
    }
    void begin_text(cudnnBackendAttributeName_t name) { state_->text += ";" + std::to_string(name); }
    template <class T>
    void append_text(const T& value) {
        if constexpr (std::is_same_v<T, char>) {
            state_->text += value;
        } else if constexpr (std::is_enum_v<T>) {
            state_->text += " " + std::to_string(static_cast<int>(value));
        } else {
            state_->text += " " + std::to_string(value);
        }
    }

    std::shared_ptr<state> state_{};
};

} // namespace pulse::cuda::cudnn
