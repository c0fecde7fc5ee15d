#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
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
    encoded_table(std::filesystem::path folder, encoded_layout layout) :
        folder_{std::move(folder)}, layout_{std::move(layout)}, places_(layout_.keys.size()) {
        for (std::uint32_t row = 0; row != layout_.keys.size(); ++row) { row_of_.emplace(layout_.keys[row], row); }
        refresh();
    }

    [[nodiscard]] const encoded_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] bool has(std::uint32_t row) const { return places_.at(row).file != nullptr; }
    /// Rows that are not there, in order.
    [[nodiscard]] std::vector<std::uint32_t> missing() const {
        std::vector<std::uint32_t> rows;
        for (std::uint32_t row = 0; row != places_.size(); ++row) {
            if (!has(row)) { rows.push_back(row); }
        }
        return rows;
    }
    [[nodiscard]] bool complete() const noexcept {
        return std::all_of(places_.begin(), places_.end(), [](const place& of) { return of.file != nullptr; });
    }
    /// Bytes of the rows that are there.
    [[nodiscard]] std::uint64_t bytes() const { return (places_.size() - missing().size()) * layout_.row_bytes(); }

    /// Opens what others have written since. Throws as the constructor does.
    void refresh() {
        std::vector<std::string> found; // in one order on every rank
        std::error_code fault;
        for (std::filesystem::directory_iterator at{folder_, fault}, end; !fault && at != end; at.increment(fault)) {
            std::string name = at->path().filename().string();
            if (name.starts_with(layout_.name + '-') && name.ends_with(ending)) { found.push_back(std::move(name)); }
        }
        std::sort(found.begin(), found.end());
        for (const std::string& name : found) { open(name); }
    }

    /// Writes rows that are missing into a file: for each part their values, and why one could not be made, by row; a
    /// row that was refused has zeros. Equal input gives equal bytes. Throws input_error when it cannot be written.
    void write(std::span<const std::uint32_t> rows, std::span<const std::vector<float>> values,
               const std::map<std::uint32_t, std::string>& refused) {
        io::tensor_metadata metadata{{"format", format}};
        std::vector<wide_fingerprint> keys;
        wide_fingerprint all;
        for (const std::uint32_t row : rows) {
            if (const auto found = refused.find(row); found != refused.end()) {
                metadata["refused " + std::to_string(keys.size())] = plain(found->second);
            }
            keys.push_back(layout_.keys[row]);
            all.add(keys.back().text());
        }
        std::vector<io::tensor_source> tensors{
            {keys_name, key_type, {std::ssize(keys), sizeof(wide_fingerprint)}, std::as_bytes(std::span{keys})}};
        for (std::size_t p = 0; p != layout_.parts.size(); ++p) {
            tensors.push_back(
                {layout_.parts[p].name, io::f32, dims_of(p, keys.size()), std::as_bytes(std::span{values[p]})});
        }
        std::error_code fault; // the file's own says the same
        std::filesystem::create_directories(folder_, fault);
        const std::string name = layout_.name + '-' + all.text() + ending;
        io::write_safetensors(folder_ / name, tensors, metadata);
        open(name);
    }

    /// Why a row, which is there, could not be made; nullptr where it was.
    [[nodiscard]] const std::string* refusal(std::uint32_t row) const {
        const auto found = refused_.find(row);
        return found == refused_.end() ? nullptr : &found->second;
    }
    /// The values of a part of a row, which is there.
    void read(std::uint32_t row, std::size_t part, std::span<float> out) const {
        const std::size_t bytes = layout_.parts.at(part).elements() * sizeof(float);
        if (row >= places_.size() || !has(row) || out.size_bytes() != bytes) {
            throw input_error("encoded " + layout_.name + ": no row " + std::to_string(row) + " of " +
                              std::to_string(out.size()) + " values");
        }
        const io::safetensors_file& file = *places_[row].file;
        const auto all = file.bytes(*file.find(layout_.parts[part].name));
        std::memcpy(out.data(), all.data() + places_[row].row * bytes, bytes);
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
    struct place {
        std::shared_ptr<const io::safetensors_file> file{};
        std::size_t row{}; ///< in the file
    };

    static constexpr const char* format = "pulse-encoded/2";
    static constexpr const char* ending = ".safetensors";
    static constexpr const char* keys_name = "keys";
    static constexpr io::element_type key_type{"U8", 8};

    [[nodiscard]] std::vector<std::int64_t> dims_of(std::size_t part, std::size_t rows) const {
        std::vector<std::int64_t> dims{static_cast<std::int64_t>(rows)};
        dims.insert(dims.end(), layout_.parts[part].dims.begin(), layout_.parts[part].dims.end());
        return dims;
    }
    /// What a header, which is UTF-8, can hold of a message with names of files.
    [[nodiscard]] static std::string plain(std::string text) {
        if (valid_utf8(text) == text.size()) { return text; }
        for (char& c : text) { c = static_cast<unsigned char>(c) < 0x80 ? c : '?'; }
        return text;
    }

    void open(const std::string& name) {
        if (!opened_.insert(name).second) { return; }
        const std::string path = '\'' + one_line((folder_ / name).string()) + '\'';
        const auto damaged = [&](const std::string& what) {
            return input_error(path + ": " + what + ": remove the file, and what it had is made again");
        };
        std::shared_ptr<const io::safetensors_file> file;
        try {
            file = std::make_shared<const io::safetensors_file>(folder_ / name);
        } catch (const input_error& fault) {
            throw input_error(std::string{fault.what()} + ": remove the file, and what it had is made again");
        }
        const auto said = file->metadata().find("format");
        if (said == file->metadata().end() || said->second != format) {
            throw input_error(path + ": it is no " + format +
                              ", as another version has written it: remove its folder, or "
                              "give another");
        }
        const io::tensor_entry* const keys = file->find(keys_name);
        if (keys == nullptr || keys->type != key_type || keys->dims.size() != 2 ||
            keys->dims[1] != sizeof(wide_fingerprint)) {
            throw damaged("its tensor 'keys' is missing or of another shape");
        }
        std::vector<wide_fingerprint> has(static_cast<std::size_t>(keys->dims[0]));
        file->read(*keys, std::as_writable_bytes(std::span{has}));
        bool checked = false;
        for (std::size_t i = 0; i != has.size(); ++i) {
            const auto asked = row_of_.find(has[i]);
            if (asked == row_of_.end() || this->has(asked->second)) { continue; }
            for (std::size_t p = 0; p != layout_.parts.size() && !checked; ++p) {
                const io::tensor_entry* const tensor = file->find(layout_.parts[p].name);
                if (tensor == nullptr || tensor->type != io::f32 || tensor->dims != dims_of(p, has.size())) {
                    throw damaged("its tensor '" + layout_.parts[p].name + "' is missing or of another shape");
                }
            }
            checked = true;
            places_[asked->second] = {file, i};
            const auto why = file->metadata().find("refused " + std::to_string(i));
            if (why != file->metadata().end()) { refused_[asked->second] = why->second; }
        }
    }

    std::filesystem::path folder_;
    encoded_layout layout_;
    std::unordered_map<wide_fingerprint, std::uint32_t> row_of_{};
    std::vector<place> places_;
    std::set<std::string> opened_{};
    std::map<std::uint32_t, std::string> refused_{};
};

} // namespace pulse::data
