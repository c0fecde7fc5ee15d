#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>

#include "arguments.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// What text encoders take of a text.
struct text_ids {
    std::vector<std::int32_t> ids{};
    std::vector<std::int32_t> mask{}; ///< 0 for padding
    int cut{};                        ///< ids of the text that did not fit
};

/// The tokenizer of a diffusers folder; any thread may ask it.
class caption_ids {
public:
    /// `tokens`: ids of a text; `vocabulary`: how many there may be. Throws input_error naming the file, or when this
    /// build has no tokenizers.
    caption_ids(const std::filesystem::path& folder, int tokens, int vocabulary);
    ~caption_ids();
    caption_ids(const caption_ids&) = delete;
    caption_ids& operator=(const caption_ids&) = delete;

    /// Throws input_error, which begins with `what`, when the text is no UTF-8.
    [[nodiscard]] text_ids operator()(std::string_view text, std::string_view what) const;

private:
    struct parts;
    std::unique_ptr<parts> parts_;
};

/// How long captions are to a tokenizer, with the begin and the end of each.
struct caption_lengths {
    double mean{};
    std::uint64_t longest{};
    std::uint64_t cut{};    ///< captions of which a part does not fit
    std::uint64_t unread{}; ///< captions that cannot be read and are skipped
};

/// A picture with its caption, as a sample of training.
struct captioned_picture {
    std::vector<float> pixels{}; ///< size x size x channels, -1 black to 1 white
    std::string caption{};       ///< empty when dropped
    picture_facts facts{};
    std::string name{};
    std::vector<std::string> refused{}; ///< pictures that should have stood here: name and what is wrong, one each
};

/// The captioned pictures of --data, square, by the global position of samples; any thread may ask for any.
class picture_source {
public:
    /// `by_class`: folders are classes, and captions are not looked for. Throws input_error naming the file, or when
    /// this build reads no pictures.
    picture_source(const arguments& a, int size, int channels, bool by_class);
    ~picture_source();
    picture_source(const picture_source&) = delete;
    picture_source& operator=(const picture_source&) = delete;

    /// Throws input_error naming the picture that cannot be read where those are not skipped.
    [[nodiscard]] captioned_picture at(std::uint64_t position) const;
    /// The same without pixels and facts, for which no picture is decoded where bad ones are not skipped.
    [[nodiscard]] captioned_picture caption_at(std::uint64_t position) const;
    /// Says what is read of --data, and what is left out, in a line each.
    void say_what_is_read() const;
    /// Of all pictures, by threads. Throws input_error naming a caption that cannot be read where bad ones are not
    /// skipped.
    [[nodiscard]] caption_lengths lengths(const caption_ids& tokenizer) const;
    /// Names the pictures that were left out of a sample, each once in this process.
    void say(const std::vector<std::string>& refused) const;
    /// Looks at the headers of all pictures, before they cost a run, and says what they are. Throws input_error naming
    /// the first bad one unless those are skipped.
    void check() const;
    /// Says how many pictures with damage inside this process has read, if any.
    void say_damaged() const;
    /// How many there are, a checksum of their names and captions, and what is done with them: no other run sees the
    /// same samples unless it is the same.
    [[nodiscard]] const std::string& text() const noexcept;
    /// What the checksum is of: a line for each picture, with a fingerprint of its caption and its name.
    [[nodiscard]] std::string listing() const;
    /// Folders of classes; 0: pictures are in none.
    [[nodiscard]] int classes() const noexcept;

private:
    friend class picture_cache;
    struct parts;
    /// Counts a picture with damage inside, and names the first.
    void note_damaged(std::uint32_t picture) const;
    std::unique_ptr<parts> parts_;
};

/// What a build without pulse::data and pulse::encode does instead.
[[noreturn]] inline void refuse_pictures() {
    throw pulse::input_error{"this build reads no captioned pictures: pulse::data and pulse::encode are left out"};
}

/// Throws input_error unless there are folders of classes, no more of them than the model knows.
void require_classes(const arguments& a, int found, int known);

} // namespace pulse_train
