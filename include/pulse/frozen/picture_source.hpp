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
#include <pulse/frozen/sample_row.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>

namespace pulse::frozen {

/// A picture with its caption, as a sample of training.
struct captioned_picture {
    std::vector<float> pixels{}; ///< height x width x channels, -1 black to 1 white
    std::string caption{};       ///< empty when dropped
    picture_facts facts{};
    std::string name{};
    std::vector<std::string> refused{}; ///< pictures that should have stood here: name and what is wrong, one each
};

/// How a model sees pictures.
struct picture_view {
    extent size{};
    std::vector<extent> buckets{}; ///< instead of the size, where there are any
    int channels{};
    int classes{}; ///< that it knows; 0: it reads captions instead
    std::string model{};
    extent hint{}; ///< of the hint that it reads of each; none: it reads none
};

/// The captioned pictures of a folder, cropped to one size or to those of buckets, by the global position of samples;
/// any thread may ask for any.
class picture_source {
public:
    /// Throws input_error naming the file or the folder.
    picture_source(const pictures_options& o, const picture_view& view) :
        options_{o}, hint_{view.hint}, pictures_{read(o, view, headers_)} {
        const data::picture_index& index = pictures_.index();
        fingerprint sum;
        for (std::uint32_t i = 0; i != index.size(); ++i) {
            std::string caption;
            try {
                caption = index.caption(i);
            } catch (const input_error&) {} // it is said where a sample needs it
            fingerprint of_caption;
            of_caption.add(caption);
            if (has_hints()) { of_caption.add(mark_of_hint(index, i)); }
            captions_.push_back(of_caption.value());
            sum.add(index.entries[i].name).add(caption);
            if (index.entries[i].repeats != 1) { sum.add(index.entries[i].repeats); }
            if (has_hints()) { sum.add(captions_.back()); }
        }
        // What decides the order of pictures, beside their number.
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
    picture_source(const picture_source&) = delete;
    picture_source& operator=(const picture_source&) = delete;

    [[nodiscard]] const pictures_options& options() const noexcept { return options_; }
    [[nodiscard]] const data::captioned_pictures& pictures() const noexcept { return pictures_; }

    /// Fixes the order of pictures in steps of so many samples, where there are buckets (captioned_pictures::set_step).
    void set_step(std::uint64_t step_samples) { pictures_.set_step(step_samples); }

    /// Throws input_error naming the picture that cannot be read where those are not skipped.
    [[nodiscard]] captioned_picture at(std::uint64_t position) const {
        data::picture_sample sample = reading([&] { return pictures_.at(position); });
        if (sample.damaged) { note_damaged(sample.index); }
        return {.pixels = std::move(sample.pixels),
                .caption = std::move(sample.caption),
                .facts = {sample.original_height, sample.original_width, sample.crop_top, sample.crop_left,
                          sample.label, sample.caption_dropped, sample.index & 0x7FFFFFFFU},
                .name = pictures_.index().name(sample.index),
                .refused = std::move(sample.refused)};
    }
    /// The same without pixels and facts, for which no picture is decoded where bad ones are not skipped.
    [[nodiscard]] captioned_picture caption_at(std::uint64_t position) const {
        data::picture_sample sample = reading([&] { return pictures_.caption_at(position); });
        return {.caption = std::move(sample.caption),
                .name = pictures_.index().name(sample.index),
                .refused = std::move(sample.refused)};
    }

    [[nodiscard]] bool has_hints() const noexcept { return hint_ != extent{}; }
    /// The hint of picture `i`, where the model reads one, as the sample at a global position sees it. Throws
    /// input_error naming it.
    [[nodiscard]] std::vector<float> hint(std::uint32_t i, std::uint64_t position) const {
        const extent original = reading([&] { return data::upright_size(pictures_.index(), i); });
        try {
            return data::conditioning_of(pictures_, i, position, original, hint_);
        } catch (const input_error& fault) { throw input_error{hint_word(options_) + ": " + fault.what()}; }
    }
    /// What errors of picture `i` count for, as the sample at a global position sees it: in squares of so many pixels
    /// a side (data::alpha_of). Throws input_error naming it.
    [[nodiscard]] std::vector<float> mask(std::uint32_t i, std::uint64_t position, int side) const {
        const extent seen = pictures_.size_of(i);
        return reading([&] { return data::alpha_of(pictures_, i, position, {seen.height / side, seen.width / side}); });
    }

    /// What is read of the folder, and what is left out, in a line each.
    [[nodiscard]] std::vector<std::string> report() const { return data::folder_report(pictures_); }
    /// How many pictures each bucket has, and what an epoch of steps of so many samples is; nothing without buckets.
    [[nodiscard]] std::string bucket_report(std::uint64_t step_samples) const {
        const data::picture_buckets& buckets = pictures_.buckets();
        if (buckets.sizes.empty()) { return {}; }
        const data::bucket_order order = pictures_.order_of(step_samples);
        std::vector<std::uint64_t> samples(buckets.sizes.size() + 1); // behind the last: those that are in none
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
    /// What the pictures are, by the headers of all. Throws input_error naming the first bad one unless those are
    /// skipped, of which it warns.
    [[nodiscard]] std::string check() const {
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
    /// Warns of the pictures that were left out of a sample, of each once in this process.
    void say(const std::vector<std::string>& refused) const {
        const std::lock_guard lock{saying_};
        for (const std::string& why : refused) {
            if (said_.insert(why).second) { warn("skipped: " + why); }
        }
    }
    /// Counts a picture with damage inside, and warns of the first.
    void note_damaged(std::uint32_t picture) const {
        const std::lock_guard lock{saying_};
        if (damaged_.empty()) {
            warn("damaged inside, read as far as it goes: " + pictures_.index().name(picture) +
                 "; others are counted at the end");
        }
        damaged_.insert(picture);
    }
    /// How many pictures with damage inside this process has read, in words; empty where there are none.
    [[nodiscard]] std::string damaged() const {
        const std::lock_guard lock{saying_};
        if (damaged_.empty()) { return {}; }
        return "damaged: " + grouped(static_cast<std::int64_t>(damaged_.size())) +
               (damaged_.size() == 1 ? " picture was" : " pictures were") + " read with damage inside";
    }
    /// How many there are, a checksum of their names and captions, and what is done with them: no other run sees the
    /// same samples unless it is the same.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    /// What the checksum is of: a line for each picture, with a fingerprint of its caption and its name.
    [[nodiscard]] std::string listing() const {
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

    /// `act()`, whose faults are those of the folder.
    template <class Act>
    std::invoke_result_t<const Act&> reading(const Act& act) const {
        try {
            return act();
        } catch (const input_error& fault) {
            const bool stops = options_.on_bad_picture == data::bad_picture::stop;
            throw input_error{options_.words.data + ": " + fault.what() + (stops ? skip_advice() : std::string{})};
        }
    }
    /// What may be done about a picture or, where a caption lacks its field, about `fault`.
    [[nodiscard]] std::string advice_for(const input_error& fault) const {
        return dynamic_cast<const data::caption_field_error*>(&fault) != nullptr ? column_advice(options_)
                                                                                 : skip_advice();
    }

private:
    [[nodiscard]] static std::string count_of_bad(const data::pictures_check& found) {
        return grouped(static_cast<std::int64_t>(found.bad.size())) + " of " + grouped(found.pictures) +
               " pictures cannot be read";
    }
    static void require_readable(const pictures_options& o, const data::pictures_check& found) {
        if (found.bad.empty()) { return; }
        const std::string fault = found.bad.front().why + "; ";
        if (found.bad.size() == found.pictures) { throw input_error{fault + "all " + count_of_bad(found)}; }
        if (o.on_bad_picture == data::bad_picture::stop) {
            throw input_error{fault + count_of_bad(found) + ": " + o.words.skip_bad_pictures + " leaves such out"};
        }
    }
    /// Tells the hint of a picture from others of its name: its size, and how it begins.
    [[nodiscard]] static std::uint64_t mark_of_hint(const data::picture_index& index, std::uint32_t i) {
        fingerprint sum;
        try {
            const data::input_file file{index.conditioning_folder / index.entries[i].conditioning};
            sum.add(file.size()).add(file.text(0, std::min<std::uint64_t>(file.size(), 4096), file.size()));
        } catch (const input_error&) {} // it is said where a sample needs it
        return sum.add(index.entries[i].conditioning).value();
    }
    [[nodiscard]] static data::pictures_check read_headers(const data::picture_index& index, bool upright) {
        return data::check_pictures(index, static_cast<int>(std::thread::hardware_concurrency()), {}, upright);
    }
    /// Who says where hints are.
    [[nodiscard]] static const std::string& hint_word(const pictures_options& o) {
        return o.conditioning.empty() ? o.words.data : o.words.conditioning;
    }
    /// Hints are for the pictures of an index; `model` reads them, or not.
    static void find_hints(const pictures_options& o, const picture_view& view, data::picture_index& index) {
        const std::string& word = o.words.conditioning;
        if (view.hint == extent{}) {
            if (o.conditioning.empty()) { return; }
            throw input_error{view.model + " reads no conditioning images, which " + word + " is for"};
        }
        try {
            o.conditioning.empty() ? data::require_conditioning(index) : data::take_conditioning(index, o.conditioning);
        } catch (const input_error& e) {
            if (word.empty()) { throw; }
            throw input_error{e.what() + (o.conditioning.empty() ? "; " + word + " names one" : " (" + word + ")")};
        }
    }
    [[nodiscard]] static std::string column_advice(const pictures_options& o) {
        return "; " + o.words.other_column + " is another one";
    }
    [[nodiscard]] std::string skip_advice() const {
        return " (" + options_.words.skip_bad_pictures + " leaves out what cannot be read)";
    }
    void warn(const std::string& line) const {
        if (options_.warn) { options_.warn(line); }
    }

    /// The folder's pictures; in buckets by what `headers` say, which are read then.
    [[nodiscard]] static data::captioned_pictures read(const pictures_options& o, const picture_view& view,
                                                       std::optional<data::pictures_check>& headers) {
        data::picture_index index = opened(o, view);
        data::picture_buckets buckets;
        if (!view.buckets.empty()) {
            headers = read_headers(index, true);
            require_readable(o, *headers); // others have no bucket
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
    [[nodiscard]] static std::string text_of(const data::bucket_options& options) {
        const data::bucket_options o = data::with_sides(options);
        return pulse::detail::text_of(o.area) + " pixels by " + std::to_string(o.step) + ", " +
               std::to_string(o.least) + " to " + std::to_string(o.most) + " a side";
    }
    [[nodiscard]] static data::picture_index opened(const pictures_options& o, const picture_view& view) {
        data::caption_options captions = o.captions;
        if (view.classes != 0) { captions.folders = data::folder_names::labels; }
        captions.conditioning = view.hint != extent{} && o.conditioning.empty();
        data::picture_index index = [&] {
            try {
                return data::open_pictures(o.data, captions);
            } catch (const data::missing_caption_error& e) {
                throw input_error{std::string{e.what()} + "; " + o.words.folder_captions +
                                  " takes names of folders as captions, " + o.words.other_on_missing +
                                  " goes on without"};
            } catch (const data::caption_field_error& e) { throw input_error{e.what() + column_advice(o)}; }
        }();
        if (o.held_out > 0) {
            try {
                data::keep_part(index, o.held_out, o.part);
            } catch (const input_error& e) {
                throw input_error{std::string{e.what()} + ": " + o.words.held_out + " is too great"};
            }
        } else if (o.part == data::picture_part::held_out) {
            data::see_each_once(index);
        }
        find_hints(o, view, index);
        const auto found = static_cast<int>(index.classes.size());
        const std::string folder = '\'' + o.data.string() + "' has ";
        if (view.classes != 0 && found == 0) {
            throw input_error{folder + "no folders of classes, which " + view.model + " reads"};
        }
        if (view.classes != 0 && found > view.classes) {
            throw input_error{folder + std::to_string(found) + " folders of classes, " + view.model + " knows " +
                              std::to_string(view.classes)};
        }
        return index;
    }

    pictures_options options_;
    extent hint_;
    std::optional<data::pictures_check> headers_{}; ///< where buckets have asked for them
    data::captioned_pictures pictures_;
    std::vector<std::uint64_t> captions_{}; ///< fingerprints, with those of hints
    std::string text_{};
    mutable std::mutex saying_{};
    mutable std::set<std::string> said_{}; ///< of pictures that are left out
    mutable std::set<std::uint32_t> damaged_{};
};

} // namespace pulse::frozen
