#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/optimizer_options.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::test::device_array;

namespace {

/// The parts of a work item that a task reads.
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
            CHECK(emulated_cuda::pending(stream.get()) > 0); // the update is still pending
        }
        CHECK(emulated_cuda::device_bytes() == bytes);
    });
}

TEST_CASE(
    "layers whose gradients share memory are updated one after the other to the same bits, with one wait a step") {
    using kept = pulse::rank_parameters<float, float, cuda::device_space>;
    const std::array layers{0, 1};
    const std::array<std::int64_t, 2> sizes{70, 30};
    const std::array<std::ptrdiff_t, 2> shifts{0, -64}; // from 70 to 6
    const auto gradients_of = [](std::int64_t step, int layer) {
        std::vector<float> made;
        for (int i = 0; i != (layer == 0 ? 70 : 30); ++i) {
            made.push_back(0.01F * static_cast<float>((i * 7 + step * 13 + layer * 5) % 23 - 11));
        }
        return made;
    };
    for (const auto& form : {pulse::optimizer_form{}, pulse::optimizer_form{pulse::moment_form::dynamic8}}) {
        pulse::threads::run_ranks(1, {}, [&](pulse::threads::transport& transport) {
            const cuda::stream stream;
            kept whole{layers, sizes};
            kept shared{layers, sizes, {}, {}, {shifts, 70}};
            CHECK(whole.bytes() - shared.bytes() == 30 * 4);
            train::optimizer_options options{.clip_norm = 0.3, .clip_by_last_norm = true, .form = form};
            cuda::rank_optimizer<cuda::fp32> keeping(2, 1, whole, options, stream.get());
            options.gradient_release = true;
            cuda::rank_optimizer<cuda::fp32> releasing(2, 1, shared, options, stream.get());
            for (auto* one : {&keeping, &releasing}) {
                one->start(std::vector<float>(100, 0.25F), one == &keeping ? whole : shared);
            }
            for (std::int64_t step = 1; step < 4; ++step) {
                for (const int layer : {1, 0}) {
                    const std::vector<float> made = gradients_of(step, layer);
                    cuda::device_space::upload<float>(made, whole.gradients_of(layer).data());
                    cuda::device_space::upload<float>(made, shared.gradients_of(layer).data());
                    const std::int64_t waits = emulated_cuda::host_waits();
                    releasing.update_layers(shared, layer, layer, step, 1e-3);
                    CHECK(emulated_cuda::host_waits() == waits);
                    cuda::check(cudaStreamSynchronize(stream.get()),
                                "cudaStreamSynchronize"); // an upload is not ordered with the stream
                }
                const train::step_outcome want = keeping.step(whole, transport, step, 1e-3, {}, false);
                const std::int64_t waits = emulated_cuda::host_waits();
                CHECK(releasing.step(shared, transport, step, 1e-3, {}, false).gradient_norm == want.gradient_norm);
                CHECK(emulated_cuda::host_waits() == waits + 1);
            }
            for (std::size_t b = 0; b != layers.size(); ++b) {
                const train::rank_state one = keeping.read_state(whole, whole.blocks()[b], transport);
                const train::rank_state other = releasing.read_state(shared, shared.blocks()[b], transport);
                CHECK(one.weights == other.weights);
                CHECK(one.first_moment == other.first_moment);
                CHECK(one.second_moment == other.second_moment);
                CHECK(one.average == other.average);
                CHECK(one.weights.front() != 0.25F);
            }
        });
    }
}
