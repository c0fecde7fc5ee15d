#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/embedding.cuh>
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
void move_to_patches(const cuda::queue& on, const patch_shape& s, int batch, const T* x, T* y) {
    cuda::image_to_patches(on, s, batch, x, y);
}
void backward_padding(const cuda::queue& on, int batch, int tokens, int features, const float* mask, const T* dy, T* dx,
                      float* dpadding) {
    cuda::replace_padding_backward(on, batch, tokens, features, mask, dy, dx, dpadding);
}
std::size_t bias_gradient_scratch(std::int64_t rows, int features) {
    return cuda::add_bias_gradient_scratch_bytes(rows, features);
}
void bias_gradient(const cuda::queue& on, std::int64_t rows, int features, const T* dy, float* dbias) {
    cuda::add_bias_gradient(on, rows, features, dy, dbias);
}
void adamw(const cuda::queue& on, const optimizer_update& now, const train::update_arrays<T>& a) {
    cuda::adamw(on, now, a);
}
void adamw_blocks(const cuda::queue& on, const optimizer_update& now, const train::update_arrays<T>& a) {
    cuda::adamw_blocks(on, now, a);
}
// Blocks of a grid per multiprocessor; resources.py compares.
int column_sums_kernel_blocks = cuda::column_resident_blocks;
int adamw_kernel_blocks = cuda::adamw_resident_blocks;
int adamw_blocks_kernel_blocks = cuda::adamw_blocks_resident_blocks;

const train::code_map* first_codes() { return &train::first_codes; }
const train::code_map* second_codes() { return &train::second_codes; }
}
