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

/// A picture with its caption, as a training sample.
struct captioned_picture {
    std::vector<float> pixels{}; ///< height x width x channels, -1 black to 1 white
    std::string caption{};       ///< empty when dropped
    picture_facts facts{};
    std::string name{};
    std::vector<std::string> refused{}; ///< pictures skipped at this position: name and reason of each
};

/// How a model sees pictures.
struct picture_view {
    extent size{};
    std::vector<extent> buckets{}; ///< instead of the size, if not empty
    int channels{};
    int classes{}; ///< number of known classes; 0: the model reads captions instead
    std::string model{};
    extent hint{}; ///< of the hint that it reads with each picture; none: no hints
};

/// Captioned pictures of a folder, cropped to one size or to bucket sizes, by the global position of samples. Any
/// thread may read any position.
class picture_source {
public:
    /// Throws input_error naming the file or the folder.
    picture_source(const pictures_options& o, const picture_view& view);
    picture_source(const picture_source&) = delete;
    picture_source& operator=(const picture_source&) = delete;

    [[nodiscard]] const pictures_options& options() const noexcept { return options_; }
    [[nodiscard]] const data::captioned_pictures& pictures() const noexcept { return pictures_; }

    /// Fixes the order of pictures for steps of `step_samples`, if there are buckets (captioned_pictures::set_step).
    void set_step(std::uint64_t step_samples) { pictures_.set_step(step_samples); }

    /// The sample at a position. Throws input_error naming a picture that cannot be read, unless those are skipped.
    [[nodiscard]] captioned_picture at(std::uint64_t position) const;
    /// The same without pixels and facts; decodes no picture unless bad ones are skipped.
    [[nodiscard]] captioned_picture caption_at(std::uint64_t position) const;

    [[nodiscard]] bool has_hints() const noexcept { return hint_ != extent{}; }
    /// Hint of picture `i` as the sample at a global position sees it, where the model reads hints. Throws input_error
    /// naming it.
    [[nodiscard]] std::vector<float> hint(std::uint32_t i, std::uint64_t position) const;
    /// Loss mask of picture `i` as the sample at a global position sees it: one weight per square of `side` pixels a
    /// side (data::alpha_of). Throws input_error naming it.
    [[nodiscard]] std::vector<float> mask(std::uint32_t i, std::uint64_t position, int side) const;

    /// What is read of the folder and what is left out, one line each.
    [[nodiscard]] std::vector<std::string> report() const { return data::folder_report(pictures_); }
    /// Pictures in each bucket, and the length of an epoch in steps of `step_samples`; empty without buckets.
    [[nodiscard]] std::string bucket_report(std::uint64_t step_samples) const;
    /// Summary of all pictures from their headers. Throws input_error naming the first bad one, or warns of it where
    /// those are skipped.
    [[nodiscard]] std::string check() const;
    /// Warns of the pictures that a sample skipped, once per process for each.
    void say(const std::vector<std::string>& refused) const;
    /// Counts a picture with damage inside; warns of the first one.
    void note_damaged(std::uint32_t picture) const;
    /// Number of pictures with damage inside that this process has read, as text; empty if none.
    [[nodiscard]] std::string damaged() const;
    /// Number of pictures, a checksum of names and captions, and how they are processed. Runs whose texts differ see
    /// different samples.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    /// The input of the checksum: a line per picture, with a fingerprint of its caption and its name.
    [[nodiscard]] std::string listing() const;

    /// Runs act() and attributes its errors to the folder.
    template <class Act>
    std::invoke_result_t<const Act&> reading(const Act& act) const {
        try {
            return act();
        } catch (const input_error& fault) {
            const bool stops = options_.on_bad_picture == data::bad_picture::stop;
            throw input_error{options_.words.data + ": " + fault.what() + (stops ? skip_advice() : std::string{})};
        }
    }
    /// Advice on a bad picture or, if `fault` is a missing caption field, on that.
    [[nodiscard]] std::string advice_for(const input_error& fault) const;

private:
    [[nodiscard]] static std::string count_of_bad(const data::pictures_check& found);
    static void require_readable(const pictures_options& o, const data::pictures_check& found);
    /// Fingerprint that tells a picture's hint from others of the same name: by its size and first bytes.
    [[nodiscard]] static std::uint64_t mark_of_hint(const data::picture_index& index, std::uint32_t i);
    [[nodiscard]] static data::pictures_check read_headers(const data::picture_index& index, bool upright);
    /// The option that says where hints are.
    [[nodiscard]] static const std::string& hint_word(const pictures_options& o);
    /// Finds the hints of an index's pictures, if the model reads hints.
    static void find_hints(const pictures_options& o, const picture_view& view, data::picture_index& index);
    [[nodiscard]] static std::string column_advice(const pictures_options& o);
    [[nodiscard]] std::string skip_advice() const;
    void warn(const std::string& line) const;

    /// The folder's pictures; with buckets, sorted by their sizes in `headers`, which is filled then.
    [[nodiscard]] static data::captioned_pictures read(const pictures_options& o, const picture_view& view,
                                                       std::optional<data::pictures_check>& headers);
    [[nodiscard]] static std::string text_of(const data::bucket_options& options);
    [[nodiscard]] static data::picture_index opened(const pictures_options& o, const picture_view& view);

    pictures_options options_;
    extent hint_;
    std::optional<data::pictures_check> headers_{}; ///< if buckets needed them
    data::captioned_pictures pictures_;
    std::vector<std::uint64_t> captions_{}; ///< fingerprints, hints included
    std::string text_{};
    mutable std::mutex saying_{};
    mutable std::set<std::string> said_{}; ///< skipped pictures already reported
    mutable std::set<std::uint32_t> damaged_{};
};

} // namespace pulse::frozen

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/frozen/picture_source.ipp> // IWYU pragma: keep
#endif
