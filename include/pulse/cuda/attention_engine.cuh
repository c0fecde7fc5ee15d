#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <pulse/core/error.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

struct fp32; // defined in cuda/precision.cuh

/// The implementations of attention.
enum class attention_engine : std::uint8_t {
    fma,          ///< pulse's kernels on float arithmetic: fp32, and whatever the others do not support
    tensor_cores, ///< pulse's kernels on tensor cores
    cudnn,        ///< cuDNN's scaled dot-product attention
};

/// Human-readable name of an engine.
[[nodiscard]] constexpr const char* name_of(attention_engine engine) {
    switch (engine) {
    case attention_engine::fma: return "pulse, float arithmetic";
    case attention_engine::tensor_cores: return "pulse, tensor cores";
    case attention_engine::cudnn: return "cuDNN";
    }
    return "?";
}

/// Whether products under policy P run on tensor cores.
template <class P>
inline constexpr bool has_tensor_core = !std::is_same_v<P, fp32>;

/// The greatest head size of pulse's kernels on tensor cores; their head sizes are multiples of 8.
template <class P>
inline constexpr int most_tensor_core_head_size = sizeof(typename P::scalar) == 2 ? 256 : 160;

/// The greatest head size of pulse's kernels on float arithmetic, which support every smaller one too.
inline constexpr int most_fma_head_size = 256;

/// Throws input_error on a shape that no kernel of pulse supports: sizes below 1, head_size over most_fma_head_size, or
/// more than 65535 heads or samples.
inline void require_attention(const attention_shape& s, int batch) {
    const auto require = [](bool holds, const std::string& what) {
        if (!holds) { throw input_error("attention: " + what); }
    };
    require(s.tokens > 0, "tokens must be at least 1, not " + std::to_string(s.tokens));
    require(s.context_tokens >= 0, "context_tokens must be at least 0, not " + std::to_string(s.context_tokens));
    require(s.heads > 0 && s.heads <= 65535, "heads must be from 1 to 65535, not " + std::to_string(s.heads));
    require(batch > 0 && batch <= 65535, "batch must be from 1 to 65535, not " + std::to_string(batch));
    require(s.head_size > 0 && s.head_size <= most_fma_head_size, "head_size must be from 1 to " +
                                                                      std::to_string(most_fma_head_size) + ", not " +
                                                                      std::to_string(s.head_size));
}

/// Which of pulse's own kernels compute attention of this shape under policy P, for operands aligned to 16 bytes;
/// others use attention_engine::fma. Throws as require_attention does.
template <class P>
[[nodiscard]] attention_engine own_attention_engine(const attention_shape& s, int batch) {
    require_attention(s, batch);
    const bool fits = has_tensor_core<P> && s.head_size % 8 == 0 && s.head_size <= most_tensor_core_head_size<P>;
    return fits ? attention_engine::tensor_cores : attention_engine::fma;
}

} // namespace pulse::cuda
