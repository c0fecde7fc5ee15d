#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/weight_numbers.hpp>
#include <pulse/io/disk.hpp>
#include <pulse/io/mapped_file.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::diffusers {

/// Throws input_error unless a new folder may replace `target`: it is absent, empty, or only a model_index.json and
/// folders of components; with `class_name`, only the config.json and weights of a component of that class. The message
/// names what else is there. Also throws as train::require_place() does.
PULSE_INLINE void require_replaceable(const std::filesystem::path& target, std::string_view class_name = {});

/// The shard of each tensor, filling shards in order up to `most` bytes (0: no limit); `bytes` are the tensors'.
[[nodiscard]] PULSE_INLINE std::vector<std::size_t> shards_of(std::span<const std::uint64_t> bytes, std::uint64_t most);

/// The text of an index of shards: the file of each tensor, and their total bytes.
[[nodiscard]] PULSE_INLINE std::string print_shards(const std::map<std::string, std::string>& files,
                                                    std::uint64_t bytes);

/// A diffusers folder that appears whole or not at all: it is written beside its place under a name that begins with
/// '.', synced, then moved into place, where it replaces another diffusers folder in one step: a pipeline or, with
/// `class_name`, a component of this class in a folder of its own.
///
/// A killed writer leaves the old folder or the new one, and maybe an unfinished one, which the next writer removes.
/// Only one process may write at a time. Every failure throws input_error naming the path; the old folder then stays.
/// `Disk` is io::disk, or a test's.
template <class Disk = io::disk>
class folder_writer {
public:
    explicit folder_writer(const std::filesystem::path& target, Disk on = {}, std::string class_name = {}) :
        disk_{std::move(on)}, class_name_{std::move(class_name)} {
        if (target.empty()) { throw input_error("a folder to write needs a name"); }
        target_ = std::filesystem::weakly_canonical(std::filesystem::absolute(target));
        if (!target_.has_filename()) { target_ = target_.parent_path(); }
        require_replaceable(target_, class_name_);
        train::make_durable_folder(disk_, target_.parent_path());
        unfinished_ = target_.parent_path() / ("." + target_.filename().string() + ".unfinished");
        remove_unfinished();
        if (!disk_.make_folder(unfinished_)) { throw input_error("cannot create '" + unfinished_.string() + "'"); }
    }
    folder_writer(const folder_writer&) = delete;
    folder_writer& operator=(const folder_writer&) = delete;
    ~folder_writer() {
        std::error_code unused;
        if (!unfinished_.empty()) { std::filesystem::remove_all(unfinished_, unused); }
    }

    /// Writes a small file, such as model_index.json or unet/config.json.
    void write(const std::filesystem::path& file, std::string_view text) {
        write(file, std::as_bytes(std::span{text.data(), text.size()}));
    }

    /// Copies a file, or a folder with everything in it, byte for byte.
    void copy(const std::filesystem::path& from, const std::filesystem::path& to) {
        std::error_code fault;
        if (!std::filesystem::is_directory(from, fault)) { return write(to, io::mapped_file{from}.bytes()); }
        make_folder(unfinished_ / to);
        for (std::filesystem::directory_iterator at{from, fault}, end; !fault && at != end; at.increment(fault)) {
            // Such a link may lead to a folder that contains it.
            if (at->is_symlink(fault) && at->is_directory(fault)) {
                throw input_error("'" + at->path().string() + "' is a link to a folder: it is not copied");
            }
            copy(at->path(), to / at->path().filename());
        }
        if (fault) { throw input_error("cannot read the folder '" + from.string() + "': " + fault.message()); }
    }

    /// Writes tensors as they are, such as those of vae/diffusion_pytorch_model.safetensors.
    void write_tensors(const std::filesystem::path& file, std::span<const io::tensor_source> tensors) {
        std::vector<io::tensor_shape> shapes;
        for (const io::tensor_source& one : tensors) { shapes.push_back({one.name, one.type, one.dims}); }
        write_file(file, shapes, "'" + (target_ / file).string() + "'",
                   [&](std::size_t i, std::uint64_t, const auto& put) { put(tensors[i].bytes); });
    }

    /// Writes the weights of a component, such as unet/diffusion_pytorch_model: one file, or shards and their index.
    ///
    /// `tensors` are names and shapes; their types are the format's. Throws input_error naming a tensor that has
    /// another number of values, or a value that the type cannot hold.
    void write_weights(const std::filesystem::path& stem, std::vector<io::tensor_shape> tensors,
                       const tensor_values& values, weights_format format = {}) {
        const std::string place = "'" + (target_ / stem).string() + "'";
        std::vector<std::uint64_t> bytes;
        for (io::tensor_shape& tensor : tensors) {
            tensor.type = format.type;
            bytes.push_back(
                io::detail::tensor_bytes(place + ": tensor '" + tensor.name + "'", tensor.type, tensor.dims));
        }
        const std::vector<std::size_t> shard = shards_of(bytes, format.shard_bytes);
        const std::size_t shards = shard.empty() ? 1 : shard.back() + 1;
        std::map<std::string, std::string> files;
        std::uint64_t total = 0;
        for (std::size_t s = 0; s != shards; ++s) {
            const std::string file = stem.filename().string() + (shards == 1 ? "" : shard_ending(s, shards));
            std::vector<io::tensor_shape> part;
            std::vector<std::size_t> from;
            for (std::size_t i = 0; i != tensors.size(); ++i) {
                if (shard[i] != s) { continue; }
                files[tensors[i].name] = file + ".safetensors";
                total += bytes[i];
                part.push_back(tensors[i]);
                from.push_back(i);
            }
            write_file(stem.parent_path() / (file + ".safetensors"), part, place,
                       [&](std::size_t i, std::uint64_t size, const auto& put) {
                           detail::write_numbers(values, from[i], format.type, size,
                                                 place + ": tensor '" + part[i].name + "'", put);
                       });
        }
        if (shards == 1) { return; }
        write(stem.string() + ".safetensors.index.json", print_shards(files, total));
    }

    /// Moves the folder into its place. Call once, last.
    void commit() {
        sync_folders(unfinished_);
        std::error_code unused;
        const bool replaces = std::filesystem::exists(target_, unused);
        if (replaces) { require_replaceable(target_, class_name_); }
        // Any file system can put a folder in the place of an empty one, but not all can exchange two.
        if (replaces && !std::filesystem::is_empty(target_, unused)) {
            disk_.exchange(unfinished_, target_);
        } else {
            disk_.rename(unfinished_, target_);
        }
        disk_.sync_folder(target_.parent_path());
        remove_unfinished(); // the old one
        unfinished_.clear();
    }

private:
    /// "-00002-of-00003"
    [[nodiscard]] static std::string shard_ending(std::size_t shard, std::size_t shards) {
        std::string text(32, '\0');
        text.resize(
            static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "-%05zu-of-%05zu", shard + 1, shards)));
        return text;
    }

    void remove_unfinished() {
        std::error_code fault;
        std::filesystem::remove_all(unfinished_, fault);
        if (fault) { throw input_error("cannot remove '" + unfinished_.string() + "': " + fault.message()); }
    }

    void make_folder(const std::filesystem::path& folder) {
        std::error_code unused;
        if (std::filesystem::is_directory(folder, unused)) { return; }
        make_folder(folder.parent_path());
        static_cast<void>(disk_.make_folder(folder));
    }

    void write(const std::filesystem::path& file, std::span<const std::byte> bytes) {
        make_folder((unfinished_ / file).parent_path());
        io::output_file out = disk_.create(unfinished_ / file);
        disk_.write(out, bytes);
        disk_.sync(out);
        disk_.close(out);
    }

    /// Writes one safetensors file; write(i, bytes, put) passes the bytes of tensor `i` to `put`.
    template <class Write>
    void write_file(const std::filesystem::path& file, std::span<const io::tensor_shape> tensors,
                    const std::string& place, const Write& write) {
        const io::safetensors_layout layout = io::lay_out_safetensors(place, tensors, {{"format", "pt"}});
        make_folder((unfinished_ / file).parent_path());
        io::output_file out = disk_.create(unfinished_ / file);
        disk_.write(out, layout.head);
        for (const std::size_t i : layout.order) {
            write(i, layout.bytes[i], [&](std::span<const std::byte> bytes) { disk_.write(out, bytes); });
        }
        disk_.sync(out);
        disk_.close(out);
    }

    /// From the inside out: a folder is durable only once its entries are.
    void sync_folders(const std::filesystem::path& folder) {
        for (const auto& entry : std::filesystem::directory_iterator{folder}) {
            if (entry.is_directory()) { sync_folders(entry.path()); }
        }
        disk_.sync_folder(folder);
    }

    Disk disk_;
    std::string class_name_;
    std::filesystem::path target_{};
    std::filesystem::path unfinished_{};
};

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/folder_writer.ipp> // IWYU pragma: keep
#endif
