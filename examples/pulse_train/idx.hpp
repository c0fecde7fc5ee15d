#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pulse_train {

/// Images of an IDX file: count x rows x columns bytes, row by row.
struct idx_images {
    int count{};
    int rows{};
    int columns{};
    std::vector<std::uint8_t> pixels{};

    [[nodiscard]] bool operator==(const idx_images&) const = default;
};

/// Reads an IDX file of images (magic 0x803, big-endian), plain or gzip. Throws input_error naming file and fault.
[[nodiscard]] idx_images read_idx_images(const std::filesystem::path& path);

/// Reads an IDX file of labels (magic 0x801), plain or gzip. Throws input_error naming the file and the fault.
[[nodiscard]] std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& path);

/// `folder`/`name` or `folder`/`name`.gz, whichever exists. Throws input_error naming both when neither does.
[[nodiscard]] std::filesystem::path find_idx(const std::filesystem::path& folder, const std::string& name);

} // namespace pulse_train
