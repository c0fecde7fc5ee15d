#include <emulated/cublas_lt.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <cublasLt.h>

#include <emulated/runtime.hpp>
#include <emulated/scalars.hpp>

struct cublasLtContext {};

namespace emulated_cuda::cublas_lt {
namespace {

std::array<std::int64_t, 2> executions{};
std::array<double, 2> costs{};
std::array<bool, 2> refused{};
std::int64_t calls = 0;
bool bias_gradients = true;
bool batches = true;
std::uint32_t bias_alignment = 0;

constexpr std::uint64_t algorithm_mark = 0x656d756c61746564U;
constexpr std::size_t workspace_of_algorithm_1 = 1024;

struct matrix {
    cudaDataType_t type{};
    std::int64_t rows{};
    std::int64_t columns{};
    std::int64_t stride{};
    std::int32_t batch{1};
    std::int64_t batch_stride{}; ///< elements

    [[nodiscard]] std::int64_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
    /// Of the whole batch; a matrix that the batch shares counts once.
    [[nodiscard]] std::int64_t bytes() const {
        return (batch_stride == 0 ? 1 : batch) * rows * columns * element_bytes();
    }
    /// Whether every matrix of the batch is 16-byte aligned if the first one is.
    [[nodiscard]] bool keeps_alignment() const { return batch == 1 || batch_stride * element_bytes() % 16 == 0; }
    /// Whether matrices of the batch share elements: they neither follow each other nor interleave within one column
    /// stride.
    [[nodiscard]] bool overlaps() const {
        const bool one_by_one = batch_stride >= (columns - 1) * stride + rows;
        const bool interleaved = batch_stride >= rows && (batch - 1) * batch_stride + rows <= stride;
        return batch > 1 && !one_by_one && !interleaved;
    }
};
struct description {
    cublasComputeType_t compute{};
    cublasOperation_t transpose_a{CUBLAS_OP_N};
    cublasOperation_t transpose_b{CUBLAS_OP_N};
    cublasLtEpilogue_t epilogue{CUBLASLT_EPILOGUE_DEFAULT};
    void* bias{};
    bool has_bias_type{};
    cudaDataType_t bias_type{};
};
struct wishes {
    std::uint64_t workspace{};
    std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};
};

bool is_number(cudaDataType_t type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }
number number_of(cudaDataType_t type) {
    return type == CUDA_R_32F ? number::f32 : type == CUDA_R_16F ? number::f16 : number::bf16;
}

const matrix& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<const matrix*>(layout); }
description& of(cublasLtMatmulDesc_t d) { return *reinterpret_cast<description*>(d); }
wishes& of(cublasLtMatmulPreference_t p) { return *reinterpret_cast<wishes*>(p); }

/// The status that cuBLASLt returns for this product.
cublasStatus_t judge(const description& op, const matrix& a, const matrix& b, const matrix& c, const matrix& d) {
    const bool turn_a = op.transpose_a == CUBLAS_OP_T;
    const bool turn_b = op.transpose_b == CUBLAS_OP_T;
    if (!is_number(a.type) || a.type != b.type || !is_number(d.type) || c.type != d.type) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (d.type != CUDA_R_32F && d.type != a.type) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    const std::int64_t depth = turn_a ? a.rows : a.columns;
    if ((turn_a ? a.columns : a.rows) != d.rows || (turn_b ? b.rows : b.columns) != d.columns ||
        (turn_b ? b.columns : b.rows) != depth || c.rows != d.rows || c.columns != d.columns || c.stride != d.stride) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch || c.batch_stride != d.batch_stride ||
        d.overlaps()) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    // a bias vector would need a batch stride, too
    if (d.batch > 1 && (!batches || op.epilogue != CUBLASLT_EPILOGUE_DEFAULT)) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    if (op.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        if (op.has_bias_type && op.bias_type != a.type && op.bias_type != d.type) {
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    } else if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        if (!bias_gradients) { return CUBLAS_STATUS_NOT_SUPPORTED; }
        if (op.has_bias_type && op.bias_type != d.type) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    } else if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/// `in_float`: sums are rounded to float after every summand, so that the algorithms differ in their bits.
void multiply(const description& op, bool in_float, double alpha, const void* a, const matrix& la, const void* b,
              const matrix& lb, double beta, const void* c, void* d, const matrix& ld) {
    const bool turn_a = op.transpose_a == CUBLAS_OP_T;
    const bool turn_b = op.transpose_b == CUBLAS_OP_T;
    const bool rounds = op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && la.type == CUDA_R_32F;
    const std::int64_t depth = turn_a ? la.rows : la.columns;
    const auto factor = [rounds](cudaDataType_t type, const void* data, std::int64_t at) {
        const double v = load(number_of(type), data, at);
        return rounds ? tensor_float(v) : v;
    };
    // op(a) by rows and op(b) by columns, so that the sums below run along memory
    std::vector<double> rows(static_cast<std::size_t>(ld.rows * depth));
    std::vector<double> columns(static_cast<std::size_t>(ld.columns * depth));
    for (std::int64_t k = 0; k != depth; ++k) {
        for (std::int64_t i = 0; i != ld.rows; ++i) {
            rows[static_cast<std::size_t>(i * depth + k)] =
                factor(la.type, a, turn_a ? k + i * la.stride : i + k * la.stride);
        }
        for (std::int64_t j = 0; j != ld.columns; ++j) {
            columns[static_cast<std::size_t>(j * depth + k)] =
                factor(lb.type, b, turn_b ? j + k * lb.stride : k + j * lb.stride);
        }
    }
    const number bias_number = number_of(op.has_bias_type ? op.bias_type : ld.type);
    for (std::int64_t j = 0; j != ld.columns; ++j) {
        double total = 0.0;
        for (std::int64_t k = 0; k != depth; ++k) { total += columns[static_cast<std::size_t>(j * depth + k)]; }
        if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB) { store(bias_number, op.bias, j, total); }
        for (std::int64_t i = 0; i != ld.rows; ++i) {
            double sum = 0.0;
            for (std::int64_t k = 0; k != depth; ++k) {
                sum += rows[static_cast<std::size_t>(i * depth + k)] * columns[static_cast<std::size_t>(j * depth + k)];
                if (in_float) { sum = static_cast<float>(sum); }
            }
            const std::int64_t at = i + j * ld.stride;
            double value = alpha * sum + (beta == 0.0 ? 0.0 : beta * load(number_of(ld.type), c, at));
            if (op.epilogue == CUBLASLT_EPILOGUE_BIAS) { value += load(bias_number, op.bias, i); }
            store(number_of(ld.type), d, at, value);
        }
    }
}

/// Matrix i of a batch that begins at `first`.
const void* place(const matrix& of, const void* first, std::int32_t i) {
    return static_cast<const std::byte*>(first) + i * of.batch_stride * of.element_bytes();
}

template <class T>
bool take(T& into, const void* from, std::size_t bytes) {
    if (bytes != sizeof(T)) { return false; }
    std::memcpy(&into, from, bytes);
    return true;
}

} // namespace

std::int64_t executed(int algorithm) { return executions.at(static_cast<std::size_t>(algorithm)); }
std::int64_t heuristic_calls() { return calls; }
void set_bias_gradients_supported(bool supported) { bias_gradients = supported; }
void set_batches_supported(bool supported) { batches = supported; }
void set_cost(int algorithm, double seconds) { costs.at(static_cast<std::size_t>(algorithm)) = seconds; }
void set_refused(int algorithm, bool whether) { refused.at(static_cast<std::size_t>(algorithm)) = whether; }
void set_bias_alignment(int bytes) { bias_alignment = static_cast<std::uint32_t>(bytes); }

} // namespace emulated_cuda::cublas_lt

using namespace emulated_cuda::cublas_lt;

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                   : "CUBLAS_STATUS_INTERNAL_ERROR";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "emulated"; }
std::size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext{};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
    auto* made = new matrix{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
    if (rows == 0 || columns == 0 || stride < made->rows) {
        delete made;
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(made);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete reinterpret_cast<matrix*>(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void* from, std::size_t bytes) {
    auto& one = *reinterpret_cast<matrix*>(layout);
    matrix set = one;
    bool taken = false;
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: taken = take(set.batch, from, bytes) && set.batch > 0; break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        taken = take(set.batch_stride, from, bytes) && set.batch_stride >= 0;
        break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!taken) { return CUBLAS_STATUS_INVALID_VALUE; }
    one = set;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
    if (scale != CUDA_R_32F || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    auto* made = new description{};
    made->compute = compute;
    *d = reinterpret_cast<cublasLtMatmulDesc_t>(made);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    delete &of(d);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                              const void* from, std::size_t bytes) {
    description& op = of(d);
    bool taken = false;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: taken = take(op.transpose_a, from, bytes); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: taken = take(op.transpose_b, from, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: taken = take(op.epilogue, from, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: taken = take(op.bias, from, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: taken = op.has_bias_type = take(op.bias_type, from, bytes); break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
    *p = reinterpret_cast<cublasLtMatmulPreference_t>(new wishes{});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete &of(p);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* from,
                                                    std::size_t bytes) {
    wishes& w = of(p);
    bool taken = false;
    std::uint32_t schemes = 0;
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: taken = take(w.workspace, from, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: taken = take(w.alignment[0], from, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: taken = take(w.alignment[1], from, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: taken = take(w.alignment[2], from, bytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: taken = take(w.alignment[3], from, bytes); break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: taken = take(schemes, from, bytes); break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t to, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t* results, int* returned) {
    ++calls;
    *returned = 0;
    if (requested <= 0) { return CUBLAS_STATUS_INVALID_VALUE; }
    const cublasStatus_t status = judge(of(d), of(a), of(b), of(c), of(to));
    if (status != CUBLAS_STATUS_SUCCESS) { return status; }
    const wishes& w = of(preference);
    if (of(d).epilogue == CUBLASLT_EPILOGUE_BIAS && w.alignment[3] < bias_alignment) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    bool aligned = of(a).keeps_alignment() && of(b).keeps_alignment() && of(to).keeps_alignment();
    for (const std::uint32_t bytes : w.alignment) { aligned = aligned && bytes >= 16; }
    // the one that needs a workspace comes first where possible, so that tests exercise workspaces
    for (const std::uint64_t algorithm : {std::uint64_t{1}, std::uint64_t{0}}) {
        if (*returned == requested) { break; }
        if (algorithm == 1 && (!aligned || w.workspace < workspace_of_algorithm_1)) { continue; }
        cublasLtMatmulHeuristicResult_t& one = results[(*returned)++];
        one = {};
        one.algo.data[0] = algorithm_mark;
        one.algo.data[1] = algorithm;
        one.workspaceSize = algorithm == 1 ? workspace_of_algorithm_1 : 0;
        one.state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
    if (algorithm->data[0] != algorithm_mark || algorithm->data[1] > 1) { return CUBLAS_STATUS_INVALID_VALUE; }
    const cublasStatus_t status = judge(of(d), of(a), of(b), of(c), of(to));
    result->workspaceSize = algorithm->data[1] == 1 ? workspace_of_algorithm_1 : 0;
    result->state = status;
    return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                              const void* c, cublasLtMatrixLayout_t lc, void* to, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t bytes,
                              cudaStream_t stream) {
    if (algorithm == nullptr || algorithm->data[0] != algorithm_mark || algorithm->data[1] > 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (refused.at(algorithm->data[1])) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    const description op = of(d);
    const cublasStatus_t status = judge(op, of(la), of(lb), of(lc), of(ld));
    if (status != CUBLAS_STATUS_SUCCESS) { return status; }
    if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && op.bias == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    if (reinterpret_cast<std::uintptr_t>(op.bias) % 16 != 0) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    const bool works = algorithm->data[1] == 1;
    if (works) {
        for (const void* pointer : {a, b, c, static_cast<const void*>(to)}) {
            if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) { return CUBLAS_STATUS_NOT_SUPPORTED; }
        }
        if (!of(la).keeps_alignment() || !of(lb).keeps_alignment() || !of(ld).keeps_alignment()) {
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
        if (bytes < workspace_of_algorithm_1 || workspace == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    }
    const auto scale = static_cast<double>(*static_cast<const float*>(alpha));
    const auto keep = static_cast<double>(*static_cast<const float*>(beta));
    const auto body = [=, ma = of(la), mb = of(lb), md = of(ld)] {
        if (works) {
            for (std::size_t i = 0; i != workspace_of_algorithm_1 / sizeof(float); ++i) {
                static_cast<float*>(workspace)[i] = std::numeric_limits<float>::quiet_NaN();
            }
        }
        for (std::int32_t i = 0; i != md.batch; ++i) {
            multiply(op, works, scale, place(ma, a, i), ma, place(mb, b, i), mb, keep, place(md, c, i),
                     const_cast<void*>(place(md, to, i)), md);
        }
        ++executions[works ? 1 : 0];
        emulated_cuda::take_time(costs[works ? 1 : 0]);
    };
    const std::int64_t depth = op.transpose_a == CUBLAS_OP_T ? of(la).rows : of(la).columns;
    const emulated_cuda::work what{.call = "product",
                                   .bytes = of(la).bytes() + of(lb).bytes() + (keep == 0.0 ? 1 : 2) * of(ld).bytes(),
                                   .flops = 2 * of(ld).batch * of(ld).rows * of(ld).columns * depth};
    const cudaError_t put = emulated_cuda::enqueue_kernel(dim3{1}, dim3{1}, 0, stream, body, what);
    return put == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
