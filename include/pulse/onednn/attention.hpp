#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <pulse/onednn/lanes.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// Attention of one head of one sample, with keys along the lanes; made for narrow heads.
///
/// Scores are held in units of log 2, so that probabilities are powers of two. The backward pass recomputes the
/// probabilities from the logarithms of the row sums (FlashAttention, arXiv:2205.14135, section 3.1 and appendix B),
/// block of queries by block of queries. The head size is padded to a multiple of 8 with zeros.
class narrow_attention {
public:
    static constexpr int block = 64; ///< queries whose scores are kept at a time in the backward pass

    /// Floats of workspace for one head.
    [[nodiscard]] static constexpr std::int64_t workspace(const attention_shape& s) noexcept {
        const std::int64_t depth = padded(s.head_size, 8);
        const std::int64_t keys = padded(s.keys(), 16);
        return 5 * depth * keys + 2 * block * depth + 2 * block + 2 * block * keys;
    }

    narrow_attention(const attention_shape& s, const float* q, const float* k, const float* v, float* work) noexcept :
        tokens_{s.tokens}, others_{s.keys()}, stride_{s.width()}, size_{s.head_size}, depth_{padded(s.head_size, 8)},
        keys_{padded(s.keys(), 16)}, scale_{static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_size)))},
        q_{q}, k_{k}, v_{v}, kt_{work}, vt_{kt_ + depth_ * keys_}, rows_{vt_ + depth_ * keys_}, dk_{rows_ +
                                                                                                    depth_ * keys_},
        dv_{dk_ + depth_ * keys_}, queries_{dv_ + depth_ * keys_}, gradients_{queries_ + block * depth_},
        constants_{gradients_ + block * depth_}, scores_{constants_ + 2 * block}, slopes_{scores_ + block * keys_} {}

    /// Pointers are to the head's first element; rows are `width` apart, lse [tokens].
    void forward(float* o, float* lse) const noexcept {
        transpose(k_, kt_);
        take(v_, 0, others_, others_, 1.0F, rows_);
        for (int first = 0; first < tokens_; first += 8) {
            const int rows = std::min(8, tokens_ - first);
            take(q_, first, rows, 8, scale_ * log2_e, queries_);
            floats<widest> top[8];
            score(queries_, scores_, top[0], top[1], top[2], top[3]);
            score(queries_ + 4 * depth_, scores_ + 4 * keys_, top[4], top[5], top[6], top[7]);
            float inverse[8];
            for (int r = 0; r != 8; ++r) {
                const float greatest = greatest_of<widest>(top[r]);
                float* const row = scores_ + r * keys_;
                floats<widest> sum{};
                for (std::int64_t j = 0; j != keys_; j += widest) {
                    const floats<widest> p = bounded_exp2<widest>(load<widest>(row + j) - greatest);
                    sum += p;
                    store<widest>(p, row + j);
                }
                const float total = sum_of<widest>(sum);
                inverse[r] = 1.0F / total;
                if (r < rows) { lse[first + r] = greatest * ln_2 + std::log(total); }
            }
            combine(scores_, keys_, 1, others_, rows_, [&](int r, std::int64_t d, const auto& value, auto store_row) {
                if (r < rows) { store_row(value * inverse[r], o + std::int64_t{first + r} * stride_ + d, size_ - d); }
            });
        }
    }

    void backward(const float* o, const float* lse, const float* dout, float* dq, float* dk, float* dv) const noexcept {
        transpose(k_, kt_);
        transpose(v_, vt_);
        take(k_, 0, others_, others_, 1.0F, rows_);
        std::fill(dk_, dk_ + 2 * depth_ * keys_, 0.0F);
        for (int first = 0; first < tokens_; first += block) {
            const int rows = std::min(block, tokens_ - first);
            const int filled = static_cast<int>(padded(rows, 8));
            take(q_, first, rows, filled, scale_ * log2_e, queries_);
            take(dout, first, rows, filled, 1.0F, gradients_);
            std::fill(constants_, constants_ + 2 * block, 0.0F);
            for (int r = 0; r != rows; ++r) {
                const std::int64_t row = std::int64_t{first + r} * stride_;
                float mean = 0.0F;
                for (int d = 0; d != size_; ++d) { mean += o[row + d] * dout[row + d]; }
                constants_[r] = lse[first + r] * log2_e;
                constants_[block + r] = mean;
            }
            std::int64_t j = 0;
            for (; j + 2 * widest <= keys_; j += 2 * widest) { differentiate<2>(filled, j); }
            for (; j != keys_; j += widest) { differentiate<1>(filled, j); }
            for (j = 0; j < others_; j += 8) {
                accumulate(scores_ + j, rows, gradients_, dv_ + j * depth_);
                accumulate(slopes_ + j, rows, queries_, dk_ + j * depth_);
            }
            for (int r = 0; r < rows; r += 8) {
                combine(slopes_ + r * keys_, keys_, 1, others_, rows_,
                        [&](int i, std::int64_t d, const auto& value, auto store_row) {
                            if (r + i < rows) {
                                store_row(value * scale_, dq + std::int64_t{first + r + i} * stride_ + d, size_ - d);
                            }
                        });
            }
        }
        give(dk_, ln_2, dk); // the queries were scaled by scale / ln 2
        give(dv_, 1.0F, dv);
    }

private:
    static constexpr float log2_e = 1.44269504F;
    static constexpr float ln_2 = 0.693147181F;

    [[nodiscard]] static constexpr std::int64_t padded(int n, int multiple) noexcept {
        return (std::int64_t{n} + multiple - 1) / multiple * multiple;
    }

    /// Transposes rows of the head into to [depth][keys].
    void transpose(const float* from, float* to) const noexcept {
        std::fill(to, to + depth_ * keys_, 0.0F);
        for (int t = 0; t != others_; ++t) {
            for (int d = 0; d != size_; ++d) { to[d * keys_ + t] = from[std::int64_t{t} * stride_ + d]; }
        }
    }
    /// Copies rows [first, first + rows) of the head times `factor` into to [filled][depth], with zeros around them.
    void take(const float* from, int first, int rows, int filled, float factor, float* to) const noexcept {
        if (rows != filled || size_ != depth_) { std::fill(to, to + filled * depth_, 0.0F); }
        for (int r = 0; r != rows; ++r) {
            const float* const row = from + std::int64_t{first + r} * stride_;
            for (int d = 0; d != size_; ++d) { to[r * depth_ + d] = row[d] * factor; }
        }
    }
    /// Copies from [keys][depth] times `factor` into rows of the head.
    void give(const float* from, float factor, float* to) const noexcept {
        for (int t = 0; t != others_; ++t) {
            for (int d = 0; d != size_; ++d) { to[std::int64_t{t} * stride_ + d] = from[t * depth_ + d] * factor; }
        }
    }

    /// Computes four rows of scores and, per lane, each row's maximum; scores of padding keys are minus infinity.
    void score(const float* queries, float* to, floats<widest>& a, floats<widest>& b, floats<widest>& c,
               floats<widest>& d) const noexcept {
        floats<widest> top[4];
        repeat<4>([&](auto r) { top[r] = spread<widest>(-__builtin_inff()); });
        std::int64_t j = 0;
        for (; j + 2 * widest <= keys_; j += 2 * widest) { score_keys<2>(queries, to, j, top); }
        for (; j != keys_; j += widest) { score_keys<1>(queries, to, j, top); }
        a = top[0];
        b = top[1];
        c = top[2];
        d = top[3];
    }
    template <int V>
    [[gnu::always_inline]] void score_keys(const float* queries, float* to, std::int64_t j,
                                           floats<widest> (&top)[4]) const noexcept {
        floats<widest> s[std::size_t{4} * V]{};
        multiply_add<V>(queries, kt_ + j, s);
        if (j + V * widest > others_) {
            for (int v = 0; v != V; ++v) {
                for (int l = 0; l != widest; ++l) {
                    if (j + v * widest + l >= others_) {
                        for (int r = 0; r != 4; ++r) { s[r * V + v][l] = -__builtin_inff(); }
                    }
                }
            }
        }
        repeat<4>([&](auto r) {
            repeat<V>([&](auto v) {
                constexpr int at = r * V + v;
                top[r] = s[at] > top[r] ? s[at] : top[r];
                store<widest>(s[at], to + r * keys_ + j + v * widest);
            });
        });
    }
    /// sums[r][v] += the sum over d of rows[r][d] * columns[d][v-th vector], for four rows.
    template <int V>
    [[gnu::always_inline]] void multiply_add(const float* rows, const float* columns,
                                             floats<widest> (&sums)[std::size_t{4} * V]) const noexcept {
        for (std::int64_t d = 0; d != depth_; ++d) {
            repeat<V>([&](auto v) {
                const floats<widest> c = load<widest>(columns + d * keys_ + v * widest);
                repeat<4>([&](auto r) { sums[r * V + v] += c * rows[r * depth_ + d]; });
            });
        }
    }

    /// Computes the probabilities of V vectors of keys for all queries of the block, and the gradients of their scores.
    template <int V>
    void differentiate(int rows, std::int64_t j) const noexcept {
        for (int r = 0; r != rows; r += 4) {
            floats<widest> s[std::size_t{4} * V]{};
            floats<widest> dp[std::size_t{4} * V]{};
            multiply_add<V>(queries_ + r * depth_, kt_ + j, s);
            multiply_add<V>(gradients_ + r * depth_, vt_ + j, dp);
            repeat<4>([&](auto i) {
                repeat<V>([&](auto v) {
                    constexpr int at = i * V + v;
                    const std::int64_t to = (r + i) * keys_ + j + v * widest;
                    const floats<widest> p = bounded_exp2<widest>(s[at] - constants_[r + i]);
                    store<widest>(p, scores_ + to);
                    store<widest>(p * (dp[at] - constants_[block + r + i]), slopes_ + to);
                });
            });
        }
    }

    /// Computes the sum over k of weights[r * row_step + k * step] * rows[k][depth] for eight r and passes it to f in
    /// pieces of a row.
    template <class F>
    [[gnu::always_inline]] void combine(const float* weights, std::int64_t row_step, std::int64_t step,
                                        std::int64_t count, const float* rows, F f) const noexcept {
        std::int64_t d = 0;
        if constexpr (widest == 16) {
            for (; d + 16 <= depth_; d += 16) { combine_lanes<16>(weights, row_step, step, count, rows, d, f); }
        }
        constexpr int lanes = widest < 8 ? widest : 8;
        for (; d != depth_; d += lanes) { combine_lanes<lanes>(weights, row_step, step, count, rows, d, f); }
    }
    template <int T, class F>
    [[gnu::always_inline]] void combine_lanes(const float* weights, std::int64_t row_step, std::int64_t step,
                                              std::int64_t count, const float* rows, std::int64_t d,
                                              F f) const noexcept {
        floats<T> sums[8]{};
        for (std::int64_t k = 0; k != count; ++k) {
            const floats<T> row = load<T>(rows + k * depth_ + d);
            repeat<8>([&](auto r) { sums[r] += row * weights[r * row_step + k * step]; });
        }
        const auto store_row = [](const floats<T>& value, float* to, std::int64_t room) {
            if (room >= T) {
                store<T>(value, to);
            } else if (room > 0) {
                std::memcpy(to, &value, static_cast<std::size_t>(room) * sizeof(float));
            }
        };
        repeat<8>([&](auto r) { f(static_cast<int>(r), d, sums[r], store_row); });
    }
    /// to[key][depth] += the sum over the block's queries of weights[query][key] * rows[query][depth], for eight keys.
    void accumulate(const float* weights, int count, const float* rows, float* to) const noexcept {
        combine(weights, 1, keys_, count, rows, [&](int r, std::int64_t d, const auto& value, auto store_row) {
            std::remove_cvref_t<decltype(value)> sum;
            std::memcpy(&sum, to + r * depth_ + d, sizeof sum);
            store_row(sum + value, to + r * depth_ + d, depth_ - d);
        });
    }

    int tokens_;
    int others_; ///< tokens that have keys and values
    int stride_;
    int size_;
    std::int64_t depth_;
    std::int64_t keys_;
    float scale_;
    const float* q_;
    const float* k_;
    const float* v_;
    float* kt_;
    float* vt_;
    float* rows_;
    float* dk_;
    float* dv_;
    float* queries_;
    float* gradients_;
    float* constants_;
    float* scores_;
    float* slopes_;
};

} // namespace pulse::onednn
