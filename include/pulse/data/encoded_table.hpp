#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pulse/core/fingerprint.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::data {

/// One tensor of a row: float32 values of shape `dims`.
struct encoded_part {
    std::string name{};
    std::vector<std::int64_t> dims{};

    [[nodiscard]] std::size_t elements() const {
        std::size_t product = 1;
        for (const std::int64_t extent : dims) { product *= static_cast<std::size_t>(extent); }
        return product;
    }
    [[nodiscard]] bool operator==(const encoded_part&) const = default;
};

/// What a table holds, and what its rows were made from.
struct encoded_layout {
    std::string name{}; ///< prefix of its files, as in NAME-<fingerprint of the keys>.safetensors
    /// For each row a fingerprint of everything that it is a function of; all differ.
    std::vector<wide_fingerprint> keys{};
    std::vector<encoded_part> parts{};
    /// Approximate size of a file, the most that a kill loses, unless the table is above 16 GiB.
    std::uint64_t shard_bytes = std::uint64_t{1} << 24U;

    [[nodiscard]] std::uint64_t row_bytes() const {
        std::uint64_t sum = 0;
        for (const encoded_part& part : parts) { sum += part.elements() * sizeof(float); }
        return sum;
    }
    /// Maximum number of rows in a file. Files of a table of more than 16 GiB are larger than shard_bytes, since Linux
    /// lets a process map only some 65,000 files, and there is a table for each bucket.
    [[nodiscard]] std::size_t rows_of_shard() const {
        constexpr std::uint64_t most_files = 1024;
        const std::uint64_t fits = shard_bytes / std::max<std::uint64_t>(1, row_bytes());
        return static_cast<std::size_t>(
            std::max<std::uint64_t>({1, fits, (keys.size() + most_files - 1) / most_files}));
    }
};

/// Rows of tensors in safetensors files of a folder, found by their keys. A folder may hold rows of many layouts, and
/// rows that nobody asks for stay. A file appears whole or not at all, so a killed process leaves only complete ones,
/// and the next process makes what is missing. Files are mapped; any thread may read.
class encoded_table {
public:
    /// Opens the existing files. Throws input_error naming a damaged one, or a folder that exists and cannot be read.
    encoded_table(std::filesystem::path folder, encoded_layout layout);

    [[nodiscard]] const encoded_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] bool has(std::uint32_t row) const { return places_.at(row).file != nullptr; }
    /// Rows that are not present, in order.
    [[nodiscard]] std::vector<std::uint32_t> missing() const;
    [[nodiscard]] bool complete() const noexcept;
    /// Bytes of the rows that are present.
    [[nodiscard]] std::uint64_t bytes() const { return (places_.size() - missing().size()) * layout_.row_bytes(); }

    /// Opens files that others have written since. Throws as the constructor does.
    void refresh();

    /// Writes missing rows into one file: the values of each part and, in `refused`, why a row could not be made, whose
    /// values are zeros. Equal input gives equal bytes. Throws input_error when the file cannot be written.
    void write(std::span<const std::uint32_t> rows, std::span<const std::vector<float>> values,
               const std::map<std::uint32_t, std::string>& refused);

    /// Why a row that is present could not be made; nullptr where it was.
    [[nodiscard]] const std::string* refusal(std::uint32_t row) const;
    /// Reads the values of one part of a row. Throws input_error when the row is not present.
    void read(std::uint32_t row, std::size_t part, std::span<float> out) const;

    /// Removes unfinished files of a killed process. Call it only while no other process writes.
    void remove_leftovers() const;

private:
    struct place {
        std::shared_ptr<const io::safetensors_file> file{};
        std::size_t row{}; ///< in the file
    };

    static constexpr const char* format = "pulse-encoded/2";
    static constexpr const char* ending = ".safetensors";
    static constexpr const char* keys_name = "keys";
    static constexpr io::element_type key_type{"U8", 8};

    [[nodiscard]] std::vector<std::int64_t> dims_of(std::size_t part, std::size_t rows) const;
    /// Replaces the non-ASCII bytes of a message that is not UTF-8, as names of files may be: a header must be UTF-8.
    [[nodiscard]] static std::string plain(std::string text);

    void open(const std::string& name);

    std::filesystem::path folder_;
    encoded_layout layout_;
    std::unordered_map<wide_fingerprint, std::uint32_t> row_of_{};
    std::vector<place> places_;
    std::set<std::string> opened_{};
    std::map<std::uint32_t, std::string> refused_{};
};

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/encoded_table.ipp> // IWYU pragma: keep
#endif
