#include "drawing.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/train/draw_images.hpp>
#include <pulse/train/enlarging.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/sampler.hpp>
#include <pulse/train/self_conditioned.hpp>

#include "run_inputs.hpp"

namespace pulse_train {

namespace {

/// For a network that reads no second image.
void draw_plainly(const run_inputs& in, int first, int count, std::span<float> images,
                  const pulse::train::predictor& network) {
    const auto samples = static_cast<std::size_t>(count);
    const auto number = static_cast<std::uint64_t>(first);
    const pulse::train::noise_schedule* const betas = in.noise->betas();
    if (betas != nullptr && in.args.sampler == pulse::train::sampler_kind::ddim && in.args.from.empty()) {
        pulse::train::ddim_sample(*betas,
                                  {.steps = in.args.sample_steps,
                                   .prediction = in.args.scheduler.prediction,
                                   .seed = in.drawing_seed(),
                                   .first_sample = number},
                                  samples, images, network);
    } else {
        pulse::train::draw_images(in.args.scheduler,
                                  {.kind = in.args.sampler,
                                   .steps = in.args.sample_steps,
                                   .seed = in.drawing_seed(),
                                   .first_sample = number,
                                   .pixels = std::int64_t{in.shape.height} * in.shape.width},
                                  samples, images, network);
    }
}

} // namespace

void draw_batch(const run_inputs& in, int first, int count, std::span<const float> small, std::span<float> images,
                const pulse::train::predictor& network) {
    if (in.args.planning.self_conditioning) {
        return draw_plainly(
            in, first, count, images,
            pulse::train::self_conditioned{*in.noise, in.args.scheduler.prediction, in.shape.channels, network});
    }
    if (in.enlarged) {
        return draw_plainly(in, first, count, images,
                            pulse::train::enlarging{*in.enlarged,
                                                    in.shape.channels,
                                                    static_cast<std::size_t>(count),
                                                    {small.begin(), small.end()},
                                                    in.drawing_seed(),
                                                    static_cast<std::uint64_t>(first),
                                                    network});
    }
    draw_plainly(in, first, count, images, network);
}

} // namespace pulse_train
