#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <webp/decode.h>

#include <pulse/core/error.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

namespace detail {

/// The payload of the first chunk of a kind in a RIFF file, whose chunks stand at even bytes; empty when there is none.
[[nodiscard]] inline std::span<const std::uint8_t> riff_chunk(std::span<const std::uint8_t> file,
                                                              std::string_view kind) {
    for (std::size_t at = 12; at + 8 <= file.size();) {
        const std::string_view found{reinterpret_cast<const char*>(file.data() + at), 4};
        std::size_t bytes = 0;
        for (std::size_t i = 4; i != 0; --i) { bytes = bytes << 8U | file[at + 3 + i]; }
        if (bytes > file.size() - at - 8) { break; }
        if (found == kind) { return file.subspan(at + 8, bytes); }
        at += 8 + bytes + bytes % 2;
    }
    return {};
}

} // namespace detail

/// Decodes WebP by libwebp, with loss or without, alpha before white. Throws input_error when it is damaged, cut, too
/// large or an animation.
[[nodiscard]] inline stored_picture decode_webp(std::span<const std::uint8_t> bytes, const picture_limits& limits) {
    ::WebPBitstreamFeatures features{};
    if (::WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK) {
        throw input_error("damaged WebP: its header says no size");
    }
    if (features.has_animation != 0) { throw input_error("WebP: an animation is no picture"); }
    stored_picture result{detail::room_for(static_cast<std::uint64_t>(features.width),
                                           static_cast<std::uint64_t>(features.height), limits),
                          exif_orientation(detail::riff_chunk(bytes, "EXIF"))};
    std::vector<std::uint8_t>& colours = result.colours.pixels;
    const bool alpha = features.has_alpha != 0;
    std::vector<std::uint8_t> with_alpha(alpha ? colours.size() / 3 * 4 : 0);
    const bool whole = alpha ? ::WebPDecodeRGBAInto(bytes.data(), bytes.size(), with_alpha.data(), with_alpha.size(),
                                                    features.width * 4) != nullptr
                             : ::WebPDecodeRGBInto(bytes.data(), bytes.size(), colours.data(), colours.size(),
                                                   features.width * 3) != nullptr;
    if (!whole) { throw input_error("damaged WebP: it cannot be decoded whole"); }
    if (alpha) { detail::put_on_white(with_alpha, result.colours); }
    return result;
}

} // namespace pulse::data
