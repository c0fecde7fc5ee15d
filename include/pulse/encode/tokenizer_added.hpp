#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::encode {

/// The id of `token`, by `id_of` (content -> optional id) or its own. Throws input_error for two that differ or none.
template <class IdOf>
[[nodiscard]] std::int32_t id_of_added(const added_token& token, const IdOf& id_of, std::string_view vocabulary) {
    const std::optional<std::int32_t> known = id_of(token.content);
    const std::string called = token.place + ": the token '" + io::printable(token.content) + '\'';
    if (known && token.id && *known != *token.id) {
        throw input_error(called + " has the id " + std::to_string(*token.id) + ", but " + std::to_string(*known) +
                          " in " + std::string{vocabulary});
    }
    if (!known && !token.id) { throw input_error(called + " is not in " + std::string{vocabulary}); }
    return known ? *known : *token.id;
}

/// Finds added tokens in a text: the leftmost first, and the longest of those that begin at one place.
class added_token_finder {
public:
    void add(std::u32string content, const added_token& token, std::int32_t id) {
        auto& tokens = by_first_[content.front()];
        const auto longer = [&](const entry& other) { return other.content.size() >= content.size(); };
        const auto at = std::ranges::partition_point(tokens, longer);
        tokens.insert(at, {std::move(content), id, token.strip_left, token.strip_right});
    }
    /// Calls between(text) for the text between tokens and found(id) for each token, in order.
    template <class Between, class Found>
    void split(std::u32string_view text, const Between& between, const Found& found) const {
        std::size_t from = 0;
        for (std::size_t at = 0; at < text.size();) {
            const entry* token = begins(text.substr(at));
            if (token == nullptr) {
                ++at;
                continue;
            }
            std::size_t end = at;
            while (token->strip_left && end != from && strips(text[end - 1])) { --end; }
            if (end != from) { between(text.substr(from, end - from)); }
            found(token->id);
            at += token->content.size();
            while (token->strip_right && at != text.size() && strips(text[at])) { ++at; }
            from = at;
        }
        if (from != text.size()) { between(text.substr(from)); }
    }

private:
    struct entry {
        std::u32string content;
        std::int32_t id;
        bool strip_left, strip_right;
    };

    /// White space as Python strips it.
    [[nodiscard]] static bool strips(char32_t point) { return is_space(point) || (point >= 0x1c && point <= 0x1f); }
    [[nodiscard]] const entry* begins(std::u32string_view text) const {
        const auto tokens = by_first_.find(text.front());
        if (tokens == by_first_.end()) { return nullptr; }
        for (const entry& token : tokens->second) {
            if (text.starts_with(token.content)) { return &token; }
        }
        return nullptr;
    }

    std::map<char32_t, std::vector<entry>> by_first_{};
};

/// Added tokens of a tokenizer, each content once: the first one added counts.
class added_tokens {
public:
    /// `id_of` and `vocabulary` as in id_of_added.
    template <class IdOf>
    std::int32_t add(const added_token& token, const IdOf& id_of, std::string_view vocabulary) {
        const std::int32_t id = id_of_added(token, id_of, vocabulary);
        if (seen_.insert(token.content).second) {
            greatest_ = std::max(greatest_, id);
            raw_.add(code_points(token.content, token.place), token, id);
        }
        return id;
    }
    /// As above, but a token that is `normalized` is found in the text that `normalize` returns.
    template <class IdOf, class Normalize>
    std::int32_t add(const added_token& token, const IdOf& id_of, std::string_view vocabulary,
                     const Normalize& normalize) {
        if (!token.normalized || seen_.contains(token.content)) { return add(token, id_of, vocabulary); }
        const std::int32_t id = id_of_added(token, id_of, vocabulary);
        seen_.insert(token.content);
        greatest_ = std::max(greatest_, id);
        std::u32string content = normalize(code_points(token.content, token.place));
        if (content.empty()) { throw input_error(token.place + ": normalization leaves nothing of it"); }
        normalized_.add(std::move(content), token, id);
        return id;
    }
    /// The ids of a text: those of its added tokens, and those that split(words, ids) appends for the normalized text
    /// between them.
    template <class Normalize, class Split>
    [[nodiscard]] std::vector<std::int32_t> pieces(std::u32string_view text, const Normalize& normalize,
                                                   const Split& split) const {
        std::vector<std::int32_t> ids{};
        const auto found = [&](std::int32_t id) { ids.push_back(id); };
        raw_.split(
            text,
            [&](std::u32string_view between) {
                const auto normal = normalize(between);
                normalized_.split(
                    normal, [&](std::u32string_view words) { split(words, ids); }, found);
            },
            found);
        return ids;
    }
    [[nodiscard]] std::int32_t greatest() const noexcept { return greatest_; }

private:
    added_token_finder raw_{};
    added_token_finder normalized_{};
    std::set<std::string> seen_{};
    std::int32_t greatest_ = 0;
};

} // namespace pulse::encode
