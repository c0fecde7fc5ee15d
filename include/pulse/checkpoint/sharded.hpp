#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/checkpoint/agreement.hpp>
#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/io/disk.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::train {

/// Where checkpoints go, and how many stay.
struct checkpoint_place {
    std::filesystem::path folder{}; ///< on a file system that all ranks see
    int keep = 0;                   ///< the last ones that stay; 0: all
    std::string plan{};             ///< hash of the plan that the ranks run, for the manifest; may be empty
    std::int64_t piece_elements = std::int64_t{1} << 22; ///< what is read and checked at once, at most: 16 MiB
};

/// What a save left.
struct saved_checkpoint {
    std::filesystem::path folder{};
    /// Why an older checkpoint that is not wanted any more could not be removed; empty as a rule.
    std::string not_removed{};
};

namespace detail {

/// Writes one rank's shard; [file bytes, [[share, offset, first, elements, crc32], ...]], or null when nothing is its.
template <class Disk>
[[nodiscard]] nlohmann::json write_shard(const Disk& on, const std::filesystem::path& path,
                                         std::span<const tensor_range<const float>> ranges,
                                         std::span<const range_share> shares, std::int64_t step,
                                         std::int64_t piece_elements) {
    if (shares.empty()) { return nullptr; }
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
        "'" + path.string() + "'", shapes, {{"pulse.format", manifest_format}, {"pulse.step", std::to_string(step)}});
    nlohmann::json pieces = nlohmann::json::array();
    io::output_file file = on.create(path);
    on.write(file, layout.head);
    for (const std::size_t s : layout.order) {
        const range_share& share = shares[s];
        const tensor_range<const float>& range = ranges[share.range];
        for (std::int64_t done = 0; done != share.elements;) {
            const std::int64_t elements = std::min(piece_elements, share.elements - done);
            const std::int64_t first = share.first + done;
            const auto bytes = std::as_bytes(range.values.subspan(static_cast<std::size_t>(first - range.first),
                                                                  static_cast<std::size_t>(elements)));
            pieces.push_back({s, layout.offset[s] + static_cast<std::uint64_t>(done) * sizeof(float), first, elements,
                              crc32_of(bytes)});
            on.write(file, bytes);
            done += elements;
        }
    }
    on.sync(file);
    on.close(file);
    on.sync_folder(path.parent_path());
    return {layout.file_bytes, std::move(pieces)};
}

} // namespace detail

/// Saves checkpoints of many ranks in one folder: `step-00000012/rank-0003.safetensors`, a shard from every rank, and
/// `manifest.json`, which rank 0 gives its name when all shards are safe on disk. A crash at any instant, or a loss of
/// power, leaves the last complete checkpoint readable; what it left of an incomplete one is removed by the next save.
///
/// One run at a time writes into a folder. `Disk` is io::disk, or a test's.
template <class Disk = io::disk>
class sharded_checkpoints {
public:
    /// Throws input_error naming what of the place is out of range. Nothing is written before the first save.
    explicit sharded_checkpoints(checkpoint_place place, Disk on = {}) :
        place_{std::move(place)}, disk_{std::move(on)} {
        if (place_.folder.empty()) { throw input_error("checkpoint: the folder has no name"); }
        if (place_.keep < 0) { throw input_error("checkpoint: " + std::to_string(place_.keep) + " are to be kept"); }
        if (place_.piece_elements < 1) { throw input_error("checkpoint: a piece has at least 1 element"); }
    }

    /// Collective: `mine` is what this rank holds of the state, `state` is rank 0's. What several ranks hold is written
    /// once, and the writing is shared among them.
    ///
    /// When a rank cannot do its part (a full disk, say), every rank throws the same input_error, which names the rank
    /// and the file; the checkpoints from before stay as they were.
    template <transport T>
    saved_checkpoint save(T& transport, std::span<const tensor_range<const float>> mine, const training_state& state) {
        const auto me = static_cast<std::size_t>(transport.rank());
        std::vector<std::vector<held_range>> held; // of all ranks, on rank 0
        std::vector<std::vector<range_share>> shares;
        std::filesystem::path unfinished;
        try {
            const nlohmann::json task = detail::agree(
                transport, [&] { return describe(mine); },
                [&](const std::vector<nlohmann::json>& described) {
                    for (const nlohmann::json& one : described) { held.push_back(held_ranges(one)); }
                    shares = deal_ranges(held);
                    make_durable_folder(disk_, place_.folder);
                    look_around();
                    unfinished = make_step_folder(disk_, place_.folder, state.step);
                    return nlohmann::json{unfinished.filename().string(), state.step, to_json(shares)};
                });
            const std::filesystem::path folder = place_.folder / task[0].get<std::string>();
            const nlohmann::json done = detail::agree(
                transport,
                [&] {
                    return detail::write_shard(disk_, folder / detail::shard_name(me), mine, shares_of(task[2][me]),
                                               task[1].get<std::int64_t>(), place_.piece_elements);
                },
                [&](const std::vector<nlohmann::json>& written) {
                    commit(folder, manifest_of(held, shares, written, state));
                    unfinished.clear();
                    return remove_old();
                });
            return {folder, done.get<std::string>()};
        } catch (const input_error&) {
            // All ranks have the error; none writes any more.
            if (!unfinished.empty()) { static_cast<void>(remove(unfinished)); }
            throw;
        }
    }

private:
    /// What a rank tells rank 0 before anything is written: [[key, dims, first, elements], ...].
    [[nodiscard]] static nlohmann::json describe(std::span<const tensor_range<const float>> ranges) {
        nlohmann::json all = nlohmann::json::array();
        for (const tensor_range<const float>& range : ranges) {
            all.push_back({range.key(), detail::dims_of(range.what), range.first, range.values.size()});
        }
        return all;
    }
    [[nodiscard]] static std::vector<held_range> held_ranges(const nlohmann::json& described) {
        std::vector<held_range> all;
        for (const nlohmann::json& one : described) {
            all.push_back({one[0].get<std::string>(), one[1].get<std::vector<std::int64_t>>(),
                           one[2].get<std::int64_t>(), one[3].get<std::int64_t>()});
        }
        return all;
    }
    [[nodiscard]] static nlohmann::json to_json(const std::vector<std::vector<range_share>>& shares) {
        nlohmann::json all = nlohmann::json::array();
        for (const auto& of_rank : shares) {
            nlohmann::json list = nlohmann::json::array();
            for (const range_share& share : of_rank) { list.push_back({share.range, share.first, share.elements}); }
            all.push_back(std::move(list));
        }
        return all;
    }
    [[nodiscard]] static std::vector<range_share> shares_of(const nlohmann::json& list) {
        std::vector<range_share> shares;
        for (const nlohmann::json& one : list) {
            shares.push_back({one[0].get<std::size_t>(), one[1].get<std::int64_t>(), one[2].get<std::int64_t>()});
        }
        return shares;
    }

    [[nodiscard]] checkpoint_manifest manifest_of(const std::vector<std::vector<held_range>>& held,
                                                  const std::vector<std::vector<range_share>>& shares,
                                                  const std::vector<nlohmann::json>& written,
                                                  const training_state& state) const {
        std::map<std::string, checkpoint_entry> entries;
        for (const auto& of_rank : held) {
            for (const held_range& range : of_rank) { entries[range.key] = {range.key, range.dims, {}}; }
        }
        checkpoint_manifest manifest{
            .sequence = sequence_ + 1, .world = static_cast<int>(written.size()), .plan = place_.plan, .state = state};
        for (std::size_t rank = 0; rank != written.size(); ++rank) {
            if (written[rank].is_null()) { continue; }
            for (const nlohmann::json& piece : written[rank][1]) {
                const range_share& share = shares[rank][piece[0].get<std::size_t>()];
                entries[held[rank][share.range].key].pieces.push_back(
                    {manifest.files.size(), piece[1].get<std::int64_t>(), piece[2].get<std::int64_t>(),
                     piece[3].get<std::int64_t>(), piece[4].get<std::uint32_t>()});
            }
            manifest.files.push_back({detail::shard_name(rank), written[rank][0].get<std::int64_t>()});
        }
        for (auto& [key, entry] : entries) {
            std::sort(entry.pieces.begin(), entry.pieces.end(),
                      [](const checkpoint_piece& a, const checkpoint_piece& b) { return a.first < b.first; });
            manifest.tensors.push_back(std::move(entry));
        }
        return manifest;
    }

    /// The manifest gets its name when all that it speaks of is on disk.
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

    /// Learns what the folder holds, once, and removes what crashes have left there.
    void look_around() {
        for (const step_folder& found : list_checkpoints(place_.folder)) {
            if (!found.complete) {
                static_cast<void>(remove(found.path));
            } else if (!known_) {
                // A manifest that is damaged is the reader's to report; nobody knows how old it is, so it stays.
                try {
                    complete_.emplace(read_manifest(found.path).sequence, found.path);
                } catch (const input_error&) {}
            }
        }
        known_ = true;
        if (!complete_.empty()) { sequence_ = std::max(sequence_, complete_.rbegin()->first); }
    }

    /// Removes the oldest until `keep` are left; the last one is never among them. What cannot be removed is said.
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

/// Collective: what `path` stands for (find_checkpoint), as rank 0 sees it, so that all ranks read the same one. Throws
/// the same input_error on every rank when there is nothing.
template <transport T>
[[nodiscard]] std::filesystem::path find_checkpoint(T& transport, const std::filesystem::path& path) {
    const nlohmann::json found = detail::agree(
        transport, [] { return nullptr; },
        [&](const std::vector<nlohmann::json>&) { return find_checkpoint(path).string(); });
    return found.get<std::string>();
}

} // namespace pulse::train
