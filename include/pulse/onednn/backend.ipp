#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/activations.hpp>
#include <pulse/onednn/attention.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/onednn/buffer.hpp>
#include <pulse/onednn/convolution_cache.hpp>
#include <pulse/onednn/group_norm.hpp>
#include <pulse/onednn/library.hpp>
#include <pulse/onednn/narrow_convolution.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/onednn/wide_attention.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::onednn {

PULSE_HOST_INLINE backend::backend(int threads) :
    text_operations{threads}, conditioned_operations{threads}, picture_operations{threads}, threads_{threads} {
    if (threads < 1) {
        throw input_error{"pulse: onednn::backend: threads must be at least 1, not " + std::to_string(threads)};
    }
}

PULSE_HOST_INLINE void backend::conv2d(const conv2d_shape& s, int batch, const float* x, const float* weight,
                                       const float* bias, float* y, into how) {
    detail::check_convolution("conv2d", s, batch);
    convolve(s, s.in_channels, batch, x, weight, bias, y, how);
}

PULSE_HOST_INLINE void backend::conv2d_backward_input(const conv2d_shape& s, int batch, const float* dy,
                                                      const float* weight, float* dx, into how) {
    detail::check_convolution("conv2d_backward_input", s, batch);
    convolve_back(s, s.in_channels, batch, dy, weight, dx, how);
}

PULSE_HOST_INLINE void backend::conv2d_backward_weight(const conv2d_shape& s, int batch, const float* x,
                                                       const float* dy, gradient_place<float> dweight,
                                                       gradient_place<float> dbias) {
    detail::check_convolution("conv2d_backward_weight", s, batch);
    convolve_weight(s, s.in_channels, batch, x, dy, dweight, dbias);
}

PULSE_HOST_INLINE void backend::conv2d_pair(const conv2d_shape& s, int second, int batch, const float* xa,
                                            const float* xb, const float* weight, const float* bias, float* y,
                                            into how) {
    detail::check_pair("conv2d_pair", s, second, batch);
    convolve(s.part(s.in_channels - second), s.in_channels, batch, xa, weight, bias, y, how);
    if (second != 0) {
        convolve(s.part(second), s.in_channels, batch, xb, weight + second_at(s, second), nullptr, y, into::add);
    }
}

PULSE_HOST_INLINE void backend::conv2d_pair_backward_input(const conv2d_shape& s, int second, int batch,
                                                           const float* dy, const float* weight, float* dxa, float* dxb,
                                                           into how) {
    detail::check_pair("conv2d_pair_backward_input", s, second, batch);
    convolve_back(s.part(s.in_channels - second), s.in_channels, batch, dy, weight, dxa, how);
    if (second != 0) {
        convolve_back(s.part(second), s.in_channels, batch, dy, weight + second_at(s, second), dxb, how);
    }
}

PULSE_HOST_INLINE void backend::conv2d_pair_backward_weight(const conv2d_shape& s, int second, int batch,
                                                            const float* xa, const float* xb, const float* dy,
                                                            gradient_place<float> dweight,
                                                            gradient_place<float> dbias) {
    detail::check_pair("conv2d_pair_backward_weight", s, second, batch);
    convolve_weight(s.part(s.in_channels - second), s.in_channels, batch, xa, dy, dweight, dbias);
    if (second != 0) {
        convolve_weight(s.part(second), s.in_channels, batch, xb, dy, dweight + second_at(s, second), nullptr);
    }
}

PULSE_HOST_INLINE void backend::linear(const linear_shape& s, std::int64_t rows, const float* x, const float* weight,
                                       const float* bias, float* y, into how) {
    detail::check_linear("linear", s, rows);
    multiply(s, s.in_features, rows, x, weight, bias, y, how);
}

PULSE_HOST_INLINE void backend::linear_backward_input(const linear_shape& s, std::int64_t rows, const float* dy,
                                                      const float* weight, float* dx, into how) {
    detail::check_linear("linear_backward_input", s, rows);
    multiply_back(s, s.in_features, rows, dy, weight, dx, how);
}

PULSE_HOST_INLINE void backend::linear_backward_weight(const linear_shape& s, std::int64_t rows, const float* x,
                                                       const float* dy, gradient_place<float> dweight,
                                                       gradient_place<float> dbias) {
    detail::check_linear("linear_backward_weight", s, rows);
    multiply_weight(s, s.in_features, rows, x, dy, dweight, dbias);
}

PULSE_HOST_INLINE void backend::group_norm(const group_norm_shape& s, int batch, const float* xa, const float* xb,
                                           const float* gamma, const float* beta, float* y, float* statistics) {
    detail::check_group_norm("group_norm", s, batch);
    double* const sums = sums_.reserve(threads_ * group_norm_sample::sums(s));
    float* const constants = scratch_.reserve(threads_ * group_norm_sample::constants(s));
    parallel_for(threads_, batch, [&](int worker, std::int64_t b) {
        const group_norm_sample sample{s,
                                       xa + b * elements(s.pixels, s.channels),
                                       second_of(s, xb, b),
                                       gamma,
                                       beta,
                                       sums + worker * group_norm_sample::sums(s),
                                       constants + worker * group_norm_sample::constants(s)};
        sample.forward(y + b * elements(s.pixels, s.all_channels()), statistics + b * 2 * s.groups);
    });
}

PULSE_HOST_INLINE void backend::group_norm_backward(const group_norm_shape& s, int batch, const float* xa,
                                                    const float* xb, const float* gamma, const float* beta,
                                                    const float* statistics, const float* dy, float* dxa, float* dxb,
                                                    gradient_place<float> dgamma, gradient_place<float> dbeta,
                                                    into how) {
    detail::check_group_norm("group_norm_backward", s, batch);
    const std::int64_t kept = group_norm_sample::constants(s) + group_norm_sample::gradients(s);
    double* const sums = sums_.reserve(batch * group_norm_sample::sums(s));
    float* const work = scratch_.reserve(threads_ * kept);
    parallel_for(threads_, batch, [&](int worker, std::int64_t b) {
        float* const mine = work + worker * kept;
        const group_norm_sample sample{s,
                                       xa + b * elements(s.pixels, s.channels),
                                       second_of(s, xb, b),
                                       gamma,
                                       beta,
                                       sums + b * group_norm_sample::sums(s),
                                       mine};
        sample.backward(statistics + b * 2 * s.groups, dy + b * elements(s.pixels, s.all_channels()),
                        mine + group_norm_sample::constants(s), dxa + b * elements(s.pixels, s.channels),
                        second_of(s, dxb, b), how);
    });
    if (!dgamma.wanted()) { return; }
    const int all = s.all_channels();
    float* const to_slope = dgamma.begun(all);
    float* const to_shift = dbeta.begun(all);
    for (int c = 0; c != all; ++c) {
        double shift = 0.0;
        double slope = 0.0;
        for (int b = 0; b != batch; ++b) {
            shift += sums[std::int64_t{b} * 2 * all + c];
            slope += sums[std::int64_t{b} * 2 * all + all + c];
        }
        to_shift[c] += static_cast<float>(shift);
        to_slope[c] += static_cast<float>(slope);
    }
}

PULSE_HOST_INLINE void backend::attention(const attention_shape& s, int batch, const float* q, const float* k,
                                          const float* v, float* o, float* lse) {
    detail::check_attention("attention", s, batch);
    over_heads(s, batch, q, k, v, [=](const auto& head, std::int64_t at, std::int64_t, std::int64_t row) {
        head.forward(o + at, lse + row);
    });
}

PULSE_HOST_INLINE void backend::attention_backward(const attention_shape& s, int batch, const float* q, const float* k,
                                                   const float* v, const float* o, const float* lse, const float* dout,
                                                   float* dq, float* dk, float* dv) {
    detail::check_attention("attention_backward", s, batch);
    over_heads(s, batch, q, k, v, [=](const auto& head, std::int64_t at, std::int64_t key, std::int64_t row) {
        head.backward(o + at, lse + row, dout + at, dq + at, dk + key, dv + key);
    });
}

PULSE_HOST_INLINE void backend::silu(std::int64_t n, const float* x, float* y) { activate<silu_at>(threads_, n, x, y); }

PULSE_HOST_INLINE void backend::silu_backward(std::int64_t n, const float* x, const float* dy, float* dx, into how) {
    activate_backward<silu_at>(threads_, n, x, dy, dx, how);
}

PULSE_HOST_INLINE void backend::add(std::int64_t n, const float* x, float* y) { onednn::add(threads_, n, x, y); }

PULSE_HOST_INLINE void backend::copy(std::int64_t n, const float* x, float* y) { std::copy(x, x + n, y); }

PULSE_HOST_INLINE void backend::fill(std::int64_t n, float value, float* y) { std::fill(y, y + n, value); }

PULSE_HOST_INLINE void backend::sum_rows(std::int64_t rows, std::int64_t features, const float* x,
                                         gradient_place<float> y) {
    onednn::sum_rows(rows, static_cast<int>(features), x, y.to, y.how);
}

PULSE_HOST_INLINE void backend::add_per_sample(int batch, int pixels, int channels, const float* t, float* y) {
    parallel_for(threads_, batch, [=](int, std::int64_t b) {
        add_row(pixels, channels, t + b * channels, y + b * elements(pixels, channels));
    });
}

PULSE_HOST_INLINE void backend::sum_pixels(int batch, int pixels, int channels, const float* y, float* t) {
    parallel_for(threads_, batch, [=](int, std::int64_t b) {
        onednn::sum_rows(pixels, channels, y + b * elements(pixels, channels), t + b * channels, into::write);
    });
}

PULSE_HOST_INLINE void backend::upsample_nearest(int batch, int height, int width, int channels, const float* x,
                                                 float* y) {
    onednn::upsample_nearest(threads_, std::int64_t{batch} * height, width, channels, x, y);
}

PULSE_HOST_INLINE void backend::upsample_nearest_backward(int batch, int height, int width, int channels,
                                                          const float* dy, float* dx) {
    onednn::upsample_nearest_backward(threads_, std::int64_t{batch} * height, width, channels, dy, dx);
}

PULSE_HOST_INLINE void backend::sinusoid(int batch, int features, bool flip, double shift, const float* timesteps,
                                         float* e) {
    if (features < 1 || features % 2 != 0) {
        detail::refuse_shape("sinusoid", "features must be a positive even number, not " + std::to_string(features));
    }
    onednn::sinusoid(batch, features, flip, shift, timesteps, e);
}

PULSE_HOST_INLINE std::int64_t backend::scratch_bytes() const noexcept {
    return scratch_.bytes() + sum_.bytes() + sums_.bytes() + convolutions_.bytes() + token_scratch_bytes() +
           conditioned_scratch_bytes() + picture_scratch_bytes();
}

PULSE_HOST_INLINE convolution& backend::prepared(const convolution_key& key) {
    use_threads(threads_);
    convolution& made = convolutions_.find(engine_, key);
    scratch_.reserve(made.scratch());
    return made;
}

PULSE_HOST_INLINE void backend::convolve(const conv2d_shape& s, int weight_channels, int batch, const float* x,
                                         const float* weight, const float* bias, float* y, into how) {
    if (s.is_product()) {
        return multiply({s.in_channels, s.out_channels}, weight_channels, rows_of(s, batch), x, weight, bias, y, how);
    }
    if (narrow_convolution::narrows(s)) {
        return narrow_convolution::forward(threads_, s, weight_channels, batch, x, weight, bias, y, how,
                                           scratch_.reserve(narrow_convolution::workspace(s)));
    }
    prepared({s, weight_channels, batch, convolution_pass::forward, how == into::add, bias != nullptr})
        .forward(engine_, x, weight, bias, y, epoch_, scratch_.data());
}

PULSE_HOST_INLINE void backend::convolve_back(const conv2d_shape& s, int weight_channels, int batch, const float* dy,
                                              const float* weight, float* dx, into how) {
    if (s.is_product()) {
        return multiply_back({s.in_channels, s.out_channels}, weight_channels, rows_of(s, batch), dy, weight, dx, how);
    }
    if (narrow_convolution::widens(s)) {
        return narrow_convolution::backward_input(threads_, s, weight_channels, batch, dy, weight, dx, how,
                                                  scratch_.reserve(narrow_convolution::workspace(s)));
    }
    convolution& pass = prepared({s, weight_channels, batch, convolution_pass::backward_input, false, false});
    if (how == into::write) {
        pass.backward_input(engine_, dy, weight, dx, epoch_, scratch_.data());
    } else {
        const std::int64_t n = batch * s.in_elements();
        float* const gradient = sum_.reserve(n);
        pass.backward_input(engine_, dy, weight, gradient, epoch_, scratch_.data());
        add(n, gradient, dx);
    }
}

PULSE_HOST_INLINE void backend::convolve_weight(const conv2d_shape& s, int weight_channels, int batch, const float* x,
                                                const float* dy, gradient_place<float> dweight,
                                                gradient_place<float> dbias) {
    if (s.is_product()) {
        return multiply_weight({s.in_channels, s.out_channels}, weight_channels, rows_of(s, batch), x, dy, dweight,
                               dbias);
    }
    if (narrow_convolution::narrows(s) && s.out_channels == 1) { // with more, each output reads x again
        narrow_convolution::backward_weight(threads_, s, weight_channels, batch, x, dy, dweight);
        if (dbias.wanted()) {
            sum_rows(std::int64_t{batch} * s.out_height() * s.out_width(), s.out_channels, dy, dbias);
        }
        return;
    }
    const float* const bias =
        prepared({s, weight_channels, batch, convolution_pass::backward_weight, dweight.adds(), dbias.wanted()})
            .backward_weight(engine_, x, dy, dweight.to, scratch_.data());
    if (dbias.wanted()) { add_row(1, s.out_channels, bias, dbias.to, dbias.how); }
}

PULSE_HOST_INLINE void backend::multiply(const linear_shape& s, int stride, std::int64_t rows, const float* x,
                                         const float* weight, const float* bias, float* y, into how) {
    use_threads(threads_);
    if (bias != nullptr) { add_row(rows, s.out_features, bias, y, how); }
    const float before = bias != nullptr || how == into::add ? 1.0F : 0.0F;
    onednn::check(dnnl_sgemm('N', 'T', rows, s.out_features, s.in_features, 1.0F, x, s.in_features, weight, stride,
                             before, y, s.out_features),
                  "linear");
}

PULSE_HOST_INLINE void backend::multiply_back(const linear_shape& s, int stride, std::int64_t rows, const float* dy,
                                              const float* weight, float* dx, into how) {
    use_threads(threads_);
    onednn::check(dnnl_sgemm('N', 'N', rows, s.in_features, s.out_features, 1.0F, dy, s.out_features, weight, stride,
                             how == into::add ? 1.0F : 0.0F, dx, s.in_features),
                  "linear_backward_input");
}

PULSE_HOST_INLINE void backend::multiply_weight(const linear_shape& s, int stride, std::int64_t rows, const float* x,
                                                const float* dy, gradient_place<float> dweight,
                                                gradient_place<float> dbias) {
    use_threads(threads_);
    onednn::check(dnnl_sgemm('T', 'N', s.out_features, s.in_features, rows, 1.0F, dy, s.out_features, x, s.in_features,
                             dweight.adds() ? 1.0F : 0.0F, dweight.to, stride),
                  "linear_backward_weight");
    if (dbias.wanted()) { sum_rows(rows, s.out_features, dy, dbias); }
}

template <class F>
void backend::over_heads(const attention_shape& s, int batch, const float* q, const float* k, const float* v, F f) {
    if (s.head_size <= narrow_head) {
        over_heads_with<narrow_attention>(s, batch, q, k, v, f);
    } else {
        over_heads_with<wide_attention>(s, batch, q, k, v, f);
    }
}

template <class Head, class F>
void backend::over_heads_with(const attention_shape& s, int batch, const float* q, const float* k, const float* v,
                              F f) {
    use_threads(threads_);
    const std::int64_t work = (Head::workspace(s) + 15) / 16 * 16;
    float* const scratch = scratch_.reserve(threads_ * work);
    parallel_for(threads_, std::int64_t{batch} * s.heads, [&](int worker, std::int64_t i) {
        const std::int64_t first = i % s.heads * s.head_size;
        const std::int64_t at = i / s.heads * s.tokens * s.width() + first;
        const std::int64_t key = i / s.heads * s.keys() * s.width() + first;
        const Head head{s, q + at, k + key, v + key, scratch + worker * work};
        f(head, at, key, i * s.tokens);
    });
}

} // namespace pulse::onednn
