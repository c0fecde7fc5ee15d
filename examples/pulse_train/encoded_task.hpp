#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/task.hpp>

#include "frozen.hpp"
#include "frozen_encoders.hpp"
#include "pictures.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// Latents of the samples from one global position on, as a data set that has no others.
class latents_of_step {
public:
    latents_of_step(std::size_t samples, std::size_t elements, int channels) :
        elements_{elements}, channels_{channels}, values_(samples * elements) {}

    [[nodiscard]] std::size_t elements() const noexcept { return elements_; }
    [[nodiscard]] int channels() const noexcept { return channels_; }
    void batch(std::uint64_t position, std::span<float> out) const {
        const auto from = values_.begin() + static_cast<std::ptrdiff_t>((position - first_) * elements_);
        std::copy_n(from, out.size(), out.begin());
    }
    void begin(std::uint64_t position) noexcept { first_ = position; }
    [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
    [[nodiscard]] std::span<float> of(std::size_t sample) {
        return std::span{values_}.subspan(sample * elements_, elements_);
    }

private:
    std::size_t elements_;
    int channels_;
    std::uint64_t first_{};
    std::vector<float> values_;
};

/// The data and the loss of a rank on captioned pictures, which frozen networks encode on the host, before each step or
/// into a cache. Text states are encoded or read into where the backbone reads them.
///
/// The ranks with the first and with the last stage encode or read the same pictures, for nothing but a sample's
/// position decides what comes out; in a folded placement they are one. Captions are for the first stage alone.
template <class Model, class Math>
class encoded_task {
    using frozen = frozen_networks<Model>;
    using text_encoder = frozen_text<frozen, Math>;
    using picture_encoder = frozen_pictures<frozen, Math>;
    using posterior = posterior_source<frozen, Math>;
    static constexpr pulse::condition_set wanted = pulse::conditions_read_by<Model>();
    static_assert(wanted.all().size() == 1 && wanted.all()[0].kind == pulse::condition_kind::text_states &&
                      text_encoder::elements == static_cast<std::size_t>(wanted.text_elements()),
                  "the text encoder gives what the backbone reads");
    static_assert(posterior::elements == static_cast<std::size_t>(Model::template layer_at<0>::input::elements),
                  "the autoencoder gives what the backbone reads");

public:
    /// Bytes of the frozen networks where the first stage is, and where the last is without it.
    static constexpr std::int64_t first_stage_bytes = text_encoder::bytes + picture_encoder::bytes;
    static constexpr std::int64_t last_stage_bytes = picture_encoder::bytes;

    /// The pictures of --data in the size that is encoded. Checks all that a rank will read of --from, so that nothing
    /// is measured, planned or written before it is refused.
    [[nodiscard]] static std::unique_ptr<const picture_source> open(const arguments& a) {
        try {
            static_cast<void>(tokenizer_of(a));
            static_cast<void>(pulse::diffusers::open_text_encoder<frozen::text_config>(a.from));
            static_cast<void>(pulse::diffusers::open_autoencoder<frozen::picture_config>(a.from));
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--from: "} + e.what()}; }
        try {
            return std::make_unique<const picture_source>(a, frozen::picture_config.sample_size);
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--data: "} + e.what()}; }
    }
    /// What --cache has of them.
    [[nodiscard]] static std::unique_ptr<picture_cache> open_cache(const arguments& a, const picture_source& pictures) {
        constexpr auto size = std::int64_t{frozen::picture_config.latent_size()};
        constexpr auto tokens = std::int64_t{frozen::text::tokens};
        try {
            return std::make_unique<picture_cache>(
                pictures, a,
                picture_cache::extents{
                    .moments = {size, size, 2 * std::int64_t{frozen::picture_config.latent_channels}},
                    .states = {tokens, std::int64_t{text_encoder::elements} / tokens}});
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--cache: "} + e.what()}; }
    }
    /// A rank's share of what the cache does not have.
    [[nodiscard]] static pulse::data::encoding_report encode_once(const arguments& a, const pulse::any_transport& among,
                                                                  picture_cache& cache) {
        Math math{a.threads};
        const std::unique_ptr<const caption_ids> ids_of = tokenizer_of(a);
        text_encoder texts{a.from, math};
        picture_encoder pictures{a.from, math};
        return cache.encode(
            among.rank(), among.size(),
            [&](std::span<const float> pixels, std::span<float> moments) { pictures.run(pixels, moments); },
            [&](const std::string& text, std::span<float> states) {
                const text_ids ids = (*ids_of)(text, "a caption");
                texts.run(ids.ids, states);
                return ids.cut;
            });
    }

    encoded_task(const run_inputs& in, const pulse::any_transport& of_rank) :
        in_{in}, math_{in.args.threads}, posterior_{math_, in.args.seed}, latents_{samples_of(in), posterior::elements,
                                                                                   posterior::config.latent_channels},
        steps_{latents_, *in.noise, in.task_options(of_rank.rank()), states_of(of_rank.rank())},
        first_{static_cast<std::size_t>(in.place_of(of_rank.rank()).replica) * steps_.samples_of_replica()},
        reads_captions_{in.runs_first_stage(of_rank.rank())}, sees_pictures_{reads_captions_ ||
                                                                             in.plan.cut.stages.back().device ==
                                                                                 in.place_of(of_rank.rank()).device} {
        if (in.cache != nullptr) {
            rows_.resize(samples_of(in));
            return;
        }
        if (reads_captions_) {
            ids_ = tokenizer_of(in.args);
            texts_.emplace(in.args.from, math_);
            captions_.resize(samples_of(in));
        }
        if (sees_pictures_) { pictures_.emplace(in.args.from, math_); }
    }
    encoded_task(const encoded_task&) = delete;
    encoded_task& operator=(const encoded_task&) = delete;

    void begin(std::uint64_t position) {
        const std::uint64_t first = position + first_;
        if (encoded_ == first) { return; }
        const auto began = std::chrono::steady_clock::now();
        latents_.begin(first);
        if (sees_pictures_ && in_.cache != nullptr) { read(first); }
        if (sees_pictures_ && in_.cache == nullptr) { encode(first); }
        steps_.begin(position);
        encoded_ = first;
        if (sees_pictures_) {
            seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        }
    }
    [[nodiscard]] const float* timesteps(const pulse::work<Math>& at) const { return steps_.timesteps(at); }
    [[nodiscard]] const float* text(const pulse::work<Math>& at) const { return steps_.text(at); }
    void input(const pulse::work<Math>& at, std::span<float> x) { steps_.input(at, x); }
    void loss(const pulse::work<Math>& at, std::span<const float> y, std::span<float> dy) { steps_.loss(at, y, dy); }

    /// Of the frozen networks: what the plan counts. The samples of a step are not in it, as of other data.
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return (texts_ ? texts_->used_bytes() : 0) + (pictures_ ? pictures_->used_bytes() : 0);
    }
    [[nodiscard]] double encode_seconds() const noexcept { return seconds_; }
    [[nodiscard]] std::int64_t captions_cut() const noexcept { return cut_; }

private:
    [[nodiscard]] static std::unique_ptr<const caption_ids> tokenizer_of(const arguments& a) {
        return std::make_unique<const caption_ids>(std::filesystem::path{a.from} / "tokenizer", frozen::text::tokens,
                                                   frozen::text::vocabulary);
    }
    [[nodiscard]] static std::size_t samples_of(const run_inputs& in) {
        return static_cast<std::size_t>(in.plan.microbatch_size) * static_cast<std::size_t>(in.plan.microbatches);
    }

    /// The text states of samples whose captions encode() has read, or whose rows read() has.
    [[nodiscard]] pulse::train::condition_source states_of(int rank) {
        if (!in_.runs_first_stage(rank)) { return {}; }
        return {wanted, [this](std::uint64_t position, std::size_t, std::span<float> to) {
                    const auto sample = static_cast<std::size_t>(position - latents_.first());
                    if (in_.cache == nullptr) {
                        texts_->run(captions_[sample], to);
                    } else {
                        cut_ += in_.cache->read_states(rows_[sample], to) ? 1 : 0;
                    }
                }};
    }
    /// Each picture that is left out is named once, by each replica.
    void say(const std::vector<std::string>& refused) {
        for (const std::string& why : refused) {
            if (said_.insert(why).second) { std::fprintf(stderr, "pulse_train: skipped: %s\n", why.c_str()); }
        }
    }

    void read(std::uint64_t first) {
        for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
            rows_[i] = in_.cache->at(first + i);
            in_.cache->read_moments(rows_[i], posterior_.moments());
            posterior_.draw(first + i, latents_.of(i));
            if (reads_captions_) { say(rows_[i].refused); }
        }
    }

    void encode(std::uint64_t first) {
        // Pictures of the next step are decoded while this one runs; a run that goes on elsewhere begins anew.
        if (!ahead_ || next_ != first) {
            const auto of_step = static_cast<std::uint64_t>(steps_.samples_of_step());
            const std::uint64_t mine = steps_.samples_of_replica();
            ahead_.emplace([&source = *in_.pictures, first, of_step, mine](std::uint64_t n) {
                return source.at(first + n / mine * of_step + n % mine);
            });
        }
        for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
            const captioned_picture sample = ahead_->next();
            pictures_->run(sample.pixels, posterior_.moments());
            posterior_.draw(first + i, latents_.of(i));
            if (!texts_) { continue; }
            say(sample.refused);
            text_ids ids = (*ids_)(sample.caption, sample.name);
            cut_ += ids.cut ? 1 : 0;
            captions_[i] = std::move(ids.ids);
        }
        next_ = first + steps_.samples_of_step();
    }

    const run_inputs& in_;
    Math math_;
    posterior posterior_;
    latents_of_step latents_;
    pulse::train::diffusion_task<latents_of_step> steps_;
    std::size_t first_; ///< of the replica's samples in those of a step
    bool reads_captions_;
    bool sees_pictures_;
    std::unique_ptr<const caption_ids> ids_{};
    std::optional<text_encoder> texts_{};
    std::optional<picture_encoder> pictures_{};
    std::vector<std::vector<std::int32_t>> captions_{}; ///< of the step's samples, as the text encoder takes them
    std::vector<picture_cache::sample> rows_{};         ///< of the step's samples, where there is a cache
    std::optional<pulse::data::prefetcher<captioned_picture>> ahead_{};
    std::uint64_t next_{};
    std::optional<std::uint64_t> encoded_{};
    std::set<std::string> said_{};
    std::int64_t cut_{};
    double seconds_{};
};

} // namespace pulse_train
