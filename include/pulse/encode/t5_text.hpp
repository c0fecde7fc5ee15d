#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <pulse/core/label.hpp>
#include <pulse/encode/text_ends.hpp>
#include <pulse/encode/text_layers.hpp>
#include <pulse/encode/text_network.hpp>
#include <pulse/nn/description.hpp>

namespace pulse::encode {

/// The structure of transformers' T5EncoderModel or MT5EncoderModel with feed_forward_proj "gated-gelu"; fields are
/// named as in T5Config, except `tokens`, the length of a text. Its states are last_hidden_state.
struct t5_text_config {
    label name{};
    int tokens{};
    int vocab_size{};
    int d_model{};
    int d_kv{64};
    int d_ff{};
    int num_layers{};
    int num_heads{};
    int relative_attention_num_buckets{32};
    int relative_attention_max_distance{128};
    double layer_norm_epsilon{1e-6};
};

/// The bucket of a key `distance` tokens after the query; half of the buckets are for keys not after it. In each half,
/// half of the buckets hold one distance, the rest grow with its logarithm up to `furthest` (Raffel et al. 2020).
[[nodiscard]] inline int t5_bucket(int distance, int buckets, int furthest) {
    const int half = buckets / 2;
    const int single = half / 2;
    const int first = distance > 0 ? half : 0;
    const int far = std::abs(distance);
    if (far < single) { return first + far; }
    const double share = std::log(static_cast<double>(far) / single) / std::log(static_cast<double>(furthest) / single);
    // A distance on the border of two buckets belongs to the greater, whatever the rounding of logarithms.
    return first + std::min(half - 1, single + static_cast<int>(share * (half - single) + 1e-9));
}

template <t5_text_config C>
struct t5_text_parts {
    static_assert(!C.name.empty(), "pulse: a t5_text_config needs a name");
    static_assert(C.num_layers > 0, "pulse: a t5_text_config needs layers");
    static_assert(
        C.relative_attention_num_buckets >= 4 && C.relative_attention_num_buckets % 4 == 0 &&
            C.relative_attention_max_distance > C.relative_attention_num_buckets / 4,
        "pulse: the buckets of a t5_text_config must be a multiple of 4, and its greatest distance must be above a "
        "quarter of them");

    static constexpr label name = C.name;
    static constexpr auto depth = static_cast<std::size_t>(C.num_layers);
    static constexpr std::size_t count = depth + 2;
    static constexpr network_results results{depth + 2, depth + 1};
    [[nodiscard]] static constexpr t5_block block(bool first) noexcept {
        return {{C.tokens, C.d_model, C.d_ff, C.num_heads, C.d_kv, C.layer_norm_epsilon},
                C.relative_attention_num_buckets,
                first};
    }

    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_of() {
        if constexpr (I == 0) {
            return frozen_layer<"shared", token_embedding{C.vocab_size, C.tokens, C.d_model, 0}>{};
        } else if constexpr (I <= depth) {
            return frozen_layer<label{"encoder.block."} + static_cast<unsigned>(I - 1), block(I == 1)>{};
        } else {
            return frozen_layer<"encoder.final_layer_norm",
                                final_norm{C.tokens, C.d_model, C.layer_norm_epsilon, true}>{};
        }
    }
};

/// The text encoder that a t5_text_config describes, with transformers' parameter names. A bad config stops compilation
/// with one sentence.
template <t5_text_config C>
struct t5_text : text_network<t5_text_parts<C>> {
    static constexpr t5_text_config config = C;
    static constexpr int tokens = C.tokens;
    static constexpr int vocabulary = C.vocab_size;
    /// Offset of the table of biases in the weights.
    static constexpr std::int64_t shared_at =
        t5_text::parameter_offsets[1] + nn::layout<t5_text_parts<C>::block(true)>.pieces.table.begin;

    [[nodiscard]] static int bucket_of(int distance) {
        return t5_bucket(distance, C.relative_attention_num_buckets, C.relative_attention_max_distance);
    }
};

} // namespace pulse::encode
