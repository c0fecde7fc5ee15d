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
#include <pulse/model/condition.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/task.hpp>

#include "frozen.hpp"
#include "frozen_encoders.hpp"
#include "pictures.hpp"
#include "run_inputs.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// The data and the loss of a rank of a side (see host_side) on captioned pictures, which frozen networks encode where
/// the rank computes, before each step, into a cache or as frozen tasks of the plan. What they give comes to the host,
/// in floats, so that it is the same from each.
///
/// The ranks with the first and with the last stage encode or read the same pictures, for nothing but a sample's
/// position decides what comes out; in a folded placement they are one. What the backbone reads beside latents, such as
/// text states, sizes and classes, is for the first stage alone.
template <class Model, class Side>
class encoded_task {
    using math = typename Side::math;
    using frozen_math = typename Side::frozen_math;
    using frozen = frozen_networks<Model>;
    using text_encoders = caption_encoder<Model, frozen_math>;
    using picture_encoder = frozen_pictures<frozen, frozen_math>;
    using posterior = posterior_source<frozen>;
    using latents = typename Side::latents;
    using latent_task = typename Side::latent_task;
    static constexpr sample_row row{pulse::conditions_read_by<Model>(), frozen::no_class};
    static_assert(posterior::elements == static_cast<std::size_t>(Model::template layer_at<0>::input::elements),
                  "the autoencoder gives what the backbone reads");

    /// The components that frozen tasks run, each on whole samples: a picture gives its latents and what is known of it,
    /// a caption what it decides and whether it was cut.
    static constexpr int of_pictures = 0;
    static constexpr int of_captions = 1;
    static constexpr bool reads_captions = row.elements(true) != 0;
    static constexpr std::size_t picture_numbers = posterior::elements + row.elements(false);
    static constexpr std::size_t caption_numbers = row.elements(true) + 1;

public:
    /// Bytes of the frozen networks where the first stage is, and where the last is without it.
    static constexpr std::int64_t first_stage_bytes = text_encoders::bytes + picture_encoder::bytes;
    static constexpr std::int64_t last_stage_bytes = picture_encoder::bytes;

    /// The pictures of --data in the size that is encoded. Checks all that a rank will read of --from, so that nothing
    /// is measured, planned or written before it is refused.
    [[nodiscard]] static std::unique_ptr<const picture_source> open(const arguments& a) {
        try {
            text_encoders::require(a.from);
            picture_encoder::require(a.from);
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--from: "} + e.what()}; }
        try {
            auto found = std::make_unique<const picture_source>(a, frozen::picture_config.sample_size,
                                                                frozen::picture_config.in_channels);
            if constexpr (row.classes() != 0) { require_classes(a, found->classes()); }
            return found;
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--data: "} + e.what()}; }
    }
    /// What --cache has of them.
    [[nodiscard]] static std::unique_ptr<picture_cache> open_cache(const arguments& a, const picture_source& pictures) {
        constexpr auto size = std::int64_t{frozen::picture_config.latent_size()};
        try {
            return std::make_unique<picture_cache>(
                pictures, a,
                picture_cache::contents{
                    .moments = {size, size, 2 * std::int64_t{frozen::picture_config.latent_channels}},
                    .row = row,
                    .picture_components = picture_encoder::components(),
                    .text_components = text_encoders::components()});
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--cache: "} + e.what()}; }
    }
    /// A rank's share of what the cache does not have.
    [[nodiscard]] static pulse::data::encoding_report encode_once(const arguments& a, const pulse::any_transport& among,
                                                                  picture_cache& cache) {
        frozen_math on = Side::make_frozen_math(a, among);
        text_encoders texts{a.from, on};
        picture_encoder pictures{a.from, on};
        return cache.encode(
            among.rank(), among.size(),
            [&](std::span<const float> pixels, std::span<float> moments) { pictures.run(pixels, moments); },
            [&](const std::string& text, std::span<float> of_sample) {
                return texts.run(text, "a caption", of_sample);
            });
    }

    /// What frozen tasks take on this machine.
    [[nodiscard]] static std::vector<pulse::frozen_component> measured_costs(const arguments& a)
        requires Side::fills_bubbles
    {
        frozen_math math{a.threads};
        std::vector<pulse::frozen_component> all;
        const auto add = [&](const char* name, pulse::frozen_use feeds, std::size_t numbers, std::int64_t bytes,
                             const auto& run) {
            double least_us = 0;
            for (int i = 0; i != 3; ++i) { // the first is a warm-up
                const auto began = std::chrono::steady_clock::now();
                run();
                const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
                least_us = i < 2 ? took.count() : std::min(least_us, took.count());
            }
            // Kernels may depend on the batch: one sample a call gives the bits of encoding before each step.
            all.push_back(
                {.name = pulse::label{std::string_view{name}},
                 .feeds = feeds,
                 .result_bytes = static_cast<std::int64_t>(numbers * sizeof(float)),
                 .max_chunk = 1,
                 .layers = {
                     {.name = pulse::label{std::string_view{name}}, .sample_us = least_us, .parameter_bytes = bytes}}});
        };
        {
            picture_encoder pictures{a.from, math};
            constexpr auto size = static_cast<std::size_t>(frozen::picture_config.sample_size);
            const std::vector<float> pixels(size * size * static_cast<std::size_t>(frozen::picture_config.in_channels));
            std::vector<float> moments(2 * posterior::elements);
            add("pictures", pulse::frozen_use::input, picture_numbers, picture_encoder::bytes,
                [&] { pictures.run(pixels, moments); });
        }
        if constexpr (reads_captions) {
            text_encoders texts{a.from, math};
            std::vector<float> of_sample(row.elements());
            add("captions", pulse::frozen_use::context, caption_numbers, text_encoders::bytes,
                [&] { static_cast<void>(texts.run("a caption", "a caption", of_sample)); });
        }
        return all;
    }

    encoded_task(const run_inputs& in, const pulse::any_transport& of_rank) :
        in_{in}, math_{Side::make_frozen_math(in.args, of_rank)}, posterior_{in.args.threads, in.args.seed},
        latents_{samples_of(in), posterior::elements, posterior::config.latent_channels}, steps_{latents_, in, of_rank,
                                                                                                 conditions_of(
                                                                                                     of_rank.rank())},
        first_{static_cast<std::size_t>(in.place_of(of_rank.rank()).replica) * steps_.samples_of_replica()},
        reads_conditions_{in.runs_first_stage(of_rank.rank())}, sees_pictures_{reads_conditions_ ||
                                                                               in.plan.cut.stages.back().device ==
                                                                                   in.place_of(of_rank.rank()).device} {
        if (reads_conditions_) { rows_.resize(samples_of(in) * row.elements()); }
        if (in.cache != nullptr) { return; }
        if (!in.plan.frozen_tasks.empty()) {
            host_networks(in.place_of(of_rank.rank()).device);
            return;
        }
        if (reads_conditions_) { texts_.emplace(in.args.from, math_); }
        if (sees_pictures_) { pictures_.emplace(in.args.from, math_); }
    }
    encoded_task(const encoded_task&) = delete;
    encoded_task& operator=(const encoded_task&) = delete;

    /// With the loss scale where the side's task takes one.
    template <class... Scale>
        requires requires(latent_task& steps, std::uint64_t position, Scale... scale) {
            steps.begin(position, scale...);
        }
    void begin(std::uint64_t position, Scale... scale) {
        if (!in_.plan.frozen_tasks.empty()) {
            position_ = position; // what is encoded for it, encoded() says
            return;
        }
        prepare(position);
        steps_.begin(position, scale...);
    }
    /// Runs a frozen task on samples of this replica, the first of which is at `first` of all.
    void encode(std::uint64_t first, const pulse::encoding& call)
        requires Side::fills_bubbles
    {
        // Behind the last step nobody reads it.
        if (first >= static_cast<std::uint64_t>(in_.args.steps) * steps_.samples_of_step()) { return; }
        const auto began = std::chrono::steady_clock::now();
        auto* to = reinterpret_cast<float*>(call.to.front().data);
        for (int i = 0; i != call.what.samples; ++i) {
            const captioned_picture sample = next_of_tasks(first);
            if (call.what.component == of_captions) {
                const std::span<float> of_sample{scratch_};
                to[row.elements(true)] = texts_->run(sample.caption, sample.name, of_sample) ? 1.0F : 0.0F;
                row.for_each_packed(true, of_sample, to,
                                    [](auto part, auto packed) { std::ranges::copy(part, packed.begin()); });
                to += caption_numbers;
            } else {
                say(sample.refused);
                pictures_->run(sample.pixels, posterior_.moments());
                const std::uint64_t position = first + static_cast<std::uint64_t>(call.what.first_sample + i);
                posterior_.draw(position, {to, posterior::elements});
                write_picture_facts(row, sample.facts, frozen::picture_config.sample_size, scratch_);
                row.for_each_packed(false, scratch_, to + posterior::elements,
                                    [](auto part, auto packed) { std::ranges::copy(part, packed.begin()); });
                to += picture_numbers;
            }
        }
        seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    void encoded(const pulse::encoded_results& results)
        requires Side::fills_bubbles
    {
        latents_.begin(position_ + first_);
        const auto unpack = [](auto part, auto packed) { std::ranges::copy(packed, part.begin()); };
        for (std::size_t i = 0; i != samples_of(in_) && sees_pictures_; ++i) {
            const auto numbers_of = [&](int component) {
                return reinterpret_cast<const float*>(results.of(component, static_cast<int>(i)));
            };
            const float* const picture = numbers_of(of_pictures);
            std::copy_n(picture, posterior::elements, latents_.of(i).begin());
            if (!reads_conditions_) { continue; }
            row.for_each_packed(false, row_of(i), picture + posterior::elements, unpack);
            if constexpr (reads_captions) {
                const float* const caption = numbers_of(of_captions);
                row.for_each_packed(true, row_of(i), caption, unpack);
                cut_ += caption[row.elements(true)] != 0 ? 1 : 0;
            }
        }
        steps_.begin(position_);
    }
    [[nodiscard]] auto timesteps(const pulse::work<math>& at) const { return steps_.timesteps(at); }
    [[nodiscard]] auto text(const pulse::work<math>& at) const { return steps_.text(at); }
    [[nodiscard]] auto facts(const pulse::work<math>& at) const { return steps_.facts(at); }
    void input(const pulse::work<math>& at, std::span<typename math::scalar> x) { steps_.input(at, x); }
    void loss(const pulse::work<math>& at, std::span<const typename math::scalar> y,
              std::span<typename math::scalar> dy) {
        steps_.loss(at, y, dy);
    }

    /// Of the frozen networks: what the plan counts. The samples of a step are not in it, as of other data.
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return (texts_ ? texts_->used_bytes() : 0) + (pictures_ ? pictures_->used_bytes() : 0);
    }
    [[nodiscard]] double encode_seconds() const noexcept { return seconds_; }
    [[nodiscard]] std::int64_t captions_cut() const noexcept { return cut_; }

private:
    void prepare(std::uint64_t position) {
        const std::uint64_t first = position + first_;
        if (encoded_ == first) { return; }
        const auto began = std::chrono::steady_clock::now();
        latents_.begin(first);
        if (sees_pictures_ && in_.cache != nullptr) { read(first); }
        if (sees_pictures_ && in_.cache == nullptr) { encode(first); }
        encoded_ = first;
        if (sees_pictures_) {
            seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        }
    }
    static void require_classes(const arguments& a, int found) {
        if (found == 0) {
            throw pulse::input_error{"'" + a.data + "' has no folders of classes, which " + a.model + " reads"};
        }
        if (found > row.classes()) {
            throw pulse::input_error{"'" + a.data + "' has " + std::to_string(found) + " folders of classes, " +
                                     a.model + " knows " + std::to_string(row.classes())};
        }
    }
    [[nodiscard]] static std::size_t samples_of(const run_inputs& in) {
        return static_cast<std::size_t>(in.plan.microbatch_size) * static_cast<std::size_t>(in.plan.microbatches);
    }

    /// The networks whose tasks a device runs, and the pictures that these see, in their order.
    void host_networks(int device) {
        const auto at = static_cast<std::size_t>(device);
        for (const int component : in_.plan.frozen_hosts[at]) {
            if (component == of_captions) {
                texts_.emplace(in_.args.from, math_);
            } else {
                pictures_.emplace(in_.args.from, math_);
            }
        }
        for (const pulse::frozen_task& task : in_.plan.frozen_tasks[at]) {
            for (int i = 0; i != task.samples; ++i) {
                of_tasks_.push_back(static_cast<std::uint64_t>(task.first_sample + i));
            }
        }
        scratch_.resize(row.elements());
    }
    /// The next picture of the device's tasks, which run on the samples of a step in one order; those of the step behind
    /// it are decoded meanwhile.
    [[nodiscard]] captioned_picture next_of_tasks(std::uint64_t first) {
        const auto of_step = static_cast<std::uint64_t>(steps_.samples_of_step());
        if (at_ == 0 && (!ahead_ || next_ != first)) {
            ahead_.emplace(
                [&source = *in_.pictures, &mine = std::as_const(of_tasks_), first, of_step](std::uint64_t n) {
                    return source.at(first + n / mine.size() * of_step + mine[n % mine.size()]);
                });
        }
        if (++at_ == of_tasks_.size()) {
            at_ = 0;
            next_ = first + of_step;
        }
        return ahead_->next();
    }

    /// The conditions of samples as encode() or read() has left them.
    [[nodiscard]] pulse::train::condition_source conditions_of(int rank) {
        if (!in_.runs_first_stage(rank)) { return {}; }
        return {row.wanted, [this](std::uint64_t position, std::size_t which, std::span<float> to) {
                    std::ranges::copy(row.of(row_of(static_cast<std::size_t>(position - latents_.first())), which),
                                      to.begin());
                }};
    }
    [[nodiscard]] std::span<float> row_of(std::size_t sample) {
        return std::span{rows_}.subspan(sample * row.elements(), row.elements());
    }
    /// Each picture that is left out is named once, by each replica.
    void say(const std::vector<std::string>& refused) {
        for (const std::string& why : refused) {
            if (said_.insert(why).second) { std::fprintf(stderr, "pulse_train: skipped: %s\n", why.c_str()); }
        }
    }

    void read(std::uint64_t first) {
        for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
            const picture_cache::sample sample = in_.cache->at(first + i);
            in_.cache->read_moments(sample, posterior_.moments());
            posterior_.draw(first + i, latents_.of(i));
            if (!reads_conditions_) { continue; }
            say(sample.refused);
            cut_ += in_.cache->read_caption(sample, row_of(i)) ? 1 : 0;
            write_facts(in_.cache->facts(sample), i);
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
            if (!reads_conditions_) { continue; }
            say(sample.refused);
            cut_ += texts_->run(sample.caption, sample.name, row_of(i)) ? 1 : 0;
            write_facts(sample.facts, i);
        }
        next_ = first + steps_.samples_of_step();
    }
    void write_facts(const picture_facts& facts, std::size_t sample) {
        write_picture_facts(row, facts, frozen::picture_config.sample_size, row_of(sample));
    }

    const run_inputs& in_;
    frozen_math math_;
    posterior posterior_;
    latents latents_;
    latent_task steps_;
    std::size_t first_;     ///< of the replica's samples in those of a step
    bool reads_conditions_; ///< all but latents is for the first stage alone
    bool sees_pictures_;
    std::optional<text_encoders> texts_{};
    std::optional<picture_encoder> pictures_{};
    std::vector<float> rows_{}; ///< of the step's samples: what the backbone reads of each
    std::vector<float> scratch_{};          ///< a row that a task writes
    std::vector<std::uint64_t> of_tasks_{}; ///< samples that the device's tasks see, in their order
    std::size_t at_{};                      ///< in it
    std::uint64_t position_{};
    std::optional<pulse::data::prefetcher<captioned_picture>> ahead_{};
    std::uint64_t next_{};
    std::optional<std::uint64_t> encoded_{};
    std::set<std::string> said_{};
    std::int64_t cut_{};
    double seconds_{};
};

} // namespace pulse_train
