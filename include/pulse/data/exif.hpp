#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/io/png.hpp>

namespace pulse::data {

/// The orientation, 1 to 8, in EXIF data: a TIFF header and its first directory, with or without a leading "Exif". 0
/// when there is none or the data are damaged; 1 (upright) when the value is out of range.
[[nodiscard]] inline int exif_orientation(std::span<const std::uint8_t> data) {
    constexpr std::string_view marker{"Exif\0\0", 6};
    if (data.size() >= marker.size() &&
        std::string_view{reinterpret_cast<const char*>(data.data()), marker.size()} == marker) {
        data = data.subspan(marker.size());
    }
    if (data.size() < 8 || data[0] != data[1] || (data[0] != 'I' && data[0] != 'M')) { return 0; }
    const bool little = data[0] == 'I';
    // Bytes beyond the end read as 0, which is no orientation.
    const auto number = [&](std::size_t at, std::size_t bytes) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i != bytes; ++i) {
            const std::size_t from = at + (little ? bytes - 1 - i : i);
            value = value << 8U | (from < data.size() ? data[from] : 0U);
        }
        return value;
    };
    if (number(2, 2) != 42) { return 0; }
    const std::size_t directory = number(4, 4);
    const std::size_t entries = number(directory, 2);
    for (std::size_t i = 0; i != entries; ++i) {
        const std::size_t entry = directory + 2 + 12 * i;
        if (entry >= data.size()) { break; }
        constexpr std::uint32_t orientation = 0x0112;
        constexpr std::uint32_t two_bytes = 3;
        constexpr std::uint32_t four_bytes = 4;
        const std::uint32_t type = number(entry + 2, 2);
        if (number(entry, 2) == orientation && (type == two_bytes || type == four_bytes)) {
            const std::uint32_t value = number(entry + 8, type == two_bytes ? 2 : 4);
            return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
        }
    }
    return 0;
}

/// The orientation, 1 to 8, that an XMP text has as an attribute or an element; 0 when it has none, 1 when the value is
/// out of range.
[[nodiscard]] inline int xmp_orientation(std::string_view xmp) {
    constexpr std::string_view name = "tiff:Orientation";
    for (std::size_t at = xmp.find(name); at != std::string_view::npos; at = xmp.find(name, at + 1)) {
        std::string_view value = xmp.substr(at + name.size());
        const std::size_t begin = value.substr(0, 2) == "=\"" ? 2 : value.substr(0, 1) == ">" ? 1 : 0;
        value = value.substr(begin);
        if (begin == 0 || value.empty() || value.front() < '0' || value.front() > '9') { continue; }
        return value.front() >= '1' && value.front() <= '8' ? value.front() - '0' : 1;
    }
    return 0;
}

/// The orientation, 1 to 8, of a picture: from EXIF, else from XMP, as in Pillow.
[[nodiscard]] inline int orientation_of(std::span<const std::uint8_t> exif, std::string_view xmp) {
    const int of_exif = exif_orientation(exif);
    return of_exif != 0 ? of_exif : std::max(1, xmp_orientation(xmp));
}

/// The upright picture, given the EXIF orientation (1 to 8) of the stored one: 2, 4, 5 and 7 are mirrored, 5 to 8 lie
/// on their side.
[[nodiscard]] inline io::picture upright(io::picture stored, int orientation) {
    if (orientation < 2 || orientation > 8) { return stored; }
    const bool transposed = orientation >= 5;
    const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    io::picture result{.width = transposed ? stored.height : stored.width,
                       .height = transposed ? stored.width : stored.height,
                       .channels = stored.channels,
                       .pixels = std::vector<std::uint8_t>(stored.pixels.size())};
    const auto width = static_cast<std::size_t>(stored.width);
    const auto height = static_cast<std::size_t>(stored.height);
    const auto channels = static_cast<std::size_t>(stored.channels);
    std::uint8_t* out = result.pixels.data();
    for (std::size_t y = 0; y != static_cast<std::size_t>(result.height); ++y) {
        for (std::size_t x = 0; x != static_cast<std::size_t>(result.width); ++x) {
            const std::size_t row = transposed ? x : y;
            const std::size_t column = transposed ? y : x;
            const std::size_t from =
                (from_below ? height - 1 - row : row) * width + (from_right ? width - 1 - column : column);
            for (std::size_t k = 0; k != channels; ++k) { *out++ = stored.pixels[from * channels + k]; }
        }
    }
    return result;
}

} // namespace pulse::data
