#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/data/alpha.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/bucket_order.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/conditioning.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/folder_report.hpp>
#include <pulse/data/held_out.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/text.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>

namespace pulse::frozen {

PULSE_PICTURES_INLINE picture_source::picture_source(const pictures_options& o, const picture_view& view) :
    options_{o}, hint_{view.hint}, pictures_{read(o, view, headers_)} {
    const data::picture_index& index = pictures_.index();
    fingerprint sum;
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        std::string caption;
        try {
            caption = index.caption(i);
        } catch (const input_error&) {} // reported when a sample needs it
        fingerprint of_caption;
        of_caption.add(caption);
        if (has_hints()) { of_caption.add(mark_of_hint(index, i)); }
        captions_.push_back(of_caption.value());
        sum.add(index.entries[i].name).add(caption);
        if (index.entries[i].repeats != 1) { sum.add(index.entries[i].repeats); }
        if (has_hints()) { sum.add(captions_.back()); }
    }
    // What else determines the order of pictures, besides their number.
    for (const extent& size : pictures_.buckets().sizes) { sum.add(size.height).add(size.width); }
    for (const std::uint32_t bucket : pictures_.buckets().of_picture) { sum.add(bucket); }
    text_ = std::to_string(index.entries.size()) + " pictures (" + sum.text() + "), " +
            (o.random_crop ? "random" : "centre") + " crop, " + (o.horizontal_flip ? "flip, " : "") +
            "caption dropout " + exact_text(o.caption_dropout) +
            (o.shuffle_tags_behind ? ", tags shuffled behind " + std::to_string(*o.shuffle_tags_behind) : "") +
            (o.size == extent{} ? "" : ", " + pulse::detail::text_of(o.size) + " pixels") +
            (view.buckets.empty() ? "" : ", buckets of " + text_of(o.buckets)) +
            (o.captions.column.empty() ? "" : ", captions of the field '" + o.captions.column + '\'') +
            (o.masked_loss ? ", masked loss" : "");
}

PULSE_PICTURES_INLINE captioned_picture picture_source::at(std::uint64_t position) const {
    data::picture_sample sample = reading([&] { return pictures_.at(position); });
    if (sample.damaged) { note_damaged(sample.index); }
    return {.pixels = std::move(sample.pixels),
            .caption = std::move(sample.caption),
            .facts = {sample.original_height, sample.original_width, sample.crop_top, sample.crop_left, sample.label,
                      sample.caption_dropped, sample.index & 0x7FFFFFFFU},
            .name = pictures_.index().name(sample.index),
            .refused = std::move(sample.refused)};
}

PULSE_PICTURES_INLINE captioned_picture picture_source::caption_at(std::uint64_t position) const {
    data::picture_sample sample = reading([&] { return pictures_.caption_at(position); });
    return {.caption = std::move(sample.caption),
            .name = pictures_.index().name(sample.index),
            .refused = std::move(sample.refused)};
}

PULSE_PICTURES_INLINE std::vector<float> picture_source::hint(std::uint32_t i, std::uint64_t position) const {
    const extent original = reading([&] { return data::upright_size(pictures_.index(), i); });
    try {
        return data::conditioning_of(pictures_, i, position, original, hint_);
    } catch (const input_error& fault) { throw input_error{hint_word(options_) + ": " + fault.what()}; }
}

PULSE_PICTURES_INLINE std::vector<float> picture_source::mask(std::uint32_t i, std::uint64_t position, int side) const {
    const extent seen = pictures_.size_of(i);
    return reading([&] { return data::alpha_of(pictures_, i, position, {seen.height / side, seen.width / side}); });
}

PULSE_PICTURES_INLINE std::string picture_source::bucket_report(std::uint64_t step_samples) const {
    const data::picture_buckets& buckets = pictures_.buckets();
    if (buckets.sizes.empty()) { return {}; }
    const data::bucket_order order = pictures_.order_of(step_samples);
    std::vector<std::uint64_t> samples(buckets.sizes.size() + 1); // last entry: pictures in no bucket
    for (std::uint32_t i = 0; i != pictures_.size(); ++i) {
        samples[buckets.of_picture[i]] += pictures_.index().entries[i].repeats;
    }
    text_table table;
    table.row({"bucket", "pictures", "steps of an epoch", "seen again in the last"});
    std::uint64_t again = 0;
    for (std::size_t b = 0; b != buckets.sizes.size(); ++b) {
        const std::uint64_t rest = order.steps_of(b) * step_samples - samples[b];
        again += rest;
        table.row({pulse::detail::text_of(buckets.sizes[b]), grouped(static_cast<std::int64_t>(samples[b])),
                   std::to_string(order.steps_of(b)), grouped(static_cast<std::int64_t>(rest))});
    }
    return table.str(1) + "an epoch has " + std::to_string(order.steps()) + " steps, each of one bucket; " +
           grouped(static_cast<std::int64_t>(again)) + " samples fill the last steps of buckets";
}

PULSE_PICTURES_INLINE std::string picture_source::check() const {
    const data::pictures_check found = headers_ ? *headers_ : read_headers(pictures_.index(), has_hints());
    if (has_hints()) {
        try {
            data::check_conditioning(pictures_.index(), found.sizes);
        } catch (const input_error& fault) { throw input_error{hint_word(options_) + ": " + fault.what()}; }
    }
    if (found.bad.empty()) { return found.text(); }
    try {
        require_readable(options_, found);
    } catch (const input_error& fault) { throw input_error{options_.words.data + ": " + fault.what()}; }
    warn(count_of_bad(found) + " and are skipped; the first: " + found.bad.front().why);
    return found.text();
}

PULSE_PICTURES_INLINE void picture_source::say(const std::vector<std::string>& refused) const {
    const std::lock_guard lock{saying_};
    for (const std::string& why : refused) {
        if (said_.insert(why).second) { warn("skipped: " + why); }
    }
}

PULSE_PICTURES_INLINE void picture_source::note_damaged(std::uint32_t picture) const {
    const std::lock_guard lock{saying_};
    if (damaged_.empty()) {
        warn("damaged inside, read as far as it goes: " + pictures_.index().name(picture) +
             "; others are counted at the end");
    }
    damaged_.insert(picture);
}

PULSE_PICTURES_INLINE std::string picture_source::damaged() const {
    const std::lock_guard lock{saying_};
    if (damaged_.empty()) { return {}; }
    return "damaged: " + grouped(static_cast<std::int64_t>(damaged_.size())) +
           (damaged_.size() == 1 ? " picture was" : " pictures were") + " read with damage inside";
}

PULSE_PICTURES_INLINE std::string picture_source::listing() const {
    const data::picture_index& index = pictures_.index();
    std::string lines;
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        const data::picture_entry& entry = index.entries[i];
        const bool in_shard = index.layout == data::picture_layout::shards;
        char caption[18];
        std::snprintf(caption, sizeof caption, "%016" PRIx64 " ", captions_[i]);
        lines += caption + data::one_line((in_shard ? index.shards[entry.shard] + ": " : "") + entry.name) + '\n';
    }
    return lines;
}

PULSE_PICTURES_INLINE std::string picture_source::advice_for(const input_error& fault) const {
    return dynamic_cast<const data::caption_field_error*>(&fault) != nullptr ? column_advice(options_) : skip_advice();
}

PULSE_PICTURES_INLINE std::string picture_source::count_of_bad(const data::pictures_check& found) {
    return grouped(static_cast<std::int64_t>(found.bad.size())) + " of " + grouped(found.pictures) +
           " pictures cannot be read";
}

PULSE_PICTURES_INLINE void picture_source::require_readable(const pictures_options& o,
                                                            const data::pictures_check& found) {
    if (found.bad.empty()) { return; }
    const std::string fault = found.bad.front().why + "; ";
    if (found.bad.size() == found.pictures) {
        throw input_error{fault + "none of " + grouped(found.pictures) + " pictures can be read"};
    }
    if (o.on_bad_picture == data::bad_picture::stop) {
        throw input_error{fault + count_of_bad(found) + "; set " + o.words.skip_bad_pictures + " to skip them"};
    }
}

PULSE_PICTURES_INLINE std::uint64_t picture_source::mark_of_hint(const data::picture_index& index, std::uint32_t i) {
    fingerprint sum;
    try {
        const data::input_file file{index.conditioning_folder / index.entries[i].conditioning};
        sum.add(file.size()).add(file.text(0, std::min<std::uint64_t>(file.size(), 4096), file.size()));
    } catch (const input_error&) {} // reported when a sample needs it
    return sum.add(index.entries[i].conditioning).value();
}

PULSE_PICTURES_INLINE data::pictures_check picture_source::read_headers(const data::picture_index& index,
                                                                        bool upright) {
    return data::check_pictures(index, static_cast<int>(std::thread::hardware_concurrency()), {}, upright);
}

PULSE_PICTURES_INLINE const std::string& picture_source::hint_word(const pictures_options& o) {
    return o.conditioning.empty() ? o.words.data : o.words.conditioning;
}

PULSE_PICTURES_INLINE void picture_source::find_hints(const pictures_options& o, const picture_view& view,
                                                      data::picture_index& index) {
    const std::string& word = o.words.conditioning;
    if (view.hint == extent{}) {
        if (o.conditioning.empty()) { return; }
        throw input_error{view.model + " does not read conditioning images, which " + word + " names"};
    }
    try {
        o.conditioning.empty() ? data::require_conditioning(index) : data::take_conditioning(index, o.conditioning);
    } catch (const input_error& e) {
        if (word.empty()) { throw; }
        throw input_error{e.what() +
                          (o.conditioning.empty() ? "; set " + word + " to a folder of them" : " (" + word + ")")};
    }
}

PULSE_PICTURES_INLINE std::string picture_source::column_advice(const pictures_options& o) {
    return "; " + o.words.other_column + " selects another one";
}

PULSE_PICTURES_INLINE std::string picture_source::skip_advice() const {
    return " (set " + options_.words.skip_bad_pictures + " to skip what cannot be read)";
}

PULSE_PICTURES_INLINE void picture_source::warn(const std::string& line) const {
    if (options_.warn) { options_.warn(line); }
}

PULSE_PICTURES_INLINE data::captioned_pictures picture_source::read(const pictures_options& o, const picture_view& view,
                                                                    std::optional<data::pictures_check>& headers) {
    data::picture_index index = opened(o, view);
    data::picture_buckets buckets;
    if (!view.buckets.empty()) {
        headers = read_headers(index, true);
        require_readable(o, *headers); // bad pictures have no bucket
        buckets = data::sort_into_buckets(headers->sizes, view.buckets);
    }
    return {std::move(index),
            {.height = view.size.height,
             .width = view.size.width,
             .channels = view.channels,
             .seed = o.seed,
             .random_crop = o.random_crop,
             .horizontal_flip = o.horizontal_flip,
             .caption_dropout = o.caption_dropout,
             .shuffle_tags_behind = o.shuffle_tags_behind,
             .on_bad_picture = o.on_bad_picture},
            std::move(buckets)};
}

PULSE_PICTURES_INLINE std::string picture_source::text_of(const data::bucket_options& options) {
    const data::bucket_options o = data::with_sides(options);
    return pulse::detail::text_of(o.area) + " pixels by " + std::to_string(o.step) + ", " + std::to_string(o.least) +
           " to " + std::to_string(o.most) + " a side";
}

PULSE_PICTURES_INLINE data::picture_index picture_source::opened(const pictures_options& o, const picture_view& view) {
    data::caption_options captions = o.captions;
    if (view.classes != 0) { captions.folders = data::folder_names::labels; }
    captions.conditioning = view.hint != extent{} && o.conditioning.empty();
    data::picture_index index = [&] {
        try {
            return data::open_pictures(o.data, captions);
        } catch (const data::missing_caption_error& e) {
            throw input_error{std::string{e.what()} + "; set " + o.words.folder_captions +
                              " to use folder names as captions, or " + o.words.other_on_missing + " to do without"};
        } catch (const data::caption_field_error& e) { throw input_error{e.what() + column_advice(o)}; }
    }();
    if (o.held_out > 0) {
        try {
            data::keep_part(index, o.held_out, o.part);
        } catch (const input_error& e) {
            throw input_error{std::string{e.what()} + ": " + o.words.held_out + " is too large"};
        }
    } else if (o.part == data::picture_part::held_out) {
        data::see_each_once(index);
    }
    find_hints(o, view, index);
    const auto found = static_cast<int>(index.classes.size());
    const std::string folder = '\'' + o.data.string() + "' has ";
    if (view.classes != 0 && found == 0) {
        throw input_error{folder + "no class folders, but " + view.model + " reads classes"};
    }
    if (view.classes != 0 && found > view.classes) {
        throw input_error{folder + std::to_string(found) + " class folders, but " + view.model + " has only " +
                          std::to_string(view.classes) + " classes"};
    }
    return index;
}

} // namespace pulse::frozen
