#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/folder_report.hpp>
#include <pulse/data/picture_index.hpp>
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
    picture_source(const pictures_options& o, const picture_view& view);
    picture_source(const picture_source&) = delete;
    picture_source& operator=(const picture_source&) = delete;

    [[nodiscard]] const pictures_options& options() const noexcept { return options_; }
    [[nodiscard]] const data::captioned_pictures& pictures() const noexcept { return pictures_; }

    /// Fixes the order of pictures in steps of so many samples, where there are buckets (captioned_pictures::set_step).
    void set_step(std::uint64_t step_samples) { pictures_.set_step(step_samples); }

    /// Throws input_error naming the picture that cannot be read where those are not skipped.
    [[nodiscard]] captioned_picture at(std::uint64_t position) const;
    /// The same without pixels and facts, for which no picture is decoded where bad ones are not skipped.
    [[nodiscard]] captioned_picture caption_at(std::uint64_t position) const;

    [[nodiscard]] bool has_hints() const noexcept { return hint_ != extent{}; }
    /// The hint of picture `i`, where the model reads one, as the sample at a global position sees it. Throws
    /// input_error naming it.
    [[nodiscard]] std::vector<float> hint(std::uint32_t i, std::uint64_t position) const;
    /// What errors of picture `i` count for, as the sample at a global position sees it: in squares of so many pixels
    /// a side (data::alpha_of). Throws input_error naming it.
    [[nodiscard]] std::vector<float> mask(std::uint32_t i, std::uint64_t position, int side) const;

    /// What is read of the folder, and what is left out, in a line each.
    [[nodiscard]] std::vector<std::string> report() const { return data::folder_report(pictures_); }
    /// How many pictures each bucket has, and what an epoch of steps of so many samples is; nothing without buckets.
    [[nodiscard]] std::string bucket_report(std::uint64_t step_samples) const;
    /// What the pictures are, by the headers of all. Throws input_error naming the first bad one unless those are
    /// skipped, of which it warns.
    [[nodiscard]] std::string check() const;
    /// Warns of the pictures that were left out of a sample, of each once in this process.
    void say(const std::vector<std::string>& refused) const;
    /// Counts a picture with damage inside, and warns of the first.
    void note_damaged(std::uint32_t picture) const;
    /// How many pictures with damage inside this process has read, in words; empty where there are none.
    [[nodiscard]] std::string damaged() const;
    /// How many there are, a checksum of their names and captions, and what is done with them: no other run sees the
    /// same samples unless it is the same.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    /// What the checksum is of: a line for each picture, with a fingerprint of its caption and its name.
    [[nodiscard]] std::string listing() const;

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
    [[nodiscard]] std::string advice_for(const input_error& fault) const;

private:
    [[nodiscard]] static std::string count_of_bad(const data::pictures_check& found);
    static void require_readable(const pictures_options& o, const data::pictures_check& found);
    /// Tells the hint of a picture from others of its name: its size, and how it begins.
    [[nodiscard]] static std::uint64_t mark_of_hint(const data::picture_index& index, std::uint32_t i);
    [[nodiscard]] static data::pictures_check read_headers(const data::picture_index& index, bool upright);
    /// Who says where hints are.
    [[nodiscard]] static const std::string& hint_word(const pictures_options& o);
    /// Hints are for the pictures of an index; `model` reads them, or not.
    static void find_hints(const pictures_options& o, const picture_view& view, data::picture_index& index);
    [[nodiscard]] static std::string column_advice(const pictures_options& o);
    [[nodiscard]] std::string skip_advice() const;
    void warn(const std::string& line) const;

    /// The folder's pictures; in buckets by what `headers` say, which are read then.
    [[nodiscard]] static data::captioned_pictures read(const pictures_options& o, const picture_view& view,
                                                       std::optional<data::pictures_check>& headers);
    [[nodiscard]] static std::string text_of(const data::bucket_options& options);
    [[nodiscard]] static data::picture_index opened(const pictures_options& o, const picture_view& view);

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

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/frozen/picture_source.ipp> // IWYU pragma: keep
#endif
