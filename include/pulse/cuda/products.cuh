#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/cublas/product.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/movement.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>

namespace pulse::cuda {

/// Linear layers by cuBLASLt, in scalar type T with sums and parameter gradients in float.
///
/// An algorithm is chosen once per shape and alignment, as `engine_options` says. Pointers may have any alignment: the
/// greatest power of two that divides them, up to 16 bytes, is part of what an algorithm is chosen for. The row stride
/// of a weight may exceed its features, so that a block of its columns is a weight too.
template <class T>
class products {
public:
    /// Throws input_error on bad options, cublas_error if cuBLASLt does not start.
    products(const engine_options& options, bool tensor_float) :
        options_{options}, tensor_float_{tensor_float}, device_{device_key()} {
        options_.require_valid();
    }

    /// y = x weight^T + bias, or y += that, or y = residual + that if `residual` is not null and `how` is add. 1x1
    /// convolutions of stride 1 are this over all pixels. The bias is fused into the product where cuBLASLt can do so;
    /// otherwise a kernel reads and writes y once more.
    void forward(const queue& on, scratch_arena& scratch, const linear_shape& s, std::int64_t weight_stride,
                 std::int64_t rows, const T* x, const T* weight, const T* bias, T* y, into how,
                 const T* residual = nullptr) {
        cublas::product p = forward_of(s, weight_stride, rows, x, weight, y, how);
        // The algorithm, and so the bits, must not depend on a residual's alignment.
        if (residual != nullptr && cublas::alignment_of(residual) < p.alignment_d) {
            copy_async(y, residual, static_cast<std::size_t>(rows * s.out_features), on.stream);
            residual = nullptr;
        }
        if (bias == nullptr) { return run(on, scratch, p, weight, x, y, nullptr, into::add, residual); }
        p.beside = cublas::extra::bias;
        const entry& chosen = find(on.stream, p);
        if (!chosen.how) {
            p.beside = cublas::extra::none;
            run(on, scratch, p, weight, x, y, nullptr, into::add, residual);
            return add_per_sample(on, 1, static_cast<int>(rows), s.out_features, bias, y);
        }
        // The epilogue reads the bias in aligned vectors.
        const bool moves = !is_pack_aligned(bias);
        const auto [moved, workspace] = lay_beside<T>(scratch, moves ? s.out_features : 0, chosen);
        if (moves) { copy_async(moved, bias, static_cast<std::size_t>(s.out_features), on.stream); }
        start(chosen, weight, x, y, moves ? moved : bias, workspace, on.stream, true, residual);
    }

    /// dx = (or +=) dy weight.
    void backward_input(const queue& on, scratch_arena& scratch, const linear_shape& s, std::int64_t weight_stride,
                        std::int64_t rows, const T* dy, const T* weight, T* dx, into how) {
        cublas::product p = begin(s.in_features, rows, s.out_features, how);
        p.stride_a = weight_stride;
        p.stride_b = s.out_features;
        p.stride_d = s.in_features;
        align(p, weight, dy, dx);
        run(on, scratch, p, weight, dy, dx, nullptr);
    }

    /// dweight = (or +=) dy^T x and dbias = (or +=) the sums of dy, in float. One algorithm, chosen for adding, also
    /// serves overwriting, so that both give the same bits. The sums are fused into the product where cuBLASLt can do
    /// so; otherwise a kernel reads dy once more.
    void backward_weight(const queue& on, scratch_arena& scratch, const linear_shape& s, std::int64_t weight_stride,
                         std::int64_t rows, const T* x, const T* dy, gradient_place<float> dweight,
                         gradient_place<float> dbias) {
        cublas::product p = backward_weight_of(s, weight_stride, rows, x, dy, dweight.to);
        if (!dbias.wanted()) { return run(on, scratch, p, x, dy, dweight.to, nullptr, dweight.how); }
        p.beside = cublas::extra::bias_gradient;
        if (const entry& chosen = find(on.stream, p); chosen.how) {
            const bool in_place = !dbias.adds() && is_pack_aligned(dbias.to);
            const auto [piece, workspace] = lay_beside<float>(scratch, in_place ? 0 : s.out_features, chosen);
            float* const sums = in_place ? dbias.to : piece;
            start(chosen, x, dy, dweight.to, sums, workspace, on.stream, dweight.adds());
            if (in_place) { return; }
            return dbias.adds() ? add(on, s.out_features, sums, dbias.to) : copy(on, s.out_features, sums, dbias.to);
        }
        p.beside = cublas::extra::none;
        run(on, scratch, p, x, dy, dweight.to, nullptr, dweight.how);
        queue with = on;
        with.scratch = scratch.reserve(add_bias_gradient_scratch_bytes(rows, s.out_features));
        add_bias_gradient(with, rows, s.out_features, dy, dbias);
    }

    /// y[i] = (or +=) x weight[i]^T for all i of a batch: one product if cuBLASLt can do so and strides are multiples
    /// of 16 bytes, otherwise one each.
    void forward(const queue& on, scratch_arena& scratch, const linear_batch_shape& s, std::int64_t rows, const T* x,
                 const T* weight, T* y, into how) {
        cublas::product p = forward_of(s.each, s.each.in_features, rows, x, weight, y, how);
        p.batch = s.count;
        p.batch_a = s.weight_stride;
        p.batch_d = s.result_stride;
        if (is_whole<T>(s.weight_stride) && is_whole<T>(s.result_stride) && has_algorithm(on.stream, p)) {
            return run(on, scratch, p, weight, x, y, nullptr);
        }
        for (int i = 0; i != s.count; ++i) {
            forward(on, scratch, s.each, s.each.in_features, rows, x, weight + i * s.weight_stride, nullptr,
                    y + i * s.result_stride, how);
        }
    }
    /// dweight[i] = (or +=) dy[i]^T x for all i of a batch, likewise.
    void backward_weight(const queue& on, scratch_arena& scratch, const linear_batch_shape& s, std::int64_t rows,
                         const T* x, const T* dy, gradient_place<float> dweight) {
        cublas::product p = backward_weight_of(s.each, s.each.in_features, rows, x, dy, dweight.to);
        p.batch = s.count;
        p.batch_b = s.result_stride;
        p.batch_d = s.weight_stride;
        if (is_whole<T>(s.result_stride) && is_whole<float>(s.weight_stride) && has_algorithm(on.stream, p)) {
            return run(on, scratch, p, x, dy, dweight.to, nullptr, dweight.how);
        }
        for (int i = 0; i != s.count; ++i) {
            backward_weight(on, scratch, s.each, s.each.in_features, rows, x, dy + i * s.result_stride,
                            dweight + i * s.weight_stride, nullptr);
        }
    }

    /// to[row][key] = the dot product of q[row] and k[key], in float: the scores of one attention head. Rows and keys
    /// have `size` elements and are `stride` apart.
    void scores(const queue& on, scratch_arena& scratch, std::int64_t rows, std::int64_t keys, int size,
                std::int64_t stride, const T* q, const T* k, float* to) {
        cublas::product p = begin(keys, rows, size, into::write);
        p.type_d = CUDA_R_32F;
        p.transpose_a = true;
        p.stride_a = stride;
        p.stride_b = stride;
        p.stride_d = keys;
        align(p, k, q, to);
        run(on, scratch, p, k, q, to, nullptr);
    }
    /// o[row] = the sum over the keys of weights[row][key] v[key]: the output of one attention head.
    void mixed(const queue& on, scratch_arena& scratch, std::int64_t rows, std::int64_t keys, int size,
               std::int64_t stride, const T* weights, const T* v, T* o) {
        cublas::product p = begin(size, rows, keys, into::write);
        p.stride_a = stride;
        p.stride_b = keys;
        p.stride_d = stride;
        align(p, v, weights, o);
        run(on, scratch, p, v, weights, o, nullptr);
    }

    /// Number of products seen so far.
    [[nodiscard]] std::size_t count() const noexcept { return entries_.size(); }

private:
    struct entry {
        std::unique_ptr<cublas::prepared_product> prepared{};
        std::optional<cublas::algorithm> how{}; ///< empty if cuBLASLt has none
        engine_choice* counted{};
    };
    struct before {
        bool operator()(const cublas::product& a, const cublas::product& b) const { return key(a) < key(b); }
        static auto key(const cublas::product& p) {
            return std::tuple{p.rows,        p.columns,     p.depth,  p.transpose_a, p.transpose_b, p.stride_a,
                              p.stride_b,    p.stride_d,    p.type_d, p.adds,        p.beside,      p.alignment_a,
                              p.alignment_b, p.alignment_d, p.batch,  p.batch_a,     p.batch_b,     p.batch_d};
        }
    };

    [[nodiscard]] cublas::product begin(std::int64_t rows, std::int64_t columns, std::int64_t depth, into how) const {
        cublas::product p{};
        p.rows = rows;
        p.columns = columns;
        p.depth = depth;
        p.type = p.type_d = cublas::data_type<T>();
        p.adds = how == into::add;
        p.tensor_float = tensor_float_;
        return p;
    }
    [[nodiscard]] cublas::product forward_of(const linear_shape& s, std::int64_t weight_stride, std::int64_t rows,
                                             const T* x, const T* weight, const T* y, into how) const {
        cublas::product p = begin(s.out_features, rows, s.in_features, how);
        p.transpose_a = true;
        p.stride_a = weight_stride;
        p.stride_b = s.in_features;
        p.stride_d = s.out_features;
        align(p, weight, x, y);
        return p;
    }
    [[nodiscard]] cublas::product backward_weight_of(const linear_shape& s, std::int64_t weight_stride,
                                                     std::int64_t rows, const T* x, const T* dy,
                                                     const float* dweight) const {
        cublas::product p = begin(s.in_features, s.out_features, rows, into::add);
        p.type_d = CUDA_R_32F;
        p.transpose_b = true;
        p.stride_a = s.in_features;
        p.stride_b = s.out_features;
        p.stride_d = weight_stride;
        align(p, x, dy, dweight);
        return p;
    }
    /// Whether, at this stride, every matrix of a batch is aligned like the first.
    template <class Each>
    [[nodiscard]] static bool is_whole(std::int64_t elements) {
        return elements * static_cast<std::int64_t>(sizeof(Each)) % 16 == 0;
    }
    [[nodiscard]] bool has_algorithm(cudaStream_t stream, const cublas::product& p) {
        return find(stream, p).how.has_value();
    }
    static void align(cublas::product& p, const void* a, const void* b, const void* d) {
        p.alignment_a = cublas::alignment_of(a);
        p.alignment_b = cublas::alignment_of(b);
        p.alignment_d = cublas::alignment_of(d);
    }
    /// Scratch for n values and for the algorithm's workspace.
    template <class Each>
    [[nodiscard]] static auto lay_beside(scratch_arena& scratch, int n, const entry& chosen) {
        return lay_pieces(scratch, [&](scratch_pieces& pieces) {
            return std::pair{pieces.take<Each>(n), pieces.take<std::byte>(chosen.how->workspace_bytes)};
        });
    }
    /// Runs a product. One that adds overwrites instead if `how` says so, and adds to `residual` if that is not null.
    void run(const queue& on, scratch_arena& scratch, const cublas::product& p, const void* a, const void* b, void* d,
             const void* beside, into how = into::add, const void* residual = nullptr) {
        const entry& chosen = find(on.stream, p);
        std::byte* const workspace = scratch.reserve(static_cast<std::size_t>(chosen.how->workspace_bytes));
        start(chosen, a, b, d, beside, workspace, on.stream, how == into::add, residual);
    }
    void start(const entry& chosen, const void* a, const void* b, void* d, const void* beside, void* workspace,
               cudaStream_t stream, bool adds = true, const void* residual = nullptr) const {
        options_.count(chosen.counted);
        chosen.prepared->run(lt_, *chosen.how, a, b, d, beside, workspace, stream, adds, residual);
    }

    /// Chooses an algorithm the first time a product is seen. Throws pulse::error if cuBLASLt has none, except for
    /// products with an epilogue and batches, which have a fallback.
    const entry& find(cudaStream_t stream, const cublas::product& p) {
        if (const auto found = entries_.find(p); found != entries_.end()) { return found->second; }
        require_not_captured(stream, "a matrix product needs a new algorithm");
        entry made{std::make_unique<cublas::prepared_product>(p), std::nullopt, nullptr};
        const std::string made_for = "cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", " + device_ +
                                     ", workspace " + std::to_string(options_.workspace_limit);
        if (const auto kept = options_.find(made_for, p.text())) {
            made.how = made.prepared->restore(lt_, kept->text);
            made.counted = kept->counted;
            if (!made.how) { std::fprintf(stderr, "pulse: ignoring a kept algorithm: %s\n", p.name().c_str()); }
        }
        if (!made.how) {
            const engine_trial trial{options_};
            const std::vector<cublas::algorithm> all =
                made.prepared->proposals(lt_, options_.workspace_limit, options_.next_candidates());
            if (!all.empty()) {
                engine_choice chosen;
                chosen.name = p.name();
                made.how = all[all.size() > 1 ? time(stream, *made.prepared, all, trial, chosen) : 0];
                chosen.engine = made.how->text();
                made.counted = options_.keep(made_for, p.text(), std::move(chosen));
            } else if (p.beside == cublas::extra::none && p.batch == 1) {
                throw pulse::error("cuBLASLt has no algorithm for " + p.text());
            }
        }
        return entries_.emplace(p, std::move(made)).first->second;
    }

    /// Index of the fastest algorithm, timed on separate memory.
    [[nodiscard]] std::size_t time(cudaStream_t stream, const cublas::prepared_product& prepared,
                                   const std::vector<cublas::algorithm>& all, const engine_trial& trial,
                                   engine_choice& found) const {
        const cublas::product& p = prepared.what();
        std::int64_t workspace = 0;
        for (const cublas::algorithm& one : all) { workspace = std::max(workspace, one.workspace_bytes); }
        const auto zeros = [stream](std::int64_t bytes) {
            device_memory<std::byte> made{static_cast<std::size_t>(bytes)};
            fill_bytes_async(made.data(), 0, made.size(), stream);
            return made;
        };
        const auto size = [](cudaDataType_t type) { return type == CUDA_R_32F ? std::int64_t{4} : std::int64_t{2}; };
        const std::int64_t more = p.batch - 1;
        const auto a = zeros(size(p.type) * (more * p.batch_a + p.stride_a * (p.transpose_a ? p.rows : p.depth)));
        const auto b = zeros(size(p.type) * (more * p.batch_b + p.stride_b * (p.transpose_b ? p.depth : p.columns)));
        const auto d = zeros(size(p.type_d) * (more * p.batch_d + p.stride_d * p.columns));
        const auto beside = zeros(4 * std::max(p.rows, p.columns));
        const auto room = zeros(workspace);
        const fastest_candidate best = fastest(
            stream, all.size(),
            [&](std::size_t i) {
                prepared.run(lt_, all[i], a.data(), b.data(), d.data(), beside.data(), room.data(), stream);
            },
            [&] { return trial.is_over(); });
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        found.note_times(best.seconds, best.first_seconds, trial.seconds());
        return best.index == all.size() ? 0 : best.index;
    }

    engine_options options_;
    bool tensor_float_;
    std::string device_;
    cublas::library lt_ = cublas::open_library();
    std::map<cublas::product, entry, before> entries_{};
};

} // namespace pulse::cuda
