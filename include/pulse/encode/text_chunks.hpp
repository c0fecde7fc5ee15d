#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pulse::encode {

/// Maximum texts per call of a frozen text encoder: reading the weights once per call is then a small part of its time.
inline constexpr int most_texts = 16;

/// Splits texts that are longer than a text encoder's `tokens`: it runs on `chunks` pieces, each between a begin and an
/// end of its own, and their states are joined. One chunk leaves a text unchanged.
///
/// Source: kohya-ss/sd-scripts, --max_token_length 150 and 225 (two and three chunks), which trainers and pipelines
/// follow, but without its copying of a state where a chunk of Stable Diffusion 2 is empty.
struct text_chunks {
    int tokens{}; ///< including begin and end
    int chunks{1};

    /// Ids of the text in a chunk.
    [[nodiscard]] constexpr int inner() const noexcept { return tokens - 2; }
    /// Ids and states of the whole text, with one begin and one end.
    [[nodiscard]] constexpr int length() const noexcept { return chunks == 1 ? tokens : chunks * inner() + 2; }

    /// The ids of all chunks [chunks][tokens], from the ids of a text [length()], which start with a begin; `mask` is 0
    /// for the padding behind its end. A chunk beyond the end of the text gets an end, too.
    [[nodiscard]] std::vector<std::int32_t> split(std::span<const std::int32_t> ids, std::span<const std::int32_t> mask,
                                                  std::int32_t end) const {
        if (chunks == 1) { return {ids.begin(), ids.end()}; }
        const auto ends_at = static_cast<int>(std::ranges::count(mask, 1)) - 1;
        std::vector<std::int32_t> all;
        for (int c = 0; c != chunks; ++c) {
            const int first = 1 + c * inner();
            const auto of_chunk = ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(inner()));
            all.push_back(ids.front());
            all.insert(all.end(), of_chunk.begin(), of_chunk.end());
            if (ends_at < first) { all[all.size() - of_chunk.size()] = end; }
            all.push_back(ends_at < first + inner() ? ids.back() : end);
        }
        return all;
    }
    /// Joins the states of the chunks [chunks][tokens][width] to those of the text [length()][width], without the
    /// begins and ends in between.
    void join(std::span<const float> of_chunks, std::span<float> states) const {
        const std::size_t width = states.size() / static_cast<std::size_t>(length());
        auto to = states.begin();
        for (int c = 0; c != chunks; ++c) {
            const int first = c == 0 ? 0 : 1;
            const int last = c + 1 == chunks ? tokens : tokens - 1;
            const auto rows = of_chunks.subspan(static_cast<std::size_t>(c * tokens + first) * width,
                                                static_cast<std::size_t>(last - first) * width);
            to = std::ranges::copy(rows, to).out;
        }
    }
};

} // namespace pulse::encode
