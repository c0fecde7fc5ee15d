#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
#include <pulse/encode/tokenizer_json.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/encode/tokenizer_vocabulary.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::encode {

/// Byte-pair encoding: bytes are written as letters, and pairs are merged in the order in which they were added.
class byte_pairs {
public:
    /// `merges` is merges.txt or an array of pairs. Throws input_error naming file and line or token.
    template <class Merges>
    byte_pairs(vocabulary tokens, const Merges& merges, std::int32_t unknown) : tokens_{std::move(tokens)} {
        for (unsigned byte = 0; byte != 256; ++byte) {
            const std::string letter = letter_of(byte);
            inner_[byte] = tokens_(letter).value_or(unknown);
            last_[byte] = tokens_(letter + "</w>").value_or(unknown);
        }
        add(merges);
    }

    [[nodiscard]] const vocabulary& tokens() const noexcept { return tokens_; }

    /// Appends the ids of one word, given as its bytes; a word of n bytes takes O(n log n) steps.
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

        // lowest rank first, then the leftmost; entries that an earlier merge made stale are skipped
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
    /// The letter that stands for a byte in the files: itself if printable, the others in order from U+0100 on.
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

    /// Adds one merge. Throws input_error, which begins with `place`.
    void add(const std::string& left, const std::string& right, const std::string& place) {
        const auto id = [&](const std::string& token) {
            if (const auto found = tokens_(token)) { return *found; }
            throw input_error(place + " names '" + io::printable(token) + "', which is not in " + tokens_.name());
        };
        const std::uint64_t pair = key(id(left), id(right));
        const merge made{static_cast<int>(merges_.size()), id(left + right)};
        if (!merges_.emplace(pair, made).second) { throw input_error(place + " repeats an earlier merge"); }
    }
    /// Adds the merges of merges.txt.
    void add(const named_text& file) {
        // transformers reads no more
        constexpr int most = 49152 - 256 - 2;
        int count = 0;
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
            if (count++ == most) {
                throw input_error(place + " is beyond the " + std::to_string(most) + " merges of CLIP");
            }
            const std::size_t space = line.find(' ');
            if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
                line.find(' ', space + 1) != std::string_view::npos) {
                throw input_error(place + " must be two tokens with a space between, not '" +
                                  io::printable(std::string{line}) + '\'');
            }
            add(std::string{line.substr(0, space)}, std::string{line.substr(space + 1)}, place);
        });
        if (first) { throw input_error(file.name + ": the file is empty"); }
    }
    /// Adds an array of pairs; a pair may also be a text with a space in between, as before tokenizers 0.20.
    void add(const io::json_field& pairs) {
        for (std::size_t i = 0; i != pairs.size(); ++i) {
            const io::json_field pair = pairs.entry(i);
            if (pair.value().is_string()) {
                const std::string& both = pair.text();
                const std::size_t space = both.find(' ');
                if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
                    pair.fail("must be two tokens with a space between");
                }
                add(both.substr(0, space), both.substr(space + 1), pair.place());
                continue;
            }
            if (pair.size() != 2) { pair.fail("must be two tokens"); }
            add(pair.entry(0).text(), pair.entry(1).text(), pair.place());
        }
    }

    vocabulary tokens_;
    std::array<std::int32_t, 256> inner_{};
    std::array<std::int32_t, 256> last_{};
    std::unordered_map<std::uint64_t, merge> merges_{};
};

/// CLIP's tokenizer, equal to transformers' CLIPTokenizerFast (CLIPTokenizer since transformers 5): normal form C, runs
/// of white space collapsed, lower case, then words by Unicode category.
///
/// The older CLIPTokenizer without ftfy differs: it drops control characters and separates Chinese ones.
class clip_tokenizer : public tokenizer {
public:
    clip_tokenizer(const named_text& tokens, const named_text& merges, const tokenizer_settings& settings,
                   std::optional<int> length = {}) :
        clip_tokenizer{parts{vocabulary::from_json(tokens), merges, settings}, settings.length(length)} {}
    /// `settings` must list the added tokens of `file` (tokenizer_settings::with).
    clip_tokenizer(const tokenizer_json& file, const tokenizer_settings& settings, std::optional<int> length = {}) :
        clip_tokenizer{parts{file, settings}, settings.length(length)} {}

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
    /// What tokenizer.json must contain besides its tokens.
    static constexpr std::string_view clip_form = R"({
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|)"
                                                  R"([\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"},
             "behavior": "Removed", "invert": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": "any", "use_regex": true}]},
        "model": {"type": "BPE", "dropout": null, "continuing_subword_prefix": "", "end_of_word_suffix": "</w>",
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": "any", "merges": "any"}})";

    /// Everything read from the files before the tokenizer is constructed.
    struct parts {
        parts(const tokenizer_json& file, const tokenizer_settings& settings) :
            parts{file.vocabulary_of("BPE"), file.root()["model"]["merges"], settings} {
            const auto role = [&](const char* name) { return settings.role(name, "<|endoftext|>").content; };
            const std::string first = settings.role("bos_token", "<|startoftext|>").content;
            nlohmann::json form = io::parse_json(clip_form, "the form");
            form["post_processor"] = {{"type", "RobertaProcessing"},
                                      {"sep", {role("eos_token"), end}},
                                      {"cls", {first, begin}},
                                      {"trim_offsets", tokenizer_json::any},
                                      {"add_prefix_space", tokenizer_json::any}};
            form["model"]["unk_token"] = role("unk_token");
            file.require(std::move(form), role("pad_token"));
            splits_marks = true;
        }
        /// `merges` as for byte_pairs.
        template <class Merges>
        parts(vocabulary tokens, const Merges& merges, const tokenizer_settings& settings) :
            begin{add(settings.role("bos_token", "<|startoftext|>", true), tokens)},
            end{add(settings.role("eos_token", "<|endoftext|>", true), tokens)},
            unknown{add(settings.role("unk_token", "<|endoftext|>", true), tokens)},
            pad{add(settings.role("pad_token", "<|endoftext|>"), tokens)} {
            for (const added_token& token : settings.added()) { add(token, tokens); }
            if (!settings.flag("do_lower_case", true)) {
                settings.config_field()["do_lower_case"].fail("is false, which CLIP's tokenizer does not support");
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
        bool splits_marks = false; ///< <|startoftext|> and <|endoftext|> inside words become three words
    };

    clip_tokenizer(parts made, int length) :
        tokenizer{{.length = length, .begin = made.begin, .end = made.end, .pad = made.pad}, made.size},
        parts_{std::move(made)} {}

    [[nodiscard]] std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const override {
        return parts_.added.pieces(
            code_points(text, what), normalize,
            [&](std::u32string_view words, std::vector<std::int32_t>& ids) { split(words, ids); });
    }

    /// 's|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+
    void split(std::u32string_view text, std::vector<std::int32_t>& ids) const {
        constexpr std::array<std::u32string_view, 7> endings{U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"};
        constexpr std::array<std::u32string_view, 2> marks{U"<|startoftext|>", U"<|endoftext|>"};
        const auto kind = [](char32_t point) { return point == U' ' ? ' ' : category(point)[0]; };
        for (std::size_t at = 0; at != text.size();) {
            const std::u32string_view rest = text.substr(at);
            const char first = kind(rest[0]);
            std::size_t size = 1;
            if (parts_.splits_marks) {
                const auto mark = std::ranges::find_if(marks, [&](auto m) { return rest.starts_with(m); });
                if (mark != marks.end()) {
                    // the words into which the byte-level step splits it
                    for (const auto word :
                         {mark->substr(0, 2), mark->substr(2, mark->size() - 4), mark->substr(mark->size() - 2)}) {
                        parts_.pairs->append(utf8(word), ids);
                    }
                    at += mark->size();
                    continue;
                }
            }
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
