#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/enlargement.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/sampler.hpp>

namespace pulse::train {

/// A sampler's view of a cascade's second backbone: calls `inner` with the first backbone's small images, with noise
/// and enlarged, behind the `channels` of each pixel. One object draws one batch of images.
///
/// Source: Ho et al., "Cascaded Diffusion Models" (arXiv 2106.15282), section 4.
class enlarging {
public:
    /// `small`: [samples][height / times][width / times][channels]; `first_sample`: number of the first image. The
    /// noise of an image depends only on its number and the seed. Throws input_error unless these are whole images.
    enlarging(const enlargement& how, int channels, std::size_t samples, std::vector<float> small, std::uint64_t seed,
              std::uint64_t first_sample, predictor inner) :
        channels_{static_cast<std::size_t>(channels)},
        inner_{std::move(inner)} {
        if (samples == 0 || small.empty() || small.size() % samples != 0) {
            throw input_error{"enlarging: the small images must be one per sample"};
        }
        const std::size_t each = small.size() / samples;
        const std::size_t enlarged = each * detail::square_of(how);
        detail::require_in_range(how, enlarged, channels_);
        enlarged_.resize(samples * enlarged);
        std::vector<float> noise(each);
        for (std::size_t n = 0; n != samples; ++n) {
            detail::enlarge(how, channels_, seed, (first_sample + n) * each, std::span{small}.subspan(n * each, each),
                            noise, std::span{enlarged_}.subspan(n * enlarged, enlarged));
        }
    }

    /// Throws input_error unless x has as many elements as the enlarged images.
    void operator()(std::span<const float> x, std::span<const float> times, std::span<float> answer) {
        if (x.size() != enlarged_.size()) {
            throw input_error{"enlarging: the images to draw must have the size of the enlarged ones"};
        }
        beside_.resize(2 * x.size());
        detail::put_beside<float>(channels_, x, enlarged_, beside_, std::numeric_limits<float>::infinity());
        inner_(beside_, times, answer);
    }

private:
    std::size_t channels_;
    predictor inner_;
    std::vector<float> enlarged_{};
    std::vector<float> beside_{};
};

} // namespace pulse::train
