#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>
#include <pulse/runtime/residual_sums.hpp>

#include "counted_work.hpp"
#include "device_operations.cuh"
#include "ledger.hpp"
#include "product_shapes.hpp"

namespace pulse_bench {

/// Sizes of a convolution over a batch, in scalars.
struct convolution_size {
    std::int64_t x{}, y{}, weights{};
    double flops{};

    convolution_size(const pulse::conv2d_shape& s, int batch) :
        x{batch * s.in_elements()}, y{batch * s.out_elements()}, weights{s.weight_elements()},
        flops{2.0 * static_cast<double>(y) * static_cast<double>(weights) / s.out_channels} {}
    [[nodiscard]] double bytes() const { return 2.0 * static_cast<double>(x + y + weights); }
};

/// device_operations that report each operation to a work_counter, and enter two others beside pulse's. The least, with
/// gradients in float, is one kernel that reads its inputs and writes its outputs once, unless said otherwise. torch is
/// what torch.compile is assumed to run for a UNet in bfloat16 with weights in float, channels last: a model of its
/// fusion that no run has confirmed. It writes gradients in bfloat16, so it may be below the least there. Its
/// reductions, biases' gradients among them, count as 1.5 kernels, since many rows need a second one. It fuses
/// additions into the normalisation or product that reads the sum.
class counted_operations : public device_operations {
public:
    using conv_shape = pulse::conv2d_shape;
    using i64 = std::int64_t;
    using pass = pulse::pass;

    counted_operations(cudaStream_t stream, work_counter& counter) : device_operations{stream}, counter_{counter} {}

    /// Mark the pass: forward work repeated in a backward pass is entered for pulse alone.
    void begin_forward() { backward_ = false; }
    void begin_backward() { backward_ = true; }

    void conv2d(const conv_shape& s, int batch, const T* x, const T* w, const T* bias, T* y, into how,
                const T* residual = nullptr) {
        const convolution_size n{s, batch};
        const auto here =
            begin(forward_of(s),
                  {in(x, n.x), in(w, n.weights), in(bias, s.out_channels), onto(residual, n.y),
                   out(y, n.y, result_of(how, residual))},
                  n.flops, {1, n.bytes()}, shapes_of(pass::forward, s, 0, batch, how == into::add, bias != nullptr));
        device_operations::conv2d(s, batch, x, w, bias, y, how, residual);
    }
    /// torch adds the vectors in the norm that follows, and writes the sum.
    void conv2d_per_sample(const conv_shape& s, int batch, const T* x, const T* w, const T* bias, const T* t, T* y) {
        const convolution_size n{s, batch};
        const auto here = begin(
            forward_of(s),
            {in(x, n.x), in(w, n.weights), in(bias, s.out_channels), in(t, i64{batch} * s.out_channels), out(y, n.y)},
            n.flops, {1, n.bytes()}, shapes_of(pass::forward, s, 0, batch, false, bias != nullptr));
        torch(work_kind::pointwise, 0, scalars(n.y));
        device_operations::conv2d_per_sample(s, batch, x, w, bias, t, y);
    }
    void conv2d_backward_input(const conv_shape& s, int batch, const T* dy, const T* w, T* dx, into how) {
        const convolution_size n{s, batch};
        const auto here = begin(dgrad_of(s), {in(dy, n.y), in(w, n.weights), out(dx, n.x, how)}, n.flops,
                                {1, n.bytes()}, shapes_of(pass::backward_input, s, 0, batch, how == into::add));
        device_operations::conv2d_backward_input(s, batch, dy, w, dx, how);
    }
    void conv2d_backward_weight(const conv_shape& s, int batch, const T* x, const T* dy, gradient_place dw,
                                gradient_place dbias) {
        const convolution_size n{s, batch};
        const auto here =
            begin(wgrad_of(s), {in(x, n.x), in(dy, n.y), gradient(dw, n.weights), gradient(dbias, s.out_channels)},
                  n.flops, {1, n.bytes()}, shapes_of(pass::backward_weight, s, 0, batch, dw.adds(), dbias.wanted()));
        if (dbias.wanted()) { torch(work_kind::column_sums, 1.5, scalars(n.y)); }
        device_operations::conv2d_backward_weight(s, batch, x, dy, dw, dbias);
    }
    void conv2d_pair(const conv_shape& s, int second, int batch, const T* xa, const T* xb, const T* w, const T* bias,
                     T* y, into how) {
        const convolution_size n{s, batch};
        const auto [xa_size, xb_size] = parts(s, second, n.x);
        const auto here = begin(
            forward_of(s),
            {in(xa, xa_size), in(xb, xb_size), in(w, n.weights), in(bias, s.out_channels), out(y, n.y, how)}, n.flops,
            {1, n.bytes()}, shapes_of(pass::forward, s, second, batch, how == into::add, bias != nullptr));
        torch(work_kind::copies, 1, scalars(2 * n.x)); // joined before the norm and this read both
        device_operations::conv2d_pair(s, second, batch, xa, xb, w, bias, y, how);
    }
    void conv2d_pair_backward_input(const conv_shape& s, int second, int batch, const T* dy, const T* w, T* dxa, T* dxb,
                                    into how) {
        const convolution_size n{s, batch};
        const auto [xa_size, xb_size] = parts(s, second, n.x);
        const auto here =
            begin(dgrad_of(s), {in(dy, n.y), in(w, n.weights), out(dxa, xa_size, how), out(dxb, xb_size, how)}, n.flops,
                  {1, n.bytes()}, shapes_of(pass::backward_input, s, second, batch, how == into::add));
        torch(work_kind::pointwise, 1, scalars(n.x)); // added in the backward pass of the norm
        device_operations::conv2d_pair_backward_input(s, second, batch, dy, w, dxa, dxb, how);
    }
    void conv2d_pair_backward_weight(const conv_shape& s, int second, int batch, const T* xa, const T* xb, const T* dy,
                                     gradient_place dw, gradient_place dbias) {
        const convolution_size n{s, batch};
        const auto [xa_size, xb_size] = parts(s, second, n.x);
        const i64 of_second = parts(s, second, n.weights).second;
        const auto here = begin(wgrad_of(s),
                                // one per part: each is convolved separately
                                {in(xa, xa_size), in(xb, xb_size), in(dy, n.y), gradient(dw, n.weights - of_second),
                                 gradient(dw + (s.in_channels - second), of_second), gradient(dbias, s.out_channels)},
                                n.flops, {1, n.bytes()},
                                shapes_of(pass::backward_weight, s, second, batch, dw.adds(), dbias.wanted()));
        torch(work_kind::column_sums, 1.5, scalars(n.y));
        device_operations::conv2d_pair_backward_weight(s, second, batch, xa, xb, dy, dw, dbias);
    }

    /// torch adds the residual in the norm that follows.
    void linear(const pulse::linear_shape& s, i64 rows, const T* x, const T* w, const T* bias, T* y, into how,
                const T* residual = nullptr) {
        const i64 y_size = rows * s.out_features;
        const std::vector<operand> moved{in(x, rows * s.in_features), in(w, weights(s)), in(bias, s.out_features),
                                         onto(residual, y_size), out(y, y_size, result_of(how, residual))};
        const double least = counted_operation{work_kind::product_forward, moved}.least_bytes();
        const auto here = begin(work_kind::product_forward, moved, flops(s, rows),
                                {1, least - (residual == nullptr ? 0 : scalars(y_size))},
                                {shape_of(pass::forward, s, rows, how == into::add, bias != nullptr)});
        device_operations::linear(s, rows, x, w, bias, y, how, residual);
    }
    void linear_backward_input(const pulse::linear_shape& s, i64 rows, const T* dy, const T* w, T* dx, into how) {
        const i64 x = rows * s.in_features;
        const i64 y = rows * s.out_features;
        const auto here =
            begin(work_kind::product_dgrad, {in(dy, y), in(w, weights(s)), out(dx, x, how)}, flops(s, rows),
                  {1, scalars(x + y + weights(s))}, {shape_of(pass::backward_input, s, rows, how == into::add)});
        if (how == into::add) { torch(work_kind::pointwise, 0.5, scalars(x)); }
        device_operations::linear_backward_input(s, rows, dy, w, dx, how);
    }
    void linear_backward_weight(const pulse::linear_shape& s, i64 rows, const T* x, const T* dy, gradient_place dw,
                                gradient_place dbias) {
        const i64 y = rows * s.out_features;
        const auto here =
            begin(work_kind::product_wgrad,
                  {in(x, rows * s.in_features), in(dy, y), gradient(dw, weights(s)), gradient(dbias, s.out_features)},
                  flops(s, rows), {1, scalars(rows * s.in_features + y + weights(s))},
                  {shape_of(pass::backward_weight, s, rows, dw.adds(), dbias.wanted())});
        if (dbias.wanted()) { torch(work_kind::column_sums, 1.5, scalars(y)); }
        device_operations::linear_backward_weight(s, rows, x, dy, dw, dbias);
    }

    /// torch runs each product separately.
    void linear_batch(const pulse::linear_batch_shape& s, i64 rows, const T* x, const T* w, T* y, into how) {
        const i64 in_size = rows * s.each.in_features;
        const i64 out_size = rows * s.each.out_features;
        const int times = how == into::add ? 2 : 1;
        const auto here = begin(work_kind::product_forward,
                                {in(x, in_size), in(w, s.count * weights(s.each)), out(y, s.count * out_size, how)},
                                s.count * flops(s.each, rows),
                                {double(s.count), s.count * scalars(in_size + weights(s.each) + times * out_size)},
                                {shape_of(pass::forward, s.each, rows, how == into::add, false, s.count)});
        device_operations::linear_batch(s, rows, x, w, y, how);
    }
    void linear_batch_backward_weight(const pulse::linear_batch_shape& s, i64 rows, const T* x, const T* dy,
                                      gradient_place dw) {
        const i64 in_size = rows * s.each.in_features;
        const i64 out_size = rows * s.each.out_features;
        const auto here = begin(work_kind::product_wgrad,
                                {in(x, in_size), in(dy, s.count * out_size), gradient(dw, s.count * weights(s.each))},
                                s.count * flops(s.each, rows),
                                {double(s.count), s.count * scalars(in_size + out_size + weights(s.each))},
                                {shape_of(pass::backward_weight, s.each, rows, dw.adds(), false, s.count)});
        device_operations::linear_batch_backward_weight(s, rows, x, dy, dw);
    }

    void group_norm(const pulse::group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma,
                    const T* beta, T* y, float* statistics) {
        const auto [a, b] = halves(s, batch);
        const auto here =
            begin(work_kind::group_norm_forward, {in(xa, a), in(xb, b), out(y, a + b)}, 0, {2, scalars(3 * (a + b))});
        device_operations::group_norm(s, batch, xa, xb, gamma, beta, y, statistics);
    }
    void group_norm_backward(const pulse::group_norm_shape& s, int batch, const T* xa, const T* xb, const T* gamma,
                             const T* beta, const float* statistics, const T* dy, T* dxa, T* dxb, gradient_place dgamma,
                             gradient_place dbeta, into how, const T* residual = nullptr) {
        const auto [a, b] = halves(s, batch);
        const auto here =
            begin(work_kind::group_norm_backward,
                  {in(xa, a), in(xb, b), in(dy, a + b), onto(residual, a), out(dxa, a, result_of(how, residual)),
                   out(dxb, b), gradient(dgamma, s.all_channels()), gradient(dbeta, s.all_channels())},
                  0, {3, scalars(5 * (a + b) + (how == into::add ? a : 0))});
        device_operations::group_norm_backward(s, batch, xa, xb, gamma, beta, statistics, dy, dxa, dxb, dgamma, dbeta,
                                               how, residual);
    }
    void layer_norm(const pulse::layer_norm_shape& s, i64 rows, const T* x, const T* gamma, const T* beta, T* y,
                    float* statistics) {
        const i64 n = rows * s.features;
        // torch adds the residual in the same kernel
        const auto here = begin(work_kind::layer_norm_forward, {in(x, n), out(y, n)}, 0, {1, scalars(4 * n)});
        device_operations::layer_norm(s, rows, x, gamma, beta, y, statistics);
    }
    void layer_norm_backward(const pulse::layer_norm_shape& s, i64 rows, const T* x, const T* gamma,
                             const float* statistics, const T* dy, T* dx, gradient_place dgamma, gradient_place dbeta,
                             into how, const T* residual = nullptr) {
        const i64 n = rows * s.features;
        const auto here = begin(work_kind::layer_norm_backward,
                                {in(x, n), in(dy, n), onto(residual, n), out(dx, n, result_of(how, residual)),
                                 gradient(dgamma, s.features), gradient(dbeta, s.features)},
                                0, {3, scalars(6 * n)});
        device_operations::layer_norm_backward(s, rows, x, gamma, statistics, dy, dx, dgamma, dbeta, how, residual);
    }

    void attention(const pulse::attention_shape& s, int batch, const T* q, const T* k, const T* v, T* o, float* lse) {
        const auto [of_queries, of_keys] = attended(s, batch);
        const auto here =
            begin(work_kind::attention_forward, {in(q, of_queries), in(k, of_keys), in(v, of_keys), out(o, of_queries)},
                  2 * product(s, batch));
        device_operations::attention(s, batch, q, k, v, o, lse);
    }
    void attention_backward(const pulse::attention_shape& s, int batch, const T* q, const T* k, const T* v, const T* o,
                            const float* lse, const T* dout, T* dq, T* dk, T* dv) {
        const auto [of_queries, of_keys] = attended(s, batch);
        // cuDNN's kernels: delta, zeroing float gradients of queries, the pass that adds to them, and rounding them.
        const auto here = begin(work_kind::attention_backward,
                                {in(q, of_queries), in(k, of_keys), in(v, of_keys), in(o, of_queries),
                                 in(dout, of_queries), out(dq, of_queries), of_key(dk, of_keys), of_key(dv, of_keys)},
                                5 * product(s, batch), {4, scalars(14 * of_queries + 4 * of_keys)});
        device_operations::attention_backward(s, batch, q, k, v, o, lse, dout, dq, dk, dv);
    }

    void geglu(i64 rows, int features, const T* x, T* y) {
        const auto here = pointwise({in(x, 2 * rows * features), out(y, rows * features)}, !backward_);
        device_operations::geglu(rows, features, x, y);
    }
    void geglu_backward(i64 rows, int features, const T* x, const T* dy, T* dx) {
        const i64 n = rows * features;
        // One pass can also recompute the product, which the backward pass of the next layer reads.
        const auto here = begin_with(work_kind::pointwise, {in(x, 2 * n), in(dy, n), out(dx, 2 * n)}, 0,
                                     {1, scalars(6 * n)}, {1, scalars(6 * n)});
        device_operations::geglu_backward(rows, features, x, dy, dx);
    }
    void silu(i64 n, const T* x, T* y) {
        const auto here = pointwise({in(x, n), out(y, n)});
        device_operations::silu(n, x, y);
    }
    void silu_backward(i64 n, const T* x, const T* dy, T* dx, into how) {
        const auto here = pointwise({in(x, n), in(dy, n), out(dx, n, how)});
        device_operations::silu_backward(n, x, dy, dx, how);
    }
    void add(i64 n, const T* x, T* y) {
        const auto here = begin_with(work_kind::pointwise, {in(x, n), out(y, n, into::add)}, 0, {0, scalars(n)},
                                     {0, backward_ ? scalars(n) : 0});
        device_operations::add(n, x, y);
    }
    void copy(i64 n, const T* x, T* y) {
        const auto here = begin_with(work_kind::copies, {in(x, n), out(y, n)}, 0, {}, {});
        device_operations::copy(n, x, y);
    }
    void fill(i64 n, float value, T* y) {
        const auto here = begin_with(work_kind::fills, {out(y, n)}, 0, {}, {});
        device_operations::fill(n, value, y);
    }
    void copy_rows(i64 rows, i64 n, const T* x, i64 x_stride, T* y, i64 y_stride) {
        const auto here = begin(work_kind::copies, {in(x, rows * n), out(y, rows * n)});
        device_operations::copy_rows(rows, n, x, x_stride, y, y_stride);
    }
    void sum_rows(i64 rows, i64 features, const T* x, gradient_place sums) {
        const auto here = begin(work_kind::column_sums, {in(x, rows * features), gradient(sums, features)});
        device_operations::sum_rows(rows, features, x, sums);
    }
    void add_per_sample(int batch, int pixels, int channels, const T* t, T* y) {
        const i64 n = i64{batch} * pixels * channels;
        // The convolution before it can add it as its bias; torch adds it in the norm that follows, and writes the sum.
        const auto here = begin_with(work_kind::pointwise, {in(t, i64{batch} * channels), out(y, n, into::add)}, 0, {},
                                     {0, scalars(n)});
        device_operations::add_per_sample(batch, pixels, channels, t, y);
    }
    void sum_pixels(int batch, int pixels, int channels, const T* y, T* t) {
        const i64 n = i64{batch} * pixels * channels;
        // The norm's backward pass writes these values and can also sum them.
        const auto here =
            begin_with(work_kind::column_sums, {in(y, n), out(t, i64{batch} * channels)}, 0, {}, {1.5, scalars(n)});
        device_operations::sum_pixels(batch, pixels, channels, y, t);
    }
    void upsample_nearest(int batch, int height, int width, int channels, const T* x, T* y) {
        const i64 n = i64{batch} * height * width * channels;
        // A convolution can read the smaller image.
        const auto here = begin_with(work_kind::resampling, {in(x, n), out(y, 4 * n)}, 0, {},
                                     {backward_ ? 0.0 : 1.0, backward_ ? 0 : scalars(5 * n)});
        device_operations::upsample_nearest(batch, height, width, channels, x, y);
    }
    void upsample_nearest_backward(int batch, int height, int width, int channels, const T* dy, T* dx) {
        const i64 n = i64{batch} * height * width * channels;
        const auto here = begin_with(work_kind::resampling, {in(dy, 4 * n), out(dx, n)}, 0, {}, {1, scalars(5 * n)});
        device_operations::upsample_nearest_backward(batch, height, width, channels, dy, dx);
    }
    void sinusoid(int batch, int features, bool flip, double shift, const float* timesteps, T* e) {
        const auto here = pointwise({out(e, i64{batch} * features)});
        device_operations::sinusoid(batch, features, flip, shift, timesteps, e);
    }

private:
    [[nodiscard]] static double scalars(i64 n) { return 2.0 * static_cast<double>(n); }
    [[nodiscard]] static operand in(const T* at, i64 n) { return {at, scalars(n)}; }
    [[nodiscard]] static operand out(const T* at, i64 n, into how = into::write) {
        const int times = how == into::add ? 2 : 1;
        return {at, scalars(n), times, times, role::written};
    }
    /// A residual, moved by the kernel that writes the sum.
    [[nodiscard]] static operand onto(const T* at, i64 n) { return {at, scalars(n), 1, 1, role::written}; }
    /// A result that is added to a residual is only written.
    [[nodiscard]] static into result_of(into how, const T* residual) { return residual == nullptr ? how : into::write; }
    [[nodiscard]] static operand of_key(const T* at, i64 n) { return {at, scalars(n), 1, 1, role::of_keys}; }
    /// A float gradient; a kernel that adds to it also reads it, which the least does not need.
    [[nodiscard]] static operand gradient(const gradient_place& at, i64 n) {
        return {at.to, 4.0 * static_cast<double>(n), 1, at.adds() ? 2 : 1, role::written};
    }

    [[nodiscard]] static bool is_product(const conv_shape& s) { return s.kernel == 1 && s.stride == 1; }
    [[nodiscard]] static work_kind forward_of(const conv_shape& s) {
        return is_product(s) ? work_kind::product_forward : work_kind::convolution_forward;
    }
    [[nodiscard]] static work_kind dgrad_of(const conv_shape& s) {
        return is_product(s) ? work_kind::product_dgrad : work_kind::convolution_dgrad;
    }
    [[nodiscard]] static work_kind wgrad_of(const conv_shape& s) {
        return is_product(s) ? work_kind::product_wgrad : work_kind::convolution_wgrad;
    }
    [[nodiscard]] static std::pair<i64, i64> parts(const conv_shape& s, int second, i64 all) {
        const i64 of_second = all / s.in_channels * second;
        return {all - of_second, of_second};
    }
    [[nodiscard]] static i64 weights(const pulse::linear_shape& s) { return i64{s.in_features} * s.out_features; }
    [[nodiscard]] static double flops(const pulse::linear_shape& s, i64 rows) {
        return 2.0 * static_cast<double>(rows) * static_cast<double>(weights(s));
    }
    [[nodiscard]] static std::pair<i64, i64> halves(const pulse::group_norm_shape& s, int batch) {
        const i64 pixels = i64{batch} * s.pixels;
        return {pixels * s.channels, pixels * s.second_channels};
    }
    /// Scalars of queries, and of keys.
    [[nodiscard]] static std::pair<i64, i64> attended(const pulse::attention_shape& s, int batch) {
        return {i64{batch} * s.tokens * s.width(), i64{batch} * s.keys() * s.width()};
    }
    /// FLOP of one product of an attention: a forward pass has two, a backward pass five.
    [[nodiscard]] static double product(const pulse::attention_shape& s, int batch) {
        return 2.0 * batch * s.tokens * static_cast<double>(s.keys()) * s.width();
    }

    void torch(work_kind kind, double launches, double bytes) {
        counter_.enter_with(stream(), [=](ledger& book) { book.put(party::torch, kind, launches, bytes); });
    }
    [[nodiscard]] work_counter::scope begin_with(work_kind kind, std::vector<operand> operands, double products,
                                                 taken least, taken by_torch, std::vector<product_shape> shapes = {}) {
        const bool attends = kind == work_kind::attention_forward || kind == work_kind::attention_backward;
        const double rate = attends ? library_attention_rate : 1;
        counter_.enter_with(stream(), [=](ledger& book) {
            book.put(party::least, kind, least.kernels, least.bytes, products, rate);
            book.put(party::torch, kind, by_torch.kernels, by_torch.bytes, products, rate);
        });
        const bool has_library = kind == work_kind::attention_backward;
        return {counter_, {kind, std::move(operands), products, has_library ? by_torch : taken{}, std::move(shapes)}};
    }
    [[nodiscard]] work_counter::scope begin(work_kind kind, std::vector<operand> operands, double products,
                                            taken by_torch, std::vector<product_shape> shapes = {}) {
        const double bytes = counted_operation{kind, operands}.least_bytes();
        return begin_with(kind, std::move(operands), products, {1, bytes}, by_torch, std::move(shapes));
    }
    /// For operations in which torch does the least as well.
    [[nodiscard]] work_counter::scope begin(work_kind kind, std::vector<operand> operands, double products = 0) {
        const double bytes = counted_operation{kind, operands}.least_bytes();
        return begin_with(kind, std::move(operands), products, {1, bytes}, {1, bytes});
    }
    [[nodiscard]] work_counter::scope pointwise(std::vector<operand> operands, bool is_needed = true) {
        if (!is_needed) { return begin_with(work_kind::pointwise, std::move(operands), 0, {}, {}); }
        return begin(work_kind::pointwise, std::move(operands));
    }

    work_counter& counter_;
    bool backward_{};
};
static_assert(pulse::batches_linear<counted_operations> && pulse::sums_residuals<counted_operations>);

} // namespace pulse_bench
