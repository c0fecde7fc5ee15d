#include <cstdio>
#include <vector>

#include <pulse/cuda/cublas/library.cuh>
#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/stream.cuh>

namespace {

template <class T>
__global__ void scale(T* x, int n, float factor) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) { x[i] = pulse::cuda::from_float<T>(factor * pulse::cuda::to_float(x[i])); }
}

} // namespace

int other_kernel_unit();
int scale_on_device();

/// 0 if the numbers are right, or if there is no device.
int scale_on_device() {
    if (cublasLtGetVersion() == 0 || cudnnGetVersion() == 0) { return 1; }
    using scalar = pulse::cuda::bf16::scalar;
    if (pulse::cuda::device_count() == 0) {
        std::puts("no CUDA device");
        return other_kernel_unit();
    }
    constexpr int n = 100;
    const pulse::cuda::stream on;
    const pulse::cuda::pinned_memory<scalar> host(n);
    const pulse::cuda::device_memory<scalar> there(n);
    for (int i = 0; i < n; ++i) { host.data()[i] = pulse::cuda::from_float<scalar>(static_cast<float>(i)); }
    pulse::cuda::copy_async<scalar>(there.data(), host.data(), n, on.get());
    pulse::cuda::launch(scale<scalar>, 1, 128, 0, on.get(), there.data(), n, 2.0f);
    pulse::cuda::copy_async<scalar>(host.data(), there.data(), n, on.get());
    on.synchronize();
    for (int i = 0; i < n; ++i) {
        if (pulse::cuda::to_float(host.data()[i]) != static_cast<float>(2 * i)) { return 1; }
    }
    return other_kernel_unit();
}
