#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/loss.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// What a step of denoising training consists of.
struct diffusion_options {
    std::uint64_t seed{};
    prediction_type prediction{prediction_type::velocity};
    /// Min-SNR weighting of the loss; 0 leaves every sample its weight of 1.
    double min_snr_gamma{};
    int microbatch_size{1};
    int microbatches{1};
    /// Of each step's samples, which are `replicas` times microbatches microbatches in the order of replicas, the task
    /// has those of `replica`; the loss is the mean over all.
    int replicas{1};
    int replica{};
    /// Elements of a sample as the model takes and gives it, to be checked against the images; 0: the caller has
    /// checked.
    std::int64_t model_elements{};
};

/// The data and the loss of a pipelined training step of a diffusion model, on the host: a task, whose members take a
/// work.
///
/// Images, times and noise are functions of the seed and the sample's global position, so the ranks with the first and
/// the last stage agree about every sample without exchanging anything, and no cut or number of ranks changes them.
class diffusion_task {
public:
    /// Throws input_error naming the option that is out of range, or when the images are not of the model's size.
    diffusion_task(const image_dataset& data, const noise_schedule& schedule, const diffusion_options& options) :
        data_{data}, schedule_{schedule}, options_{checked(data, options)}, times_(samples_of_replica()),
        image_(data.elements()), noise_(data.elements()), target_(data.elements()) {}

    /// Samples that one step consumes, of all replicas.
    [[nodiscard]] std::size_t samples_of_step() const noexcept {
        return samples_of_replica() * static_cast<std::size_t>(options_.replicas);
    }
    /// Of those: the samples of this replica, in the order of its microbatches.
    [[nodiscard]] std::size_t samples_of_replica() const noexcept {
        return static_cast<std::size_t>(options_.microbatch_size) * static_cast<std::size_t>(options_.microbatches);
    }
    /// The next step trains on the samples from global position `position`.
    void begin(std::uint64_t position) {
        position_ = position + static_cast<std::uint64_t>(options_.replica) * samples_of_replica();
        for (std::size_t i = 0; i != times_.size(); ++i) { times_[i] = static_cast<float>(time_of(position_ + i)); }
    }

    template <class Work>
    [[nodiscard]] const float* timesteps(const Work& at) const {
        return times_.data() + first_of(at.microbatch);
    }

    /// x_t of every sample of the microbatch, channels last; `x` has room for microbatch_size images.
    template <class Work>
    void input(const Work& at, std::span<float> x) {
        for_each_sample(at.microbatch, [&](std::uint64_t sample, std::size_t offset) {
            draw(sample);
            q_sample<float>(schedule_, time_of(sample), image_, noise_, x.subspan(offset, data_.elements()));
        });
    }

    /// Adds the microbatch's share of the step's mean squared error to *at.loss and writes its gradient; `prediction`
    /// and `gradient` are microbatch_size images, channels last. Whether the loss is finite, the optimizer sees.
    template <class Work>
    void loss(const Work& at, std::span<const float> prediction, std::span<float> gradient) {
        const auto step_elements = static_cast<std::int64_t>(samples_of_step() * data_.elements());
        for_each_sample(at.microbatch, [&](std::uint64_t sample, std::size_t offset) {
            draw(sample);
            const int t = time_of(sample);
            training_target<float>(schedule_, options_.prediction, t, image_, noise_, target_);
            const double weight = options_.min_snr_gamma > 0
                                      ? min_snr_weight(schedule_, options_.prediction, t, options_.min_snr_gamma)
                                      : 1.0;
            *at.loss += mean_squared_error<float>(prediction.subspan(offset, data_.elements()), target_, step_elements,
                                                  gradient.subspan(offset, data_.elements()), weight);
        });
    }

private:
    [[nodiscard]] static const diffusion_options& checked(const image_dataset& data, const diffusion_options& o) {
        if (o.microbatch_size < 1) { throw input_error{"diffusion_task: microbatch_size must be at least 1"}; }
        if (o.microbatches < 1) { throw input_error{"diffusion_task: microbatches must be at least 1"}; }
        if (o.replicas < 1) { throw input_error{"diffusion_task: replicas must be at least 1"}; }
        if (o.replica < 0 || o.replica >= o.replicas) {
            throw input_error{"diffusion_task: replica must be at least 0 and below replicas"};
        }
        if (!(o.min_snr_gamma >= 0)) { throw input_error{"diffusion_task: min_snr_gamma must be at least 0"}; }
        if (o.model_elements != 0 && o.model_elements != static_cast<std::int64_t>(data.elements())) {
            throw input_error{"diffusion_task: an image has " + std::to_string(data.elements()) +
                              " elements, the model's input " + std::to_string(o.model_elements)};
        }
        return o;
    }
    [[nodiscard]] std::size_t first_of(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * static_cast<std::size_t>(options_.microbatch_size);
    }
    [[nodiscard]] int time_of(std::uint64_t position) const {
        return static_cast<int>(random_source{options_.seed, random_stream::timesteps}.below(
            static_cast<std::uint32_t>(schedule_.steps()), position));
    }
    template <class Body>
    void for_each_sample(int microbatch, Body body) {
        for (std::size_t i = 0; i != static_cast<std::size_t>(options_.microbatch_size); ++i) {
            body(position_ + first_of(microbatch) + i, i * data_.elements());
        }
    }
    void draw(std::uint64_t position) {
        data_.batch(position, image_);
        random_source{options_.seed, random_stream::noise}.fill_normal(position * data_.elements(), noise_);
    }

    const image_dataset& data_;
    const noise_schedule& schedule_;
    diffusion_options options_;
    std::uint64_t position_{};
    std::vector<float> times_;
    std::vector<float> image_;
    std::vector<float> noise_;
    std::vector<float> target_;
};

} // namespace pulse::train
