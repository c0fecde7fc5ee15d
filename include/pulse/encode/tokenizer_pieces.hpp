#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::encode {

/// Pieces with scores: a word is split into those with the greatest sum, as the tokenizers library finds them.
///
/// Sums are doubles here and floats in SentencePiece, which can decide between sequences that are about equally good.
class unigram {
public:
    /// Reads an array of [piece, score]; ids are indices in it. Throws input_error naming the entry.
    unigram(const io::json_field& vocab, std::int32_t unknown) : unknown_{unknown}, name_{vocab.place()} {
        const std::size_t count = vocab.size();
        if (static_cast<std::size_t>(unknown) >= count) { vocab.fail("has no unknown piece"); }
        pieces_.reserve(count);
        for (std::size_t i = 0; i != count; ++i) {
            const io::json_field pair = vocab.entry(i);
            if (pair.size() != 2) { pair.fail("must be a piece and its score"); }
            pieces_.push_back({pair.entry(0).text(), pair.entry(1).number(), static_cast<std::int32_t>(i)});
            least_ = std::min(least_, pieces_.back().score);
        }
        std::ranges::sort(pieces_, {}, &piece::text);
        const auto twice = std::ranges::adjacent_find(pieces_, {}, &piece::text);
        if (twice != pieces_.end()) { vocab.fail("has the piece '" + io::printable(twice->text) + "' twice"); }
    }

    [[nodiscard]] std::optional<std::int32_t> operator()(std::string_view text) const {
        const auto found = std::ranges::lower_bound(pieces_, text, {}, &piece::text);
        if (found == pieces_.end() || found->text != text) { return {}; }
        return found->id;
    }
    [[nodiscard]] std::int32_t greatest() const noexcept { return static_cast<std::int32_t>(pieces_.size()) - 1; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    /// Appends the ids of a word; a stretch that has no piece becomes one unknown.
    void append(std::u32string_view word, std::vector<std::int32_t>& ids) const {
        struct node {
            double score = 0.0;
            std::int32_t id = none;
            std::size_t from = 0;
        };
        const std::string bytes = utf8(word);
        std::vector<node> best(bytes.size() + 1);
        const auto offer = [&](std::size_t from, std::size_t to, double score, std::int32_t id) {
            score += best[from].score;
            if (best[to].id == none || score > best[to].score) { best[to] = {score, id, from}; }
        };
        std::size_t at = 0;
        for (const char32_t point : word) {
            const std::size_t next = at + utf8({&point, 1}).size();
            bool whole = false;
            // pieces that begin with the bytes read so far are adjacent
            auto first = pieces_.begin();
            auto last = pieces_.end();
            for (std::size_t end = at; end != bytes.size() && first != last;) {
                const auto byte = [depth = end - at](const piece& p) {
                    return depth < p.text.size() ? static_cast<unsigned char>(p.text[depth]) : -1;
                };
                const int next_byte = static_cast<unsigned char>(bytes[end]);
                first = std::ranges::lower_bound(first, last, next_byte, {}, byte);
                last = std::ranges::upper_bound(first, last, next_byte, {}, byte);
                ++end;
                if (first != last && first->text.size() == end - at) {
                    offer(at, end, first->score, first->id);
                    whole = whole || end == next;
                }
            }
            if (!whole) { offer(at, next, least_ - 10.0, unknown_); }
            at = next;
        }
        const std::size_t before = ids.size();
        for (std::size_t end = bytes.size(); end != 0; end = best[end].from) {
            const bool again = best[end].id == unknown_ && ids.size() != before && ids.back() == unknown_;
            if (!again) { ids.push_back(best[end].id); }
        }
        std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
    }

private:
    static constexpr std::int32_t none = -1;
    struct piece {
        std::string text{};
        double score = 0.0;
        std::int32_t id = 0;
    };

    std::vector<piece> pieces_{};
    std::int32_t unknown_;
    double least_ = std::numeric_limits<double>::infinity();
    std::string name_;
};

} // namespace pulse::encode
