#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <webp/decode.h>
#include <webp/demux.h>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/data/webp.hpp>

namespace pulse::data {

namespace detail {

/// The payload of the first chunk of a kind in a RIFF file, whose chunks start at even offsets; empty: none.
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

/// The features in the header of a WebP. Throws input_error when the header is damaged.
[[nodiscard]] inline ::WebPBitstreamFeatures webp_features(std::span<const std::uint8_t> bytes) {
    ::WebPBitstreamFeatures features{};
    if (::WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK) {
        throw input_error("damaged WebP: its header has no size");
    }
    return features;
}
[[nodiscard]] inline picture_size size_of(const ::WebPBitstreamFeatures& features) {
    return {static_cast<std::uint32_t>(features.width), static_cast<std::uint32_t>(features.height)};
}

/// Decodes the first frame of an animation on its canvas to red, green, blue and alpha. False when it is damaged.
[[nodiscard]] inline bool read_first_frame(std::span<const std::uint8_t> bytes, std::vector<std::uint8_t>& out) {
    const ::WebPData data{bytes.data(), bytes.size()};
    const std::unique_ptr<::WebPAnimDecoder, decltype(&::WebPAnimDecoderDelete)> decoder{
        ::WebPAnimDecoderNew(&data, nullptr), &::WebPAnimDecoderDelete};
    ::WebPAnimInfo canvas{};
    std::uint8_t* pixels = nullptr;
    int milliseconds = 0;
    if (decoder == nullptr || ::WebPAnimDecoderGetInfo(decoder.get(), &canvas) == 0 ||
        std::size_t{canvas.canvas_width} * canvas.canvas_height * 4 != out.size() ||
        ::WebPAnimDecoderGetNext(decoder.get(), &pixels, &milliseconds) == 0) {
        return false;
    }
    std::copy_n(pixels, out.size(), out.begin());
    return true;
}

} // namespace detail

PULSE_PICTURES_INLINE picture_size webp_size(std::span<const std::uint8_t> bytes) {
    return detail::size_of(detail::webp_features(bytes));
}

PULSE_PICTURES_INLINE int webp_orientation(std::span<const std::uint8_t> bytes) {
    const std::span<const std::uint8_t> xmp = detail::riff_chunk(bytes, "XMP ");
    return orientation_of(detail::riff_chunk(bytes, "EXIF"), {reinterpret_cast<const char*>(xmp.data()), xmp.size()});
}

PULSE_PICTURES_INLINE stored_picture decode_webp(std::span<const std::uint8_t> bytes, const picture_limits& limits,
                                                 bool keeps_alpha) {
    const ::WebPBitstreamFeatures features = detail::webp_features(bytes);
    stored_picture result{detail::room_for(detail::size_of(features), limits), webp_orientation(bytes)};
    std::vector<std::uint8_t>& colours = result.colours.pixels;
    const bool alpha = features.has_alpha != 0;
    const bool moves = features.has_animation != 0;
    std::vector<std::uint8_t> with_alpha(alpha || moves ? colours.size() / 3 * 4 : 0);
    const bool whole = moves   ? detail::read_first_frame(bytes, with_alpha)
                       : alpha ? ::WebPDecodeRGBAInto(bytes.data(), bytes.size(), with_alpha.data(), with_alpha.size(),
                                                      features.width * 4) != nullptr
                               : ::WebPDecodeRGBInto(bytes.data(), bytes.size(), colours.data(), colours.size(),
                                                     features.width * 3) != nullptr;
    if (!whole) { throw input_error("damaged WebP: it cannot be decoded completely"); }
    if (moves && !alpha) {
        // As in Pillow, the canvas around a smaller frame is black.
        for (std::size_t i = 3; i < with_alpha.size(); i += 4) { with_alpha[i] = 255; }
    }
    if (alpha || moves) { detail::put_on_white(with_alpha, result, keeps_alpha); }
    return result;
}

} // namespace pulse::data
