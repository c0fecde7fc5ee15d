#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_added.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/encode/tokenizer_vocabulary.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::encode {

/// Byte-pair encoding: bytes are written as letters, and pairs are joined in the order of merges.txt.
class byte_pairs {
public:
    /// vocab.json and merges.txt. Throws input_error naming file and line or token.
    byte_pairs(vocabulary tokens, const named_text& merges, std::int32_t unknown) : tokens_{std::move(tokens)} {
        for (unsigned byte = 0; byte != 256; ++byte) {
            const std::string letter = letter_of(byte);
            inner_[byte] = tokens_(letter).value_or(unknown);
            last_[byte] = tokens_(letter + "</w>").value_or(unknown);
        }
        read_merges(merges);
    }

    [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }

    /// Ids of one word, given as its bytes, behind those that are there; a word of n bytes takes n log n steps.
    void append(std::string_view word, std::vector<std::int32_t>& ids) const {
        struct symbol {
            std::int32_t id;
            int before, after; // -1: none
        };
        std::vector<symbol> symbols(word.size());
        const int count = static_cast<int>(word.size());
        for (int i = 0; i != count; ++i) {
            const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
            const bool ends = i + 1 == count;
            symbols[static_cast<std::size_t>(i)] = {ends ? last_[byte] : inner_[byte], i - 1, ends ? -1 : i + 1};
        }
        const auto at = [&](int i) -> symbol& { return symbols[static_cast<std::size_t>(i)]; };

        // the pair that is merged first, of equal ones the leftmost; what a merge has overtaken is skipped
        using waiting = std::tuple<int, int, std::int32_t, std::int32_t>; // rank, place, left, right
        std::priority_queue<waiting, std::vector<waiting>, std::greater<>> queue{};
        const auto offer = [&](int left) {
            if (left < 0 || at(left).after < 0) { return; }
            const std::int32_t a = at(left).id;
            const std::int32_t b = at(at(left).after).id;
            if (const auto found = merges_.find(key(a, b)); found != merges_.end()) {
                queue.emplace(found->second.rank, left, a, b);
            }
        };
        for (int i = 0; i + 1 < count; ++i) { offer(i); }
        while (!queue.empty()) {
            const auto [rank, left, a, b] = queue.top();
            queue.pop();
            const int right = at(left).after;
            if (at(left).id != a || right < 0 || at(right).id != b) { continue; }
            at(left).id = merges_.find(key(a, b))->second.made;
            at(left).after = at(right).after;
            at(right).id = gone;
            if (at(left).after >= 0) { at(at(left).after).before = left; }
            offer(left);
            offer(at(left).before);
        }
        for (int i = count == 0 ? -1 : 0; i >= 0; i = at(i).after) { ids.push_back(at(i).id); }
    }

private:
    struct merge {
        int rank;
        std::int32_t made;
    };
    static constexpr std::int32_t gone = -1;

    [[nodiscard]] static std::uint64_t key(std::int32_t a, std::int32_t b) noexcept {
        return std::uint64_t{static_cast<std::uint32_t>(a)} << 32U | static_cast<std::uint32_t>(b);
    }
    /// The letter that stands for a byte in the files: itself where it prints, the others in order from U+0100 on.
    [[nodiscard]] static std::string letter_of(unsigned byte) {
        const auto prints = [](unsigned b) { return (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad); };
        unsigned point = byte;
        if (!prints(byte)) {
            point = 0x100;
            for (unsigned b = 0; b != byte; ++b) { point += prints(b) ? 0U : 1U; }
        }
        std::string letter{};
        append_utf8(point, letter);
        return letter;
    }

    void read_merges(const named_text& file) {
        // transformers reads no more
        constexpr int most = 49152 - 256 - 2;
        int rank = 0;
        std::string blank{};
        bool first = true;
        vocabulary::for_each_line(file, [&](std::string_view line, const std::string& place) {
            if (std::exchange(first, false)) {
                if (!line.starts_with("#version")) { throw input_error(place + " must begin with '#version'"); }
                return;
            }
            if (line.empty()) {
                if (blank.empty()) { blank = place; }
                return;
            }
            if (!blank.empty()) { throw input_error(blank + " is empty"); }
            if (rank == most) {
                throw input_error(place + " is beyond the " + std::to_string(most) + " merges of CLIP");
            }
            const std::size_t space = line.find(' ');
            if (space == 0 || space == line.npos || space + 1 == line.size() ||
                line.find(' ', space + 1) != line.npos) {
                throw input_error(place + " must be two tokens with a space between, and is '" +
                                  io::printable(std::string{line}) + '\'');
            }
            const std::string left{line.substr(0, space)};
            const std::string right{line.substr(space + 1)};
            const auto id = [&](const std::string& token) {
                if (const auto found = tokens_(token)) { return *found; }
                throw input_error(place + " names '" + io::printable(token) + "', which is not in " + tokens_.name());
            };
            const std::int32_t a = id(left);
            const std::int32_t b = id(right);
            if (!merges_.emplace(key(a, b), merge{rank++, id(left + right)}).second) {
                throw input_error(place + " is there before");
            }
        });
        if (first) { throw input_error(file.name + ": the file is empty"); }
    }

    vocabulary tokens_;
    std::array<std::int32_t, 256> inner_{};
    std::array<std::int32_t, 256> last_{};
    std::unordered_map<std::uint64_t, merge> merges_{};
};

/// CLIP's tokenizer, equal to transformers' CLIPTokenizerFast: normal form C, runs of white space as one, lower case,
/// then words by categories of Unicode.
///
/// transformers' CLIPTokenizer without ftfy differs: it drops control characters and separates Chinese ones.
class clip_tokenizer : public tokenizer {
public:
    clip_tokenizer(const named_text& tokens, const named_text& merges, const tokenizer_settings& settings,
                   std::optional<int> length = {}) :
        clip_tokenizer{parts{tokens, merges, settings}, settings.length(length)} {}

    [[nodiscard]] static std::u32string normalize(std::u32string_view text) {
        std::u32string spaced{};
        for (const char32_t point : composed(text)) {
            if (!is_space(point)) {
                spaced.push_back(point);
            } else if (!spaced.ends_with(U' ')) {
                spaced.push_back(U' ');
            }
        }
        return lower_case(spaced);
    }

private:
    /// All that the files give, before the tokenizer is there.
    struct parts {
        parts(const named_text& tokens, const named_text& merges, const tokenizer_settings& settings) :
            parts{vocabulary::from_json(tokens), merges, settings} {}
        parts(vocabulary tokens, const named_text& merges, const tokenizer_settings& settings) :
            begin{add(settings.role("bos_token", "<|startoftext|>", true), tokens)},
            end{add(settings.role("eos_token", "<|endoftext|>", true), tokens)},
            unknown{add(settings.role("unk_token", "<|endoftext|>", true), tokens)},
            pad{add(settings.role("pad_token", "<|endoftext|>"), tokens)} {
            for (const added_token& token : settings.added()) { add(token, tokens); }
            if (!settings.flag("do_lower_case", true)) {
                settings.config_field()["do_lower_case"].fail("is false, which CLIP's tokenizer does not know");
            }
            size = 1 + std::max(tokens.greatest(), added.greatest());
            pairs.emplace(std::move(tokens), merges, unknown);
        }
        std::int32_t add(const added_token& token, const vocabulary& tokens) {
            return added.add(token, tokens, tokens.name(), normalize);
        }

        added_tokens added{};
        std::int32_t begin, end, unknown, pad;
        std::int32_t size{};
        std::optional<byte_pairs> pairs{};
    };

    clip_tokenizer(parts made, int length) :
        tokenizer{{.length = length, .begin = made.begin, .end = made.end, .pad = made.pad}, made.size},
        parts_{std::move(made)} {}

    [[nodiscard]] std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const override {
        std::vector<std::int32_t> ids{};
        const auto found = [&](std::int32_t id) { ids.push_back(id); };
        parts_.added.raw().split(
            code_points(text, what),
            [&](std::u32string_view between) {
                const std::u32string normal = normalize(between);
                parts_.added.normalized().split(
                    normal, [&](std::u32string_view words) { split(words, ids); }, found);
            },
            found);
        return ids;
    }

    /// 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+
    void split(std::u32string_view text, std::vector<std::int32_t>& ids) const {
        constexpr std::array<std::u32string_view, 7> endings{U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"};
        const auto kind = [](char32_t point) { return point == U' ' ? ' ' : category(point)[0]; };
        for (std::size_t at = 0; at != text.size();) {
            const std::u32string_view rest = text.substr(at);
            const char first = kind(rest[0]);
            std::size_t size = 1;
            const auto ending = std::ranges::find_if(endings, [&](auto e) { return rest.starts_with(e); });
            if (ending != endings.end()) {
                size = ending->size();
            } else if (first == 'L') {
                while (size != rest.size() && kind(rest[size]) == 'L') { ++size; }
            } else if (first != ' ' && first != 'N') {
                const auto other = [&](char k) { return k != ' ' && k != 'L' && k != 'N'; };
                while (size != rest.size() && other(kind(rest[size]))) { ++size; }
            }
            if (first != ' ') { parts_.pairs->append(utf8(rest.substr(0, size)), ids); }
            at += size;
        }
    }

    parts parts_;
};

} // namespace pulse::encode
