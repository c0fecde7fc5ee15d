#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cudnn.h>

#include <emulated/cudnn_descriptors.hpp>
#include <emulated/scalars.hpp>

/// What each operation of a graph computes, from the attributes of its descriptor.
namespace emulated_cuda::cudnn {

struct convolution_names {
    int x, w, y, window, alpha, beta;
};
inline convolution_names names_of(int type) {
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
        return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    }
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
        return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    }
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}
inline bool is_convolution(int type) {
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

/// One convolution, from its descriptor.
struct convolution {
    int type;
    tensor_facts x, w, y;
    std::vector<std::int64_t> before, after, strides, dilations;
    double alpha, beta;

    explicit convolution(const node& n) :
        type{n.type}, x{*n.child(names_of(n.type).x)}, w{*n.child(names_of(n.type).w)}, y{*n.child(
                                                                                            names_of(n.type).y)} {
        const convolution_names names = names_of(n.type);
        const part window = n.child(names.window);
        before = window->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
        after = window->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
        strides = window->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
        dilations = window->all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
        if (window->one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 || before.size() != 2 ||
            after.size() != 2 || strides.size() != 2 || dilations.size() != 2) {
            unsupported("a window that is not of 2 dimensions");
        }
        if (window->one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION ||
            window->one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT) {
            unsupported("a convolution that is not a cross-correlation summed in float");
        }
        alpha = static_cast<double>(n.one<float>(names.alpha));
        beta = static_cast<double>(n.one<float>(names.beta));
        require_image(x);
        require_image(w);
        require_image(y);
        if (x.dims[0] != y.dims[0] || x.dims[1] != w.dims[1] || y.dims[1] != w.dims[0]) {
            bad("channels of a convolution");
        }
        for (std::size_t i = 0; i != 2; ++i) {
            const std::int64_t window_size = dilations[i] * (w.dims[2 + i] - 1) + 1;
            const std::int64_t out = (x.dims[2 + i] + before[i] + after[i] - window_size) / strides[i] + 1;
            if (out != y.dims[2 + i]) {
                refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "size of a convolution's result");
            }
        }
    }
    [[nodiscard]] const tensor_facts& result() const {
        return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? y
               : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x
                                                                                      : w;
    }
    [[nodiscard]] std::int64_t flops() const {
        return 2 * y.dims[0] * y.dims[1] * y.dims[2] * y.dims[3] * w.dims[1] * w.dims[2] * w.dims[3];
    }
    /// Calls f(ky, kx, iy, ix) for each place of the window of an element of y that lies inside x.
    template <class F>
    void windows(const std::array<std::int64_t, 4>& at, F f) const {
        for (std::int64_t ky = 0; ky != w.dims[2]; ++ky) {
            const std::int64_t iy = at[2] * strides[0] - before[0] + ky * dilations[0];
            if (iy < 0 || iy >= x.dims[2]) { continue; }
            for (std::int64_t kx = 0; kx != w.dims[3]; ++kx) {
                const std::int64_t ix = at[3] * strides[1] - before[1] + kx * dilations[1];
                if (ix >= 0 && ix < x.dims[3]) { f(ky, kx, iy, ix); }
            }
        }
    }
    void run(memory& where, bool rounds) const {
        const tensor_facts& r = result();
        // Read the factors once; the result is not read.
        const auto factors = [&](const tensor_facts& t) {
            const void* const data = where.of(t);
            std::vector<double> read(&t == &r ? 0 : static_cast<std::size_t>(t.extent()));
            if (&t == &r) { return read; }
            for_each(t.dims, [&](const std::array<std::int64_t, 4>& at) {
                const double v = load(t.type, data, t.offset(at));
                read[static_cast<std::size_t>(t.offset(at))] = rounds && t.type == number::f32 ? tensor_float(v) : v;
            });
            return read;
        };
        const std::vector<double> from_x = factors(x);
        const std::vector<double> from_w = factors(w);
        const std::vector<double> from_y = factors(y);
        void* const out = where.of(r);
        std::vector<double> sums(static_cast<std::size_t>(r.extent()), 0.0);
        if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
            // Sum all channels of a result element together: their sums do not depend on each other.
            const std::int64_t channels = w.dims[0];
            std::vector<double> weights(static_cast<std::size_t>(channels * w.dims[1] * w.dims[2] * w.dims[3]));
            double* to = weights.data();
            for_each({w.dims[2], w.dims[3], w.dims[1], channels}, [&](const std::array<std::int64_t, 4>& at) {
                *to++ = from_w[static_cast<std::size_t>(w.offset({at[3], at[2], at[0], at[1]}))];
            });
            std::vector<double> all(static_cast<std::size_t>(channels));
            for_each({y.dims[0], 1, y.dims[2], y.dims[3]}, [&](const std::array<std::int64_t, 4>& at) {
                std::ranges::fill(all, 0.0);
                double* const sum = all.data();
                windows(at, [&](std::int64_t ky, std::int64_t kx, std::int64_t iy, std::int64_t ix) {
                    const double* factor = weights.data() + (ky * w.dims[3] + kx) * w.dims[1] * channels;
                    const double* from = from_x.data() + x.offset({at[0], 0, iy, ix});
                    for (std::int64_t c = 0; c != w.dims[1]; ++c) {
                        const double value = from[c * x.strides[1]];
                        for (std::int64_t k = 0; k != channels; ++k) { sum[k] += value * factor[c * channels + k]; }
                    }
                });
                for (std::int64_t k = 0; k != channels; ++k) {
                    sums[static_cast<std::size_t>(y.offset({at[0], k, at[2], at[3]}))] = sum[k];
                }
            });
        } else {
            const bool to_x = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
            const std::int64_t to_step = (to_x ? x : w).strides[1];
            const std::int64_t step = (to_x ? w : x).strides[1];
            for_each(y.dims, [&](const std::array<std::int64_t, 4>& at) {
                const double dy = from_y[static_cast<std::size_t>(y.offset(at))];
                windows(at, [&](std::int64_t ky, std::int64_t kx, std::int64_t iy, std::int64_t ix) {
                    const std::int64_t x_at = x.offset({at[0], 0, iy, ix});
                    const std::int64_t w_at = w.offset({at[1], 0, ky, kx});
                    double* sum = sums.data() + (to_x ? x_at : w_at);
                    const double* factor = to_x ? from_w.data() + w_at : from_x.data() + x_at;
                    for (std::int64_t c = 0; c != w.dims[1]; ++c) { sum[c * to_step] += dy * factor[c * step]; }
                });
            });
        }
        for_each(r.dims, [&](const std::array<std::int64_t, 4>& at) {
            const std::int64_t to = r.offset(at);
            const double old = beta == 0.0 ? 0.0 : beta * load(r.type, out, to);
            store(r.type, out, to, alpha * sums[static_cast<std::size_t>(to)] + old);
        });
    }
};

struct pointwise {
    cudnnPointwiseMode_t mode;
    tensor_facts x, y;
    std::shared_ptr<tensor_facts> b{};

    explicit pointwise(const node& n) :
        mode{n.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                 ->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)},
        x{*n.child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)}, y{*n.child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)} {
        for (const auto& [name, unused] : n.attributes) {
            if (name < CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR || name > CUDNN_ATTR_OPERATION_POINTWISE_YDESC) {
                unsupported("attribute " + std::to_string(name) + " of a pointwise operation");
            }
        }
        if (mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL || mode == CUDNN_POINTWISE_SUB) {
            b = std::make_shared<tensor_facts>(*n.child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
            require_image(*b);
        } else if (mode != CUDNN_POINTWISE_IDENTITY && mode != CUDNN_POINTWISE_EXP) {
            unsupported("pointwise mode " + std::to_string(mode));
        }
        require_image(x);
        require_image(y);
        if (x.dims != y.dims) { refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sizes of a pointwise operation"); }
    }
    void run(memory& where) const {
        const void* const px = where.of(x);
        const void* const pb = b ? where.of(*b) : nullptr;
        void* const py = where.of(y);
        for_each(y.dims, [&](const std::array<std::int64_t, 4>& at) {
            const double other = b ? load(b->type, pb, b->offset(at)) : 0.0;
            const double one = load(x.type, px, x.offset(at));
            store(y.type, py, y.offset(at),
                  mode == CUDNN_POINTWISE_MUL   ? one * other
                  : mode == CUDNN_POINTWISE_SUB ? one - other
                  : mode == CUDNN_POINTWISE_EXP ? std::exp(one)
                                                : one + other);
        });
    }
};

/// c = a b over the last two dimensions.
struct product {
    tensor_facts a, b, c;

    explicit product(const node& n) :
        a{*n.child(CUDNN_ATTR_OPERATION_MATMUL_ADESC)}, b{*n.child(CUDNN_ATTR_OPERATION_MATMUL_BDESC)},
        c{*n.child(CUDNN_ATTR_OPERATION_MATMUL_CDESC)} {
        if (n.child(CUDNN_ATTR_OPERATION_MATMUL_DESC)->one<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE) !=
            CUDNN_DATA_FLOAT) {
            unsupported("a matrix product that is not summed in float");
        }
        for (const tensor_facts* t : {&a, &b, &c}) { require_image(*t); }
        if (a.dims[3] != b.dims[2] || a.dims[2] != c.dims[2] || b.dims[3] != c.dims[3] || a.type != b.type) {
            refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sizes of a matrix product");
        }
    }
    void run(memory& where) const {
        const void* const pa = where.of(a);
        const void* const pb = where.of(b);
        void* const pc = where.of(c);
        for_each(c.dims, [&](const std::array<std::int64_t, 4>& at) {
            double sum = 0.0;
            for (std::int64_t i = 0; i != a.dims[3]; ++i) {
                sum += load(a.type, pa, a.offset({at[0], at[1], at[2], i})) *
                       load(b.type, pb, b.offset({at[0], at[1], i, at[3]}));
            }
            store(c.type, pc, c.offset(at), sum);
        });
    }
};

/// y = sums of x over the dimensions that y has size 1 in.
struct reduction {
    tensor_facts x, y;

    explicit reduction(const node& n) :
        x{*n.child(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)}, y{*n.child(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)} {
        if (n.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) !=
            CUDNN_REDUCE_TENSOR_ADD) {
            unsupported("a reduction that is not a sum");
        }
        require_image(x);
        require_image(y);
    }
    void run(memory& where) const {
        const void* const px = where.of(x);
        void* const py = where.of(y);
        std::vector<double> sums(static_cast<std::size_t>(y.extent()), 0.0);
        for_each(x.dims, [&](const std::array<std::int64_t, 4>& at) {
            sums[static_cast<std::size_t>(y.offset(at))] += load(x.type, px, x.offset(at));
        });
        for_each(y.dims, [&](const std::array<std::int64_t, 4>& at) {
            store(y.type, py, y.offset(at), sums[static_cast<std::size_t>(y.offset(at))]);
        });
    }
};

/// The same values under other dims: an offset in x is the same offset in y.
struct reshape {
    tensor_facts x, y;

    explicit reshape(const node& n) :
        x{*n.child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)}, y{*n.child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)} {
        require_image(x);
        require_image(y);
        if (x.extent() != y.extent()) { refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sizes of a reshape"); }
    }
    void run(memory& where) const {
        const void* const px = where.of(x);
        void* const py = where.of(y);
        for_each(y.dims, [&](const std::array<std::int64_t, 4>& at) {
            store(y.type, py, y.offset(at), load(x.type, px, y.offset(at)));
        });
    }
};

/// o = softmax(scale q k^T) v, and the log-sum-exps.
struct forward_attention {
    tensor_facts q, k, v, o, stats, scale;

    explicit forward_attention(const node& n) :
        q{*n.child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC)}, k{*n.child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC)},
        v{*n.child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC)}, o{*n.child(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC)},
        stats{*n.child(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC)}, scale{*n.child(
                                                                      CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC)} {
        for (const tensor_facts* t : {&q, &k, &v, &o, &stats, &scale}) { require_image(*t); }
        if (q.dims != o.dims || k.dims != v.dims || q.dims[3] != k.dims[3] || stats.dims[2] != q.dims[2] ||
            stats.type != number::f32) {
            refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sizes of an attention");
        }
    }
    void run(memory& where) const {
        const void* const pq = where.of(q);
        const void* const pk = where.of(k);
        const void* const pv = where.of(v);
        void* const po = where.of(o);
        void* const ps = where.of(stats);
        const double factor = load(scale.type, where.of(scale), 0);
        std::vector<double> weights(static_cast<std::size_t>(k.dims[2]));
        for_each(stats.dims, [&](const std::array<std::int64_t, 4>& at) {
            double sum = 0.0;
            for (std::int64_t j = 0; j != k.dims[2]; ++j) {
                double score = 0.0;
                for (std::int64_t c = 0; c != q.dims[3]; ++c) {
                    score += load(q.type, pq, q.offset({at[0], at[1], at[2], c})) *
                             load(k.type, pk, k.offset({at[0], at[1], j, c}));
                }
                weights[static_cast<std::size_t>(j)] = std::exp(factor * score);
                sum += weights[static_cast<std::size_t>(j)];
            }
            store(stats.type, ps, stats.offset(at), std::log(sum));
            for (std::int64_t c = 0; c != q.dims[3]; ++c) {
                double result = 0.0;
                for (std::int64_t j = 0; j != k.dims[2]; ++j) {
                    result +=
                        weights[static_cast<std::size_t>(j)] / sum * load(v.type, pv, v.offset({at[0], at[1], j, c}));
                }
                store(o.type, po, o.offset({at[0], at[1], at[2], c}), result);
            }
        });
    }
};

/// Calls f with an operation that may follow another, as its own type.
template <class F>
void visit_operation(const node& n, F f) {
    switch (n.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return f(pointwise{n});
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return f(product{n});
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return f(reduction{n});
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return f(reshape{n});
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: return f(forward_attention{n});
    default: unsupported("operation " + std::to_string(n.type));
    }
}

} // namespace emulated_cuda::cudnn
