#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/folder_report.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/text.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/model/extent.hpp>

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
    int channels{};
    int classes{}; ///< that it knows; 0: it reads captions instead
    std::string model{};
};

/// The captioned pictures of a folder, cropped to one size, by the global position of samples; any thread may ask for
/// any.
class picture_source {
public:
    /// Throws input_error naming the file or the folder.
    picture_source(const pictures_options& o, const picture_view& view) :
        options_{o}, pictures_{opened(o, view),
                               {.height = view.size.height,
                                .width = view.size.width,
                                .channels = view.channels,
                                .seed = o.seed,
                                .random_crop = o.random_crop,
                                .horizontal_flip = o.horizontal_flip,
                                .caption_dropout = o.caption_dropout,
                                .on_bad_picture = o.on_bad_picture}} {
        const data::picture_index& index = pictures_.index();
        fingerprint sum;
        for (std::uint32_t i = 0; i != index.size(); ++i) {
            std::string caption;
            try {
                caption = index.caption(i);
            } catch (const input_error&) {} // it is said where a sample needs it
            captions_.push_back(fingerprint{}.add(caption).value());
            sum.add(index.entries[i].name).add(caption);
            if (index.entries[i].repeats != 1) { sum.add(index.entries[i].repeats); }
        }
        text_ = std::to_string(index.entries.size()) + " pictures (" + sum.text() + "), " +
                (o.random_crop ? "random" : "centre") + " crop, " + (o.horizontal_flip ? "flip, " : "") +
                "caption dropout " + exact_text(o.caption_dropout) +
                (o.size == extent{}
                     ? ""
                     : ", " + std::to_string(o.size.height) + " x " + std::to_string(o.size.width) + " pixels") +
                (o.captions.column.empty() ? "" : ", captions of the field '" + o.captions.column + '\'');
    }
    picture_source(const picture_source&) = delete;
    picture_source& operator=(const picture_source&) = delete;

    [[nodiscard]] const pictures_options& options() const noexcept { return options_; }
    [[nodiscard]] const data::captioned_pictures& pictures() const noexcept { return pictures_; }

    /// Throws input_error naming the picture that cannot be read where those are not skipped.
    [[nodiscard]] captioned_picture at(std::uint64_t position) const {
        data::picture_sample sample = reading([&] { return pictures_.at(position); });
        if (sample.damaged) { note_damaged(sample.index); }
        return {.pixels = std::move(sample.pixels),
                .caption = std::move(sample.caption),
                .facts = {sample.original_height, sample.original_width, sample.crop_top, sample.crop_left,
                          sample.label, sample.caption_dropped},
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

    /// What is read of the folder, and what is left out, in a line each.
    [[nodiscard]] std::vector<std::string> report() const { return data::folder_report(pictures_); }
    /// What the pictures are, by the headers of all. Throws input_error naming the first bad one unless those are
    /// skipped, of which it warns.
    [[nodiscard]] std::string check() const {
        const data::pictures_check found = data::check_pictures(pictures_.index());
        if (found.bad.empty()) { return found.text(); }
        const std::string& first = found.bad.front().why;
        const std::string count = grouped(static_cast<std::int64_t>(found.bad.size())) + " of " +
                                  grouped(found.pictures) + " pictures cannot be read";
        const std::string fault = options_.words.data + ": " + first + "; ";
        if (found.bad.size() == found.pictures) { throw input_error{fault + "all " + count}; }
        if (options_.on_bad_picture == data::bad_picture::stop) {
            throw input_error{fault + count + ": " + options_.words.skip_bad_pictures + " leaves such out"};
        }
        warn(count + " and are skipped; the first: " + first);
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
            throw input_error{options_.words.data + ": " + fault.what() + (stops ? skip_hint() : std::string{})};
        }
    }
    /// What may be done about a picture or, where a caption lacks its field, about `fault`.
    [[nodiscard]] std::string hint_for(const input_error& fault) const {
        return dynamic_cast<const data::caption_field_error*>(&fault) != nullptr ? column_hint(options_) : skip_hint();
    }

private:
    [[nodiscard]] static std::string column_hint(const pictures_options& o) {
        return "; " + o.words.other_column + " is another one";
    }
    [[nodiscard]] std::string skip_hint() const {
        return " (" + options_.words.skip_bad_pictures + " leaves out what cannot be read)";
    }
    void warn(const std::string& line) const {
        if (options_.warn) { options_.warn(line); }
    }

    [[nodiscard]] static data::picture_index opened(const pictures_options& o, const picture_view& view) {
        data::caption_options captions = o.captions;
        if (view.classes != 0) { captions.folders = data::folder_names::labels; }
        data::picture_index index = [&] {
            try {
                return data::open_pictures(o.data, captions);
            } catch (const data::missing_caption_error& e) {
                throw input_error{std::string{e.what()} + "; " + o.words.folder_captions +
                                  " takes names of folders as captions, " + o.words.other_on_missing +
                                  " goes on without"};
            } catch (const data::caption_field_error& e) { throw input_error{e.what() + column_hint(o)}; }
        }();
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
    data::captioned_pictures pictures_;
    std::vector<std::uint64_t> captions_{}; ///< fingerprints
    std::string text_{};
    mutable std::mutex saying_{};
    mutable std::set<std::string> said_{}; ///< of pictures that are left out
    mutable std::set<std::uint32_t> damaged_{};
};

} // namespace pulse::frozen
