#include <pulse/cuda/attention.cuh>

using namespace pulse;
using T = __nv_bfloat16;

static const auto by = cuda::tensor_core_attention<cuda::bf16, 64>::all;

extern "C" {
std::size_t attention_scratch(const attention_shape& s, int batch) {
    return cuda::attention_backward_scratch_bytes_by<T>(by, s, batch);
}
void forward_attention(const cuda::queue& on, const attention_shape& s, int batch, const T* q, const T* k, const T* v,
                       T* o, float* lse) {
    cuda::attention_by(by, on, s, batch, q, k, v, o, lse);
}
void backward_attention(const cuda::queue& on, const attention_shape& s, int batch, const T* q, const T* k, const T* v,
                        const T* o, const float* lse, const T* dout, T* dq, T* dk, T* dv) {
    cuda::attention_backward_by(by, on, s, batch, q, k, v, o, lse, dout, dq, dk, dv);
}
}
