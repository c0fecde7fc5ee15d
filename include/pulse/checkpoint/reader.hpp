#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::train {

/// A complete checkpoint open for reading: a step's folder, or a single file of export_merged.
///
/// Each rank reads only the pieces that it asks for, however many ranks wrote the shards.
class checkpoint_reader {
public:
    /// Checks the manifest, and that every file exists with its size. Throws input_error naming the bad one.
    explicit checkpoint_reader(const std::filesystem::path& path);

    [[nodiscard]] const checkpoint_manifest& manifest() const noexcept { return manifest_; }
    [[nodiscard]] const training_state& state() const noexcept { return manifest_.state; }

    /// Reads everything that the ranges need, and leaves their values unchanged. Throws input_error naming the tensor
    /// that is missing or of another shape, or the file that is damaged.
    void check(std::span<const tensor_range<float>> ranges);
    /// Fills ranges that have been checked.
    void fill(std::span<const tensor_range<float>> ranges);
    /// Checks all ranges, then fills them.
    void read(std::span<const tensor_range<float>> ranges) {
        check(ranges);
        fill(ranges);
    }

    /// Reads a piece into `out`, which has its size, and checks it. Throws input_error naming the file and the tensor.
    void read_piece(const checkpoint_entry& entry, const checkpoint_piece& piece, std::span<float> out);

private:
    struct opened {
        std::filesystem::path path;
        std::unique_ptr<std::ifstream> stream;
    };

    void require_fit(const tensor_range<float>& range) const;

    void read(const tensor_range<float>& range, bool writing);

    checkpoint_manifest manifest_{};
    std::vector<opened> files_{};
    std::vector<float> buffer_{};
};

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/reader.ipp> // IWYU pragma: keep
#endif
