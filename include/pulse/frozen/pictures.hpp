#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/bucket_order.hpp>
#include <pulse/data/encoding_report.hpp>
#include <pulse/frozen/caption_encoder.hpp>
#include <pulse/frozen/caption_lengths.hpp>
#include <pulse/frozen/chain.hpp>
#include <pulse/frozen/folder.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/picture_cache.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/image.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse {

/// Captioned pictures as a model reads them, shared by all ranks of a process: the folder, its frozen networks and, if
/// the options name one, the cache of their results.
template <class Model>
class pictures {
public:
    using networks = frozen::networks_of<Model>;
    static_assert(networks::known,
                  "pulse: specialize pulse::frozen::networks_of to say which networks encode the model's pictures");
    static constexpr frozen::sample_row row{conditions_read_by<Model>(), networks::no_class};

    /// Checks everything that a rank will read of the networks. Throws input_error naming the field and the file.
    explicit pictures(const pictures_options& o) :
        sizes_{sizes_of(o)}, unread_{within(o.words.networks,
                                            [&] { return frozen::require_networks<networks>(o.networks); })},
        source_{within(o.words.data, [&] {
            return std::make_unique<frozen::picture_source>(
                o, frozen::picture_view{sizes_.front().pixels, bucket_pixels(o, sizes_),
                                        networks::picture_config.in_channels, row.classes(), Model::config.name.str(),
                                        pulse::hint_extent<Model>()});
        })} {
        if (!has_buckets()) { return; }
        std::erase_if(sizes_, [&](const frozen::picture_extents& one) {
            return std::ranges::count(source_->pictures().buckets().sizes, one.pixels) == 0;
        });
    }

    /// Opens the cache that the options name, if not yet open. Throws input_error naming the field and the file: of the
    /// pictures, where bad ones are not skipped, or a damaged one of the cache.
    void open_cache() {
        const std::lock_guard lock{opening_};
        if (cache_ || options().cache.empty()) { return; }
        frozen::picture_cache::contents made{.row = row};
        for (const frozen::picture_extents& one : sizes_) {
            made.moments.push_back(
                {one.latents.height, one.latents.width, 2 * std::int64_t{networks::picture_config.latent_channels}});
        }
        if constexpr (frozen::has_autoencoder<networks>) { made.picture_components = {"vae"}; }
        networks::each_text([&]<class Component>(const Component*) {
            made.text_components.push_back(Component::component.str());
            made.text_components.push_back(Component::tokenizer.str());
        });
        cache_.emplace(*source_, made);
    }

    [[nodiscard]] const frozen::picture_source& source() const noexcept { return *source_; }
    /// Sizes in which pictures are seen: one, or those of the buckets, which are the plan's extents.
    [[nodiscard]] const std::vector<frozen::picture_extents>& sizes() const noexcept { return sizes_; }
    [[nodiscard]] bool has_buckets() const noexcept { return !source_->pictures().buckets().sizes.empty(); }
    /// Latent extents, each with its bucket's number of steps per epoch when a step has `step_samples` samples.
    [[nodiscard]] std::vector<extent_share> shares(std::uint64_t step_samples) const {
        if (!has_buckets()) { return {{sizes_.front().latents}}; }
        const data::bucket_order order = source_->pictures().order_of(step_samples);
        std::vector<extent_share> all;
        for (std::size_t b = 0; b != sizes_.size(); ++b) {
            all.push_back({sizes_[b].latents, static_cast<double>(order.steps_of(b))});
        }
        return all;
    }
    /// Fixes the order of pictures in buckets, before any is read. Throws input_error if it was fixed for another step
    /// size.
    void set_step(std::uint64_t step_samples) {
        const std::lock_guard lock{opening_};
        if (!has_buckets()) { return; }
        const data::bucket_order* const known = source_->pictures().order();
        if (known == nullptr) { return source_->set_step(step_samples); }
        if (known->step_samples() != step_samples) {
            throw input_error{options().words.buckets + ": every step of these pictures must have " +
                              std::to_string(known->step_samples()) + " samples, as the first had, not " +
                              std::to_string(step_samples)};
        }
    }
    [[nodiscard]] const pictures_options& options() const noexcept { return source_->options(); }
    /// Null if no cache is open.
    [[nodiscard]] const frozen::picture_cache* cache() const noexcept { return cache_ ? &*cache_ : nullptr; }
    /// One line for each network with weights that are not read.
    [[nodiscard]] const std::vector<std::string>& unread() const noexcept { return unread_; }
    /// Caption lengths for each tokenizer, as text; empty where the model reads none. Throws input_error naming a
    /// caption that cannot be read, unless bad ones are skipped.
    [[nodiscard]] std::string caption_lengths() const {
        return within(options().words.data, [&] { return frozen::lengths_of_captions<networks>(*source_); });
    }

    /// Opens the cache and encodes what is missing, each rank its share, on a backend of type B. Returns the report
    /// summed over all ranks; empty if an earlier call has filled it. Collective. Throws as open_cache does, and if
    /// ranks do not see what others have written.
    template <class B>
    data::encoding_report fill_cache(const any_transport& among) {
        {
            const std::lock_guard lock{opening_};
            if (filled_) { return {}; }
        }
        open_cache();
        among.sum({});
        if (among.leads()) { cache_->tidy(); }
        among.sum({});
        data::encoding_report took;
        if (!cache_->complete()) {
            frozen::picture_cache mine{*cache_};
            B on = backend_on<B>(among, options().threads);
            frozen::caption_encoder<Model, B> texts{options().networks, on};
            frozen::folder_pictures<networks, B> encoder{options().networks, on, {}, sizes_.front().pixels};
            took = mine.encode(
                among.rank(), among.size(),
                [&](const extent& size, std::span<const float> pixels, std::span<float> moments) {
                    encoder.resize(size);
                    encoder.run(pixels, moments);
                },
                [&](const std::string& text, std::span<float> of_sample) {
                    return texts.run(text, "a caption", of_sample);
                });
        }
        std::array all{static_cast<double>(took.pictures), static_cast<double>(took.captions),
                       static_cast<double>(took.bytes), took.picture_seconds, took.caption_seconds};
        among.sum(all);
        const std::lock_guard lock{opening_};
        if (!cache_->complete()) { cache_->refresh(); }
        if (!cache_->complete()) {
            throw input_error{options().words.cache + ": '" + options().cache.string() +
                              "' lacks what other ranks wrote to it: all ranks must share the folder"};
        }
        filled_ = true;
        return {static_cast<std::uint64_t>(all[0]), static_cast<std::uint64_t>(all[1]),
                static_cast<std::uint64_t>(all[2]), all[3], all[4]};
    }

private:
    /// Runs act() and attributes its errors to a field.
    template <class Act>
    static auto within(const std::string& field, const Act& act) {
        try {
            return act();
        } catch (const input_error& e) { throw input_error{field + ": " + e.what()}; }
    }

    /// Sizes of all buckets, including those that no picture falls into.
    [[nodiscard]] static std::vector<frozen::picture_extents> sizes_of(const pictures_options& o) {
        std::vector<frozen::picture_extents> all;
        const auto sized = [&](const extent& pixels) {
            return frozen::extents_of<Model>(pixels, o.resample_positions, o.words.resample_positions);
        };
        if (o.buckets == data::bucket_options{}) {
            all.push_back(within(o.words.size, [&] { return sized(o.size); }));
            return all;
        }
        within(o.words.buckets, [&] {
            if (o.buckets.area == extent{}) { throw input_error{"must have an area"}; }
            for (const extent& pixels : data::bucket_sizes(o.buckets)) { all.push_back(sized(pixels)); }
        });
        if (o.size == extent{}) { return all; }
        throw input_error{o.words.size + ": cannot be combined with " + o.words.buckets +
                          ", which determine the sizes"};
    }
    /// Empty without buckets.
    [[nodiscard]] static std::vector<extent> bucket_pixels(const pictures_options& o,
                                                           const std::vector<frozen::picture_extents>& sizes) {
        std::vector<extent> all;
        for (const frozen::picture_extents& one : sizes) {
            if (o.buckets.area != extent{}) { all.push_back(one.pixels); }
        }
        return all;
    }

    std::vector<frozen::picture_extents> sizes_;
    std::vector<std::string> unread_;
    std::unique_ptr<frozen::picture_source> source_;
    std::optional<frozen::picture_cache> cache_{};
    bool filled_{}; ///< by all ranks
    std::mutex opening_{};
};

} // namespace pulse
