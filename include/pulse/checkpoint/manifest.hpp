#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::train {

inline constexpr const char* manifest_format = "pulse-checkpoint/2";
inline constexpr const char* manifest_name = "manifest.json";

/// A flat range of a tensor's elements (F32, C order) and the place of its bytes. It is always read as a whole.
struct checkpoint_piece {
    std::size_t file{};    ///< index in the manifest's list
    std::int64_t offset{}; ///< of its first byte in the file
    std::int64_t first{};  ///< its first element in the tensor
    std::int64_t elements{};
    std::uint32_t crc32{};

    [[nodiscard]] bool operator==(const checkpoint_piece&) const = default;
};

/// A tensor under its name in the file (`conv_in.weight`, `optimizer.m.conv_in.weight`); pieces sorted by first
/// element.
struct checkpoint_entry {
    std::string name{};
    std::vector<std::int64_t> dims{};
    std::vector<checkpoint_piece> pieces{};

    [[nodiscard]] std::int64_t elements() const noexcept {
        std::int64_t n = 1;
        for (const std::int64_t extent : dims) { n *= extent; }
        return n;
    }
    [[nodiscard]] bool operator==(const checkpoint_entry&) const = default;
};

/// A file beside the manifest.
struct checkpoint_file {
    std::string name{};
    std::int64_t bytes{};

    [[nodiscard]] bool operator==(const checkpoint_file&) const = default;
};

/// Contents of a checkpoint of many files; its JSON form is `manifest.json`, format pulse-checkpoint/2.
struct checkpoint_manifest {
    std::int64_t sequence{}; ///< counts the checkpoints of a folder: the largest is the last, whatever its step
    int world = 1;           ///< ranks that wrote it
    std::string plan{};      ///< hash of the plan that the ranks ran; may be empty
    training_state state{};
    std::vector<checkpoint_file> files{};
    std::vector<checkpoint_entry> tensors{}; ///< by name

    /// The tensor of that name, or nullptr.
    [[nodiscard]] const checkpoint_entry* find(std::string_view name) const noexcept {
        const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                         [](const checkpoint_entry& e, std::string_view n) { return e.name < n; });
        return at == tensors.end() || at->name != name ? nullptr : &*at;
    }
    [[nodiscard]] bool operator==(const checkpoint_manifest&) const = default;
};

namespace detail {

[[nodiscard]] PULSE_INLINE std::uint32_t crc32_of(std::span<const std::byte> bytes) noexcept;

} // namespace detail

/// Throws input_error, which names `source` and the field, file or tensor, unless the manifest is valid: every tensor
/// is listed once and covered exactly once, every piece is inside a file that is listed once, and no two pieces
/// overlap.
PULSE_INLINE void check_manifest(const checkpoint_manifest& manifest, std::string_view source);

/// The JSON text of a manifest. Throws input_error when a name is not UTF-8.
///
/// The field `crc32` covers the other fields as compact JSON with sorted keys, so that any damage is detected.
[[nodiscard]] PULSE_INLINE std::string print_manifest(const checkpoint_manifest& manifest);

/// Parses a manifest and checks it in full (check_manifest). Throws input_error naming `source` and the field.
[[nodiscard]] PULSE_INLINE checkpoint_manifest parse_manifest(std::string_view text, std::string_view source);

/// Reads and checks `folder`/manifest.json; errors name it.
[[nodiscard]] PULSE_INLINE checkpoint_manifest read_manifest(const std::filesystem::path& folder);

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/manifest.ipp> // IWYU pragma: keep
#endif
