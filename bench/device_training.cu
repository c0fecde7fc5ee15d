// The kernels of a training step that are not the backend's.
#include "device_training.cuh"

#include <algorithm>

#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse_bench {

namespace {

namespace cuda = pulse::cuda;

constexpr int most_blocks = 64;
constexpr int error_threads = 256;

/// gradient = 2 (prediction - target) / n; the sum of squares of each block goes to loss[1 + block].
template <class T>
__global__ void squared_error_kernel(std::int64_t n, const T* prediction, const T* target, T* gradient, double* loss) {
    __shared__ float sums[error_threads];
    float sum = 0;
    for (std::int64_t i = std::int64_t{error_threads} * blockIdx.x + threadIdx.x; i < n;
         i += std::int64_t{error_threads} * gridDim.x) {
        const float difference = cuda::to_float(prediction[i]) - cuda::to_float(target[i]);
        gradient[i] = cuda::from_float<T>(2 * difference / static_cast<float>(n));
        sum += difference * difference;
    }
    sums[threadIdx.x] = sum;
    for (int half = error_threads / 2; half != 0; half /= 2) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < half) { sums[threadIdx.x] += sums[threadIdx.x + half]; }
    }
    if (threadIdx.x == 0) { loss[1 + blockIdx.x] = static_cast<double>(sums[0]); }
}

template <class T>
__global__ void mean_kernel(std::int64_t n, int blocks, T* loss) {
    T sum = 0;
    for (int block = 0; block != blocks; ++block) { sum += loss[1 + block]; }
    loss[0] = sum / static_cast<T>(n);
}

} // namespace

void mean_squared_error(cudaStream_t stream, std::int64_t n, const __nv_bfloat16* prediction,
                        const __nv_bfloat16* target, __nv_bfloat16* gradient, double* loss) {
    const auto blocks = static_cast<int>(std::min<std::int64_t>(most_blocks, (n + error_threads - 1) / error_threads));
    cuda::launch(squared_error_kernel<__nv_bfloat16>, blocks, error_threads, 0, stream, n, prediction, target, gradient,
                 loss);
    cuda::launch(mean_kernel<double>, 1, 1, 0, stream, n, blocks, loss);
}

struct device_optimizer::kernels : cuda::rank_optimizer<cuda::bf16> {
    using rank_optimizer::rank_optimizer;
};

device_optimizer::device_optimizer(std::size_t layers, device_parameters& parameters, std::span<const float> initial,
                                   cudaStream_t stream) :
    adamw_{
        std::make_unique<kernels>(layers, 1, parameters, pulse::train::optimizer_options{.clip_norm = 1.0}, stream)} {
    if (!initial.empty()) { adamw_->start(initial, parameters); }
}
device_optimizer::~device_optimizer() = default;

step_end device_optimizer::step(device_parameters& parameters, pulse::cuda::thread_transport& transport,
                                std::int64_t step, const double* loss) {
    const pulse::train::step_outcome done = adamw_->step(parameters, transport, step, 1e-5, {loss, 1}, false);
    return {done.gradient_norm, done.loss};
}

} // namespace pulse_bench
