#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/attention.cuh>
#include <pulse/cuda/kernels/attention_weights.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/products.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/plan/cuda_memory.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// Attention for heads too wide for on-chip kernels (the autoencoder of Stable Diffusion has one of 512): by products,
/// one block of queries at a time, with the block's scores in device memory. Forward only.
template <class T>
class wide_attention {
public:
    /// A block has at most `most_scores` scores, by default 64 MiB, and as many weights, unless one query has more.
    explicit wide_attention(cudaStream_t stream, std::int64_t most_scores = cuda_attention_scores) noexcept :
        kept_{stream}, most_scores_{most_scores} {}

    /// Writes o and lse of attention, for heads of any size. Scores are floats, weights are rounded to the scalar.
    void forward(const queue& on, scratch_arena& scratch, products<T>& by, const attention_shape& s, int batch,
                 const T* q, const T* k, const T* v, T* o, float* lse) {
        if (s.tokens < 1 || s.context_tokens < 0 || s.heads < 1 || batch < 1) {
            throw input_error("attention: tokens, heads and batch must be at least 1, context_tokens at least 0");
        }
        met_.insert({s.tokens, s.keys(), s.heads, s.head_size});
        const auto rows = static_cast<int>(std::clamp<std::int64_t>(most_scores_ / s.keys(), 1, s.tokens));
        const std::int64_t count = std::int64_t{rows} * s.keys();
        const auto [scores, weights] = lay_pieces(kept_, [&](scratch_pieces& pieces) {
            return std::pair{pieces.take<float>(count), pieces.take<T>(count)};
        });
        for (int i = 0; i != batch * s.heads; ++i) {
            const std::int64_t head = i % s.heads * std::int64_t{s.head_size};
            const std::int64_t query = i / s.heads * std::int64_t{s.tokens} * s.width() + head;
            const std::int64_t key = i / s.heads * std::int64_t{s.keys()} * s.width() + head;
            for (int first = 0; first < s.tokens; first += rows) {
                const int some = std::min(rows, s.tokens - first);
                const std::int64_t at = query + std::int64_t{first} * s.width();
                by.scores(on, scratch, some, s.keys(), s.head_size, s.width(), q + at, k + key, scores);
                launch(attention_weights_kernel<T>, dim3(static_cast<unsigned>(some)), dim3(weights_threads),
                       sizeof(float) * (weights_threads / 32), on.stream, s.keys(), attention_scale(s), scores, weights,
                       lse + std::int64_t{i} * s.tokens + first);
                by.mixed(on, scratch, some, s.keys(), s.head_size, s.width(), weights, v + key, o + at);
            }
        }
    }

    [[nodiscard]] std::int64_t bytes() const noexcept { return kept_.bytes(); }
    /// One line per shape seen so far.
    [[nodiscard]] std::string report() const {
        std::string text;
        for (const auto& [tokens, keys, heads, head_size] : met_) {
            text += "attention forward of " + std::to_string(tokens) + " tokens to " + std::to_string(keys) + ", " +
                    std::to_string(heads) + " heads of " + std::to_string(head_size) + ": products by cuBLASLt\n";
        }
        return text;
    }

private:
    scratch_arena kept_;
    std::int64_t most_scores_;
    std::set<std::tuple<int, int, int, int>> met_{}; ///< tokens, keys, heads, head size
};

} // namespace pulse::cuda
