#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pulse/train/sampler.hpp>

namespace pulse::train {

/// A network under classifier-free guidance: answers other + scale (wanted - other).
///
/// `wanted` answers for what is to be drawn, `other` for no text or a negative prompt; with scale 1, `other` is not
/// called. Source: Ho and Salimans, "Classifier-free diffusion guidance" (arXiv 2207.12598), in the form of Imagen.
class guided {
public:
    guided(double scale, predictor wanted, predictor other) :
        scale_{static_cast<float>(scale)}, wanted_{std::move(wanted)}, other_{std::move(other)} {}

    void operator()(std::span<const float> x, std::span<const float> times, std::span<float> answer) {
        wanted_(x, times, answer);
        if (scale_ == 1.0F) { return; }
        from_.resize(answer.size());
        other_(x, times, from_);
        for (std::size_t i = 0; i != answer.size(); ++i) { answer[i] = from_[i] + scale_ * (answer[i] - from_[i]); }
    }

private:
    float scale_;
    predictor wanted_;
    predictor other_;
    std::vector<float> from_{};
};

} // namespace pulse::train
