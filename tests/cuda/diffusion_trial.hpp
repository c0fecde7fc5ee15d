#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/train/diffusion_task.hpp>

#include <device_array.hpp>

namespace pulse::test::diffusion_trial {

/// Half the smallest subnormal half: the largest error of rounding to a subnormal half.
inline constexpr double half_step = 0x1p-25;

inline train::image_dataset images(int side, int channels, int padding) {
    std::mt19937 random(23);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(7 * side * side * channels));
    for (std::uint8_t& pixel : pixels) { pixel = static_cast<std::uint8_t>(random() % 256); }
    return {side, side, channels, std::move(pixels), {.seed = 3, .horizontal_flip = true, .padding = padding}};
}

/// The parts of a work item that a task reads.
struct microbatch_of {
    int microbatch{};
    double* loss{};
};

/// What one step of a task produces if the model answers `answer` everywhere.
struct task_step {
    std::vector<double> x, times, gradient, losses;
};

template <class Precision>
task_step device_step(const train::image_dataset& data, const train::noise_process& schedule,
                      const train::diffusion_options& options, std::uint64_t position, double answer,
                      double loss_scale = 1, const train::mask_source& masks = {}) {
    using scalar = typename Precision::scalar;
    const cuda::device_images there(data);
    const cuda::stream stream;
    cuda::diffusion_task<Precision> task(there, schedule, options, stream.get(), {}, masks);
    const device_array<double> losses(static_cast<std::size_t>(options.microbatches));
    const auto batch = static_cast<std::size_t>(options.microbatch_size);
    const std::size_t n = batch * data.elements();
    task_step result;
    for (const std::uint64_t at : {position + 5000, position}) { // the second begin replaces the table of the first
        result = {};
        task.begin(at, loss_scale);
        for (int m = 0; m < options.microbatches; ++m) {
            const device_array<scalar> x(n);
            const device_array<scalar> y(std::vector<double>(n, answer));
            const device_array<scalar> dy(n);
            const microbatch_of work{m, losses.data() + m};
            task.input(work, std::span{x.data(), n});
            task.loss(work, std::span<const scalar>{y.data(), n}, std::span{dy.data(), n});
            const auto append = [&](std::vector<double>& to, const std::vector<double>& from) {
                to.insert(to.end(), from.begin(), from.end());
            };
            append(result.x, x.download(stream.get()));
            append(result.gradient, dy.download(stream.get()));
            std::vector<float> times(batch);
            cuda::download<float>(task.timesteps(work), times.data(), batch);
            result.times.insert(result.times.end(), times.begin(), times.end());
        }
        result.losses.resize(static_cast<std::size_t>(options.microbatches));
        cuda::download<double>(losses.data(), result.losses.data(), result.losses.size());
    }
    return result;
}

inline task_step host_step(const train::image_dataset& data, const train::noise_process& schedule,
                           const train::diffusion_options& options, std::uint64_t position, double answer,
                           const train::mask_source& masks = {}) {
    train::diffusion_task task(data, schedule, options, {}, masks);
    std::vector<double> losses(static_cast<std::size_t>(options.microbatches));
    task.begin(position);
    const auto batch = static_cast<std::size_t>(options.microbatch_size);
    task_step result;
    for (int m = 0; m < options.microbatches; ++m) {
        std::vector<float> x(batch * data.elements());
        std::vector<float> gradient(x.size());
        const microbatch_of work{m, losses.data() + m};
        task.input(work, std::span{x});
        task.loss(work, std::vector<float>(x.size(), static_cast<float>(answer)), std::span{gradient});
        result.x.insert(result.x.end(), x.begin(), x.end());
        result.gradient.insert(result.gradient.end(), gradient.begin(), gradient.end());
        result.times.insert(result.times.end(), task.timesteps(work), task.timesteps(work) + batch);
    }
    result.losses = losses;
    return result;
}

} // namespace pulse::test::diffusion_trial
