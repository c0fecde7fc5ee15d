#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/jpeg.hpp>
#include <pulse/data/png.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/data/webp.hpp>
#include <pulse/io/png.hpp>

namespace pulse::data {

/// The upright picture in the bytes of a JPEG, PNG or WebP file, as they and not the file's name say: 3 channels of 8
/// bits. Throws input_error, which begins with `name`, for what cannot be decoded whole.
[[nodiscard]] inline io::picture decode_picture(std::string_view file, std::string_view name,
                                                const picture_limits& limits = {}) {
    const std::span<const std::uint8_t> bytes{reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
    const auto decode = [&]() -> stored_picture {
        if (file.substr(0, 3) == "\xFF\xD8\xFF") { return decode_jpeg(bytes, limits); }
        if (file.substr(0, 8) == "\x89PNG\r\n\x1A\n") { return decode_png(bytes, limits); }
        if (file.size() >= 12 && file.substr(0, 4) == "RIFF" && file.substr(8, 4) == "WEBP") {
            return decode_webp(bytes, limits);
        }
        throw input_error(file.empty() ? "the file is empty" : "neither JPEG, PNG nor WebP");
    };
    try {
        stored_picture stored = decode();
        return upright(std::move(stored.colours), stored.orientation);
    } catch (const input_error& fault) { throw input_error(std::string{name} + ": " + fault.what()); }
}

} // namespace pulse::data
