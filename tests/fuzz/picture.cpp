#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <zlib.h>

#include <pulse/core/error.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/stored_picture.hpp>

#include "reader.hpp"

namespace {

/// A PNG with valid chunk checksums: otherwise these would catch all damage before the reader's other checks.
std::string with_checksums(std::string file) {
    constexpr std::size_t head = 8; // a chunk's length and kind
    constexpr std::size_t sum = 4;
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(file[i]); };
    for (std::size_t at = 8; at + head + sum <= file.size();) {
        const std::size_t length = std::size_t{byte(at)} << 24U | std::size_t{byte(at + 1)} << 16U |
                                   std::size_t{byte(at + 2)} << 8U | byte(at + 3);
        if (length > file.size() - at - head - sum) { break; }
        auto crc =
            ::crc32(0, reinterpret_cast<const unsigned char*>(file.data()) + at + 4, static_cast<unsigned>(length + 4));
        at += head + length;
        for (std::size_t i = sum; i != 0; --i, crc >>= 8U) { file[at + i - 1] = static_cast<char>(crc & 0xFFU); }
        at += sum;
    }
    return file;
}

/// Decoding may fail with a one-line error that begins with the file's name; a decoded picture is complete.
void check(std::string_view file) {
    constexpr pulse::data::picture_limits limits{.most_pixels = 1 << 16};
    try {
        const auto picture = pulse::data::decode_picture(file, "input.json", limits);
        const auto pixels = static_cast<std::uint64_t>(picture.width) * static_cast<std::uint64_t>(picture.height);
        if (picture.channels != 3 || picture.width < 1 || picture.height < 1 || pixels > limits.most_pixels ||
            picture.pixels.size() != 3 * pixels) {
            pulse_fuzz::report("a picture of another size", std::to_string(pixels));
        }
        const auto size =
            pulse::data::format_of(file).size({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()});
        if (std::uint64_t{size.width} * size.height != pixels) {
            pulse_fuzz::report("a header of another size", std::to_string(size.width));
        }
    } catch (const pulse::input_error& e) {
        constexpr std::array<std::string_view, 1> anything{""};
        if (!pulse_fuzz::names_the_culprit(e.what(), anything)) { pulse_fuzz::report("unclear refusal", e.what()); }
    }
}

} // namespace

/// Reads the input as a file of one of picture_formats.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string file(reinterpret_cast<const char*>(data), size);
    check(file);
    check(with_checksums(file));
    return 0;
}
