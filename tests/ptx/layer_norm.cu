#include <pulse/cuda/kernels/layer_norm_backward.cuh>

using namespace pulse;
using T = __nv_bfloat16;

extern "C" {
std::size_t layer_norm_scratch(const layer_norm_shape& s, std::int64_t rows) {
    return cuda::layer_norm_backward_scratch_bytes(s, rows);
}
void forward_layer_norm(const cuda::queue& on, const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma,
                        const T* beta, T* y, float* statistics) {
    cuda::layer_norm(on, s, rows, x, gamma, beta, y, statistics);
}
void backward_layer_norm(const cuda::queue& on, const layer_norm_shape& s, std::int64_t rows, const T* x,
                         const T* gamma, const float* statistics, const T* dy, T* dx, float* dgamma, float* dbeta) {
    cuda::layer_norm_backward(on, s, rows, x, gamma, statistics, dy, dx, dgamma, dbeta, into::write);
}
}
