#include <pulse/cuda/kernels/group_norm_backward.cuh>

using namespace pulse;
using T = __nv_bfloat16;

extern "C" {
std::size_t group_norm_scratch(const group_norm_shape& s, int batch) {
    return cuda::group_norm_scratch_bytes(s, batch);
}
std::size_t group_norm_backward_scratch(const group_norm_shape& s, int batch) {
    return cuda::group_norm_backward_scratch_bytes(s, batch);
}
void forward_group_norm(const cuda::queue& on, const group_norm_shape& s, int batch, const T* xa, const T* xb,
                        const T* gamma, const T* beta, T* y, float* statistics) {
    cuda::group_norm(on, s, batch, xa, xb, gamma, beta, y, statistics);
}
void backward_group_norm(const cuda::queue& on, const group_norm_shape& s, int batch, const T* xa, const T* xb,
                         const T* gamma, const T* beta, const float* statistics, const T* dy, T* dxa, T* dxb,
                         float* dgamma, float* dbeta) {
    cuda::group_norm_backward(on, s, batch, xa, xb, gamma, beta, statistics, dy, dxa, dxb, dgamma, dbeta, into::add);
}
}
