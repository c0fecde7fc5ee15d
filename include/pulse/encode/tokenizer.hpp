#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse::encode {

/// A text as a text encoder takes it; ids and mask have the tokenizer's length.
struct encoded_text {
    std::vector<std::int32_t> ids{};
    std::vector<std::int32_t> mask{}; ///< 1 for the text's ids, begin and end, 0 for padding
    int cut = 0;                      ///< ids of the text that did not fit

    [[nodiscard]] bool operator==(const encoded_text&) const = default;
};

/// What surrounds the ids of a text.
struct token_frame {
    int length = 0;
    std::optional<std::int32_t> begin{};
    std::int32_t end = 0;
    std::int32_t pad = 0;
    bool end_once = false; ///< a text whose own last id is `end` gets no second one

    /// `ids` truncated to what fits, between begin and end, padded on the right.
    [[nodiscard]] encoded_text operator()(std::span<const std::int32_t> ids) const {
        const std::size_t marks = begin ? 2 : 1;
        const std::size_t whole = static_cast<std::size_t>(length);
        const std::size_t kept = std::min(ids.size(), whole - marks);
        encoded_text result{.cut = static_cast<int>(ids.size() - kept)};
        result.ids.reserve(whole);
        if (begin) { result.ids.push_back(*begin); }
        result.ids.insert(result.ids.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept));
        if (!end_once || kept == 0 || ids[kept - 1] != end) { result.ids.push_back(end); }
        result.mask.assign(result.ids.size(), 1);
        result.ids.resize(whole, pad);
        result.mask.resize(whole, 0);
        return result;
    }
};

/// Turns text into ids of fixed length. Made by read_tokenizer; safe to call from several threads.
class tokenizer {
public:
    virtual ~tokenizer() = default;
    tokenizer(const tokenizer&) = delete;
    tokenizer& operator=(const tokenizer&) = delete;

    /// Throws input_error, which begins with `what`, when the text is not UTF-8.
    [[nodiscard]] encoded_text operator()(std::string_view text, std::string_view what = "the text") const {
        return frame_(pieces(text, what));
    }
    [[nodiscard]] int length() const noexcept { return frame_.length; }
    /// What surrounds the ids of a text.
    [[nodiscard]] const token_frame& frame() const noexcept { return frame_; }
    /// One more than the greatest id: the number of rows that the encoder's embedding table needs.
    [[nodiscard]] std::int32_t vocabulary_size() const noexcept { return vocabulary_size_; }

protected:
    tokenizer(token_frame frame, std::int32_t vocabulary_size) : frame_{frame}, vocabulary_size_{vocabulary_size} {
        if (frame_.length < 3) {
            throw input_error("a tokenizer's length of " + std::to_string(frame_.length) +
                              " leaves no room between begin and end");
        }
    }

private:
    /// Ids of the text, without begin, end and padding.
    [[nodiscard]] virtual std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const = 0;

    token_frame frame_;
    std::int32_t vocabulary_size_;
};

} // namespace pulse::encode
