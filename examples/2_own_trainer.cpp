// Your own trainer: describe a model, plan it, train it on ranks that are threads.
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

// example-begin own-trainer
#include <pulse/onednn/backend.hpp>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>

// a small UNet in diffusers' layout
struct net : pulse::unet<pulse::unet_config{.name = "net", .sample_size = 8, .block_out_channels = {32, 64}}> {};
using backend = pulse::onednn::backend;

struct my_task { // your data and your loss, in the backend's memory
    std::vector<float> times = std::vector<float>(64, 500.0F);
    const float* timesteps(const auto&) { return times.data(); }
    void input(const auto& at, std::span<float> x) {
        for (std::size_t i = 0; i != x.size(); ++i) { x[i] = std::sin(0.1F * float(i + at.first_sample)); }
    }
    void loss(const auto& at, std::span<const float> y, std::span<float> dy) {
        for (std::size_t i = 0; i != y.size(); ++i) {
            dy[i] = y[i] - 0.5F;
            *at.loss += 0.5 * dy[i] * dy[i];
        }
    }
};

int main() {
    const auto plan = pulse::plan_for<net, backend>({.devices = 4, .global_batch = 8, .device = pulse::cpu_core});
    pulse::run(plan, pulse::ranks::threads{}, [&](pulse::rank& self) { // or pulse::ranks::mpi{}
        pulse::trainer<net, backend> train{self, plan, {.seed = 1, .learning_rate = {1e-3}}};
        my_task task;
        for (int i = 1; i <= 5; ++i) {
            const auto step = train.step(task);
            if (self.leads()) { std::printf("step %d  loss %.3f  norm %.3f\n", i, step.loss, step.gradient_norm); }
        }
    });
}
// example-end own-trainer
