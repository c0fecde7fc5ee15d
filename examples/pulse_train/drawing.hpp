#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/forward_runner.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/train/draw_images.hpp>
#include <pulse/train/sampler.hpp>

#include "rank_results.hpp"
#include "run_inputs.hpp"
#include "synthetic.hpp"

namespace pulse_train {

/// Draws images on a side with the averaged weights, the work spread over as many workers as there are ranks. Empty
/// when the run was asked to stop before they were done.
template <class Model, class Side>
[[nodiscard]] std::vector<float> draw_samples(const Side& side, const run_inputs& in, const run_results& results) {
    using math = typename Side::math;
    using space = pulse::space_of<math>;
    using scalar = typename math::scalar;
    struct stopped {};
    const std::size_t elements = in.shape.elements();
    const int count = in.args.sample;
    const int workers = std::min(in.ranks(), count);
    std::vector<float> images(static_cast<std::size_t>(count) * elements);
    const auto draw_share = [&](const pulse::any_transport& among) {
        const int first = count * among.rank() / workers;
        const int last = count * (among.rank() + 1) / workers;
        constexpr int most = 16;
        math backend = side.make_math(among);
        pulse::forward_runner<Model, math> model{backend, most};
        std::vector<scalar> scalars;
        const auto put = [&](std::span<const float> from, scalar* to) {
            scalars.resize(from.size());
            std::transform(from.begin(), from.end(), scalars.begin(), Side::to_scalar);
            space::upload(std::span<const scalar>{scalars}, to);
        };
        for (const auto& block : model.parameters().blocks()) {
            put(results.averages.at(block.layer), model.parameters().values_of(block.layer).data());
        }
        backend.weights_changed();
        std::vector<float> times(most);
        typename space::template array<scalar> x(most * elements);
        typename space::template array<scalar> y(most * elements);
        typename space::template array<float> times_there(most);
        typename space::template array<scalar> text(in.texts == nullptr ? 0 : most * in.texts->elements());
        for (int at = first; at < last; at += most) {
            for (int i = 0; in.texts != nullptr && i != most; ++i) {
                const std::size_t prompt = text_states::prompt_of(static_cast<std::uint32_t>(at + i));
                put(in.texts->of_prompt(prompt), text.data() + static_cast<std::size_t>(i) * in.texts->elements());
            }
            const int n = std::min(most, last - at);
            const auto predict = [&](std::span<const float> noisy, std::span<const int> t, std::span<float> answer) {
                if (in.stop->load()) { throw stopped{}; }
                std::copy(t.begin(), t.end(), times.begin());
                space::upload(std::span<const float>{times}, times_there.data());
                put(noisy, x.data());
                model.run(n, x.data(), times_there.data(), y.data(), text.data());
                Side::wait(backend);
                scalars.resize(answer.size());
                space::download(static_cast<const scalar*>(y.data()), std::span{scalars});
                std::transform(scalars.begin(), scalars.end(), answer.begin(), Side::to_float);
            };
            const auto batch = std::span{images}.subspan(static_cast<std::size_t>(at) * elements,
                                                         static_cast<std::size_t>(n) * elements);
            const auto first_sample = static_cast<std::uint64_t>(at);
            const auto samples = static_cast<std::size_t>(n);
            if (in.args.sampler == pulse::train::sampler_kind::ddim && in.args.from.empty()) {
                pulse::train::ddim_sample(*in.noise,
                                          {.steps = in.args.sample_steps,
                                           .prediction = in.args.scheduler.prediction,
                                           .seed = in.args.seed,
                                           .first_sample = first_sample},
                                          samples, batch, predict);
            } else {
                pulse::train::draw_images(in.args.scheduler,
                                          {.kind = in.args.sampler,
                                           .steps = in.args.sample_steps,
                                           .seed = in.args.seed,
                                           .first_sample = first_sample},
                                          samples, batch, predict);
            }
        }
    };
    try {
        side.run_workers(workers, draw_share);
    } catch (const stopped&) { images.clear(); }
    return images;
}

} // namespace pulse_train
