#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/device_images.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/kernels/diffusion.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/loss.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/random.hpp>

namespace pulse::cuda {

/// Data and loss of a diffusion model's pipelined training step, on a device: the counterpart of train::diffusion_task.
///
/// Both give the same samples, times and noise for a seed and global position; noise is generated where it is used and
/// never stored. Images are device_images, which stay on the device, so that a step uploads only some 50 bytes per
/// sample and its text, facts, hint and mask; or device_latents. Only begin() waits for the device, for the previous
/// step's upload.
template <class Precision = bf16, class Images = device_images>
class diffusion_task {
public:
    using scalar = typename Precision::scalar;

    /// All work is enqueued on `stream`, which must be the backend's. The images must outlive the task. Throws
    /// input_error naming the option that is out of range, or if the images do not have the model's size.
    diffusion_task(const Images& images, const train::noise_process& noise, const train::diffusion_options& options,
                   cudaStream_t stream, train::condition_source conditions = {}, train::mask_source masks = {}) :
        images_{images},
        process_{noise}, options_{checked(images, noise, options)}, key_{options.seed, train::random_stream::noise},
        stream_{stream}, table_{samples_of_replica()}, times_{samples_of_replica()}, host_table_{samples_of_replica()},
        host_times_{samples_of_replica()}, conditions_{std::move(conditions), options_.microbatch_size,
                                                       options_.microbatches},
        text_{conditions_.text().size()}, facts_{conditions_.facts().size()}, hints_{conditions_.hints().size()},
        host_text_{text_.size()}, host_facts_{facts_.size()}, host_hints_{hints_.size()}, read_mask_{std::move(masks)} {
        if (read_mask_) {
            masks_ = device_memory<float>{samples_of_replica() * pixels()};
            host_masks_ = pinned_memory<float>{masks_.size()};
        }
        if (options.noise_offset > 0) {
            const std::size_t offsets = samples_of_replica() * static_cast<std::size_t>(images.layout().channels);
            offsets_ = device_memory<float>{offsets};
            host_offsets_ = pinned_memory<float>{offsets};
        }
        scratch_ = device_memory<std::byte>{diffusion_loss_scratch_bytes(images.layout(), options.microbatch_size)};
        on_ = {stream, properties_of(current_device()).multiprocessors, scratch_.data()};
    }

    diffusion_task(const Images&&, const train::noise_process&, const train::diffusion_options&, cudaStream_t,
                   train::condition_source = {}, train::mask_source = {}) = delete;

    /// Number of samples that one step consumes over all replicas.
    [[nodiscard]] std::size_t samples_of_step() const noexcept {
        return samples_of_replica() * static_cast<std::size_t>(options_.replicas);
    }
    /// This replica's number of those, which are consecutive and in the order of its microbatches.
    [[nodiscard]] std::size_t samples_of_replica() const noexcept {
        return static_cast<std::size_t>(options_.microbatch_size) * static_cast<std::size_t>(options_.microbatches);
    }

    /// Begins a step on the samples from global position `position`; its gradient is multiplied by `loss_scale`, its
    /// loss is not. Enqueues the upload of the step's table. Throws input_error if images of the data's size cannot be
    /// enlarged to what the model reads.
    void begin(std::uint64_t position, double loss_scale = 1.0) {
        train::detail::require_enlargeable(options_, images_.data().elements(), images_.layout().channels);
        uploaded_.synchronize();
        const std::size_t elements = images_.data().elements();
        const double step_elements = static_cast<double>(samples_of_step() * elements);
        const std::uint64_t first = position + static_cast<std::uint64_t>(options_.replica) * samples_of_replica();
        for (std::size_t i = 0; i != samples_of_replica(); ++i) {
            const std::uint64_t at = first + i;
            const train::noise_level level = train::detail::level_at(options_, process_, at, pixels());
            diffusion_sample& sample = host_table_.data()[i];
            sample.noise_index = train::detail::noise_at(options_, at, elements);
            sample.loss_factor = train::detail::weight_at(options_, process_, at, level) / step_elements;
            sample.gradient_factor = static_cast<float>(2.0 * sample.loss_factor * loss_scale);
            sample.signal = static_cast<float>(level.signal);
            sample.sigma = static_cast<float>(level.sigma);
            sample.target_noise = static_cast<float>(level.target_noise);
            sample.target_image = static_cast<float>(level.target_image);
            sample.image = images_.data().index_at(at);
            sample.flipped = images_.data().flipped_at(at) ? 1U : 0U;
            host_times_.data()[i] = static_cast<float>(level.time);
            if (offsets_.size() != 0) {
                const auto channels = static_cast<std::size_t>(images_.layout().channels);
                train::detail::fill_noise_offsets(options_, at, {host_offsets_.data() + i * channels, channels});
            }
        }
        copy_async<diffusion_sample>(table_.data(), host_table_.data(), table_.size(), stream_);
        copy_async<float>(times_.data(), host_times_.data(), times_.size(), stream_);
        if (offsets_.size() != 0) {
            copy_async<float>(offsets_.data(), host_offsets_.data(), offsets_.size(), stream_);
        }
        if (read_mask_) {
            const std::size_t each = pixels();
            for (std::size_t i = 0; i != samples_of_replica(); ++i) {
                read_mask_(first + i, {host_masks_.data() + i * each, each});
            }
            copy_async<float>(masks_.data(), host_masks_.data(), samples_of_replica() * each, stream_);
        }
        conditions_.begin(first);
        std::transform(conditions_.text().begin(), conditions_.text().end(), host_text_.data(), from_float<scalar>);
        std::copy(conditions_.facts().begin(), conditions_.facts().end(), host_facts_.data());
        std::transform(conditions_.hints().begin(), conditions_.hints().end(), host_hints_.data(), from_float<scalar>);
        copy_async<scalar>(text_.data(), host_text_.data(), text_.size(), stream_);
        copy_async<float>(facts_.data(), host_facts_.data(), facts_.size(), stream_);
        copy_async<scalar>(hints_.data(), host_hints_.data(), hints_.size(), stream_);
        uploaded_.record(stream_);
    }

    /// Sets what later steps are evaluated for. Throws input_error if there is no such timestep.
    void evaluate_at(const train::evaluation& what) {
        options_.evaluated = what;
        train::detail::require_in_range(options_, process_, images_.data().elements(), images_.layout().channels);
    }

    /// A device address, the same in every step.
    template <class Work>
    [[nodiscard]] const float* timesteps(const Work& at) const noexcept {
        return times_.data() + first_of(at.microbatch);
    }
    template <class Work>
    [[nodiscard]] const scalar* text(const Work& at) const noexcept {
        return text_.data() + conditions_.text_at(at.microbatch);
    }
    template <class Work>
    [[nodiscard]] const float* facts(const Work& at) const noexcept {
        return facts_.data() + conditions_.facts_at(at.microbatch);
    }

    /// Writes x_t of every sample of the microbatch, channels last, followed by the samples' hints. `x` has room for
    /// microbatch_size images, with twice the channels if the model is self-conditioned or reads enlarged images, and
    /// hints.
    template <class Work>
    void input(const Work& at, std::span<scalar> x) {
        if (options_.self_conditioned) { return input(at, x, {}); }
        put_hints(at.microbatch, x);
        if (options_.enlarged) {
            return enlarged_sample<scalar>(on_, images_.layout(), options_.microbatch_size, images_.pixels(),
                                           table_.data() + first_of(at.microbatch), offsets_of(at.microbatch), key_,
                                           *options_.enlarged, {options_.seed, train::random_stream::enlargement},
                                           x.data());
        }
        q_sample<scalar>(on_, images_.layout(), options_.microbatch_size, images_.pixels(),
                         table_.data() + first_of(at.microbatch), offsets_of(at.microbatch), key_, x.data());
    }

    /// The same with the model's output in a preview; empty if there was none.
    template <class Work>
    void input(const Work& at, std::span<scalar> x, std::span<const scalar> prediction) {
        train::detail::require_self_conditioned(options_);
        put_hints(at.microbatch, x);
        self_conditioned_sample<scalar>(on_, images_.layout(), options_.microbatch_size, images_.pixels(),
                                        table_.data() + first_of(at.microbatch), offsets_of(at.microbatch), key_,
                                        prediction.empty() ? 0 : answered_by(prediction.size()),
                                        prediction.empty() ? nullptr : prediction.data(), x.data());
    }

    /// Sets *at.loss to the microbatch's share of the step's mean squared error and writes its gradient. `prediction`
    /// and `gradient` are microbatch_size images with the model's channels, channels last. The optimizer checks whether
    /// the loss is finite. Throws input_error if the model has fewer channels than the images.
    template <class Work>
    void loss(const Work& at, std::span<const scalar> prediction, std::span<scalar> gradient) {
        const image_layout& layout = images_.layout();
        const int answered = answered_by(prediction.size());
        diffusion_loss<scalar>(on_, layout, options_.microbatch_size, images_.pixels(),
                               table_.data() + first_of(at.microbatch), offsets_of(at.microbatch),
                               read_mask_ ? masks_.data() + first_of(at.microbatch) * pixels() : nullptr, key_,
                               answered, prediction.data(), gradient.data(), at.loss);
    }

private:
    [[nodiscard]] static const train::diffusion_options& checked(const Images& images,
                                                                 const train::noise_process& noise,
                                                                 const train::diffusion_options& o) {
        if (o.microbatch_size < 1 || o.microbatch_size > 65535) {
            throw input_error{"diffusion_task: microbatch_size must be from 1 to 65535, not " +
                              std::to_string(o.microbatch_size)};
        }
        train::detail::require_in_range(o, noise, images.data().elements(), images.layout().channels);
        return o;
    }
    [[nodiscard]] std::size_t first_of(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * static_cast<std::size_t>(options_.microbatch_size);
    }
    /// Pixels of an image.
    [[nodiscard]] std::size_t pixels() const noexcept {
        return static_cast<std::size_t>(images_.layout().elements() / images_.layout().channels);
    }
    /// Channels of the model's output, of which a microbatch has `elements` elements. Throws input_error if the images
    /// have more.
    [[nodiscard]] int answered_by(std::size_t elements) const {
        const std::size_t answered = elements / (static_cast<std::size_t>(options_.microbatch_size) * pixels());
        train::detail::require_answer(answered, static_cast<std::size_t>(images_.layout().channels));
        return static_cast<int>(answered);
    }
    void put_hints(int microbatch, std::span<scalar> x) const {
        const std::size_t n = conditions_.hints_of_microbatch();
        copy_async<scalar>(x.last(n).data(), hints_.data() + conditions_.hints_at(microbatch), n, stream_);
    }
    [[nodiscard]] const float* offsets_of(int microbatch) const noexcept {
        if (offsets_.size() == 0) { return nullptr; }
        return offsets_.data() + first_of(microbatch) * static_cast<std::size_t>(images_.layout().channels);
    }

    const Images& images_;
    train::noise_process process_;
    train::diffusion_options options_;
    random_key key_;
    cudaStream_t stream_;
    device_memory<diffusion_sample> table_;
    device_memory<float> times_;
    pinned_memory<diffusion_sample> host_table_;
    pinned_memory<float> host_times_;
    device_memory<float> offsets_{}; ///< [sample][channel]; empty: none
    pinned_memory<float> host_offsets_{};
    train::condition_values conditions_;
    device_memory<scalar> text_;
    device_memory<float> facts_;
    device_memory<scalar> hints_;
    pinned_memory<scalar> host_text_;
    pinned_memory<float> host_facts_;
    pinned_memory<scalar> host_hints_;
    train::mask_source read_mask_;
    device_memory<float> masks_{}; ///< [sample][pixel]; empty: none
    pinned_memory<float> host_masks_{};
    event uploaded_{};
    device_memory<std::byte> scratch_{};
    queue on_{};
};

} // namespace pulse::cuda
