// A trainer of one's own: describe a model, plan it, run it on ranks that are threads.
#include <cmath>
#include <cstdio>
#include <vector>

#include <pulse/nn/initialise.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>
#include <pulse/threads/transport.hpp>

// example-begin own-trainer
// The model: a small UNet in diffusers' layout. Wrong sizes, edges or names do not compile.
struct my_unet : pulse::unet<pulse::unet_config{.name = "my_unet",
                                                .sample_size = 16,
                                                .in_channels = 1,
                                                .out_channels = 1,
                                                .block_out_channels = {16, 32},
                                                .attention = {false, true},
                                                .norm_num_groups = 8}> {};

// The data and the loss: what an executor asks of you.
struct my_task {
    int batch;
    pulse::rank_parameters<float>& parameters;
    std::vector<float> times = std::vector<float>(64, 500.0F);
    double loss_sum = 0;

    const float* timesteps(int) { return times.data(); }
    void input(int microbatch, float* x) {
        for (int i = 0; i != batch * 16 * 16; ++i) { x[i] = std::sin(0.1F * static_cast<float>(i + microbatch)); }
    }
    void loss(int, const float* y, float* dy) {
        for (int i = 0; i != batch * 16 * 16; ++i) {
            const float off = y[i] - 0.5F;
            dy[i] = 2 * off;
            loss_sum += off * off;
        }
    }
    void optimize() { // plain gradient descent; pulse/train/ has AdamW, clipping and averages
        for (std::size_t i = 0; i != parameters.values().size(); ++i) {
            parameters.values()[i] -= 1e-5F * parameters.gradients()[i];
            parameters.gradients()[i] = 0;
        }
    }
};

int main() {
    constexpr int ranks = 2, microbatch_size = 4, microbatches = 4;
    const auto costs =
        pulse::analytic_costs(pulse::graph_of<my_unet>().view(), pulse::cpu_core, microbatch_size, sizeof(float));
    const auto plan = pulse::plan_candidate(costs, {.pipeline_degree = ranks, .microbatches = microbatches}).plan;

    pulse::host::run_ranks(ranks, {}, [&](pulse::host::thread_transport& transport) {
        pulse::host::onednn_backend math;
        pulse::executor<my_unet, pulse::host::onednn_backend> rank{math, transport, plan, costs};
        for (const auto& block : rank.parameters().blocks()) {
            pulse::nn::initialise<float>(pulse::parameters_of<my_unet>(block.layer), 1,
                                         rank.parameters().values_of(block.layer));
        }
        my_task task{microbatch_size, rank.parameters()};
        for (int step = 0; step != 10; ++step) {
            task.loss_sum = 0;
            rank.step(task);
            if (transport.rank() == 0) { std::printf("step %d  loss %.3f\n", step, task.loss_sum); }
        }
        transport.sum({});
        const auto sent = transport.sent();
        std::printf("rank %d sent %lld bytes of boundaries and %lld bytes of skips\n", transport.rank(),
                    static_cast<long long>(sent.boundary), static_cast<long long>(sent.skip));
    });
}
// example-end own-trainer
