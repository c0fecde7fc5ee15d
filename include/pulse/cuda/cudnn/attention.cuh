#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <cudnn.h>

#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/cudnn/graph.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda::cudnn {

/// A pass of attention.
enum class attention_pass : std::uint8_t { forward, backward };

/// The parameters of an attention graph. Tensors are laid out as attention_shape says; lse is float
/// [batch][heads][tokens], in natural logarithms. Forward binds q, k, v, o, lse and scale; backward binds all.
struct attention_graph {
    /// Which tensor a pointer is bound to. `scale` and `one`, which is 1, are floats on the host. `delta` is scratch
    /// shaped like lse, and `dq_sums` float [batch][heads][tokens][head_size], zero before the run: blocks add to it in
    /// the order in which they arrive, so that dq may differ between runs in its last bits.
    enum id : std::int64_t { q = 1, k, v, o, lse, scale, dout, dq, dk, dv, delta, dq_sums, one };

    attention_shape shape{};
    int batch{};
    attention_pass pass{};
    cudnnDataType_t type{}; ///< of all tensors but those in float: bfloat16 or half precision

    [[nodiscard]] bool operator==(const attention_graph&) const = default;
};

/// Makes the tensors and operations of an attention graph, with dims in cuDNN's order: batch, heads, tokens, head_size.
class attention_builder {
public:
    explicit attention_builder(const attention_graph& g) : g_{g} {}

    [[nodiscard]] const std::vector<descriptor>& operations() const noexcept { return operations_; }

    /// A tensor of `count` tokens; `exchanged` swaps the dims of tokens and head_size.
    [[nodiscard]] descriptor heads(std::int64_t id, std::int64_t count, bool exchanged = false) const {
        return make(heads_tensor(id, count, exchanged));
    }
    [[nodiscard]] tensor heads_tensor(std::int64_t id, std::int64_t count, bool exchanged) const {
        const std::int64_t width = g_.shape.width();
        tensor made{.id = id,
                    .type = g_.type,
                    .dims = {g_.batch, g_.shape.heads, count, g_.shape.head_size},
                    .strides = {count * width, g_.shape.head_size, width, 1}};
        if (exchanged) {
            std::swap(made.dims[2], made.dims[3]);
            std::swap(made.strides[2], made.strides[3]);
        }
        return made;
    }
    /// Floats [batch][heads][tokens][columns].
    [[nodiscard]] descriptor floats(std::int64_t id, std::int64_t columns) const {
        return make(packed(id, CUDNN_DATA_FLOAT, g_.shape.tokens, columns));
    }
    /// One float on the host.
    [[nodiscard]] static descriptor number(std::int64_t id) {
        return make(
            {.id = id, .type = CUDNN_DATA_FLOAT, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .by_value = true});
    }
    /// A virtual tensor: it never leaves the chip.
    [[nodiscard]] descriptor between(std::int64_t columns, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        tensor made = packed(next_++, type, g_.shape.tokens, columns);
        made.is_virtual = true;
        return make(made);
    }

    descriptor multiply(const descriptor& a, const descriptor& b, const descriptor& c) {
        descriptor math{CUDNN_BACKEND_MATMUL_DESCRIPTOR};
        math.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize("matrix product");
        descriptor made{CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
            .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
            .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
            .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, math);
        return add_operation(made, "matrix product operation", c);
    }
    /// y = mode(x) or mode(x, b), element by element.
    descriptor pointwise(cudnnPointwiseMode_t mode, const descriptor& x, const descriptor& b, const descriptor& y) {
        operations_.push_back(cudnn::pointwise(mode, x, b, y));
        return y;
    }
    descriptor sum(const descriptor& x, const descriptor& y) {
        descriptor math{CUDNN_BACKEND_REDUCTION_DESCRIPTOR};
        math.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD)
            .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
            .finalize("sum");
        descriptor made{CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
            .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
            .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, math);
        return add_operation(made, "sum operation", y);
    }
    /// Scores [tokens][keys], transposed to [keys][tokens].
    descriptor exchange_scores(const descriptor& x) {
        tensor made = packed(next_++, g_.type, g_.shape.tokens, g_.shape.keys());
        made.is_virtual = true;
        std::swap(made.dims[2], made.dims[3]);
        std::swap(made.strides[2], made.strides[3]);
        return reshape(x, make(made));
    }
    /// Exchanged keys, back in the order in which they are stored.
    descriptor exchange_keys(const descriptor& x) {
        tensor made = heads_tensor(next_++, g_.shape.keys(), false);
        made.is_virtual = true;
        return reshape(x, make(made));
    }

private:
    [[nodiscard]] tensor packed(std::int64_t id, cudnnDataType_t type, std::int64_t rows, std::int64_t columns) const {
        const std::int64_t heads = g_.shape.heads;
        return {.id = id,
                .type = type,
                .dims = {g_.batch, heads, rows, columns},
                .strides = {heads * rows * columns, rows * columns, columns, 1}};
    }
    descriptor reshape(const descriptor& x, const descriptor& y) {
        descriptor made{CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
        return add_operation(made, "reshape operation", y);
    }
    descriptor add_operation(descriptor& made, std::string_view what, const descriptor& result) {
        operations_.push_back(made.finalize(what));
        return result;
    }

    const attention_graph& g_;
    std::vector<descriptor> operations_{};
    std::int64_t next_{100}; ///< id of the next tensor that is not bound
};

/// Makes the operation graph; throws cudnn_error if cuDNN does not support it. The forward pass is cuDNN's single
/// operation; the backward pass is the composition that its engines match, and recomputes the weights from lse.
[[nodiscard]] inline descriptor make_graph(const attention_graph& g, cudnnHandle_t handle) {
    using id = attention_graph;
    const attention_shape& s = g.shape;
    attention_builder build{g};
    if (g.pass == attention_pass::forward) {
        descriptor made{CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR};
        made.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, build.heads(id::q, s.tokens))
            .set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, build.heads(id::k, s.keys()))
            .set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, build.heads(id::v, s.keys()))
            .set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, build.number(id::scale))
            .set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, build.heads(id::o, s.tokens))
            .set(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, build.floats(id::lse, 1));
        return operation_graph({made.finalize("attention")}, handle);
    }
    const descriptor none{};
    const descriptor q = build.heads(id::q, s.tokens);
    const descriptor k = build.heads(id::k, s.keys(), true);
    const descriptor v = build.heads(id::v, s.keys(), true);
    const descriptor dout = build.heads(id::dout, s.tokens);
    const descriptor scale = build.number(id::scale);
    const auto scores = [&] { return build.between(s.keys()); };

    const descriptor product =
        build.pointwise(CUDNN_POINTWISE_MUL, dout, build.heads(id::o, s.tokens), build.between(s.head_size));
    const descriptor sums = build.sum(product, build.between(1));
    const descriptor delta =
        build.pointwise(CUDNN_POINTWISE_MUL, sums, build.number(id::one), build.floats(id::delta, 1));

    descriptor weights = build.multiply(q, k, scores());
    weights = build.pointwise(CUDNN_POINTWISE_MUL, weights, scale, scores());
    weights = build.pointwise(CUDNN_POINTWISE_SUB, weights, build.floats(id::lse, 1), scores());
    weights = build.pointwise(CUDNN_POINTWISE_EXP, weights, none, scores());
    build.multiply(build.exchange_scores(weights), dout, build.heads(id::dv, s.keys()));

    descriptor ds = build.multiply(dout, v, scores());
    ds = build.pointwise(CUDNN_POINTWISE_SUB, ds, delta, scores());
    ds = build.pointwise(CUDNN_POINTWISE_MUL, ds, weights, scores());
    ds = build.pointwise(CUDNN_POINTWISE_MUL, ds, scale, build.between(s.keys(), g.type));
    build.multiply(build.exchange_scores(ds), q, build.heads(id::dk, s.keys()));

    const descriptor dq = build.multiply(ds, build.exchange_keys(k), build.floats(id::dq_sums, s.head_size));
    build.pointwise(CUDNN_POINTWISE_IDENTITY, dq, none, build.heads(id::dq, s.tokens));
    return operation_graph(build.operations(), handle);
}

} // namespace pulse::cuda::cudnn
