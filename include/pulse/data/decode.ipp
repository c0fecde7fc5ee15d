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
#include <pulse/data/decode.hpp>
#include <pulse/data/exif.hpp>
#include <pulse/data/gif.hpp>
#include <pulse/data/jpeg.hpp>
#include <pulse/data/png.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/data/webp.hpp>
#include <pulse/io/png.hpp>

namespace pulse::data {

PULSE_PICTURES_INLINE const picture_format& format_of(std::string_view file) {
    for (const picture_format& format : picture_formats) {
        if (file.starts_with(format.begin) && (format.at_8.empty() || file.substr(0, 12).ends_with(format.at_8))) {
            return format;
        }
    }
    if (file.starts_with("version https://git-lfs.")) {
        throw input_error("this is a Git LFS pointer; run 'git lfs pull' in its repository");
    }
    throw input_error(file.empty() ? "the file is empty" : "neither JPEG, PNG, WebP, GIF nor BMP");
}

PULSE_PICTURES_INLINE io::picture decode_picture(std::string_view file, std::string_view name,
                                                 const picture_limits& limits, bool* damaged) {
    try {
        stored_picture stored =
            format_of(file).decode({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, limits, false);
        if (damaged != nullptr) { *damaged = stored.damaged; }
        return upright(std::move(stored.colours), stored.orientation);
    } catch (const input_error& fault) { throw input_error(std::string{name} + ": " + fault.what()); }
}

PULSE_PICTURES_INLINE std::optional<io::picture> decode_alpha(std::string_view file, std::string_view name,
                                                              const picture_limits& limits) {
    try {
        const picture_format& format = format_of(file);
        if (!format.has_alpha) { return {}; }
        stored_picture stored =
            format.decode({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, limits, true);
        if (stored.alpha.empty()) { return {}; }
        return upright({stored.colours.width, stored.colours.height, 1, std::move(stored.alpha)}, stored.orientation);
    } catch (const input_error& fault) { throw input_error(std::string{name} + ": " + fault.what()); }
}

} // namespace pulse::data
