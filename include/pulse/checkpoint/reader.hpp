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

/// A complete checkpoint that is open for reading: a step's folder, or one file as export_merged writes it.
///
/// Ranks read what they ask for and nothing else of the shards, however many ranks wrote them.
class checkpoint_reader {
public:
    /// Checks the manifest, and that every file is there with its size. Throws input_error naming the bad one.
    explicit checkpoint_reader(const std::filesystem::path& path);

    [[nodiscard]] const checkpoint_manifest& manifest() const noexcept { return manifest_; }
    [[nodiscard]] const training_state& state() const noexcept { return manifest_.state; }

    /// Reads what belongs in the ranges, all of it, and leaves their values as they are. Throws input_error naming the
    /// tensor that is missing or of another shape, or the file that is damaged.
    void check(std::span<const tensor_range<float>> ranges);
    /// Fills ranges that are checked.
    void fill(std::span<const tensor_range<float>> ranges);
    /// Checks all ranges, then fills them.
    void read(std::span<const tensor_range<float>> ranges) {
        check(ranges);
        fill(ranges);
    }

    /// Fills `out`, which has the piece's size, and checks it. Throws input_error naming the file and the tensor.
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
