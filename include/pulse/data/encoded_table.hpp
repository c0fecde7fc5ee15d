#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/text.hpp>
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
    std::string name{}; ///< of its files, such as NAME-00000.safetensors
    std::uint32_t rows{};
    std::vector<encoded_part> parts{};
    /// What the rows are functions of, by the word for it; a table that was made from anything else is stale.
    std::map<std::string, fingerprint> made_from{};
    std::uint64_t shard_bytes = std::uint64_t{1} << 24U; ///< about so many in one file; a kill loses no more

    [[nodiscard]] std::uint64_t row_bytes() const {
        std::uint64_t sum = 0;
        for (const encoded_part& part : parts) { sum += part.elements() * sizeof(float); }
        return sum;
    }
    [[nodiscard]] std::uint32_t rows_of_shard() const {
        const std::uint64_t fit = shard_bytes / std::max<std::uint64_t>(1, row_bytes());
        return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fit, 1, std::max(1U, rows)));
    }
};

/// Rows of tensors in safetensors files of a folder, a range of rows in each. A file appears whole or not at all, so what
/// a killed process has left is complete, and what is missing is made by the next. Files are mapped; any thread may read.
class encoded_table {
public:
    /// Opens what is there. Throws input_error naming the file that was made from something else or is damaged.
    encoded_table(std::filesystem::path folder, encoded_layout layout) :
        folder_{std::move(folder)}, layout_{std::move(layout)}, rows_of_shard_{layout_.rows_of_shard()},
        files_((layout_.rows + std::uint64_t{rows_of_shard_} - 1) / rows_of_shard_) {
        refresh();
    }

    [[nodiscard]] const encoded_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] std::uint32_t shards() const noexcept { return static_cast<std::uint32_t>(files_.size()); }
    [[nodiscard]] bool has(std::uint32_t shard) const { return files_.at(shard).has_value(); }
    [[nodiscard]] bool complete() const noexcept {
        return std::all_of(files_.begin(), files_.end(), [](const auto& file) { return file.has_value(); });
    }
    [[nodiscard]] std::uint32_t first_row(std::uint32_t shard) const noexcept { return shard * rows_of_shard_; }
    [[nodiscard]] std::uint32_t rows_in(std::uint32_t shard) const noexcept {
        return std::min(rows_of_shard_, layout_.rows - first_row(shard));
    }
    /// Bytes of the tensors that are there.
    [[nodiscard]] std::uint64_t bytes() const noexcept {
        std::uint64_t rows = 0;
        for (std::uint32_t shard = 0; shard != shards(); ++shard) { rows += files_[shard] ? rows_in(shard) : 0U; }
        return rows * layout_.row_bytes();
    }

    /// Opens what others have written since. Throws as the constructor does.
    void refresh() {
        for (std::uint32_t shard = 0; shard != shards(); ++shard) {
            std::error_code unused;
            if (!files_[shard] && std::filesystem::exists(path_of(shard), unused)) { open(shard); }
        }
    }

    /// Writes one shard: for each part the values of its rows, and why rows could not be made, by row; a row that was
    /// refused has zeros. Equal input gives equal bytes. Throws input_error when it cannot be written.
    void write(std::uint32_t shard, std::span<const std::vector<float>> values,
               const std::map<std::uint32_t, std::string>& refused) {
        io::tensor_metadata metadata{{"format", format}};
        for (const auto& [what, from] : layout_.made_from) { metadata["made from " + what] = from.text(); }
        for (const auto& [row, why] : refused) { metadata["refused " + std::to_string(row)] = plain(why); }
        std::vector<io::tensor_source> tensors;
        for (std::size_t p = 0; p != layout_.parts.size(); ++p) {
            tensors.push_back({layout_.parts[p].name, io::f32, dims_of(p, shard), std::as_bytes(std::span{values[p]})});
        }
        std::error_code fault; // the file's own says the same
        std::filesystem::create_directories(folder_, fault);
        io::write_safetensors(path_of(shard), tensors, metadata);
        open(shard);
    }

    /// Why a row could not be made; nullptr where it was. The row's shard is there.
    [[nodiscard]] const std::string* refusal(std::uint32_t row) const {
        const auto found = refused_.find(row);
        return found == refused_.end() ? nullptr : &found->second;
    }
    /// The values of a part of a row, whose shard is there.
    void read(std::uint32_t row, std::size_t part, std::span<float> out) const {
        const io::safetensors_file& file = files_.at(row / rows_of_shard_).value();
        const std::size_t bytes = layout_.parts.at(part).elements() * sizeof(float);
        if (row >= layout_.rows || out.size_bytes() != bytes) {
            throw input_error("encoded " + layout_.name + ": no row " + std::to_string(row) + " of " +
                              std::to_string(out.size()) + " values");
        }
        const auto all = file.bytes(*file.find(layout_.parts[part].name));
        std::memcpy(out.data(), all.data() + row % rows_of_shard_ * bytes, bytes);
    }

    /// Removes files that a killed process had begun; to be called where no other process writes.
    void remove_leftovers() const {
        std::vector<std::filesystem::path> found;
        std::error_code fault;
        for (std::filesystem::directory_iterator at{folder_, fault}, end; !fault && at != end; at.increment(fault)) {
            const std::string name = at->path().filename().string();
            if (name.starts_with('.' + layout_.name + '-') && name.ends_with(".tmp")) { found.push_back(at->path()); }
        }
        for (const auto& path : found) { std::filesystem::remove(path, fault); }
    }

private:
    static constexpr const char* format = "pulse-encoded/1";

    [[nodiscard]] std::filesystem::path path_of(std::uint32_t shard) const {
        const std::string number = std::to_string(shard);
        const std::string zeros(number.size() < 5 ? 5 - number.size() : 0, '0');
        return folder_ / (layout_.name + '-' + zeros + number + ".safetensors");
    }
    [[nodiscard]] std::vector<std::int64_t> dims_of(std::size_t part, std::uint32_t shard) const {
        std::vector<std::int64_t> dims{static_cast<std::int64_t>(rows_in(shard))};
        dims.insert(dims.end(), layout_.parts[part].dims.begin(), layout_.parts[part].dims.end());
        return dims;
    }
    /// What a header, which is UTF-8, can hold of a message with names of files.
    [[nodiscard]] static std::string plain(std::string text) {
        if (valid_utf8(text) == text.size()) { return text; }
        for (char& c : text) { c = static_cast<unsigned char>(c) < 0x80 ? c : '?'; }
        return text;
    }

    void open(std::uint32_t shard) {
        const std::string place = '\'' + one_line(path_of(shard).string()) + "': ";
        io::safetensors_file file{path_of(shard)};
        const auto said = [&](const std::string& key) {
            const auto found = file.metadata().find(key);
            return found == file.metadata().end() ? std::string{"nothing"} : found->second;
        };
        if (said("format") != format) { throw input_error(place + "it is no " + format); }
        for (const auto& [what, from] : layout_.made_from) {
            if (const std::string before = said("made from " + what); before != from.text()) {
                throw input_error(place + "it is stale: the " + what + " it was made from had the fingerprint " +
                                  one_line(before) + ", now it is " + from.text() +
                                  "; give an empty folder, or remove its " + layout_.name + "-*.safetensors");
            }
        }
        for (std::size_t p = 0; p != layout_.parts.size(); ++p) {
            const io::tensor_entry* const tensor = file.find(layout_.parts[p].name);
            if (tensor == nullptr || tensor->type != io::f32 || tensor->dims != dims_of(p, shard)) {
                throw input_error(place + "its tensor '" + layout_.parts[p].name +
                                  "' is missing or of another shape: remove the file, and it is made again");
            }
        }
        for (std::uint32_t i = 0; i != rows_in(shard); ++i) {
            const std::uint32_t row = first_row(shard) + i;
            const auto found = file.metadata().find("refused " + std::to_string(row));
            if (found != file.metadata().end()) { refused_[row] = found->second; }
        }
        files_[shard].emplace(std::move(file));
    }

    std::filesystem::path folder_;
    encoded_layout layout_;
    std::uint32_t rows_of_shard_;
    std::vector<std::optional<io::safetensors_file>> files_;
    std::map<std::uint32_t, std::string> refused_{};
};

} // namespace pulse::data
