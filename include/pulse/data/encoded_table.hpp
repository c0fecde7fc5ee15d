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

/// One of the tensors of a row: float32 values of these extents.
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
    std::string name{}; ///< of its files, such as NAME-0123456789abcdef.safetensors
    /// Of each row: stands for all that it is a function of. They differ.
    std::vector<wide_fingerprint> keys{};
    std::vector<encoded_part> parts{};
    std::uint64_t shard_bytes = std::uint64_t{1} << 24U; ///< about so many in one file; a kill loses no more

    [[nodiscard]] std::uint64_t row_bytes() const {
        std::uint64_t sum = 0;
        for (const encoded_part& part : parts) { sum += part.elements() * sizeof(float); }
        return sum;
    }
    /// The most rows of a file.
    [[nodiscard]] std::size_t rows_of_shard() const {
        return static_cast<std::size_t>(
            std::max<std::uint64_t>(1, shard_bytes / std::max<std::uint64_t>(1, row_bytes())));
    }
};

/// Rows of tensors in safetensors files of a folder, found by their keys: a folder may have the rows of many layouts,
/// and what nobody asks for stays. A file appears whole or not at all, so what a killed process has left is complete,
/// and what is missing is made by the next. Files are mapped; any thread may read.
class encoded_table {
public:
    /// Opens what is there. Throws input_error naming the file that is damaged.
    encoded_table(std::filesystem::path folder, encoded_layout layout);

    [[nodiscard]] const encoded_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] bool has(std::uint32_t row) const { return places_.at(row).file != nullptr; }
    /// Rows that are not there, in order.
    [[nodiscard]] std::vector<std::uint32_t> missing() const;
    [[nodiscard]] bool complete() const noexcept;
    /// Bytes of the rows that are there.
    [[nodiscard]] std::uint64_t bytes() const { return (places_.size() - missing().size()) * layout_.row_bytes(); }

    /// Opens what others have written since. Throws as the constructor does.
    void refresh();

    /// Writes rows that are missing into a file: for each part their values, and why one could not be made, by row; a
    /// row that was refused has zeros. Equal input gives equal bytes. Throws input_error when it cannot be written.
    void write(std::span<const std::uint32_t> rows, std::span<const std::vector<float>> values,
               const std::map<std::uint32_t, std::string>& refused);

    /// Why a row, which is there, could not be made; nullptr where it was.
    [[nodiscard]] const std::string* refusal(std::uint32_t row) const;
    /// The values of a part of a row, which is there.
    void read(std::uint32_t row, std::size_t part, std::span<float> out) const;

    /// Removes files that a killed process had begun; to be called where no other process writes.
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
    /// What a header, which is UTF-8, can hold of a message with names of files.
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
