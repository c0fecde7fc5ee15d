#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/cuda/kernels/geglu.cuh>
#include <pulse/cuda/kernels/patches.cuh>

using namespace pulse;
using T = __nv_bfloat16;

extern "C" {
void forward_geglu(const cuda::queue& on, std::int64_t rows, int features, const T* x, T* y) {
    cuda::geglu(on, rows, features, x, y);
}
void backward_geglu(const cuda::queue& on, std::int64_t rows, int features, const T* x, const T* dy, T* dx) {
    cuda::geglu_backward(on, rows, features, x, dy, dx);
}
void move_to_image(const cuda::queue& on, const patch_shape& s, int batch, const T* x, T* y) {
    cuda::patches_to_image(on, s, batch, x, y);
}
void adamw(const cuda::queue& on, const optimizer_update& now, const train::update_arrays<T>& a) {
    cuda::adamw<T>(on, static_cast<std::int64_t>(a.size),
                   train::factors_of<float>(now.constants, now.step, now.gradient_scale), now.average_decay,
                   {a.gradients, a.weights, a.first_moment, a.second_moment, a.average, a.compute});
}
void adamw_blocks(const cuda::queue& on, const optimizer_update& now, const train::update_arrays<T>& a) {
    cuda::adamw_blocks(on, now, a);
}
const train::code_map* first_codes() { return &train::first_codes; }
const train::code_map* second_codes() { return &train::second_codes; }
}
