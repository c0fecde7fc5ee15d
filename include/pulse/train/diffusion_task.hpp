#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/enlargement.hpp>
#include <pulse/train/loss.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// The timestep and the samples on which weights are evaluated.
struct evaluation {
    int timestep{};          ///< of all samples
    std::uint64_t samples{}; ///< samples at global positions from this one on are ignored
};

/// Writes the loss weight, 0 to 1, of each pixel of the sample at a global position: the same on every rank, in any
/// order. The mean is still taken over all elements. Empty: 1 everywhere.
using mask_source = std::function<void(std::uint64_t position, std::span<float> to)>;

/// Options of a denoising training step.
struct diffusion_options {
    std::uint64_t seed{};
    prediction_type prediction{prediction_type::velocity}; ///< for a noise schedule of betas
    /// Min-SNR weighting of the loss; 0 weights every sample by 1.
    double min_snr_gamma{};
    /// Offset noise: adds to the noise of each channel of a sample one normal number times this.
    double noise_offset{};
    int microbatch_size{1};
    int microbatches{1};
    /// A step has `replicas` times `microbatches` microbatches, ordered by replica; the task works on those of
    /// `replica`. The loss is the mean over all.
    int replicas{1};
    int replica{};
    /// Elements of a sample in the model's input and output, without a hint, to check against the images; 0: the caller
    /// has checked.
    std::int64_t model_elements{};
    /// For data with samples of several sizes: elements of the largest, so that no two positions share noise; 0: all
    /// have the size that the data report.
    std::int64_t greatest_elements{};
    /// The model also reads an image behind the channels of each pixel: its own preview prediction of that image, or
    /// zeros. Source: Chen, Zhang and Hinton, "Analog bits" (arXiv 2208.04202), section 3.2.
    bool self_conditioned{};
    /// The model also reads, behind the channels of each pixel, the image shrunk, with noise added, and enlarged again.
    std::optional<enlargement> enlarged{};
    /// Evaluate instead of train: times are not drawn, and every sample has the same weight.
    std::optional<evaluation> evaluated{};
};

namespace detail {

/// Throws input_error where `o.enlarged` does not fit the images.
inline void require_enlargeable(const diffusion_options& o, std::size_t elements, int channels) {
    if (o.enlarged) { require_in_range(*o.enlarged, elements, static_cast<std::size_t>(channels)); }
}

/// Throws input_error naming the option that is out of range, or when images of `elements` elements do not have the
/// model's size.
inline void require_in_range(const diffusion_options& o, const noise_process& noise, std::size_t elements,
                             int channels) {
    if (o.microbatch_size < 1) { throw input_error{"diffusion_task: microbatch_size must be at least 1"}; }
    if (o.microbatches < 1) { throw input_error{"diffusion_task: microbatches must be at least 1"}; }
    if (o.replicas < 1) { throw input_error{"diffusion_task: replicas must be at least 1"}; }
    if (o.replica < 0 || o.replica >= o.replicas) {
        throw input_error{"diffusion_task: replica must be at least 0 and below replicas"};
    }
    if (!(o.min_snr_gamma >= 0)) { throw input_error{"diffusion_task: min_snr_gamma must be at least 0"}; }
    if (!(o.noise_offset >= 0)) { throw input_error{"diffusion_task: noise_offset must be at least 0"}; }
    if (o.self_conditioned && o.enlarged) {
        throw input_error{"diffusion_task: self_conditioned and enlarged cannot be combined"};
    }
    require_enlargeable(o, elements, channels);
    const std::size_t read = elements * (o.self_conditioned || o.enlarged ? 2 : 1);
    if (o.model_elements != 0 && o.model_elements != static_cast<std::int64_t>(read)) {
        const std::string what = o.self_conditioned ? "an image and its prediction have "
                                 : o.enlarged       ? "an image and the enlarged image have "
                                                    : "an image has ";
        throw input_error{"diffusion_task: " + what + std::to_string(read) + " elements, but the model's input has " +
                          std::to_string(o.model_elements)};
    }
    if (o.evaluated && (o.evaluated->timestep < 0 || o.evaluated->timestep >= noise.steps())) {
        throw input_error{"diffusion_task: evaluated.timestep must be 0 to " + std::to_string(noise.steps() - 1) +
                          " with this noise schedule, not " + std::to_string(o.evaluated->timestep)};
    }
    if (noise.betas() != nullptr) { return require_predictable(*noise.betas(), o.prediction); }
    if (o.min_snr_gamma > 0) { throw input_error{"diffusion_task: min_snr_gamma needs a noise schedule of betas"}; }
}

/// Throws input_error when the model outputs fewer channels than its images have.
inline void require_answer(std::size_t answered, std::size_t channels) {
    if (answered < channels) {
        throw input_error{"diffusion_task: an image has " + std::to_string(channels) +
                          " channels, but the model's output has " + std::to_string(answered)};
    }
}

/// Throws input_error if the plan has previews but the task's model is not self-conditioned.
inline void require_self_conditioned(const diffusion_options& o) {
    if (!o.self_conditioned) {
        throw input_error{"diffusion_task: self_conditioned must be set, because the plan has previews"};
    }
}

/// Index of the first noise value of the sample at a global position. With samples of several sizes it is a multiple of
/// 4, because a device draws four values at once where fours fill a sample.
[[nodiscard]] inline std::uint64_t noise_at(const diffusion_options& o, std::uint64_t position, std::size_t elements) {
    return position *
           (o.greatest_elements != 0 ? static_cast<std::uint64_t>(o.greatest_elements + 3) / 4 * 4 : elements);
}

/// Index of the first noise value of the smaller image that belongs to a sample whose noise begins at `noise_index`.
[[nodiscard]] inline std::uint64_t small_noise_at(const enlargement& how, std::uint64_t noise_index) noexcept {
    return noise_index / square_of(how);
}

/// Noise level of the sample of `pixels` pixels at a global position.
[[nodiscard]] inline noise_level level_at(const diffusion_options& o, const noise_process& noise,
                                          std::uint64_t position, std::size_t pixels) {
    const auto count = static_cast<std::int64_t>(pixels);
    if (o.evaluated) { return noise.at(o.evaluated->timestep, o.prediction, count); }
    return noise.drawn(o.seed, position, o.prediction, count);
}

/// Loss weight of the sample at a global position and noise level.
[[nodiscard]] inline double weight_at(const diffusion_options& o, const noise_process& noise, std::uint64_t position,
                                      const noise_level& level) noexcept {
    if (o.evaluated) { return position < o.evaluated->samples ? 1.0 : 0.0; }
    if (!(o.min_snr_gamma > 0)) { return 1.0; }
    return min_snr_weight(*noise.betas(), o.prediction, static_cast<int>(level.time), o.min_snr_gamma);
}

/// Fills in the offset that each channel's noise gets in the sample at a global position.
///
/// Source: Guttenberg, "Diffusion with offset noise" (2023), as in diffusers' training scripts: the offset noise is
/// both added to the image and predicted.
inline void fill_noise_offsets(const diffusion_options& o, std::uint64_t position, std::span<float> of_channels) {
    random_source{o.seed, random_stream::noise_offset}.fill_normal(position * of_channels.size(), of_channels);
    for (float& value : of_channels) { value *= static_cast<float>(o.noise_offset); }
}

} // namespace detail

/// The data and the loss of a diffusion training step, on the host; a `task` for any work. Data has elements(),
/// channels() and batch() as image_dataset does; between steps elements() may shrink and grow again, up to its value
/// when this was constructed.
///
/// Images, times and noise are functions of the seed and the sample's global position. So are text, facts and hints,
/// where the model reads any. The ranks of the first and the last stage thus agree about every sample without
/// communication, and neither the cut nor the number of ranks changes them.
///
/// If the model outputs more channels than the image has, the first ones are the prediction; the others, such as
/// Hunyuan-DiT's variance, are not part of the loss and get gradient 0.
template <class Data = image_dataset>
class diffusion_task {
public:
    /// `data` must outlive the task. Throws input_error naming the option that is out of range, or when the images do
    /// not have the model's size.
    diffusion_task(const Data& data, const noise_process& noise, const diffusion_options& options,
                   condition_source conditions = {}, mask_source masks = {}) :
        data_{data},
        process_{noise}, options_{checked(data, noise, options)}, times_(samples_of_replica()),
        conditions_{std::move(conditions), options.microbatch_size, options.microbatches}, masks_{std::move(masks)},
        image_(data.elements()), noise_(data.elements()), target_(data.elements()), answer_(data.elements()),
        offsets_(options.noise_offset > 0 ? static_cast<std::size_t>(data.channels()) : 0) {}

    diffusion_task(const Data&&, const noise_process&, const diffusion_options&, condition_source = {},
                   mask_source = {}) = delete;

    /// Samples of one step, over all replicas.
    [[nodiscard]] std::size_t samples_of_step() const noexcept {
        return samples_of_replica() * static_cast<std::size_t>(options_.replicas);
    }
    /// Samples of this replica in a step, in the order of its microbatches.
    [[nodiscard]] std::size_t samples_of_replica() const noexcept {
        return static_cast<std::size_t>(options_.microbatch_size) * static_cast<std::size_t>(options_.microbatches);
    }
    /// Begins a step on the samples from global position `position`. Throws input_error where images of the current
    /// size cannot be enlarged as the model reads them.
    void begin(std::uint64_t position) {
        detail::require_enlargeable(options_, data_.elements(), data_.channels());
        position_ = position + static_cast<std::uint64_t>(options_.replica) * samples_of_replica();
        for (std::size_t i = 0; i != times_.size(); ++i) {
            times_[i] = static_cast<float>(level_of(position_ + i).time);
        }
        conditions_.begin(position_);
        for (std::vector<float>* one : {&image_, &noise_, &target_, &answer_}) { one->resize(data_.elements()); }
    }

    /// Evaluates in the steps that begin from now on. Throws input_error where there is no such timestep.
    void evaluate_at(const evaluation& what) {
        options_.evaluated = what;
        detail::require_in_range(options_, process_, data_.elements(), data_.channels());
    }

    template <class Work>
    [[nodiscard]] const float* timesteps(const Work& at) const {
        return times_.data() + first_of(at.microbatch);
    }
    template <class Work>
    [[nodiscard]] const float* text(const Work& at) const {
        return conditions_.text().data() + conditions_.text_at(at.microbatch);
    }
    template <class Work>
    [[nodiscard]] const float* facts(const Work& at) const {
        return conditions_.facts().data() + conditions_.facts_at(at.microbatch);
    }

    /// Writes x_t of every sample of the microbatch, channels last, followed by the hints. `x` has room for
    /// microbatch_size images, with twice the channels where the model is self-conditioned or reads enlarged images,
    /// and for the hints.
    template <class Work>
    void input(const Work& at, std::span<float> x) {
        if (options_.self_conditioned) { return input(at, x, {}); }
        put_hints(at.microbatch, x);
        for_each_sample(at.microbatch, [&](std::uint64_t sample, std::size_t offset) {
            draw(sample);
            if (options_.enlarged) { return put_enlarged(sample, x.subspan(2 * offset, 2 * data_.elements())); }
            add_noise<float>(level_of(sample), image_, noise_, x.subspan(offset, data_.elements()));
        });
    }
    /// Writes the input beside the model's preview output; an empty `prediction` means there was no preview.
    template <class Work>
    void input(const Work& at, std::span<float> x, std::span<const float> prediction) {
        detail::require_self_conditioned(options_);
        const std::size_t answered = prediction.empty() ? 0 : answered_by(prediction.size());
        put_hints(at.microbatch, x);
        for_each_sample(at.microbatch, [&](std::uint64_t sample, std::size_t offset) {
            draw(sample);
            const noise_level level = level_of(sample);
            add_noise<float>(level, image_, noise_, target_);
            std::ranges::fill(image_, 0.0F);
            if (!prediction.empty()) {
                for_each_answer(offset, answered,
                                [&](std::size_t e, std::size_t place) { answer_[e] = prediction[place]; });
                read_answer<float>(level, target_, answer_, image_, noise_);
            }
            detail::put_beside<float>(static_cast<std::size_t>(data_.channels()), target_, image_,
                                      x.subspan(2 * offset, 2 * data_.elements()));
        });
    }

    /// Adds the microbatch's share of the step's mean squared error to *at.loss and writes its gradient. `prediction`
    /// and `gradient` are microbatch_size images of the model's channels, channels last. The optimizer checks that the
    /// loss is finite. Throws input_error when the model has fewer channels than the images.
    template <class Work>
    void loss(const Work& at, std::span<const float> prediction, std::span<float> gradient) {
        const auto step_elements = static_cast<std::int64_t>(samples_of_step() * data_.elements());
        const auto channels = static_cast<std::size_t>(data_.channels());
        const std::size_t of_sample = prediction.size() / static_cast<std::size_t>(options_.microbatch_size);
        const std::size_t answered = answered_by(prediction.size());
        for_each_sample(at.microbatch, [&](std::uint64_t sample, std::size_t offset) {
            draw(sample);
            const noise_level level = level_of(sample);
            training_target<float>(level, image_, noise_, target_);
            for_each_answer(offset, answered,
                            [&](std::size_t e, std::size_t place) { answer_[e] = prediction[place]; });
            const double weight = detail::weight_at(options_, process_, sample, level);
            if (masks_) {
                mask_.resize(pixels());
                masks_(sample, mask_);
                *at.loss += masked_squared_error<float>(answer_, target_, mask_, step_elements, answer_, weight);
            } else {
                *at.loss += mean_squared_error<float>(answer_, target_, step_elements, answer_, weight);
            }
            if (answered != channels) {
                std::ranges::fill(gradient.subspan(offset / channels * answered, of_sample), 0.0F);
            }
            for_each_answer(offset, answered, [&](std::size_t e, std::size_t place) { gradient[place] = answer_[e]; });
        });
    }

private:
    [[nodiscard]] static const diffusion_options& checked(const Data& data, const noise_process& noise,
                                                          const diffusion_options& o) {
        detail::require_in_range(o, noise, data.elements(), data.channels());
        return o;
    }
    [[nodiscard]] std::size_t first_of(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * static_cast<std::size_t>(options_.microbatch_size);
    }
    [[nodiscard]] std::size_t pixels() const noexcept {
        return data_.elements() / static_cast<std::size_t>(data_.channels());
    }
    /// Channels of the model's output, given the elements of a microbatch of it. Throws input_error when there are
    /// fewer than the images have.
    [[nodiscard]] std::size_t answered_by(std::size_t elements) const {
        const std::size_t answered = elements / (static_cast<std::size_t>(options_.microbatch_size) * pixels());
        detail::require_answer(answered, static_cast<std::size_t>(data_.channels()));
        return answered;
    }
    /// Calls body(element of an image, its index in the output) for the sample whose images begin at `offset`.
    template <class Body>
    void for_each_answer(std::size_t offset, std::size_t answered, const Body& body) const {
        const auto channels = static_cast<std::size_t>(data_.channels());
        const std::size_t first = offset / channels * answered;
        for (std::size_t e = 0; e != data_.elements(); ++e) { body(e, first + e / channels * answered + e % channels); }
    }
    [[nodiscard]] noise_level level_of(std::uint64_t position) const {
        return detail::level_at(options_, process_, position, pixels());
    }
    template <class Body>
    void for_each_sample(int microbatch, Body body) {
        for (std::size_t i = 0; i != static_cast<std::size_t>(options_.microbatch_size); ++i) {
            body(position_ + first_of(microbatch) + i, i * data_.elements());
        }
    }
    /// Writes x_t of the drawn sample beside its enlarged image; overwrites image_ and noise_.
    void put_enlarged(std::uint64_t position, std::span<float> x) {
        const enlargement& how = *options_.enlarged;
        const auto channels = static_cast<std::size_t>(data_.channels());
        add_noise<float>(level_of(position), image_, noise_, target_);
        const std::span small = std::span{noise_}.first(data_.elements() / detail::square_of(how));
        detail::shrink(how, channels, image_, small);
        detail::enlarge(how, channels, options_.seed,
                        detail::small_noise_at(how, detail::noise_at(options_, position, data_.elements())), small,
                        std::span{answer_}.first(small.size()), image_);
        detail::put_beside<float>(channels, target_, image_, x, std::numeric_limits<float>::infinity());
    }
    void put_hints(int microbatch, std::span<float> x) const {
        const std::size_t n = conditions_.hints_of_microbatch();
        std::ranges::copy(conditions_.hints().subspan(conditions_.hints_at(microbatch), n), x.last(n).begin());
    }
    void draw(std::uint64_t position) {
        data_.batch(position, image_);
        random_source{options_.seed, random_stream::noise}.fill_normal(
            detail::noise_at(options_, position, data_.elements()), noise_);
        if (offsets_.empty()) { return; }
        detail::fill_noise_offsets(options_, position, offsets_);
        for (std::size_t e = 0; e != noise_.size(); ++e) { noise_[e] += offsets_[e % offsets_.size()]; }
    }

    const Data& data_;
    noise_process process_;
    diffusion_options options_;
    std::uint64_t position_{};
    std::vector<float> times_;
    condition_values conditions_;
    mask_source masks_;
    std::vector<float> image_;
    std::vector<float> noise_;
    std::vector<float> target_;
    std::vector<float> answer_;  ///< a sample's prediction, then its gradient
    std::vector<float> offsets_; ///< of each channel's noise; empty: none
    std::vector<float> mask_{};  ///< of a sample
};

} // namespace pulse::train
