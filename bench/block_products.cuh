#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/reference/backend.hpp>
#include <pulse/runtime/backend.hpp>

#include "block_kernels.cuh"
#include "block_library.cuh"
#include "layer_pass.hpp"

namespace pulse_bench {

[[nodiscard]] inline std::string pass_name(const char* layer, layer_pass pass) {
    const char* names[] = {"", "_backward_input", "_backward_weight"};
    return std::string(layer) + names[static_cast<int>(pass)];
}

/// Tolerance for a sum of products of magnitude 1 in float, whose partial sum is truncated toward zero with every 8 of
/// them or more (tensor cores: Fasi, Higham, Mikaitis and Pranesh 2021).
[[nodiscard]] inline double product_slack(std::int64_t depth) {
    const auto terms = static_cast<double>(depth);
    return (16 + terms / 8) * float_step * std::sqrt(terms) + 1e-6;
}

/// A linear layer; 64 results are checked.
template <class B>
[[nodiscard]] block_case<B> linear_case(std::int64_t rows, int batch, int in, int out, layer_pass pass) {
    using T = typename B::scalar;
    const pulse::linear_shape s{in, out};
    rows *= batch;
    block_case<B> made;
    made.row = {pass_name("linear", pass),
                std::to_string(rows / batch) + "x" + std::to_string(in) + "->" + std::to_string(out), batch};
    made.row.flops = 2.0 * static_cast<double>(rows) * in * out;
    const std::int64_t x = rows * in;
    const std::int64_t y = rows * out;
    const std::int64_t weight = std::int64_t{in} * out;
    made.in = {pass == layer_pass::backward_input ? y : x, pass == layer_pass::backward_weight ? y : weight};
    made.row.bytes = 2.0 * static_cast<double>(x + y + weight * (pass == layer_pass::backward_weight ? 4 : 1));
    if (pass == layer_pass::backward_weight) {
        made.sums = {weight};
    } else {
        made.out = {pass == layer_pass::forward ? y : x};
    }
    made.run = [s, rows, pass](B& b, const block_tensors<T>& t) {
        if (pass == layer_pass::forward) {
            b.linear(s, rows, t.in[0].data(), t.in[1].data(), nullptr, t.out[0].data(), pulse::into::write);
        } else if (pass == layer_pass::backward_input) {
            b.linear_backward_input(s, rows, t.in[0].data(), t.in[1].data(), t.out[0].data(), pulse::into::write);
        } else {
            b.linear_backward_weight(s, rows, t.in[0].data(), t.in[1].data(), t.sums[0].data(), nullptr);
        }
    };
    made.library = [s, rows, pass](cudaStream_t stream, const block_tensors<T>& t) {
        return library_product(s, rows, pass, stream, t);
    };
    made.library_gives_the_same = true;
    made.check = [rows, in, out, pass](const block_results<T>& r, tally& found) {
        for (int i = 0; i != 64; ++i) {
            const std::int64_t row = (rows - 1) * i / 63;
            const std::int64_t a = (in - 1) * ((i * 37) % 64) / 63;
            const std::int64_t c = (out - 1) * ((i * 11) % 64) / 63;
            double sum = 0.0;
            if (pass == layer_pass::forward) {
                for (std::int64_t k = 0; k != in; ++k) { sum += r.in(0, row * in + k) * r.in(1, c * in + k); }
                found.compare(r.got(0, row * out + c), sum, bf16_rounding, product_slack(in));
            } else if (pass == layer_pass::backward_input) {
                for (std::int64_t k = 0; k != out; ++k) { sum += r.in(0, row * out + k) * r.in(1, k * in + a); }
                found.compare(r.got(0, row * in + a), sum, bf16_rounding, product_slack(out));
            } else {
                for (std::int64_t k = 0; k != rows; ++k) { sum += r.in(1, k * out + c) * r.in(0, k * in + a); }
                found.compare(r.sum(0, c * in + a), sum, float_step, product_slack(rows));
            }
        }
    };
    return made;
}

/// A 3x3 convolution of stride 1; 32 results are checked.
template <class B>
[[nodiscard]] block_case<B> convolution_case(int batch, int side, int in, int out, layer_pass pass) {
    using T = typename B::scalar;
    const pulse::conv2d_shape s{in, out, side, side};
    const std::int64_t x = batch * s.in_elements();
    const std::int64_t y = batch * s.out_elements();
    const std::int64_t weight = s.weight_elements();
    block_case<B> made;
    made.row = {pass_name("conv2d", pass), image_text(side, in) + "->" + std::to_string(out), batch};
    made.row.flops = 2.0 * static_cast<double>(y) * in * 9;
    made.row.bytes = 2.0 * static_cast<double>(x + y + weight * (pass == layer_pass::backward_weight ? 4 : 1));
    made.in = {pass == layer_pass::backward_input ? y : x, pass == layer_pass::backward_weight ? y : weight};
    if (pass == layer_pass::backward_weight) {
        made.sums = {weight};
    } else {
        made.out = {pass == layer_pass::forward ? y : x};
    }
    made.run = [s, batch, pass](B& b, const block_tensors<T>& t) {
        if (pass == layer_pass::forward) {
            b.conv2d(s, batch, t.in[0].data(), t.in[1].data(), nullptr, t.out[0].data(), pulse::into::write);
        } else if (pass == layer_pass::backward_input) {
            b.conv2d_backward_input(s, batch, t.in[0].data(), t.in[1].data(), t.out[0].data(), pulse::into::write);
        } else {
            b.conv2d_backward_weight(s, batch, t.in[0].data(), t.in[1].data(), t.sums[0].data(), nullptr);
        }
    };
    made.library = [s, batch, pass](cudaStream_t stream, const block_tensors<T>& t) {
        return library_convolution(s, batch, pass, stream, t);
    };
    made.check = [batch, side, in, out, pass](const block_results<T>& r, tally& found) {
        const auto inside = [&](int i) { return i >= 0 && i < side; };
        const auto at = [&](int b, int row, int column, int channels, int c) {
            return ((std::int64_t{b} * side + row) * side + column) * channels + c;
        };
        for (int i = 0; i != 32; ++i) {
            const int b = (batch - 1) * i / 31;
            const int row = (side - 1) * ((i * 5) % 32) / 31;
            const int column = (side - 1) * ((i * 13) % 32) / 31;
            const int a = (in - 1) * ((i * 7) % 32) / 31;
            const int o = (out - 1) * ((i * 11) % 32) / 31;
            double sum = 0.0;
            if (pass == layer_pass::backward_weight) {
                const int tap = i % 9;
                for (int n = 0; n != batch; ++n) {
                    for (int p = 0; p != side * side; ++p) {
                        const int from_row = p / side + tap / 3 - 1;
                        const int from_column = p % side + tap % 3 - 1;
                        if (!inside(from_row) || !inside(from_column)) { continue; }
                        sum +=
                            r.in(0, at(n, from_row, from_column, in, a)) * r.in(1, at(n, p / side, p % side, out, o));
                    }
                }
                found.compare(r.sum(0, (std::int64_t{o} * 9 + tap) * in + a), sum, float_step,
                              product_slack(std::int64_t{batch} * side * side));
                continue;
            }
            const bool forward = pass == layer_pass::forward;
            for (int tap = 0; tap != 9; ++tap) {
                // An input pixel of this output, or an output pixel that this input reaches.
                const int way = forward ? 1 : -1;
                const int other_row = row + way * (tap / 3 - 1);
                const int other_column = column + way * (tap % 3 - 1);
                if (!inside(other_row) || !inside(other_column)) { continue; }
                for (int k = 0; k != (forward ? in : out); ++k) {
                    const std::int64_t w =
                        forward ? (std::int64_t{o} * 9 + tap) * in + k : (std::int64_t{k} * 9 + tap) * in + a;
                    sum += r.in(0, at(b, other_row, other_column, forward ? in : out, k)) * r.in(1, w);
                }
            }
            found.compare(r.got(0, at(b, row, column, forward ? out : in, forward ? o : a)), sum, bf16_rounding,
                          product_slack(std::int64_t{9} * (forward ? in : out)));
        }
    };
    return made;
}

/// Attention; 16 queries of two heads are checked, their outputs forward and their gradients backward.
template <class B>
[[nodiscard]] block_case<B> attention_case(int batch, int tokens, int heads, int head_size, int context,
                                           bool backward) {
    using T = typename B::scalar;
    const pulse::attention_shape s{tokens, heads, head_size, context};
    const std::int64_t queries_size = std::int64_t{batch} * tokens * s.width();
    const std::int64_t keys_size = std::int64_t{batch} * s.keys() * s.width();
    block_case<B> made;
    made.row = {backward ? "attention_backward" : "attention",
                std::to_string(tokens) + "x" + std::to_string(s.keys()) + " " + std::to_string(heads) + "x" +
                    std::to_string(head_size),
                batch};
    made.row.flops = (backward ? 10.0 : 4.0) * batch * tokens * s.keys() * s.width();
    made.row.bytes = 2.0 * static_cast<double>((backward ? 4 : 2) * (queries_size + keys_size));
    made.in = {queries_size, keys_size, keys_size};
    made.out = {queries_size};
    made.sums = {std::int64_t{batch} * heads * tokens};
    const auto forward = [s, batch](B& b, const block_tensors<T>& t) {
        b.attention(s, batch, t.in[0].data(), t.in[1].data(), t.in[2].data(), t.out[0].data(), t.sums[0].data());
    };
    made.run = forward;
    if (backward) {
        made.in.push_back(queries_size);
        made.out = {queries_size, queries_size, keys_size, keys_size};
        made.prepare = forward;
        made.run = [s, batch](B& b, const block_tensors<T>& t) {
            b.attention_backward(s, batch, t.in[0].data(), t.in[1].data(), t.in[2].data(), t.out[0].data(),
                                 t.sums[0].data(), t.in[3].data(), t.out[1].data(), t.out[2].data(), t.out[3].data());
        };
    }
    made.check = [s, batch, backward](const block_results<T>& r, tally& found) {
        pulse::reference::backend<double> plain;
        constexpr int queries = 16;
        const pulse::attention_shape one{queries, 1, s.head_size, s.keys()};
        for (const auto& [b, h] : {std::pair{0, 0}, {batch - 1, s.heads - 1}}) {
            // Place of number i of a head, of every (tokens / 16)th token or of all keys.
            const auto place = [&, b = b, h = h](std::int64_t token, int row_tokens, std::int64_t i) {
                return (std::int64_t{b} * row_tokens + token) * s.width() + std::int64_t{h} * s.head_size +
                       i % s.head_size;
            };
            const auto query = [&](std::int64_t i) {
                return place(i / s.head_size * (s.tokens / queries), s.tokens, i);
            };
            const auto key = [&](std::int64_t i) { return place(i / s.head_size, s.keys(), i); };
            const std::int64_t some = std::int64_t{queries} * s.head_size;
            const std::int64_t all = std::int64_t{s.keys()} * s.head_size;
            const auto q = r.gather(0, some, query);
            const auto k = r.gather(1, all, key);
            const auto v = r.gather(2, all, key);
            std::vector<double> o(q.size());
            std::vector<double> lse(queries);
            plain.attention(one, 1, q.data(), k.data(), v.data(), o.data(), lse.data());
            std::vector<double> dq(q.size());
            if (backward) {
                const auto dout = r.gather(3, some, query);
                std::vector<double> dk(k.size());
                std::vector<double> dv(v.size());
                plain.attention_backward(one, 1, q.data(), k.data(), v.data(), o.data(), lse.data(), dout.data(),
                                         dq.data(), dk.data(), dv.data());
            }
            const auto& wanted = backward ? dq : o;
            double greatest = 0.0;
            for (const double value : wanted) { greatest = std::max(greatest, std::abs(value)); }
            // Probabilities are rounded before they multiply the values.
            for (std::int64_t i = 0; i != some; ++i) {
                found.compare(r.got(backward ? 1 : 0, query(i)), wanted[static_cast<std::size_t>(i)], bf16_rounding,
                              4 * bf16_rounding * greatest);
            }
        }
    };
    return made;
}

} // namespace pulse_bench
