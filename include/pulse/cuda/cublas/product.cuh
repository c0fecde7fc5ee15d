#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <cublasLt.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/cublas/library.cuh>

namespace pulse::cuda::cublas {

/// What a product computes besides the product itself.
enum class extra : std::uint8_t {
    none,
    bias,         ///< adds a value per row of d
    bias_gradient ///< writes the sums of op(b) over the depth, one value per column of d, in the type of d
};

/// d = (or +=) op(a) op(b) on column-major matrices; sums are computed in float.
struct product {
    std::int64_t rows{};    ///< of d
    std::int64_t columns{}; ///< of d
    std::int64_t depth{};   ///< the length of the sums
    bool transpose_a{};
    bool transpose_b{};
    std::int64_t stride_a{}; ///< elements from one column of the stored matrix to the next
    std::int64_t stride_b{};
    std::int64_t stride_d{};
    cudaDataType_t type{}; ///< of a and b, and of the bias
    cudaDataType_t type_d{};
    bool adds{};
    extra beside{};
    bool tensor_float{}; ///< floats may be rounded to TF32
    // A batch of such products: elements from one matrix to the next, 0 if all products share it.
    int batch{1};
    std::int64_t batch_a{};
    std::int64_t batch_b{};
    std::int64_t batch_d{};
    // Least alignment of the pointers in bytes, at most 16.
    int alignment_a{16};
    int alignment_b{16};
    int alignment_d{16};

    [[nodiscard]] bool operator==(const product&) const = default;

    /// All fields as numbers: products with equal texts are equal.
    [[nodiscard]] std::string text() const {
        std::string made = "product";
        for (const std::int64_t n : {rows, columns, depth, std::int64_t{transpose_a}, std::int64_t{transpose_b},
                                     stride_a, stride_b, stride_d, std::int64_t{type}, std::int64_t{type_d},
                                     std::int64_t{adds}, static_cast<std::int64_t>(beside), std::int64_t{tensor_float},
                                     std::int64_t{alignment_a}, std::int64_t{alignment_b}, std::int64_t{alignment_d}}) {
            made += " " + std::to_string(n);
        }
        if (batch != 1) {
            made += " batch";
            for (const std::int64_t n : {std::int64_t{batch}, batch_a, batch_b, batch_d}) {
                made += " " + std::to_string(n);
            }
        }
        return made;
    }
    /// A description for people.
    [[nodiscard]] std::string name() const {
        return (batch != 1 ? std::to_string(batch) + " products of " : "product of ") + std::to_string(rows) + "x" +
               std::to_string(columns) + " over " + std::to_string(depth) + (transpose_a ? ", a^T" : "") +
               (transpose_b ? ", b^T" : "") + (adds ? ", added" : "") +
               (beside == extra::bias            ? ", with bias"
                : beside == extra::bias_gradient ? ", with bias gradient"
                                                 : "");
    }
};

/// The alignment of a pointer as `product` counts it.
[[nodiscard]] inline int alignment_of(const void* pointer) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return static_cast<int>(address % 16 == 0 ? 16 : address & (~address + 1));
}

/// A way to compute a product: cuBLASLt's algorithm and the workspace that it needs.
struct algorithm {
    cublasLtMatmulAlgo_t choice{};
    std::int64_t workspace_bytes{};

    /// In hexadecimal digits; valid only for the same version of cuBLASLt on the same kind of device.
    [[nodiscard]] std::string text() const {
        std::array<unsigned char, sizeof choice> bytes{};
        std::memcpy(bytes.data(), &choice, sizeof choice);
        std::string digits;
        for (const unsigned char b : bytes) {
            digits += "0123456789abcdef"[b >> 4U];
            digits += "0123456789abcdef"[b & 15U];
        }
        return digits;
    }
};

/// A product with its descriptors made; runs any number of times once an algorithm is chosen.
class prepared_product {
public:
    static constexpr int most_proposals = 16;

    explicit prepared_product(const product& p) : product_{p} {
        check(cublasLtMatmulDescCreate(description_.place(),
                                       p.tensor_float && p.type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                              : CUBLAS_COMPUTE_32F,
                                       CUDA_R_32F),
              "cublasLtMatmulDescCreate");
        set(description_, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(description_, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE,
            p.beside == extra::bias            ? CUBLASLT_EPILOGUE_BIAS
            : p.beside == extra::bias_gradient ? CUBLASLT_EPILOGUE_BGRADB
                                               : CUBLASLT_EPILOGUE_DEFAULT);
        if (p.beside != extra::none) {
            set(description_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.beside == extra::bias ? p.type : p.type_d);
            // The heuristic takes the vector's alignment from this address, and does not read from it.
            set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(std::uintptr_t{16}));
        }
        a_ = make_layout(p.type, p.transpose_a ? p.depth : p.rows, p.transpose_a ? p.rows : p.depth, p.stride_a);
        b_ = make_layout(p.type, p.transpose_b ? p.columns : p.depth, p.transpose_b ? p.depth : p.columns, p.stride_b);
        d_ = make_layout(p.type_d, p.rows, p.columns, p.stride_d);
        if (p.batch != 1) {
            set_batch(a_, p.batch, p.batch_a);
            set_batch(b_, p.batch, p.batch_b);
            set_batch(d_, p.batch, p.batch_d);
        }
    }

    /// The algorithms that cuBLASLt's heuristic proposes within a workspace limit, best first, at most `most` and at
    /// most 16; empty if it supports none.
    ///
    /// Partial sums may be added in float only, in a fixed order.
    [[nodiscard]] std::vector<algorithm> proposals(const library& lt, std::int64_t workspace_limit, int most) const {
        preference wanted;
        check(cublasLtMatmulPreferenceCreate(wanted.place()), "cublasLtMatmulPreferenceCreate");
        set(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_limit));
        set(wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
        set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(product_.alignment_a));
        set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(product_.alignment_b));
        set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(product_.alignment_d));
        set(wanted, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(product_.alignment_d));
        std::array<cublasLtMatmulHeuristicResult_t, most_proposals> results{};
        int found = 0;
        const cublasStatus_t status =
            cublasLtMatmulAlgoGetHeuristic(lt.get(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                           wanted.get(), std::clamp(most, 1, most_proposals), results.data(), &found);
        if (status == CUBLAS_STATUS_NOT_SUPPORTED) { return {}; }
        // The manual does not say which of the two statuses refuses an epilogue or a batch; there is a way without
        // either.
        const bool has_another_way = product_.beside != extra::none || product_.batch != 1;
        if (status == CUBLAS_STATUS_INVALID_VALUE && has_another_way) { return {}; }
        check(status, "cublasLtMatmulAlgoGetHeuristic");
        std::vector<algorithm> kept;
        for (int i = 0; i != found; ++i) {
            const cublasLtMatmulHeuristicResult_t& one = results[static_cast<std::size_t>(i)];
            if (one.state != CUBLAS_STATUS_SUCCESS) { continue; }
            kept.push_back({one.algo, static_cast<std::int64_t>(one.workspaceSize)});
        }
        return kept;
    }

    /// Restores an algorithm from the result of algorithm::text(); nothing if this device does not run it.
    [[nodiscard]] std::optional<algorithm> restore(const library& lt, const std::string& text) const {
        std::array<unsigned char, sizeof(cublasLtMatmulAlgo_t)> bytes{};
        if (text.size() != 2 * bytes.size()) { return std::nullopt; }
        for (std::size_t i = 0; i != text.size(); ++i) {
            const char c = text[i];
            const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
            if (digit < 0) { return std::nullopt; }
            bytes[i / 2] = static_cast<unsigned char>(bytes[i / 2] * 16 + digit);
        }
        algorithm made{};
        std::memcpy(&made.choice, bytes.data(), bytes.size());
        cublasLtMatmulHeuristicResult_t result{};
        if (cublasLtMatmulAlgoCheck(lt.get(), description_.get(), a_.get(), b_.get(), d_.get(), d_.get(), &made.choice,
                                    &result) != CUBLAS_STATUS_SUCCESS) {
            return std::nullopt;
        }
        made.workspace_bytes = static_cast<std::int64_t>(result.workspaceSize);
        return made;
    }

    /// Enqueues the product on a stream. `beside` is the bias, or receives its gradient, aligned to 16 bytes. A product
    /// that adds overwrites d without reading it if `adds` is false, and adds to `before` if that is not null, which
    /// must have the layout and alignment of d.
    void run(const library& lt, const algorithm& how, const void* a, const void* b, void* d, const void* beside,
             void* workspace, cudaStream_t stream, bool adds = true, const void* before = nullptr) const {
        if (product_.beside != extra::none) { set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, beside); }
        const float alpha = 1.0F;
        const float beta = product_.adds && adds ? 1.0F : 0.0F;
        check(cublasLtMatmul(lt.get(), description_.get(), &alpha, a, a_.get(), b, b_.get(), &beta,
                             before != nullptr ? before : d, d_.get(), d, d_.get(), &how.choice, workspace,
                             static_cast<std::size_t>(how.workspace_bytes), stream),
              "cublasLtMatmul");
    }

    [[nodiscard]] const product& what() const noexcept { return product_; }

private:
    product product_;
    product_description description_{};
    layout a_{};
    layout b_{};
    layout d_{};
};

} // namespace pulse::cuda::cublas
