#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"

namespace pulse_train {

/// What text encoders take of a text.
struct text_ids {
    std::vector<std::int32_t> ids{};
    bool cut{}; ///< the text was longer
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

/// A picture with its caption, as a sample of training.
struct captioned_picture {
    std::vector<float> pixels{}; ///< size x size x 3, -1 black to 1 white
    std::string caption{};       ///< empty when dropped
    std::string name{};
    std::vector<std::string> refused{}; ///< pictures that should have stood here: name and what is wrong, one each
};

/// The captioned pictures of --data, square, by the global position of samples; any thread may ask for any.
class picture_source {
public:
    /// Throws input_error naming the file, or when this build reads no pictures.
    picture_source(const arguments& a, int size);
    ~picture_source();
    picture_source(const picture_source&) = delete;
    picture_source& operator=(const picture_source&) = delete;

    /// Throws input_error naming the picture that cannot be read where those are not skipped.
    [[nodiscard]] captioned_picture at(std::uint64_t position) const;
    /// How many there are, a checksum of their names and captions, and what is done with them: no other run sees the
    /// same samples unless it is the same.
    [[nodiscard]] const std::string& text() const noexcept;

private:
    struct parts;
    std::unique_ptr<parts> parts_;
};

} // namespace pulse_train
