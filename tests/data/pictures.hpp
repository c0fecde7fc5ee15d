#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <webp/encode.h>
#include <zlib.h>

#include <pulse/io/png.hpp>

#include <io/scratch.hpp>

namespace pulse::test {

/// A picture that every flip or rotation changes: smooth, with noise on top.
[[nodiscard]] inline io::picture some_picture(int width, int height, unsigned seed = 1, int noise = 16) {
    std::minstd_rand engine{seed};
    io::picture image{.width = width, .height = height, .channels = 3};
    for (int y = 0; y != height; ++y) {
        for (int x = 0; x != width; ++x) {
            for (int k = 0; k != 3; ++k) {
                const int smooth = x * 150 / width + (k == 1 ? 0 : y * 80 / height) + 5 * k;
                image.pixels.push_back(
                    static_cast<std::uint8_t>(smooth + static_cast<int>(engine() % static_cast<unsigned>(noise))));
            }
        }
    }
    return image;
}

/// EXIF data whose only information is an orientation.
[[nodiscard]] inline std::string exif_with(int orientation, bool little = true) {
    const auto number = [&](unsigned value, int bytes) {
        std::string text;
        for (int i = 0; i != bytes; ++i) {
            const int place = little ? i : bytes - 1 - i;
            text += static_cast<char>(value >> (8 * place) & 0xFFU);
        }
        return text;
    };
    return (little ? "II" : "MM") + number(42, 2) + number(8, 4) + number(2, 2) +         // two entries:
           number(0x0110, 2) + number(2, 2) + number(2, 4) + "a" + std::string(3, '\0') + // a camera's name
           number(0x0112, 2) + number(3, 2) + number(1, 4) + number(static_cast<unsigned>(orientation), 2) +
           std::string(2, '\0') + number(0, 4);
}

struct jpeg_form {
    int quality = 95;
    bool progressive = false;
    bool grey = false;
    bool inks = false;    ///< CMYK, stored inverted as Adobe does
    unsigned restart = 0; ///< blocks between restart markers; 0: no markers
    std::string exif{};
};

[[nodiscard]] inline std::string encode_jpeg(const io::picture& image, const jpeg_form& form = {}) {
    jpeg_compress_struct info{};
    jpeg_error_mgr errors{};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_width = static_cast<JDIMENSION>(image.width);
    info.image_height = static_cast<JDIMENSION>(image.height);
    info.input_components = form.inks ? 4 : form.grey ? 1 : 3;
    info.in_color_space = form.inks ? JCS_CMYK : form.grey ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, form.quality, TRUE);
    if (form.progressive) { jpeg_simple_progression(&info); }
    info.restart_interval = form.restart;
    jpeg_start_compress(&info, TRUE);
    if (!form.exif.empty()) {
        const std::string data = std::string{"Exif\0\0", 6} + form.exif;
        jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(data.data()),
                          static_cast<unsigned>(data.size()));
    }
    const auto width = static_cast<std::size_t>(image.width);
    std::vector<std::uint8_t> row(width * static_cast<std::size_t>(info.input_components));
    for (std::size_t y = 0; y != static_cast<std::size_t>(image.height); ++y) {
        for (std::size_t x = 0; x != width; ++x) {
            const std::uint8_t* const from = image.pixels.data() + (y * width + x) * 3;
            if (form.grey) { row[x] = from[0]; }
            for (std::size_t k = 0; !form.grey && k != 3; ++k) { row[x * (form.inks ? 4 : 3) + k] = from[k]; }
            if (form.inks) { row[x * 4 + 3] = 255; }
        }
        JSAMPROW line = row.data();
        jpeg_write_scanlines(&info, &line, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    std::string result(reinterpret_cast<const char*>(bytes), size);
    std::free(bytes);
    return result;
}

/// Lossless WebP; EXIF data, if given, follow the picture in an extended file.
[[nodiscard]] inline std::string encode_webp(const io::picture& image, const std::string& exif = {}) {
    std::uint8_t* bytes = nullptr;
    const std::size_t size =
        WebPEncodeLosslessRGB(image.pixels.data(), image.width, image.height, image.width * 3, &bytes);
    std::string file(reinterpret_cast<const char*>(bytes), size);
    WebPFree(bytes);
    if (exif.empty()) { return file; }
    const auto little = [](std::size_t value, int count) {
        std::string text;
        for (int i = 0; i != count; ++i) { text += static_cast<char>(value >> (8 * i) & 0xFFU); }
        return text;
    };
    const std::string picture = file.substr(12);
    const std::string padded = exif.size() % 2 == 0 ? exif : exif + '\0';
    const std::string body = "WEBPVP8X" + little(10, 4) + '\x08' + std::string(3, '\0') +
                             little(static_cast<std::size_t>(image.width - 1), 3) +
                             little(static_cast<std::size_t>(image.height - 1), 3) + picture + "EXIF" +
                             little(exif.size(), 4) + padded;
    return "RIFF" + little(body.size(), 4) + body;
}

/// A PNG with an eXIf chunk after its pixels.
[[nodiscard]] inline std::string png_with_exif(const io::picture& image, const std::string& exif) {
    std::string file = io::encode_png(image);
    const auto big = [](std::uint32_t value) {
        std::string text;
        for (int i = 3; i >= 0; --i) { text += static_cast<char>(value >> (8 * i) & 0xFFU); }
        return text;
    };
    const std::string checked = "eXIf" + exif;
    const auto sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
    const std::string chunk =
        big(static_cast<std::uint32_t>(exif.size())) + checked + big(static_cast<std::uint32_t>(sum));
    return file.insert(file.size() - 12, chunk);
}

/// A ustar header with its checksum.
[[nodiscard]] inline std::string tar_header(const std::string& name, std::size_t bytes, char type = '0') {
    std::string header(512, '\0');
    header.replace(0, name.size(), name);
    const auto octal = [&](std::size_t at, std::size_t digits, std::size_t value) {
        for (std::size_t i = digits; i != 0; --i, value /= 8) {
            header[at + i - 1] = static_cast<char>('0' + static_cast<char>(value % 8));
        }
    };
    octal(100, 7, 0644);
    octal(124, 11, bytes);
    header[156] = type;
    header.replace(257, 8,
                   std::string{"ustar\0"
                               "00",
                               8});
    header.replace(148, 8, 8, ' ');
    std::size_t sum = 0;
    for (const char c : header) { sum += static_cast<unsigned char>(c); }
    octal(148, 6, sum);
    header[154] = '\0';
    return header;
}

[[nodiscard]] inline std::string tar_file(const std::string& name, const std::string& bytes, char type = '0') {
    std::string file = tar_header(name, bytes.size(), type) + bytes;
    file.resize((file.size() + 511) / 512 * 512, '\0');
    return file;
}

inline std::string tar_end() { return std::string(1024, '\0'); }

/// An input file whose bytes are in memory.
struct bytes_in_memory {
    std::string bytes;
    [[nodiscard]] std::string name() const { return "'memory'"; }
    [[nodiscard]] std::uint64_t size() const { return bytes.size(); }
    void read(std::uint64_t offset, std::span<std::byte> out) const {
        if (offset > bytes.size() || out.size() > bytes.size() - offset) { std::abort(); }
        if (!out.empty()) { std::memcpy(out.data(), bytes.data() + offset, out.size()); }
    }
};

} // namespace pulse::test
