#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/png.hpp>

namespace pulse::io {

PULSE_INLINE std::string encode_png(const picture& image) {
    if (image.width < 1 || image.height < 1 || (image.channels != 1 && image.channels != 3)) {
        throw input_error("png: width and height must be at least 1, channels 1 or 3");
    }
    const std::size_t row = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
    if (image.pixels.size() != row * static_cast<std::size_t>(image.height)) {
        throw input_error("png: " + std::to_string(image.pixels.size()) + " bytes do not fit a picture of " +
                          std::to_string(image.width) + " x " + std::to_string(image.height) + " pixels");
    }

    const auto big_endian = [](std::uint32_t value) {
        return std::string{static_cast<char>(value >> 24U), static_cast<char>(value >> 16U & 0xFFU),
                           static_cast<char>(value >> 8U & 0xFFU), static_cast<char>(value & 0xFFU)};
    };
    std::string file{"\x89PNG\r\n\x1A\n", 8};
    const auto chunk = [&](std::string_view type, std::string_view data) {
        file += big_endian(static_cast<std::uint32_t>(data.size()));
        const std::size_t checked_from = file.size();
        file.append(type).append(data);
        const auto checksum =
            ::crc32_z(0, reinterpret_cast<const Bytef*>(file.data() + checked_from), file.size() - checked_from);
        file += big_endian(static_cast<std::uint32_t>(checksum));
    };

    std::string header =
        big_endian(static_cast<std::uint32_t>(image.width)) + big_endian(static_cast<std::uint32_t>(image.height));
    header += '\x08';                            // bits per sample
    header += image.channels == 1 ? '\0' : '\2'; // grey or colour
    header.append(3, '\0');                      // deflate, adaptive filters, not interlaced
    chunk("IHDR", header);

    std::vector<std::uint8_t> filtered; // each row: filter type 0 (none), then its samples
    filtered.reserve((row + 1) * static_cast<std::size_t>(image.height));
    for (std::size_t at = 0; at != image.pixels.size(); at += row) {
        filtered.push_back(0);
        filtered.insert(filtered.end(), image.pixels.begin() + static_cast<std::ptrdiff_t>(at),
                        image.pixels.begin() + static_cast<std::ptrdiff_t>(at + row));
    }
    uLongf size = ::compressBound(static_cast<uLong>(filtered.size()));
    std::string packed(size, '\0');
    if (::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, filtered.data(),
                    static_cast<uLong>(filtered.size()), Z_BEST_COMPRESSION) != Z_OK) {
        throw error("png: zlib could not compress the picture");
    }
    packed.resize(size);
    chunk("IDAT", packed);
    chunk("IEND", {});
    return file;
}

PULSE_INLINE void write_png(const std::filesystem::path& path, const picture& image) {
    write_file(path, encode_png(image));
}

PULSE_INLINE picture image_grid(std::span<const float> images, int height, int width, int channels,
                                const grid_options& options) {
    if (height < 1 || width < 1 || (channels != 1 && channels != 3) || options.columns < 1 || options.scale < 1 ||
        options.gap < 0) {
        throw input_error("image grid: sizes, columns and scale must be at least 1, gap at least 0, channels 1 or 3");
    }
    const auto h = static_cast<std::size_t>(height);
    const auto w = static_cast<std::size_t>(width);
    const auto c = static_cast<std::size_t>(channels);
    if (images.empty() || images.size() % (h * w * c) != 0) {
        throw input_error("image grid: " + std::to_string(images.size()) + " values are not one or more whole images");
    }
    const std::size_t count = images.size() / (h * w * c);
    const std::size_t columns = std::min(count, static_cast<std::size_t>(options.columns));
    const std::size_t rows = (count + columns - 1) / columns;
    const auto scale = static_cast<std::size_t>(options.scale);
    const auto gap = static_cast<std::size_t>(options.gap);

    picture result{.width = static_cast<int>(columns * (w * scale + gap) + gap),
                   .height = static_cast<int>(rows * (h * scale + gap) + gap),
                   .channels = channels};
    const std::size_t line = static_cast<std::size_t>(result.width) * c;
    result.pixels.assign(line * static_cast<std::size_t>(result.height), options.background);
    for (std::size_t n = 0; n != count; ++n) {
        const std::size_t top = n / columns * (h * scale + gap) + gap;
        const std::size_t left = n % columns * (w * scale + gap) + gap;
        for (std::size_t y = 0; y != h * scale; ++y) {
            for (std::size_t x = 0; x != w * scale; ++x) {
                for (std::size_t k = 0; k != c; ++k) {
                    const float value = images[((n * h + y / scale) * w + x / scale) * c + k];
                    const float level = std::isnan(value) ? 0.0F : std::clamp((value + 1.0F) * 127.5F, 0.0F, 255.0F);
                    result.pixels[(top + y) * line + (left + x) * c + k] = static_cast<std::uint8_t>(level + 0.5F);
                }
            }
        }
    }
    return result;
}

} // namespace pulse::io
