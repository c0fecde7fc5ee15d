#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/bmp.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/gif.hpp>
#include <pulse/data/jpeg.hpp>
#include <pulse/data/png.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/data/webp.hpp>
#include <pulse/io/png.hpp>

namespace pulse::data {

/// A picture format: how its files begin, and the functions that read them.
struct picture_format {
    std::string_view name{};
    std::string_view begin{};
    std::string_view at_8{}; ///< expected 8 bytes into the file; empty: anything
    picture_size (*size)(std::span<const std::uint8_t>){};
    stored_picture (*decode)(std::span<const std::uint8_t>, const picture_limits&, bool keeps_alpha){};
    bool has_alpha{}; ///< whether its pictures may have alpha
    /// EXIF orientation, from the beginning of a file (of a WebP, from all of it); null: the format has none.
    int (*orientation)(std::span<const std::uint8_t>){};
};

inline constexpr std::array<picture_format, 5> picture_formats{{
    {"JPEG", "\xFF\xD8\xFF", "", jpeg_size, decode_jpeg, false, jpeg_orientation},
    {"PNG", "\x89PNG\r\n\x1A\n", "", png_size, decode_png, true, png_orientation},
    {"WebP", "RIFF", "WEBP", webp_size, decode_webp, true, webp_orientation},
    {"GIF", "GIF8", "", gif_size, decode_gif, true, nullptr},
    {"BMP", "BM", "", bmp_size, decode_bmp, true, nullptr},
}};

/// The format of a file, from its first bytes. Throws input_error for an unsupported one.
[[nodiscard]] PULSE_PICTURES_INLINE const picture_format& format_of(std::string_view file);

/// Decodes a file whose bytes, not its name, tell which of picture_formats it has: the upright picture, 3 channels of 8
/// bits. `damaged`, if given, becomes whether it has damage that other programs tolerate, too. Throws input_error,
/// which begins with `name`, when the picture cannot be decoded whole.
[[nodiscard]] PULSE_PICTURES_INLINE io::picture decode_picture(std::string_view file, std::string_view name,
                                                               const picture_limits& limits = {},
                                                               bool* damaged = nullptr);

/// The alpha of such a picture, also upright: 1 channel, 0 transparent to 255 opaque; may be none where all pixels are
/// opaque. Throws as decode_picture does, but does not read files of a format without alpha.
[[nodiscard]] PULSE_PICTURES_INLINE std::optional<io::picture> decode_alpha(std::string_view file,
                                                                            std::string_view name,
                                                                            const picture_limits& limits = {});

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/decode.ipp> // IWYU pragma: keep
#endif
