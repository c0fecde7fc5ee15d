#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/encode/text_chunks.hpp>
#include <pulse/encode/tokenizer.hpp>

namespace {

using namespace pulse::encode;

using text_ids = std::vector<std::int32_t>;

constexpr std::int32_t text_begin = 90;
constexpr std::int32_t text_end = 91;

/// The chunks of a text with ids 1 to `count`, with room for three ids per chunk.
text_ids split_text(int count, int chunks, std::int32_t pad) {
    const text_chunks by{5, chunks};
    const token_frame marks{.length = by.length(), .begin = text_begin, .end = text_end, .pad = pad};
    text_ids ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), 1);
    const encoded_text text = marks(ids);
    return by.split(text.ids, text.mask, text_end);
}

} // namespace

TEST_CASE("a long text is split into chunks, each between a begin and an end") {
    constexpr auto b = text_begin;
    constexpr auto e = text_end;
    CHECK(text_chunks{77, 1}.length() == 77);
    CHECK(text_chunks{77, 3}.length() == 227);
    CHECK(split_text(2, 1, 0) == text_ids{b, 1, 2, e, 0});
    // The text ends in the second chunk, exactly at its end, before it, fills everything, and is truncated.
    CHECK(split_text(4, 2, 0) == text_ids{b, 1, 2, 3, e, b, 4, e, 0, 0});
    CHECK(split_text(5, 2, 0) == text_ids{b, 1, 2, 3, e, b, 4, 5, e, 0});
    CHECK(split_text(3, 2, 0) == text_ids{b, 1, 2, 3, e, b, e, 0, 0, 0});
    CHECK(split_text(2, 2, 0) == text_ids{b, 1, 2, e, 0, b, e, 0, 0, 0});
    CHECK(split_text(6, 2, 0) == text_ids{b, 1, 2, 3, e, b, 4, 5, 6, e});
    CHECK(split_text(9, 2, 0) == text_ids{b, 1, 2, 3, e, b, 4, 5, 6, e});
    CHECK(split_text(0, 3, 0) == text_ids{b, e, 0, 0, 0, b, e, 0, 0, 0, b, e, 0, 0, 0});
    // The padding id may occur in the text.
    CHECK(split_text(5, 2, 4) == text_ids{b, 1, 2, 3, e, b, 4, 5, e, 4});
    CHECK(split_text(6, 2, 3) == text_ids{b, 1, 2, 3, e, b, 4, 5, 6, e});
    // The end token pads, as in Stable Diffusion 1.
    CHECK(split_text(4, 2, e) == text_ids{b, 1, 2, 3, e, b, 4, e, e, e});
    CHECK(split_text(1, 2, e) == text_ids{b, 1, e, e, e, b, e, e, e, e});
}

TEST_CASE("the states of chunks are joined without the begins and ends between them") {
    // States of two numbers: the chunk and token, and its negation.
    for (const int chunks : {1, 2, 3}) {
        const text_chunks by{4, chunks};
        std::vector<float> of_chunks;
        std::vector<float> want;
        for (int c = 0; c != chunks; ++c) {
            for (int t = 0; t != 4; ++t) {
                const auto value = static_cast<float>(10 * c + t);
                of_chunks.insert(of_chunks.end(), {value, -value});
                const bool inner = t != 0 && t != 3;
                if (inner || (c == 0 && t == 0) || (c + 1 == chunks && t == 3)) {
                    want.insert(want.end(), {value, -value});
                }
            }
        }
        std::vector<float> states(2 * static_cast<std::size_t>(by.length()));
        by.join(of_chunks, states);
        CHECK(states == want);
    }
}
