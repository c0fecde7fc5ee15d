#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pulse/train/noise_level.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/sampler.hpp>

namespace pulse::train {

/// A sampler's view of a network that also reads its own prediction of the images from the previous step: calls `inner`
/// with that behind the `channels` of each pixel, zeros at first. One object draws one batch of images.
///
/// Source: Chen, Zhang and Hinton, "Analog bits" (arXiv 2208.04202), algorithm 2.
class self_conditioned {
public:
    /// `type`: what the network predicts, with betas.
    self_conditioned(noise_process noise, prediction_type type, int channels, predictor inner) :
        noise_{std::move(noise)}, type_{type}, channels_{static_cast<std::size_t>(channels)}, inner_{std::move(inner)} {
    }

    void operator()(std::span<const float> x, std::span<const float> times, std::span<float> answer) {
        predicted_.resize(x.size());
        beside_.resize(2 * x.size());
        rest_.resize(x.size());
        detail::put_beside<float>(channels_, x, predicted_, beside_);
        inner_(beside_, times, answer);
        const std::size_t each = x.size() / times.size();
        for (std::size_t n = 0; n != times.size(); ++n) {
            const auto of = [&](auto all) { return all.subspan(n * each, each); };
            read_answer<float>(noise_.at_time(static_cast<double>(times[n]), type_), of(x),
                               std::span<const float>{of(answer)}, of(std::span{predicted_}), of(std::span{rest_}));
        }
    }

private:
    noise_process noise_;
    prediction_type type_;
    std::size_t channels_;
    predictor inner_;
    std::vector<float> predicted_{};
    std::vector<float> beside_{};
    std::vector<float> rest_{}; ///< implied noise, unused
};

} // namespace pulse::train
