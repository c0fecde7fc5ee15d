#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/frozen/carried.hpp>
#include <pulse/frozen/chain.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/pictures_ahead.hpp>
#include <pulse/frozen/posterior_source.hpp>
#include <pulse/frozen/tasks.hpp>
#include <pulse/frozen/text.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// The frozen networks that a rank runs on captioned pictures, whole or only its frozen tasks' layers, and the
/// posterior from which latents are drawn.
template <class Model, class B>
class rank_networks {
public:
    using tasks = frozen::tasks<Model, B>;
    using text_encoders = typename tasks::text_encoders;
    using picture_encoder = typename tasks::picture_encoder;
    using posterior_of_pictures = posterior_source<networks_of<Model>>;

    /// Loads no networks yet. `components` are those of the plan's costs; the pictures must outlive it.
    rank_networks(const pictures<Model>& from, const any_transport& of_rank, std::vector<frozen_component> components) :
        from_{from}, components_{std::move(components)}, math_{backend_on<B>(of_rank, from.options().threads)},
        posterior_{greatest_latents(from.sizes()), from.options().threads, from.options().seed} {}
    rank_networks(const rank_networks&) = delete;
    rank_networks& operator=(const rank_networks&) = delete;

    /// Loads whole networks, for all `samples` of the replica in a step.
    void host(bool texts, bool pictures, std::uint64_t samples, std::uint64_t step_samples) {
        std::vector<pictures_ahead::seen_sample> seen;
        for (std::uint64_t i = 0; i != samples; ++i) { seen.push_back({i, true}); }
        ahead_.emplace(from_.source(), std::move(seen), step_samples);
        if (texts) { texts_.emplace(from_.options().networks, math_); }
        if (pictures) { host_encoder({}); }
    }
    /// Loads the layers that a device's tasks run, and decodes ahead the pictures that these see, in their order.
    void host(const std::vector<frozen_task>& mine, std::uint64_t step_samples) {
        texts_.emplace();
        std::vector<std::vector<bool>> layers(components_.size());
        std::vector<int> most_samples(components_.size(), 1); // per call, for which plans count memory
        std::vector<pictures_ahead::seen_sample> seen;
        for (const frozen_task& task : mine) {
            const auto component = static_cast<std::size_t>(task.component);
            layers[component].resize(components_[component].layers.size());
            most_samples[component] = std::max(most_samples[component], task.samples);
            std::fill_n(layers[component].begin() + task.first_layer, task.last_layer + 1 - task.first_layer, true);
            for (int i = 0; i != task.samples && task.first_layer == 0; ++i) {
                seen.push_back({static_cast<std::uint64_t>(task.first_sample + i), component == tasks::of_pictures});
            }
        }
        ahead_.emplace(from_.source(), std::move(seen), step_samples);
        if (!layers.front().empty()) { host_encoder(layers.front()); }
        for (std::size_t which = 0; which != text_encoders::count; ++which) {
            const std::vector<bool>& of_text = layers[which + tasks::of_texts];
            if (of_text.empty()) { continue; }
            texts_->host(which, from_.options().networks, math_, of_text, most_samples[which + tasks::of_texts]);
        }
    }

    [[nodiscard]] posterior_of_pictures& posterior() noexcept { return posterior_; }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return (texts_ ? texts_->used_bytes() : 0) + (pictures_ ? pictures_->used_bytes() : 0);
    }

    /// Sets the size of the next pictures.
    void set_size(const picture_extents& size) {
        if (std::exchange(size_, size) == size) { return; }
        posterior_.resize(size.latents);
        if (pictures_) { pictures_->resize(size.pixels); }
    }
    /// Encodes sample `i` of the step whose samples begin at `first` into `latents`; returns the sample. Sample 0
    /// starts the step, even if an exception ended the previous one.
    [[nodiscard]] captioned_picture encode_picture(std::uint64_t first, std::size_t i, std::span<float> latents) {
        if (i == 0) { ahead_->begin(); }
        captioned_picture sample = ahead_->next(first);
        pictures_->run(sample.pixels, posterior_.moments());
        posterior_.draw(first + i, latents);
        return sample;
    }
    /// Writes what the text encoders compute from its caption. Returns whether it was cut.
    [[nodiscard]] bool encode_text(const captioned_picture& sample, std::span<float> row) {
        return texts_->run(sample.caption, sample.name, row);
    }

    /// Runs a task's layers of the autoencoder on a sample of the replica; the last layer draws the latents. The
    /// picture's facts follow the latents, or the output of a chain that pauses.
    void run_picture(std::uint64_t first, const encoding& call, int sample) {
        const layers_of_chain which = layers_of(components_, call, sample);
        captioned_picture seen;
        if (which.first == 0) {
            seen = ahead_->next(first);
            from_.source().say(seen.refused);
        }
        const bool ends = which.last + 1 == picture_encoder::layer_count;
        const auto latent_bytes = static_cast<std::int64_t>(posterior_.elements() * sizeof(float));
        std::byte* const facts = which.to + (ends ? latent_bytes : pictures_->output_bytes(which.last));
        if (which.first == 0) {
            put_values<picture_facts>(math_, {&seen.facts, 1}, facts);
        } else {
            space_of<B>::copy(math_, which.from + pictures_->output_bytes(which.first - 1), facts,
                              sizeof(picture_facts));
        }
        pictures_->run_layers(which, seen.pixels, posterior_.moments());
        if (!ends) { return; }
        numbers_.resize(posterior_.elements());
        posterior_.draw(first + static_cast<std::uint64_t>(sample), numbers_);
        put_values<float>(math_, numbers_, which.to);
    }
    /// Runs a task's layers of a text encoder on its samples' captions, in one call.
    void run_texts(std::uint64_t first, const encoding& call) {
        const frozen_component& of = components_[static_cast<std::size_t>(call.what.component)];
        const auto samples = static_cast<std::size_t>(call.what.samples);
        std::vector<captioned_picture> seen(samples);
        if (call.what.first_layer == 0) { see_captions(first, seen); }
        const std::size_t numbers = static_cast<std::size_t>(of.result_bytes) / sizeof(float);
        numbers_.resize(samples * numbers);
        std::vector<text_of_call> texts;
        for (std::size_t i = 0; i != samples; ++i) {
            texts.push_back({layers_of(components_, call, call.what.first_sample + static_cast<int>(i)),
                             seen[i].caption, seen[i].name, std::span{numbers_}.subspan(i * numbers, numbers)});
        }
        texts_->run_layers(static_cast<std::size_t>(call.what.component - tasks::of_texts), texts);
        if (texts.front().layers.last + 1 != of.layers.size()) { return; }
        for (const text_of_call& one : texts) { put_values<float>(math_, one.result, one.layers.to); }
    }
    /// Calls take(i, result of a component's tasks for sample i) for each sample of the replica.
    template <class Take>
    void each_result(const encoded_results& results, int component, std::size_t samples, const Take& take) {
        const std::size_t numbers =
            static_cast<std::size_t>(components_[static_cast<std::size_t>(component)].result_bytes) / sizeof(float);
        numbers_.resize(samples * numbers);
        get_values<float>(math_, results.of(component, 0), numbers_);
        for (std::size_t i = 0; i != samples; ++i) {
            take(i, std::span<const float>{numbers_}.subspan(i * numbers, numbers));
        }
    }

private:
    /// Reads all captions, then throws input_error naming the first bad one, so that the others keep their order.
    void see_captions(std::uint64_t first, std::vector<captioned_picture>& seen) {
        std::exception_ptr fault;
        for (captioned_picture& one : seen) {
            try {
                one = ahead_->next(first);
            } catch (const input_error&) {
                if (!fault) { fault = std::current_exception(); }
            }
        }
        if (fault) { std::rethrow_exception(fault); }
    }
    /// Loads the picture encoder with room for all sizes.
    void host_encoder(const std::vector<bool>& layers) {
        pictures_.emplace(from_.options().networks, math_, layers, from_.sizes().front().pixels);
        for (const picture_extents& one : from_.sizes()) { pictures_->resize(one.pixels); }
    }

    const pictures<Model>& from_;
    std::vector<frozen_component> components_;
    B math_;
    posterior_of_pictures posterior_;
    std::optional<text_encoders> texts_{};
    std::optional<picture_encoder> pictures_{};
    std::optional<pictures_ahead> ahead_{};
    std::optional<picture_extents> size_{};
    std::vector<float> numbers_{}; ///< of samples, laid out as results
};

} // namespace pulse::frozen
