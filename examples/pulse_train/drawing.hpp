#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/runtime/forward_runner.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/train/draw_images.hpp>
#include <pulse/train/guidance.hpp>
#include <pulse/train/sampler.hpp>

#include "rank_results.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// What images are drawn by where the model reads text.
struct image_texts {
    std::size_t elements{};      ///< of the states of one text
    std::vector<float> states{}; ///< of one text after another; image k is of text k mod their number
    std::vector<float> other{};  ///< of the text that images are led away from; empty: there is no guidance
    double guidance{1};

    [[nodiscard]] std::span<const float> of_image(int image) const {
        const std::size_t text = static_cast<std::size_t>(image) % (states.size() / elements);
        return std::span{states}.subspan(text * elements, elements);
    }
};

/// Draws `count` images from number `first` on with a predictor, as the arguments say.
template <class Predict>
void draw_batch(const run_inputs& in, int first, int count, std::span<float> images, Predict&& predict) {
    const auto samples = static_cast<std::size_t>(count);
    const auto number = static_cast<std::uint64_t>(first);
    if (in.args.sampler == pulse::train::sampler_kind::ddim && in.args.from.empty()) {
        pulse::train::ddim_sample(*in.noise,
                                  {.steps = in.args.sample_steps,
                                   .prediction = in.args.scheduler.prediction,
                                   .seed = in.args.seed,
                                   .first_sample = number},
                                  samples, images, predict);
    } else {
        pulse::train::draw_images(
            in.args.scheduler,
            {.kind = in.args.sampler, .steps = in.args.sample_steps, .seed = in.args.seed, .first_sample = number},
            samples, images, predict);
    }
}

/// Draws images on a side with the averaged weights, the work spread over as many workers as there are ranks. Empty
/// when the run was asked to stop before they were done.
template <class Model, class Side>
[[nodiscard]] std::vector<float> draw_samples(const Side& side, const run_inputs& in, const run_results& results,
                                              const image_texts& texts) {
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
        const int most = std::min(16, last - first);
        const auto room = static_cast<std::size_t>(most);
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
        std::vector<float> times(room);
        typename space::template array<scalar> x(room * elements);
        typename space::template array<scalar> y(room * elements);
        typename space::template array<float> times_there(room);
        typename space::template array<scalar> wanted(room * texts.elements);
        typename space::template array<scalar> other(texts.other.empty() ? 0 : room * texts.elements);
        const auto predict_by = [&](const scalar* text) {
            return [&, text](std::span<const float> noisy, std::span<const int> t, std::span<float> answer) {
                const auto n = static_cast<int>(t.size());
                if (in.stop->load()) { throw stopped{}; }
                std::copy(t.begin(), t.end(), times.begin());
                space::upload(std::span<const float>{times}, times_there.data());
                put(noisy, x.data());
                model.run(n, x.data(), times_there.data(), y.data(), text);
                Side::wait(backend);
                scalars.resize(answer.size());
                space::download(static_cast<const scalar*>(y.data()), std::span{scalars});
                std::transform(scalars.begin(), scalars.end(), answer.begin(), Side::to_float);
            };
        };
        for (int at = first; at < last; at += most) {
            const int n = std::min(most, last - at);
            for (int i = 0; texts.elements != 0 && i != n; ++i) {
                const std::size_t place = static_cast<std::size_t>(i) * texts.elements;
                put(texts.of_image(at + i), wanted.data() + place);
                if (!texts.other.empty()) { put(texts.other, other.data() + place); }
            }
            const auto batch = std::span{images}.subspan(static_cast<std::size_t>(at) * elements,
                                                         static_cast<std::size_t>(n) * elements);
            if (texts.other.empty()) {
                draw_batch(in, at, n, batch, predict_by(wanted.data()));
            } else {
                draw_batch(in, at, n, batch,
                           pulse::train::guided{texts.guidance, predict_by(wanted.data()), predict_by(other.data())});
            }
        }
    };
    try {
        side.run_workers(workers, draw_share);
    } catch (const stopped&) { images.clear(); }
    return images;
}

} // namespace pulse_train
