#include <emulated/cudnn.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <cudnn.h>

#include <emulated/runtime.hpp>
#include <emulated/scalars.hpp>

struct cudnnContext {
    cudaStream_t stream{};
};

namespace emulated_cuda::cudnn {
namespace {

std::array<std::int64_t, 3> executions{};
std::int64_t plans_made = 0;
std::int64_t plans_restored = 0;
bool takes_fused = true;
bool takes_identity = true;
thread_local std::string last_message;

struct refusal {
    cudnnStatus_t status;
    std::string message;
};
[[noreturn]] void refuse(cudnnStatus_t status, const std::string& message) { throw refusal{status, message}; }
[[noreturn]] void bad(const std::string& message) { refuse(CUDNN_STATUS_BAD_PARAM, message); }
[[noreturn]] void unsupported(const std::string& message) { refuse(CUDNN_STATUS_NOT_SUPPORTED, message); }

struct node;
using part = std::shared_ptr<node>;

struct value {
    int type{};
    std::int64_t count{};
    std::vector<std::byte> bytes{};
    std::vector<part> parts{};
};

/// What a descriptor holds.
struct node {
    int type{};
    bool final{};
    std::map<int, value> attributes{};

    [[nodiscard]] bool has(int name) const { return attributes.count(name) != 0; }
    [[nodiscard]] const value& at(int name) const {
        const auto found = attributes.find(name);
        if (found == attributes.end()) {
            bad("descriptor " + std::to_string(type) + " has no attribute " + std::to_string(name));
        }
        return found->second;
    }
    template <class T>
    [[nodiscard]] std::vector<T> all(int name) const {
        const value& v = at(name);
        if (v.bytes.size() != static_cast<std::size_t>(v.count) * sizeof(T)) { bad("attribute has another size"); }
        std::vector<T> made(static_cast<std::size_t>(v.count));
        if (!made.empty()) { std::memcpy(made.data(), v.bytes.data(), v.bytes.size()); }
        return made;
    }
    template <class T>
    [[nodiscard]] T one(int name) const {
        const value& v = at(name);
        if (v.count != 1 || v.bytes.size() != sizeof(T)) {
            bad("attribute " + std::to_string(name) + " is not one value");
        }
        T found{};
        std::memcpy(&found, v.bytes.data(), sizeof(T));
        return found;
    }
    [[nodiscard]] part child(int name) const {
        const value& v = at(name);
        if (v.parts.size() != 1) { bad("attribute " + std::to_string(name) + " is not one descriptor"); }
        return v.parts[0];
    }
    template <class T>
    void put(int name, int kind, const T& one_value) {
        value v{kind, 1, std::vector<std::byte>(sizeof(T)), {}};
        std::memcpy(v.bytes.data(), &one_value, sizeof(T));
        attributes[name] = v;
    }
    void put(int name, const part& child_node) {
        attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {child_node}};
    }
};

/// What a cudnnBackendDescriptor_t points at.
struct holder {
    part held{};
};

part& of(cudnnBackendDescriptor_t descriptor) {
    if (descriptor == nullptr) { refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null descriptor"); }
    return static_cast<holder*>(descriptor)->held;
}

std::size_t size_of_type(int type) {
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_INT32:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_BEHAVIOR_NOTE: return 4;
    default: unsupported("attribute type " + std::to_string(type));
    }
}

// ---- A graph's numbers ----

number number_of(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_FLOAT: return number::f32;
    case CUDNN_DATA_HALF: return number::f16;
    case CUDNN_DATA_BFLOAT16: return number::bf16;
    default: unsupported("data type " + std::to_string(type));
    }
}

struct tensor_facts {
    std::int64_t id{};
    number type{};
    std::vector<std::int64_t> dims, strides;
    std::int64_t alignment{};
    bool is_virtual{};
    bool by_value{};

    explicit tensor_facts(const node& n) {
        if (n.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) { bad("not a tensor"); }
        id = n.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
        type = number_of(n.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
        dims = n.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
        strides = n.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
        alignment = n.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
        is_virtual = n.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && n.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
        by_value = n.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && n.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
        if (dims.size() != strides.size() || dims.empty()) { bad("tensor of different numbers of dims and strides"); }
        if (alignment <= 0 || alignment % size_of(type) != 0) { bad("alignment of a tensor"); }
        for (const std::int64_t d : dims) {
            if (d <= 0) { bad("dimension of a tensor"); }
        }
    }
    [[nodiscard]] std::int64_t offset(const std::array<std::int64_t, 4>& at) const {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i != 4; ++i) { sum += (dims[i] == 1 ? 0 : at[i]) * strides[i]; }
        return sum;
    }
    [[nodiscard]] std::int64_t extent() const {
        std::int64_t last = 0;
        for (std::size_t i = 0; i != dims.size(); ++i) { last += (dims[i] - 1) * strides[i]; }
        return last + 1;
    }
};

void require_image(const tensor_facts& t) {
    if (t.dims.size() != 4) { unsupported("a tensor that is not of 4 dimensions"); }
}

/// Where the numbers of a tensor are while a graph runs: bound memory, or what a virtual tensor holds.
class memory {
public:
    std::map<std::int64_t, void*> bound{};

    /// Reads a number by value from the host; later it may be gone.
    void keep_value(const tensor_facts& t) {
        const auto found = bound.find(t.id);
        if (found == bound.end() || found->second == nullptr) { bad("number " + std::to_string(t.id) + " is missing"); }
        std::memcpy(&values_[t.id], found->second, sizeof(float));
    }
    [[nodiscard]] void* of(const tensor_facts& t) {
        if (t.by_value) { return &values_.at(t.id); }
        if (!t.is_virtual) {
            const auto found = bound.find(t.id);
            if (found == bound.end() || found->second == nullptr) {
                bad("tensor " + std::to_string(t.id) + " has no pointer");
            }
            if (reinterpret_cast<std::uintptr_t>(found->second) % static_cast<std::uintptr_t>(t.alignment) != 0) {
                refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor " + std::to_string(t.id));
            }
            return found->second;
        }
        std::vector<std::byte>& own = virtuals_[t.id];
        own.resize(static_cast<std::size_t>(t.extent() * size_of(t.type)));
        return own.data();
    }

private:
    std::map<std::int64_t, std::vector<std::byte>> virtuals_{};
    std::map<std::int64_t, float> values_{};
};

template <class F>
void for_each(const std::vector<std::int64_t>& dims, F f) {
    std::array<std::int64_t, 4> at{};
    for (at[0] = 0; at[0] != dims[0]; ++at[0]) {
        for (at[1] = 0; at[1] != dims[1]; ++at[1]) {
            for (at[2] = 0; at[2] != dims[2]; ++at[2]) {
                for (at[3] = 0; at[3] != dims[3]; ++at[3]) { f(at); }
            }
        }
    }
}

struct convolution_names {
    int x, w, y, window, alpha, beta;
};
convolution_names names_of(int type) {
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
bool is_convolution(int type) {
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
    void run(memory& where, bool rounds) const {
        void* const px = where.of(x);
        void* const pw = where.of(w);
        void* const py = where.of(y);
        const auto factor = [rounds](const tensor_facts& t, const void* data, std::int64_t at) {
            const double v = load(t.type, data, at);
            return rounds && t.type == number::f32 ? tensor_float(v) : v;
        };
        const tensor_facts& r = result();
        void* const out = where.of(r);
        std::vector<double> sums(static_cast<std::size_t>(r.extent()), 0.0);
        for_each(y.dims, [&](const std::array<std::int64_t, 4>& at) {
            const std::int64_t y_at = y.offset(at);
            double forward = 0.0;
            const double dy =
                type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? 0.0 : factor(y, py, y_at);
            for (std::int64_t ky = 0; ky != w.dims[2]; ++ky) {
                const std::int64_t iy = at[2] * strides[0] - before[0] + ky * dilations[0];
                if (iy < 0 || iy >= x.dims[2]) { continue; }
                for (std::int64_t kx = 0; kx != w.dims[3]; ++kx) {
                    const std::int64_t ix = at[3] * strides[1] - before[1] + kx * dilations[1];
                    if (ix < 0 || ix >= x.dims[3]) { continue; }
                    for (std::int64_t c = 0; c != w.dims[1]; ++c) {
                        const std::int64_t x_at = x.offset({at[0], c, iy, ix});
                        const std::int64_t w_at = w.offset({at[1], c, ky, kx});
                        if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
                            forward += factor(x, px, x_at) * factor(w, pw, w_at);
                        } else if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
                            sums[static_cast<std::size_t>(x_at)] += dy * factor(w, pw, w_at);
                        } else {
                            sums[static_cast<std::size_t>(w_at)] += dy * factor(x, px, x_at);
                        }
                    }
                }
            }
            if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
                sums[static_cast<std::size_t>(y_at)] = forward;
            }
        });
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

/// c = a b, of the last two dimensions.
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

/// y = sums of x over the dimensions of which y has one.
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

/// The same numbers under other dims: what lies at one offset of x lies at the same of y.
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

/// o = softmax(scale q k^T) v, and the logarithms of the sums.
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

/// Calls f with an operation that may follow another, as what it is.
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

std::vector<part> operations_of(const node& graph) { return graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).parts; }

[[nodiscard]] bool is_attention(const std::vector<part>& operations) {
    return std::any_of(operations.begin(), operations.end(), [](const part& one) {
        return one->type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR ||
               one->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    });
}
/// Throws where no engine computes an attention: heads are multiples of 8, and up to 128 in the backward pass.
void require_attention(const std::vector<part>& operations) {
    for (const part& one : operations) {
        visit_operation(*one, [](const auto&) {});
        if (one->type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR && forward_attention{*one}.q.dims[3] % 8 != 0) {
            unsupported("a head size of attention");
        }
        if (one->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
            const std::int64_t size = reduction{*one}.x.dims[3];
            if (size % 8 != 0 || size > 128) { unsupported("a head size of attention's gradients"); }
        }
    }
}

/// Throws where no engine computes the graph.
void require_supported(const node& graph) {
    const std::vector<part> operations = operations_of(graph);
    if (is_attention(operations)) { return require_attention(operations); }
    if (operations.empty() || !is_convolution(operations[0]->type)) {
        unsupported("a graph that is not led by a convolution");
    }
    const convolution first{*operations[0]};
    if (operations.size() > 1 && !takes_fused) { unsupported("a fused graph"); }
    if (operations.size() > 1 && first.beta != 0.0) { unsupported("a fused convolution with beta"); }
    const bool of_weight = first.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    const bool narrow = first.x.type != number::f32;
    if (of_weight && narrow && operations.size() == 1 && first.w.type == number::f32) {
        unsupported("a 16-bit weight gradient stored in float");
    }
    if (of_weight && narrow && operations.size() > 1 && (first.w.dims[0] % 2 != 0 || first.w.dims[1] % 2 != 0)) {
        unsupported("a fused weight gradient of an odd number of channels");
    }
    for (std::size_t i = 1; i != operations.size(); ++i) {
        if (operations[i]->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
            unsupported("an operation after a convolution");
        }
        const pointwise one{*operations[i]};
        if (one.mode == CUDNN_POINTWISE_IDENTITY && !takes_identity) { unsupported("an identity"); }
    }
}

void run(const node& graph, memory& where, bool rounds) {
    const std::vector<part> operations = operations_of(graph);
    const bool attends = is_attention(operations);
    if (!attends) { convolution{*operations[0]}.run(where, rounds); }
    for (std::size_t i = attends ? 0 : 1; i != operations.size(); ++i) {
        visit_operation(*operations[i], [&](const auto& operation) { operation.run(where); });
    }
}

// ---- Engines and plans ----

constexpr std::int64_t workspace_of_engine_1 = 4096;

part make_config(const part& graph, std::int64_t engine_index) {
    const part engine = std::make_shared<node>();
    engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    engine->put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    engine->put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, engine_index);
    if (engine_index == 0) {
        engine->put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    }
    if (operations_of(*graph).size() > 2) {
        engine->put(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    }
    engine->final = true;
    const part config = std::make_shared<node>();
    config->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    config->put(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    config->final = true;
    return config;
}

std::int64_t engine_of(const node& config) {
    return config.child(CUDNN_ATTR_ENGINECFG_ENGINE)->one<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}
part graph_of(const node& config) {
    return config.child(CUDNN_ATTR_ENGINECFG_ENGINE)->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

void write(std::ostream& out, const node& n) {
    std::size_t kept = 0;
    for (const auto& [name, v] : n.attributes) { kept += v.type == CUDNN_TYPE_HANDLE ? 0 : 1; }
    out << n.type << ' ' << kept << ' ';
    for (const auto& [name, v] : n.attributes) {
        if (v.type == CUDNN_TYPE_HANDLE) { continue; }
        out << name << ' ' << v.type << ' ' << v.count << ' ' << v.bytes.size() << ' ';
        for (const std::byte b : v.bytes) { out << std::to_integer<int>(b) << ' '; }
        for (const part& p : v.parts) { write(out, *p); }
    }
}
part read(std::istream& in) {
    const part made = std::make_shared<node>();
    std::size_t attributes = 0;
    if (!(in >> made->type >> attributes) || attributes > 100) { bad("JSON of a plan"); }
    for (std::size_t i = 0; i != attributes; ++i) {
        int name = 0;
        value v;
        std::size_t bytes = 0;
        if (!(in >> name >> v.type >> v.count >> bytes) || bytes > 100000 || v.count < 0 || v.count > 100000) {
            bad("JSON of a plan");
        }
        for (std::size_t b = 0; b != bytes; ++b) {
            int one = 0;
            if (!(in >> one)) { bad("JSON of a plan"); }
            v.bytes.push_back(static_cast<std::byte>(one));
        }
        for (std::int64_t p = 0; v.type == CUDNN_TYPE_BACKEND_DESCRIPTOR && p != v.count; ++p) {
            v.parts.push_back(read(in));
        }
        made->attributes[name] = v;
    }
    made->final = true;
    return made;
}
constexpr const char* json_head = "{\"emulated plan\": \"";

void finalize(node& n) {
    switch (n.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: static_cast<void>(tensor_facts{n}); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: static_cast<void>(convolution{n}); break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: visit_operation(n, [](const auto&) {}); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!n.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) { bad("a graph without a handle"); }
        static_cast<void>(operations_of(n));
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
        const part graph = n.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        require_supported(*graph);
        const auto mode = n.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
        value results{CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, {}, {}};
        if (mode == CUDNN_HEUR_MODE_A) {
            results.parts = {make_config(graph, 0), make_config(graph, 1)};
        } else if (mode == CUDNN_HEUR_MODE_FALLBACK) {
            results.parts = {make_config(graph, 2)};
        } else {
            unsupported("heuristic mode " + std::to_string(mode));
        }
        results.count = static_cast<std::int64_t>(results.parts.size());
        n.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = results;
        break;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        if (n.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)) {
            const std::vector<char> text = n.all<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
            const std::string json{text.begin(), text.end()};
            if (json.rfind(json_head, 0) != 0 || json.size() < 2 || json.substr(json.size() - 2) != "\"}") {
                bad("JSON of a plan");
            }
            std::istringstream in{json.substr(std::strlen(json_head))};
            n.put(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, read(in));
            ++plans_restored;
        } else {
            ++plans_made;
        }
        {
            const node& config = *n.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
            require_supported(*graph_of(config));
            const std::int64_t bytes = engine_of(config) == 1 ? workspace_of_engine_1 : 0;
            n.put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, bytes);
            std::ostringstream out;
            write(out, config);
            const std::string json = json_head + out.str() + "\"}";
            value v{CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()), std::vector<std::byte>(json.size()), {}};
            std::memcpy(v.bytes.data(), json.data(), json.size());
            n.attributes[CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION] = v;
        }
        break;
    default: unsupported("descriptor type " + std::to_string(n.type));
    }
    n.final = true;
}

template <class F>
cudnnStatus_t guarded(F f) {
    try {
        f();
        return CUDNN_STATUS_SUCCESS;
    } catch (const refusal& r) {
        last_message = "emulated: " + r.message;
        return r.status;
    }
}

} // namespace

std::int64_t executed(int engine) { return executions.at(static_cast<std::size_t>(engine)); }
std::int64_t planned() { return plans_made; }
std::int64_t restored() { return plans_restored; }
void set_supported(bool fused, bool identity) {
    takes_fused = fused;
    takes_identity = identity;
}

} // namespace emulated_cuda::cudnn

using namespace emulated_cuda::cudnn;

extern "C" {

std::size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 2000: return "CUDNN_STATUS_BAD_PARAM";
    case 3000: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}

void cudnnGetLastErrorString(char* message, std::size_t max_size) {
    std::snprintf(message, max_size, "%s", last_message.c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    *handle = new cudnnContext{};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    emulated_cuda::end_captures(); // it waits for the device
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
    auto* made = new holder{std::make_shared<node>()};
    made->held->type = type;
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    delete static_cast<holder*>(descriptor);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    return guarded([&] { finalize(*of(descriptor)); });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
    return guarded([&] {
        node& n = *of(descriptor);
        if (n.final) { bad("an attribute set after the descriptor was finalized"); }
        if (count < 0 || (count > 0 && elements == nullptr)) { bad("elements of an attribute"); }
        value v{type, count, {}, {}};
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            const auto* parts = static_cast<const cudnnBackendDescriptor_t*>(elements);
            for (std::int64_t i = 0; i != count; ++i) {
                const part& p = of(parts[i]);
                if (!p->final) { refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part of a descriptor"); }
                v.parts.push_back(p);
            }
        } else {
            v.bytes.resize(static_cast<std::size_t>(count) * size_of_type(type));
            if (!v.bytes.empty()) { std::memcpy(v.bytes.data(), elements, v.bytes.size()); }
        }
        n.attributes[name] = v;
    });
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* elements) {
    return guarded([&] {
        const node& n = *of(descriptor);
        if (!n.final) { refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is read"); }
        // An engine without notes has none of them.
        const bool is_note = name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE;
        if (is_note && !n.has(name)) {
            *count = 0;
            return;
        }
        const value& v = n.at(name);
        if (v.type != type) { refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute that is read"); }
        const std::int64_t given = std::min(requested, v.count);
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            auto* to = static_cast<cudnnBackendDescriptor_t*>(elements);
            for (std::int64_t i = 0; i < given; ++i) { of(to[i]) = v.parts[static_cast<std::size_t>(i)]; }
        } else if (given > 0) {
            std::memcpy(elements, v.bytes.data(), static_cast<std::size_t>(given) * size_of_type(type));
        }
        if (count != nullptr) { *count = v.count; }
    });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    return guarded([&] {
        const node& p = *of(plan);
        const node& v = *of(pack);
        const auto ids = v.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
        const auto pointers = v.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
        if (ids.size() != pointers.size()) { bad("a variant pack of different numbers of ids and pointers"); }
        auto* const workspace = v.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
        const auto bytes = p.one<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
        if (bytes > 0 && workspace == nullptr) { bad("no workspace"); }
        const part config = p.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        const part graph = graph_of(*config);
        const std::int64_t engine = engine_of(*config);
        memory where;
        for (std::size_t i = 0; i != ids.size(); ++i) { where.bound[ids[i]] = pointers[i]; }
        // What a run would find wrong is said at once, as the library does.
        for (const part& operation : operations_of(*graph)) {
            for (const auto& [name, a] : operation->attributes) {
                for (const part& child : a.parts) {
                    if (child->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
                        const tensor_facts facts{*child};
                        if (facts.by_value) { where.keep_value(facts); }
                        static_cast<void>(where.of(facts));
                    }
                }
            }
        }
        const cudaError_t status = emulated_cuda::enqueue_kernel(dim3{1}, dim3{1}, 0, handle->stream, [=]() mutable {
            auto* const floats = static_cast<float*>(workspace);
            for (std::int64_t i = 0; i < bytes / 4; ++i) { floats[i] = std::numeric_limits<float>::quiet_NaN(); }
            run(*graph, where, engine == 0);
            ++executions[static_cast<std::size_t>(engine)];
        });
        if (status != cudaSuccess) { refuse(CUDNN_STATUS_EXECUTION_FAILED, "the launch"); }
    });
}

} // extern "C"
