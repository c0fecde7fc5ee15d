#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/wide_attention.hpp>
#include <pulse/runtime/text_backend.hpp>

namespace pulse::onednn {

/// masked_attention of one head of one sample as matrix products, block of queries by block of queries. A causal block
/// skips the keys after its last query.
class masked_head {
public:
    static constexpr int block = 128; ///< queries whose scores are kept at a time

    /// Floats of workspace for one head: scores, and the bias of each distance.
    [[nodiscard]] static constexpr std::int64_t workspace(const masked_attention_shape& s) noexcept {
        return std::int64_t{block} * s.tokens + s.distances();
    }

    /// Pointers are to the head's first element, mask to the sample's; rows are `width` apart, rows of bias `heads`.
    /// bias and mask may be null.
    static void forward(const masked_attention_shape& s, const float* q, const float* k, const float* v,
                        const float* mask, const float* bias, float* o, float* work) {
        const int stride = s.width();
        float* const own_bias = work + std::int64_t{block} * s.tokens;
        if (bias != nullptr) {
            for (int d = 0; d != s.distances(); ++d) { own_bias[d] = bias[std::int64_t{d} * s.heads]; }
        }
        for (int first = 0; first < s.tokens; first += block) {
            const int rows = std::min(block, s.tokens - first);
            const int keys = s.causal ? first + rows : s.tokens;
            const std::int64_t at = std::int64_t{first} * stride;
            wide_attention::multiply('N', 'T', rows, keys, s.head_size, static_cast<float>(s.scale), q + at, stride, k,
                                     stride, 0.0F, work, keys);
            for (int r = 0; r != rows; ++r) {
                float* const row = work + std::int64_t{r} * keys;
                const int own = s.causal ? first + r + 1 : keys;
                if (bias != nullptr) { add_bias(own, own_bias + (s.tokens - 1 - first - r), row); }
                if (mask != nullptr) { leave_out(own, mask, row); }
                wide_attention::normalise(own, row);
                std::fill(row + own, row + keys, 0.0F);
            }
            wide_attention::multiply('N', 'N', rows, s.head_size, keys, 1.0F, work, keys, v, stride, 0.0F, o + at,
                                     stride);
        }
    }

private:
    static void add_bias(int keys, const float* bias, float* row) {
        for_lanes(0, keys, [=]<int W>(std::int64_t j) { store<W>(load<W>(row + j) + load<W>(bias + j), row + j); });
    }
    static void leave_out(int keys, const float* mask, float* row) {
        for_lanes(0, keys, [=]<int W>(std::int64_t j) {
            const floats<W> lowest = spread<W>(std::numeric_limits<float>::lowest());
            const floats<W> score = load<W>(row + j);
            store<W>(load<W>(mask + j) == 0.0F ? lowest : score, row + j);
        });
    }
};

} // namespace pulse::onednn
