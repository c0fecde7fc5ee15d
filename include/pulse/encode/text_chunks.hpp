#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pulse::encode {

/// Most texts of one call of a frozen text encoder, which reads the weights once: by then they are a small part of it.
inline constexpr int most_texts = 16;

/// Texts that are longer than a text encoder's `tokens`: it runs on `chunks` pieces of them, each between a begin and
/// an end of its own, and their states are joined. One chunk is a text as ever.
///
/// Source: kohya-ss/sd-scripts, --max_token_length 150 and 225 (two and three chunks), which trainers and pipelines
/// follow; its copy of a state where a chunk of Stable Diffusion 2 is empty is left out.
struct text_chunks {
    int tokens{}; ///< with begin and end
    int chunks{1};

    /// Ids that a chunk has of the text.
    [[nodiscard]] constexpr int inner() const noexcept { return tokens - 2; }
    /// Of the whole text, with one begin and one end: ids of a tokenizer, and states.
    [[nodiscard]] constexpr int length() const noexcept { return chunks == 1 ? tokens : chunks * inner() + 2; }

    /// The ids of each chunk [chunks][tokens], of those of a text [length()], which begin with a mark; `mask` is 0 at
    /// the padding behind its end. A chunk behind the end of the text has an end, too.
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
    /// The states of the text [length()][width] of those of its chunks [chunks][tokens][width]: without the begins and
    /// ends between them.
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
