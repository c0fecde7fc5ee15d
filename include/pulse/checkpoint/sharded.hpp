#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/checkpoint/agreement.hpp>
#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/disk.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::train {

/// Where checkpoints are written, and how many are kept.
struct checkpoint_place {
    std::filesystem::path folder{}; ///< on a file system that all ranks see
    int keep = 0;                   ///< number of latest checkpoints to keep; 0: all
    std::string plan{};             ///< hash of the plan that the ranks run, for the manifest; may be empty
    std::int64_t piece_elements = std::int64_t{1} << 22; ///< most elements read and checked at once: 16 MiB
};

/// Result of a save.
struct saved_checkpoint {
    std::filesystem::path folder{};
    /// Why an older checkpoint beyond `keep` could not be removed; normally empty.
    std::string not_removed{};
};

namespace detail {

/// What each rank sends to rank 0 before anything is written: the ranges that it holds.
[[nodiscard]] PULSE_INLINE std::string print_ranges(std::span<const tensor_range<const float>> ranges);
[[nodiscard]] PULSE_INLINE std::vector<held_range> parse_ranges(std::string_view text);

/// What rank 0 then sends to all.
struct save_task {
    std::string folder{}; ///< its name, without the path
    std::int64_t step{};
    std::vector<std::vector<range_share>> shares{}; ///< of each rank
};
[[nodiscard]] PULSE_INLINE std::string print_task(const save_task& task);
[[nodiscard]] PULSE_INLINE save_task parse_task(std::string_view text);

/// An exception of a rank's `load`: not a failure of writing, so the ranks do not agree on it.
struct load_fault {
    std::exception_ptr why{};
};

/// What a rank has written.
struct written_shard {
    std::uint64_t bytes{};            ///< of the file; 0: nothing was to be written, and there is no file
    std::vector<std::size_t> share{}; ///< index of each piece's share among the rank's
    std::vector<checkpoint_piece> pieces{};
};
[[nodiscard]] PULSE_INLINE std::string print_shard(const written_shard& shard);
/// Files and tensors of the manifest, from the ranges that all ranks held, their shares and their reports of shards.
[[nodiscard]] PULSE_INLINE checkpoint_manifest manifest_of(const std::vector<std::vector<held_range>>& held,
                                                           const std::vector<std::vector<range_share>>& shares,
                                                           const std::vector<std::string>& written);

/// Writes one rank's shard, with `shares` in the order of the ranges. Calls loaded(range) before it reads a share.
template <class Disk, class Loaded>
[[nodiscard]] written_shard write_shard(const Disk& on, const std::filesystem::path& path,
                                        std::span<const tensor_range<const float>> ranges,
                                        std::span<const range_share> shares, std::int64_t step,
                                        std::int64_t piece_elements, const Loaded& loaded) {
    if (shares.empty()) { return {}; }
    std::vector<io::tensor_shape> shapes;
    for (const range_share& share : shares) {
        const tensor_range<const float>& range = ranges[share.range];
        if (share.elements == range.what.elements()) {
            shapes.push_back({range.key(), io::f32, dims_of(range.what)});
        } else {
            shapes.push_back({range.key() + "[" + std::to_string(share.first) + ":" +
                                  std::to_string(share.first + share.elements) + "]",
                              io::f32,
                              {share.elements}});
        }
    }
    const io::safetensors_layout layout = io::lay_out_safetensors(
        "'" + path.string() + "'", shapes, {{"pulse.format", manifest_format}, {"pulse.step", std::to_string(step)}},
        io::tensor_order::as_listed);
    written_shard written{.bytes = layout.file_bytes};
    io::output_file file = on.create(path);
    on.write(file, layout.head);
    for (std::size_t s = 0; s != shares.size(); ++s) {
        const range_share& share = shares[s];
        const tensor_range<const float>& range = ranges[share.range];
        loaded(share.range);
        for (std::int64_t done = 0; done != share.elements;) {
            const std::int64_t elements = std::min(piece_elements, share.elements - done);
            const std::int64_t first = share.first + done;
            const auto bytes = std::as_bytes(range.values.subspan(static_cast<std::size_t>(first - range.first),
                                                                  static_cast<std::size_t>(elements)));
            written.share.push_back(s);
            written.pieces.push_back({.offset = static_cast<std::int64_t>(
                                          layout.offset[s] + static_cast<std::uint64_t>(done) * sizeof(float)),
                                      .first = first,
                                      .elements = elements,
                                      .crc32 = crc32_of(bytes)});
            on.write(file, bytes);
            done += elements;
        }
    }
    on.sync(file);
    on.close(file);
    on.sync_folder(path.parent_path());
    return written;
}

} // namespace detail

/// Saves checkpoints of many ranks in one folder: `step-00000012/rank-0003.safetensors`, a shard per rank, and
/// `manifest.json`, which rank 0 renames into place once all shards are safe on disk. After a crash or a loss of power
/// at any instant the last complete checkpoint is readable; the next save removes an incomplete one.
///
/// Only one run at a time may write into a folder. `Disk` is io::disk, or a test's replacement.
template <class Disk = io::disk>
class sharded_checkpoints {
public:
    /// Throws input_error naming what is out of range in `place`. Writes nothing before the first save.
    explicit sharded_checkpoints(checkpoint_place place, Disk on = {}) :
        place_{std::move(place)}, disk_{std::move(on)} {
        if (place_.folder.empty()) { throw input_error("checkpoint: folder must not be empty"); }
        if (place_.keep < 0) {
            throw input_error("checkpoint: keep must be at least 0, not " + std::to_string(place_.keep));
        }
        if (place_.piece_elements < 1) { throw input_error("checkpoint: piece_elements must be at least 1"); }
    }

    /// Collective: `mine` is this rank's part of the state; rank 0's `state` is saved. What several ranks hold is
    /// written once, and they share the writing. load(i, read) is called for all ranges in order; where `read` is true,
    /// the values of range i are read next. Ranges may therefore share memory that `load` fills.
    ///
    /// When a rank fails (a full disk, say), every rank throws the same input_error, which names the rank and the file;
    /// earlier checkpoints stay intact. An exception of `load` is thrown on this rank only.
    template <transport T, class Load>
    saved_checkpoint save(T& transport, std::span<const tensor_range<const float>> mine, const training_state& state,
                          const Load& load) {
        const auto me = static_cast<std::size_t>(transport.rank());
        std::vector<std::vector<held_range>> held; // of all ranks, on rank 0
        std::vector<std::vector<range_share>> shares;
        std::filesystem::path unfinished;
        try {
            const detail::save_task task = detail::parse_task(detail::agree(
                transport, [&] { return detail::print_ranges(mine); },
                [&](const std::vector<std::string>& described) {
                    for (const std::string& one : described) { held.push_back(detail::parse_ranges(one)); }
                    shares = deal_ranges(held);
                    make_durable_folder(disk_, place_.folder);
                    look_around();
                    unfinished = make_step_folder(disk_, place_.folder, state.step);
                    return detail::print_task({unfinished.filename().string(), state.step, shares});
                }));
            const std::filesystem::path folder = place_.folder / task.folder;
            std::string not_removed = detail::agree(
                transport,
                [&] { return write(folder / detail::shard_name(me), mine, task.shares.at(me), task.step, load); },
                [&](const std::vector<std::string>& written) {
                    checkpoint_manifest manifest = detail::manifest_of(held, shares, written);
                    manifest.sequence = sequence_ + 1;
                    manifest.plan = place_.plan;
                    manifest.state = state;
                    commit(folder, manifest);
                    unfinished.clear();
                    return remove_old();
                });
            return {folder, std::move(not_removed)};
        } catch (const input_error&) {
            // All ranks have the error, so none is writing.
            if (!unfinished.empty()) { static_cast<void>(remove(unfinished)); }
            throw;
        } catch (const detail::load_fault& fault) { std::rethrow_exception(fault.why); }
    }

    /// Saves ranges whose values are already in place.
    template <transport T>
    saved_checkpoint save(T& transport, std::span<const tensor_range<const float>> mine, const training_state& state) {
        return save(transport, mine, state, [](std::size_t, bool) {});
    }

private:
    /// Returns the rank's report of its shard. Ranks may load together, so one that fails to write still loads the
    /// rest.
    template <class Load>
    [[nodiscard]] std::string write(const std::filesystem::path& path, std::span<const tensor_range<const float>> mine,
                                    std::span<const range_share> shares, std::int64_t step, const Load& load) {
        std::size_t next = 0;
        const auto load_until = [&](std::size_t end, bool read) {
            while (next < end) {
                try {
                    load(next, read && next + 1 == end);
                } catch (...) { throw detail::load_fault{std::current_exception()}; }
                ++next;
            }
        };
        std::string said;
        std::exception_ptr fault;
        try {
            said = detail::print_shard(detail::write_shard(disk_, path, mine, shares, step, place_.piece_elements,
                                                           [&](std::size_t range) { load_until(range + 1, true); }));
        } catch (const std::exception&) { fault = std::current_exception(); }
        load_until(mine.size(), false);
        if (fault) { std::rethrow_exception(fault); }
        return said;
    }
    /// Gives the manifest its final name once everything it lists is on disk.
    void commit(const std::filesystem::path& folder, const checkpoint_manifest& manifest) {
        const std::string text = print_manifest(manifest);
        static_cast<void>(parse_manifest(text, (folder / manifest_name).string()));
        const std::filesystem::path temporary = folder / detail::unfinished_manifest();
        io::output_file file = disk_.create(temporary);
        disk_.write(file, text);
        disk_.sync(file);
        disk_.close(file);
        disk_.rename(temporary, folder / manifest_name);
        disk_.sync_folder(folder);
        sequence_ = manifest.sequence;
        complete_.emplace(manifest.sequence, folder);
    }

    /// Reads what the folder holds, once, and removes what crashes left there.
    void look_around() {
        for (const step_folder& found : list_checkpoints(place_.folder)) {
            if (!found.complete) {
                static_cast<void>(remove(found.path));
            } else if (!known_) {
                // A damaged manifest is for the reader to report; its age is unknown, so it stays.
                try {
                    complete_.emplace(read_manifest(found.path).sequence, found.path);
                } catch (const input_error&) {}
            }
        }
        known_ = true;
        if (!complete_.empty()) { sequence_ = std::max(sequence_, complete_.rbegin()->first); }
    }

    /// Removes the oldest until `keep` are left, never the last one. Returns the first failure.
    [[nodiscard]] std::string remove_old() {
        std::string said;
        while (place_.keep > 0 && complete_.size() > static_cast<std::size_t>(place_.keep)) {
            const std::string fault = remove(complete_.begin()->second);
            if (said.empty()) { said = fault; }
            complete_.erase(complete_.begin());
        }
        return said;
    }
    [[nodiscard]] std::string remove(const std::filesystem::path& folder) const {
        try {
            remove_checkpoint(disk_, folder);
            return {};
        } catch (const input_error& fault) { return fault.what(); }
    }

    checkpoint_place place_;
    Disk disk_;
    bool known_{};
    std::int64_t sequence_{};
    std::multimap<std::int64_t, std::filesystem::path> complete_{}; ///< by sequence, on rank 0
};

/// Collective: resolves `path` (find_checkpoint) on rank 0, so that all ranks read the same checkpoint. Throws the same
/// input_error on every rank when there is none.
template <transport T>
[[nodiscard]] std::filesystem::path find_checkpoint(T& transport, const std::filesystem::path& path) {
    return detail::agree(
        transport, [] { return std::string{}; },
        [&](const std::vector<std::string>&) { return find_checkpoint(path).string(); });
}

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/sharded.ipp> // IWYU pragma: keep
#endif
