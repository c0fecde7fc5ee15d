// A CUDA trainer of one's own: pipeline ranks that are threads, each with a stream on the device that it is given.
#include <cstdio>

// example-begin cuda-trainer
#include <pulse/cuda.cuh>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>

struct net : pulse::unet<pulse::unet_config{.name = "net", .sample_size = 8, .block_out_channels = {32, 64}}> {};
using math = pulse::cuda::backend<pulse::cuda::bf16>; // or fp16, tf32, fp32
using scalar = math::scalar;
constexpr int ranks = 4, batch = 2, microbatches = 4, elements = batch * 8 * 8 * 3;

__global__ void draw(int microbatch, scalar* x) { // your data
    const int i = blockIdx.x * 64 + threadIdx.x;
    x[i] = pulse::cuda::from_float<scalar>(sinf(0.1f * (i + microbatch)));
}
__global__ void error(const scalar* y, scalar* dy) { // the gradient of your loss, here half the squared error
    const int i = blockIdx.x * 64 + threadIdx.x;
    dy[i] = pulse::cuda::from_float<scalar>(pulse::cuda::to_float(y[i]) - 0.5f);
}
struct my_task { // what an executor asks of you, in the rank's stream
    cudaStream_t stream;
    pulse::cuda::device_space::array<float> times{batch}; // timesteps of the samples, all 0
    const float* timesteps(int) const { return times.data(); }
    void input(int microbatch, scalar* x) { pulse::cuda::launch(draw, elements / 64, 64, 0, stream, microbatch, x); }
    void loss(int, const scalar* y, scalar* dy) { pulse::cuda::launch(error, elements / 64, 64, 0, stream, y, dy); }
    void optimize() {}
};

int main() {
    const auto costs = pulse::analytic_costs(pulse::graph_of<net>().view(), pulse::h200, batch, sizeof(scalar));
    const auto plan = pulse::plan_candidate(costs, {.pipeline_degree = ranks, .microbatches = microbatches}).plan;
    pulse::cuda::run_ranks({0, 0, 0, 0}, {}, [&](pulse::cuda::thread_transport& transport) { // the ranks' devices
        math on{transport.stream()};
        pulse::executor<net, math> rank{on, transport, plan, costs};
        pulse::cuda::rank_optimizer<> adamw{net::layer_count, microbatches, rank.parameters(), {}, transport.stream()};
        adamw.start(pulse::train::initial_values<net>(rank.parameters(), 1), rank.parameters());
        my_task task{transport.stream()};
        for (int step = 1; step <= 5; ++step) {
            rank.step(task);
            const auto done = adamw.step(rank.parameters(), transport, step, 1e-3, nullptr, false);
            if (transport.rank() == 0) { std::printf("step %d  gradient norm %.3f\n", step, done.gradient_norm); }
        }
    });
}
// example-end cuda-trainer
