#include "idx.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <pulse/core/error.hpp>

#include "gzip_reader.hpp"

namespace pulse_train {

namespace detail {

[[nodiscard]] inline std::uint32_t idx_word(gzip_reader& file, const char* what) {
    std::array<std::uint8_t, 4> bytes{};
    if (file.read(bytes) != bytes.size()) {
        throw pulse::input_error("'" + file.name() + "' ends before " + what +
                                 ": it is not an IDX file or was cut short");
    }
    return (std::uint32_t{bytes[0]} << 24U) | (std::uint32_t{bytes[1]} << 16U) | (std::uint32_t{bytes[2]} << 8U) |
           std::uint32_t{bytes[3]};
}

inline void idx_magic(gzip_reader& file, std::uint32_t expected, const char* content) {
    const std::uint32_t magic = idx_word(file, "its magic number");
    if (magic != expected) {
        throw pulse::input_error("'" + file.name() + "' is not an IDX file of " + content + ": its magic number is " +
                                 std::to_string(magic) + ", not " + std::to_string(expected));
    }
}

[[nodiscard]] inline int idx_extent(gzip_reader& file, const char* what) {
    const std::uint32_t value = idx_word(file, what);
    if (value == 0 || value > 0x7FFFFFFFU) {
        throw pulse::input_error("'" + file.name() + "': " + what + " must be from 1 to 2147483647, not " +
                                 std::to_string(value));
    }
    return static_cast<int>(value);
}

/// Exactly `count` bytes up to the file's end. Memory grows with the actual data, not with what the header claims.
[[nodiscard]] inline std::vector<std::uint8_t> idx_payload(gzip_reader& file, std::uint64_t count) {
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < count) {
        const std::size_t before = bytes.size();
        const std::uint64_t block = std::min(count - before, std::max<std::uint64_t>(std::uint64_t{1} << 20U, before));
        bytes.resize(before + static_cast<std::size_t>(block));
        const std::size_t got = file.read(std::span{bytes}.subspan(before));
        if (got != block) {
            throw pulse::input_error("'" + file.name() + "' is cut short: its header promises " +
                                     std::to_string(count) + " bytes of data, but it has " +
                                     std::to_string(before + got));
        }
    }
    std::array<std::uint8_t, 1> extra{};
    if (file.read(extra) != 0) {
        throw pulse::input_error("'" + file.name() + "' has bytes after the " + std::to_string(count) +
                                 " that its header promises");
    }
    return bytes;
}

} // namespace detail

idx_images read_idx_images(const std::filesystem::path& path) {
    gzip_reader file{path};
    detail::idx_magic(file, 0x803U, "images");
    idx_images result;
    result.count = detail::idx_extent(file, "the number of images");
    result.rows = detail::idx_extent(file, "the number of rows");
    result.columns = detail::idx_extent(file, "the number of columns");
    // Below this the byte count fits in 64 bits; a larger image means a damaged header.
    const std::uint64_t image = static_cast<std::uint64_t>(result.rows) * static_cast<std::uint64_t>(result.columns);
    if (image > (std::uint64_t{1} << 28U)) {
        throw pulse::input_error("'" + file.name() + "': images of " + std::to_string(result.rows) + " x " +
                                 std::to_string(result.columns) + " pixels are too large");
    }
    result.pixels = detail::idx_payload(file, image * static_cast<std::uint64_t>(result.count));
    return result;
}

std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& path) {
    gzip_reader file{path};
    detail::idx_magic(file, 0x801U, "labels");
    const int count = detail::idx_extent(file, "the number of labels");
    return detail::idx_payload(file, static_cast<std::uint64_t>(count));
}

std::filesystem::path find_idx(const std::filesystem::path& folder, const std::string& name) {
    for (const char* suffix : {"", ".gz"}) {
        std::error_code ignored;
        const auto candidate = folder / (name + suffix);
        if (std::filesystem::is_regular_file(candidate, ignored)) { return candidate; }
    }
    throw pulse::input_error("neither '" + (folder / name).string() + "' nor '" + (folder / name).string() +
                             ".gz' is a file");
}

} // namespace pulse_train
