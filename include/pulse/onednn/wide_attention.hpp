#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/library.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// Attention of one head of one sample by matrix products, block of queries by block of queries, for wide heads.
class wide_attention {
public:
    static constexpr int block = 128; ///< queries whose scores are kept at a time

    /// Floats of workspace for one head: probabilities and their gradients.
    [[nodiscard]] static constexpr std::int64_t workspace(const attention_shape& s) noexcept {
        return std::int64_t{2} * block * s.keys();
    }

    wide_attention(const attention_shape& s, const float* q, const float* k, const float* v, float* work) noexcept :
        tokens_{s.tokens}, keys_{s.keys()}, stride_{s.width()}, size_{s.head_size},
        scale_{static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_size)))}, q_{q}, k_{k}, v_{v},
        scores_{work}, gradients_{work + std::int64_t{block} * s.keys()} {}

    /// Pointers are to the head's first element; rows are `width` apart, lse [tokens].
    void forward(float* o, float* lse) const {
        for (int first = 0; first < tokens_; first += block) {
            const int rows = std::min(block, tokens_ - first);
            const std::int64_t at = std::int64_t{first} * stride_;
            multiply('N', 'T', rows, keys_, size_, scale_, q_ + at, stride_, k_, stride_, 0.0F, scores_, keys_);
            for (int r = 0; r != rows; ++r) { lse[first + r] = normalise(keys_, scores_ + std::int64_t{r} * keys_); }
            multiply('N', 'N', rows, size_, keys_, 1.0F, scores_, keys_, v_, stride_, 0.0F, o + at, stride_);
        }
    }

    void backward(const float* o, const float* lse, const float* dout, float* dq, float* dk, float* dv) const {
        for (int first = 0; first < tokens_; first += block) {
            const int rows = std::min(block, tokens_ - first);
            const std::int64_t at = std::int64_t{first} * stride_;
            const float before = first == 0 ? 0.0F : 1.0F;
            multiply('N', 'T', rows, keys_, size_, scale_, q_ + at, stride_, k_, stride_, 0.0F, scores_, keys_);
            multiply('N', 'T', rows, keys_, size_, 1.0F, dout + at, stride_, v_, stride_, 0.0F, gradients_, keys_);
            for (int r = 0; r != rows; ++r) {
                const std::int64_t row = at + std::int64_t{r} * stride_;
                differentiate(scores_ + std::int64_t{r} * keys_, gradients_ + std::int64_t{r} * keys_, lse[first + r],
                              dot(o + row, dout + row));
            }
            multiply('T', 'N', keys_, size_, rows, 1.0F, scores_, keys_, dout + at, stride_, before, dv, stride_);
            multiply('T', 'N', keys_, size_, rows, scale_, gradients_, keys_, q_ + at, stride_, before, dk, stride_);
            multiply('N', 'N', rows, size_, keys_, scale_, gradients_, keys_, k_, stride_, 0.0F, dq + at, stride_);
        }
    }

    /// c = alpha a b + beta c on rows of one head, with the transpose flags of BLAS.
    static void multiply(char a_order, char b_order, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                         const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                         std::int64_t ldc) {
        check(dnnl_sgemm(a_order, b_order, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), "attention");
    }
    /// Turns a row of scores into probabilities; returns the logarithm of its sum of exponentials.
    static float normalise(std::int64_t keys, float* row) noexcept {
        float greatest = -__builtin_inff();
        for_lanes(0, keys,
                  [&]<int W>(std::int64_t j) { greatest = std::max(greatest, greatest_of<W>(load<W>(row + j))); });
        float total = 0.0F;
        for_lanes(0, keys, [&]<int W>(std::int64_t j) {
            const floats<W> p = exp<W>(load<W>(row + j) - greatest);
            total += sum_of<W>(p);
            store<W>(p, row + j);
        });
        const float inverse = 1.0F / total;
        for_lanes(0, keys, [&]<int W>(std::int64_t j) { store<W>(load<W>(row + j) * inverse, row + j); });
        return greatest + std::log(total);
    }

private:
    [[nodiscard]] float dot(const float* a, const float* b) const noexcept {
        double sum = 0.0;
        for (int d = 0; d != size_; ++d) { sum += static_cast<double>(a[d]) * static_cast<double>(b[d]); }
        return static_cast<float>(sum);
    }
    /// Turns scores into probabilities p, and gradients of p into those of the scores.
    void differentiate(float* scores, float* gradients, float lse, float mean) const noexcept {
        for_lanes(0, keys_, [&]<int W>(std::int64_t j) {
            const floats<W> p = exp<W>(load<W>(scores + j) - lse);
            store<W>(p, scores + j);
            store<W>(p * (load<W>(gradients + j) - mean), gradients + j);
        });
    }

    int tokens_;
    int keys_;
    int stride_;
    int size_;
    float scale_;
    const float* q_;
    const float* k_;
    const float* v_;
    float* scores_;
    float* gradients_;
};

} // namespace pulse::onednn
