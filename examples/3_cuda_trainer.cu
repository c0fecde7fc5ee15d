// Your own CUDA trainer: pipeline ranks that are threads, each with streams on its assigned device.
#include <cstdio>
#include <span>

#include <pulse/cuda.cuh>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>

struct net : pulse::unet<pulse::unet_config{.name = "net", .sample_size = 8, .block_out_channels = {32, 64}}> {};
using backend = pulse::cuda::backend<pulse::cuda::bf16>; // or fp16, tf32, fp32
using scalar = backend::scalar;

__global__ void draw(unsigned first, scalar* x) { // your data
    const int i = blockIdx.x * 64 + threadIdx.x;
    x[i] = pulse::cuda::from_float<scalar>(sinf(0.1f * (i + first)));
}
__global__ void error(const scalar* y, scalar* dy, double* loss) { // your loss, here half the squared error
    const int i = blockIdx.x * 64 + threadIdx.x;
    const float off = pulse::cuda::to_float(y[i]) - 0.5f;
    dy[i] = pulse::cuda::from_float<scalar>(off);
    atomicAdd(loss, 0.5 * off * off);
}
struct my_task { // in the backend's memory and stream; samples of 8 x 8 x 3 are whole blocks of 64
    pulse::cuda::device_space::array<float> times{64};
    const float* timesteps(const auto&) { return times.data(); }
    void input(const auto& at, std::span<scalar> x) {
        pulse::cuda::launch(draw, x.size() / 64, 64, 0, at.stream(), unsigned(at.first_sample), x.data());
    }
    void loss(const auto& at, std::span<const scalar> y, std::span<scalar> dy) {
        pulse::cuda::launch(error, y.size() / 64, 64, 0, at.stream(), y.data(), dy.data(), at.loss);
    }
};

int main() {
    const auto plan = pulse::plan_for<net, backend>({.devices = 4, .global_batch = 8, .device = pulse::h200});
    pulse::run(plan, pulse::ranks::threads_on{{0}}, [&](pulse::rank& self) { // all on device 0
        pulse::trainer<net, backend> train{self, plan, {.seed = 1, .learning_rate = {1e-3}}};
        my_task task;
        for (int i = 1; i <= 5; ++i) {
            const auto step = train.step(task); // the same on every rank
            if (self.leads()) { std::printf("step %d  loss %.3f  norm %.3f\n", i, step.loss, step.gradient_norm); }
        }
    });
}
