#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <pulse/host/lanes.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::host {

/// Attention of one head of one sample whose head size is at most Size, a multiple of 8; keys run along the lanes.
///
/// Keys and values are first transposed into [Size][tokens, padded]; a mask of minus infinity hides the padding. Queries
/// are taken four at a time. The backward pass recomputes the probabilities from the logarithms of the row sums
/// (FlashAttention, arXiv:2205.14135, section 3.1 and appendix B), block of queries by block of queries.
template <int Size>
class small_attention {
public:
    static constexpr int block = 64; ///< queries whose score gradients are kept at a time

    [[nodiscard]] static constexpr std::int64_t padded(int tokens) noexcept {
        return (std::int64_t{tokens} + widest - 1) / widest * widest;
    }
    /// Floats of workspace for one head: K^T, V^T, dK^T, dV^T, mask, queries and output gradients of a block, scores.
    [[nodiscard]] static constexpr std::int64_t workspace(const attention_shape& s) noexcept {
        return padded(s.tokens) * (4 * Size + 1 + block) + 2 * block * (Size + 1);
    }

    small_attention(const attention_shape& s, const float* q, const float* k, const float* v, float* work) noexcept
        : tokens_{s.tokens}, stride_{s.width()}, size_{s.head_size}, pad_{padded(s.tokens)},
          scale_{static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_size)))}, q_{q}, kt_{work},
          vt_{kt_ + Size * pad_}, dkt_{vt_ + Size * pad_}, dvt_{dkt_ + Size * pad_}, mask_{dvt_ + Size * pad_},
          queries_{mask_ + pad_}, gradients_{queries_ + block * Size}, constants_{gradients_ + block * Size},
          scores_{constants_ + 2 * block} {
        transpose(k, kt_);
        transpose(v, vt_);
        std::fill(mask_, mask_ + tokens_, 0.0F);
        std::fill(mask_ + tokens_, mask_ + pad_, -__builtin_inff());
    }

    /// Pointers are to the head's first element; rows are `width` apart, lse [tokens].
    void forward(float* o, float* lse) const noexcept {
        for (int first = 0; first < tokens_; first += 4) {
            const int rows = std::min(4, tokens_ - first);
            take(q_, first, rows, 4, scale_, queries_);
            floats<widest> top[4];
            for (auto& t : top) { t = spread<widest>(-__builtin_inff()); }
            for (std::int64_t j = 0; j != pad_; j += widest) {
                floats<widest> s[4];
                dot(queries_, kt_ + j, s);
                const floats<widest> m = load<widest>(mask_ + j);
                for (int r = 0; r != 4; ++r) {
                    s[r] += m;
                    top[r] = s[r] > top[r] ? s[r] : top[r];
                    store<widest>(s[r], scores_ + r * pad_ + j);
                }
            }
            float inverse[4];
            for (int r = 0; r != 4; ++r) {
                const float greatest = greatest_of<widest>(top[r]);
                float* const row = scores_ + r * pad_;
                floats<widest> sum{};
                for (std::int64_t j = 0; j != pad_; j += widest) {
                    const floats<widest> p = exp<widest>(load<widest>(row + j) - greatest);
                    sum += p;
                    store<widest>(p, row + j);
                }
                const float total = sum_of<widest>(sum);
                inverse[r] = 1.0F / total;
                if (r < rows) { lse[first + r] = greatest + std::log(total); }
            }
            combine(scores_, vt_, first, rows, inverse, o);
        }
    }

    void backward(const float* o, const float* lse, const float* dout, float* dq, float* dk, float* dv) const noexcept {
        std::fill(dkt_, dkt_ + 2 * Size * pad_, 0.0F);
        const float ones[4]{1.0F, 1.0F, 1.0F, 1.0F};
        for (int first = 0; first < tokens_; first += block) {
            const int rows = std::min(block, tokens_ - first);
            const int filled = (rows + 3) / 4 * 4;
            take(q_, first, rows, filled, scale_, queries_);
            take(dout, first, rows, filled, 1.0F, gradients_);
            for (int r = 0; r != rows; ++r) {
                const std::int64_t row = std::int64_t{first + r} * stride_;
                float mean = 0.0F;
                for (int d = 0; d != size_; ++d) { mean += o[row + d] * dout[row + d]; }
                constants_[2 * r] = lse[first + r];
                constants_[2 * r + 1] = mean;
            }
            for (std::int64_t j = 0; j != pad_; j += widest) { column(rows, j); }
            for (int r = 0; r < rows; r += 4) {
                combine(scores_ + r * pad_, kt_, first + r, std::min(4, rows - r), ones, dq);
            }
        }
        untranspose(dkt_, dk);
        untranspose(dvt_, dv);
    }

private:
    /// to [Size][padded tokens] from rows of the head.
    void transpose(const float* from, float* to) const noexcept {
        std::fill(to, to + Size * pad_, 0.0F);
        for (int t = 0; t != tokens_; ++t) {
            for (int d = 0; d != size_; ++d) { to[d * pad_ + t] = from[std::int64_t{t} * stride_ + d]; }
        }
    }
    void untranspose(const float* from, float* to) const noexcept {
        for (int t = 0; t != tokens_; ++t) {
            for (int d = 0; d != size_; ++d) { to[std::int64_t{t} * stride_ + d] = from[d * pad_ + t]; }
        }
    }
    /// Rows [first, first + rows) of the head times `factor` into [filled][Size], zeros around them.
    void take(const float* from, int first, int rows, int filled, float factor, float* to) const noexcept {
        std::fill(to, to + std::int64_t{filled} * Size, 0.0F);
        for (int r = 0; r != rows; ++r) {
            const float* const row = from + std::int64_t{first + r} * stride_;
            for (int d = 0; d != size_; ++d) { to[r * Size + d] = row[d] * factor; }
        }
    }
    /// s[r][lane] = sum over d of rows[r][d] * columns[d][lane], for four rows.
    [[gnu::always_inline]] void dot(const float* rows, const float* columns, floats<widest> (&s)[4]) const noexcept {
        for (auto& sum : s) { sum = floats<widest>{}; }
        for (int d = 0; d != Size; ++d) {
            const floats<widest> c = load<widest>(columns + d * pad_);
            for (int r = 0; r != 4; ++r) { s[r] += c * rows[r * Size + d]; }
        }
    }
    /// to[first + r][d] = factor[r] * sum over keys of weights[r][key] * columns[d][key], for up to four rows.
    void combine(const float* weights, const float* columns, int first, int rows, const float (&factor)[4],
                 float* to) const noexcept {
        for (int d = 0; d < size_; d += 4) {
            floats<widest> sums[4][4]{};
            for (std::int64_t j = 0; j != pad_; j += widest) {
                floats<widest> w[4];
                for (int r = 0; r != 4; ++r) { w[r] = load<widest>(weights + r * pad_ + j); }
                for (int e = 0; e != 4; ++e) {
                    const floats<widest> c = load<widest>(columns + (d + e) * pad_ + j);
                    for (int r = 0; r != 4; ++r) { sums[r][e] += w[r] * c; }
                }
            }
            for (int r = 0; r < rows; ++r) {
                for (int e = 0; e != std::min(4, size_ - d); ++e) {
                    to[std::int64_t{first + r} * stride_ + d + e] = factor[r] * sum_of<widest>(sums[r][e]);
                }
            }
        }
    }
    /// One vector of keys against the block of queries: their dK^T and dV^T grow, scores_ receives dL/ds * scale.
    void column(int rows, std::int64_t j) const noexcept {
        floats<widest> dk[std::size_t{Size}];
        floats<widest> dv[std::size_t{Size}];
        for (int d = 0; d != Size; ++d) {
            dk[d] = load<widest>(dkt_ + d * pad_ + j);
            dv[d] = load<widest>(dvt_ + d * pad_ + j);
        }
        const floats<widest> m = load<widest>(mask_ + j);
        for (int r = 0; r != rows; ++r) {
            const float* const q = queries_ + r * Size;
            const float* const g = gradients_ + r * Size;
            floats<widest> s = m - constants_[2 * r];
            floats<widest> dp = spread<widest>(-constants_[2 * r + 1]);
            for (int d = 0; d != Size; ++d) {
                s += load<widest>(kt_ + d * pad_ + j) * q[d];
                dp += load<widest>(vt_ + d * pad_ + j) * g[d];
            }
            const floats<widest> p = exp<widest>(s);
            const floats<widest> ds = p * dp;
            for (int d = 0; d != Size; ++d) {
                dv[d] += p * g[d];
                dk[d] += ds * q[d]; // q carries the scale
            }
            store<widest>(ds * scale_, scores_ + r * pad_ + j);
        }
        for (int d = 0; d != Size; ++d) {
            store<widest>(dk[d], dkt_ + d * pad_ + j);
            store<widest>(dv[d], dvt_ + d * pad_ + j);
        }
    }

    int tokens_;
    int stride_;
    int size_;
    std::int64_t pad_;
    float scale_;
    const float* q_;
    float* kt_;
    float* vt_;
    float* dkt_;
    float* dvt_;
    float* mask_;
    float* queries_;
    float* gradients_;
    float* constants_;
    float* scores_;
};

} // namespace pulse::host
