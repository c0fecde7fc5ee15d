#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/bucket_order.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/draw.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/resize.hpp>
#include <pulse/data/shuffle_tags.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// What to do about a picture or caption that cannot be read.
enum class bad_picture : std::uint8_t {
    stop, ///< throws its error
    skip, ///< the next readable picture in the epoch's order takes its place
};

/// How pictures and captions are prepared for the network.
struct picture_options {
    int height = 512;
    int width = 512;
    int channels = 3; ///< 3, or 1: brightness (ITU-R 601)
    std::uint64_t seed = 0;
    bool shuffle = true;
    bool random_crop = false;     ///< crop anywhere, else at the centre
    bool horizontal_flip = false; ///< mirror each picture with probability 1/2
    double caption_dropout = 0;   ///< probability that a sample has an empty caption
    /// Number of a caption's leading comma-separated tags that stay in place while the others are shuffled for each
    /// sample; none: captions are left as they are.
    std::optional<int> shuffle_tags_behind{};
    bad_picture on_bad_picture = bad_picture::stop;
    picture_limits limits{};
};

/// A picture as the network sees it, with its caption and the sizes that SDXL is conditioned on.
struct picture_sample {
    std::vector<float> pixels{}; ///< height x width x channels, -1 black to 1 white
    std::string caption{};       ///< empty when dropped
    int label = -1;              ///< class; -1 without class folders
    std::uint32_t index{};       ///< index of the picture in the folder
    bool caption_dropped{};
    bool flipped{};
    bool damaged{};        ///< parts of the picture could not be read and are filled in
    int original_height{}; ///< upright, before the resize
    int original_width{};
    int crop_top{}; ///< in the resized and, if flipped, mirrored picture
    int crop_left{};
    std::vector<std::string> refused{}; ///< of each picture that was skipped here: its name and what is wrong

    [[nodiscard]] bool operator==(const picture_sample&) const = default;
};

namespace detail {

/// The smallest size of the same shape that covers the target, and the crop in it, both enlarged `scale` times. Throws
/// input_error for a picture so narrow that a side of this size would exceed 2^24 pixels.
[[nodiscard]] inline resized_part cover(int height, int width, const extent& target, bool random_crop,
                                        const sample_draw& drawn, int scale = 1) {
    const auto scaled = [](std::int64_t side, std::int64_t to, std::int64_t from) {
        return (side * to + from / 2) / from;
    };
    const std::int64_t h = target.height;
    const std::int64_t w = target.width;
    const bool by_width = w * height >= h * width;
    const std::int64_t full_height = by_width ? std::max(h, scaled(height, w, width)) : h;
    const std::int64_t full_width = by_width ? w : std::max(w, scaled(width, h, height));
    constexpr std::int64_t longest = 1 << 24;
    if (std::max(full_height, full_width) * scale > longest) {
        throw input_error(std::to_string(width) + " x " + std::to_string(height) + " pixels are too narrow to cover " +
                          std::to_string(w) + " x " + std::to_string(h));
    }
    const auto place = [&](std::int64_t room, std::uint32_t share) {
        if (!random_crop) { return scale * static_cast<int>(room / 2); }
        return scale * static_cast<int>((static_cast<std::uint64_t>(room + 1) * share) >> 32U);
    };
    return {.width = scale * static_cast<int>(full_width),
            .height = scale * static_cast<int>(full_height),
            .left = place(full_width - w, drawn.left),
            .top = place(full_height - h, drawn.top),
            .crop_width = scale * target.width,
            .crop_height = scale * target.height};
}

/// The crop of a stored picture as a network reads it, from `black` to 1 for white: height x width x channels.
[[nodiscard]] inline std::vector<float> cropped(const io::picture& stored, resized_part part, bool flipped,
                                                float black) {
    // The crop is placed in the mirrored picture: its mirror image is cut out, then mirrored.
    if (flipped) { part.left = part.width - part.crop_width - part.left; }
    const io::picture crop = resize(stored, part);
    const auto width = static_cast<std::size_t>(crop.width);
    const auto channels = static_cast<std::size_t>(crop.channels);
    const float steps = 255.0F / (1.0F - black);
    std::vector<float> pixels(crop.pixels.size());
    float* out = pixels.data();
    for (std::size_t y = 0; y != static_cast<std::size_t>(crop.height); ++y) {
        for (std::size_t x = 0; x != width; ++x) {
            const std::size_t from = y * width + (flipped ? width - 1 - x : x);
            for (std::size_t k = 0; k != channels; ++k) {
                *out++ = static_cast<float>(crop.pixels[from * channels + k]) / steps + black;
            }
        }
    }
    return pixels;
}

/// Brightness of each pixel, equal to Pillow's mode L.
[[nodiscard]] inline io::picture brightness(const io::picture& colours) {
    io::picture grey{.width = colours.width, .height = colours.height, .channels = 1};
    grey.pixels.reserve(colours.pixels.size() / 3);
    for (std::size_t i = 0; i != colours.pixels.size(); i += 3) {
        const auto at = [&](std::size_t k) { return std::uint32_t{colours.pixels[i + k]}; };
        grey.pixels.push_back(
            static_cast<std::uint8_t>((at(0) * 19595U + at(1) * 38470U + at(2) * 7471U + 0x8000U) >> 16U));
    }
    return grey;
}

} // namespace detail

/// Captioned pictures of a folder by global position. Order, crop, flip, dropped captions and replacements of bad
/// pictures are functions of (seed, position), the folder and, with buckets, the samples per step, so any number of
/// ranks and threads and a resumed run see the same bits. Any thread may ask for any position.
class captioned_pictures {
public:
    /// Throws input_error for options out of range.
    captioned_pictures(picture_index index, const picture_options& options, picture_buckets buckets = {}) :
        index_{std::move(index)}, options_{options}, buckets_{std::move(buckets)} {
        constexpr int longest_side = 1 << 15;
        if (options.height < 1 || options.width < 1 || options.height > longest_side || options.width > longest_side) {
            throw input_error("pictures: height and width must be 1 to " + std::to_string(longest_side));
        }
        if (options.channels != 1 && options.channels != 3) { throw input_error("pictures: channels must be 1 or 3"); }
        if (!(options.caption_dropout >= 0.0 && options.caption_dropout <= 1.0)) {
            throw input_error("pictures: the caption dropout must be 0 to 1");
        }
        if (options.shuffle_tags_behind.value_or(0) < 0) {
            throw input_error("pictures: the number of tags that stay in place must be at least 0");
        }
        if (index_.entries.empty()) { throw input_error("pictures: there are no pictures"); }
        const auto is_repeated = [](const picture_entry& entry) { return entry.repeats != 1; };
        if (std::none_of(index_.entries.begin(), index_.entries.end(), is_repeated)) { return; }
        std::uint64_t end = 0;
        for (const picture_entry& entry : index_.entries) {
            end += entry.repeats;
            if (entry.repeats == 0 || end >= std::numeric_limits<std::uint32_t>::max()) {
                throw input_error("pictures: an epoch must have each at least once, and at most 2^32 - 2 in all");
            }
            place_ends_.push_back(static_cast<std::uint32_t>(end));
        }
    }

    [[nodiscard]] const picture_index& index() const noexcept { return index_; }
    [[nodiscard]] const picture_options& options() const noexcept { return options_; }
    /// Pictures, each counted once.
    [[nodiscard]] std::uint32_t size() const noexcept { return index_.size(); }
    /// Samples of an epoch; a picture counts as often as it is repeated.
    [[nodiscard]] std::uint32_t epoch() const noexcept { return place_ends_.empty() ? size() : place_ends_.back(); }
    /// Empty where all pictures have one size.
    [[nodiscard]] const picture_buckets& buckets() const noexcept { return buckets_; }
    /// Height and width in which picture `i` is seen. Throws input_error naming a picture that is in no bucket.
    [[nodiscard]] extent size_of(std::uint32_t i) const {
        if (buckets_.sizes.empty()) { return {options_.height, options_.width}; }
        const std::uint32_t bucket = buckets_.of_picture.at(i);
        if (bucket == buckets_.sizes.size()) {
            throw input_error(index_.name(i) + ": its size could not be read when the pictures were opened");
        }
        return buckets_.sizes[bucket];
    }
    /// The order of steps of `step_samples` samples, each step from one bucket.
    [[nodiscard]] bucket_order order_of(std::uint64_t step_samples) const {
        std::vector<std::vector<std::uint32_t>> of_bucket(buckets_.sizes.size());
        for (std::uint32_t i = 0; i != size(); ++i) {
            if (buckets_.of_picture[i] == of_bucket.size()) { continue; }
            std::vector<std::uint32_t>& mine = of_bucket[buckets_.of_picture[i]];
            mine.insert(mine.end(), index_.entries[i].repeats, i);
        }
        return {std::move(of_bucket), step_samples, options_.seed, options_.shuffle};
    }
    /// Fixes that order. With buckets, call it before asking for any position, and not while other threads read.
    void set_step(std::uint64_t step_samples) { order_.emplace(order_of(step_samples)); }
    /// Null before set_step().
    [[nodiscard]] const bucket_order* order() const noexcept { return order_ ? &*order_ : nullptr; }
    /// Number of candidates for a position: its picture and the replacements.
    [[nodiscard]] std::uint32_t choices_at(std::uint64_t position) const {
        return order_ ? order_->choices_at(position) : epoch();
    }
    /// The picture at a global position, or `after` samples later in its epoch (data::index_at) or bucket.
    [[nodiscard]] std::uint32_t picture_at(std::uint64_t position, std::uint32_t after = 0) const {
        if (!buckets_.sizes.empty()) {
            if (!order_) { throw error("pictures: the samples of a step are not known yet"); }
            return order_->picture_at(position, after);
        }
        const std::uint32_t place = index_at(options_.seed, position, epoch(), options_.shuffle, after);
        if (place_ends_.empty()) { return place; }
        return static_cast<std::uint32_t>(std::upper_bound(place_ends_.begin(), place_ends_.end(), place) -
                                          place_ends_.begin());
    }

    /// The sample at a global position, below 2^63. Throws input_error naming the picture; with bad_picture::skip only
    /// when no picture can be read.
    [[nodiscard]] picture_sample at(std::uint64_t position) const {
        const sample_draw drawn = draw_at(options_.seed, position);
        std::vector<std::string> refused;
        for (std::uint32_t after = 0; after != choices_at(position); ++after) {
            const std::uint32_t i = picture_at(position, after);
            try {
                picture_sample result = read(i, drawn);
                result.refused = std::move(refused);
                return result;
            } catch (const input_error& fault) {
                if (options_.on_bad_picture == bad_picture::stop) { throw; }
                refused.emplace_back(fault.what());
            }
        }
        throw input_error("none of " + std::to_string(refused.size()) +
                          " pictures can be read; the first: " + refused.front());
    }

    /// Only the caption, class and index of the sample that at() gives; with bad_picture::stop nothing is decoded.
    /// Throws input_error naming the picture.
    [[nodiscard]] picture_sample caption_at(std::uint64_t position) const {
        if (options_.on_bad_picture == bad_picture::stop) {
            const std::uint32_t i = picture_at(position);
            return captioned({.label = index_.entries.at(i).label, .index = i}, index_.caption(i),
                             draw_at(options_.seed, position));
        }
        picture_sample seen = at(position); // only decoding tells which pictures are skipped
        return {.caption = std::move(seen.caption),
                .label = seen.label,
                .index = seen.index,
                .caption_dropped = seen.caption_dropped,
                .refused = std::move(seen.refused)};
    }

    /// Picture `i` of the folder without its caption, cropped and mirrored as drawn. Throws input_error naming it.
    [[nodiscard]] picture_sample picture(std::uint32_t i, const sample_draw& drawn) const {
        picture_sample result{.label = index_.entries.at(i).label, .index = i};
        const std::string name = index_.name(i);
        io::picture stored = decode_picture(index_.stored_bytes(i, options_.limits.most_file_bytes), name,
                                            options_.limits, &result.damaged);
        if (options_.channels == 1) { stored = detail::brightness(stored); }
        result.original_height = stored.height;
        result.original_width = stored.width;
        result.flipped = options_.horizontal_flip && drawn.flip;
        const resized_part part = part_of(i, {stored.height, stored.width}, drawn);
        result.crop_top = part.top;
        result.crop_left = part.left;
        result.pixels = detail::cropped(stored, part, result.flipped, -1.0F);
        return result;
    }

    /// An image that lies over picture `i` as the sample at a global position sees it: cropped and mirrored like that
    /// picture, whose upright stored size is `original`, in `scale` times its seen size, 0 black to 1 white. Throws
    /// input_error naming a picture that is too narrow.
    [[nodiscard]] std::vector<float> seen_over(std::uint32_t i, std::uint64_t position, const io::picture& image,
                                               const extent& original, int scale = 1) const {
        const sample_draw drawn = draw_at(options_.seed, position);
        return detail::cropped(image, part_of(i, original, drawn, scale), options_.horizontal_flip && drawn.flip, 0.0F);
    }

private:
    [[nodiscard]] resized_part part_of(std::uint32_t i, const extent& original, const sample_draw& drawn,
                                       int scale = 1) const {
        const extent seen = size_of(i);
        try {
            return detail::cover(original.height, original.width, seen, options_.random_crop, drawn, scale);
        } catch (const input_error& fault) { throw input_error(index_.name(i) + ": " + fault.what()); }
    }
    [[nodiscard]] picture_sample read(std::uint32_t i, const sample_draw& drawn) const {
        // Read even if it is dropped: chance must not decide whether a bad caption is an error.
        std::string caption = index_.caption(i);
        return captioned(picture(i, drawn), std::move(caption), drawn);
    }
    [[nodiscard]] picture_sample captioned(picture_sample of, std::string caption, const sample_draw& drawn) const {
        of.caption_dropped = drawn.caption < options_.caption_dropout;
        if (of.caption_dropped) { return of; }
        const std::optional<int>& kept = options_.shuffle_tags_behind;
        of.caption = kept ? shuffle_tags(caption, static_cast<std::size_t>(*kept), drawn.tags) : std::move(caption);
        return of;
    }

    picture_index index_;
    picture_options options_;
    picture_buckets buckets_;
    std::optional<bucket_order> order_{};
    std::vector<std::uint32_t> place_ends_{}; ///< end of each picture's places in an epoch; empty: none is repeated
};

} // namespace pulse::data
