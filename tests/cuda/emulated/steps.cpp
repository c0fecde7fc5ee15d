#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::test::device_array;

namespace {

/// What of a work a task reads.
struct microbatch_at {
    int microbatch{};
    double* loss{};
};

} // namespace

TEST_CASE("a step of task and optimizer waits for the device once and allocates nothing there") {
    std::vector<std::uint8_t> pixels(3 * 16, 100);
    const train::image_dataset data(4, 4, 1, std::move(pixels));
    const train::noise_schedule schedule = train::noise_schedule::linear();
    pulse::threads::run_ranks(1, {}, [&](pulse::threads::transport& transport) {
        const cuda::stream stream;
        const cuda::device_images there(data);
        cuda::diffusion_task<cuda::fp32> task(there, schedule, {.microbatch_size = 2, .microbatches = 3}, stream.get());
        pulse::rank_parameters<float, float, cuda::device_space> parameters{std::array{0, 1},
                                                                            std::array<std::int64_t, 2>{70, 30}};
        cuda::device_space::upload<float>(std::vector<float>(100, 0.5F), parameters.gradients().data());
        cuda::rank_optimizer<cuda::fp32> optimizer(2, 3, parameters, {}, stream.get());
        optimizer.start(std::vector<float>(100, 0.25F), parameters);
        const device_array<float> x(32);
        const device_array<double> losses(3);
        const std::size_t bytes = emulated_cuda::device_bytes();
        for (std::int64_t step = 1; step < 4; ++step) {
            const std::int64_t waits = emulated_cuda::host_waits();
            task.begin(static_cast<std::uint64_t>(6 * step), optimizer.loss_scale());
            for (int m = 0; m < 3; ++m) {
                const microbatch_at work{m, losses.data() + m};
                task.input(work, std::span{x.data(), 32});
                task.loss(work, std::span<const float>{x.data(), 32}, std::span{x.data(), 32});
            }
            const train::step_outcome outcome =
                optimizer.step(parameters, transport, step, 1e-3, {losses.data(), 3}, false);
            CHECK(outcome.loss > 0);
            CHECK(emulated_cuda::host_waits() == waits + 1);
            CHECK(emulated_cuda::pending(stream.get()) > 0); // the update is left in the stream
        }
        CHECK(emulated_cuda::device_bytes() == bytes);
    });
}
