#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::train::detail {

[[nodiscard]] inline nlohmann::json parse_answer(std::string_view text) {
    return io::parse_json(text, "a rank's answer");
}

/// [[key, dims, first, elements], ...]
PULSE_INLINE std::string print_ranges(std::span<const tensor_range<const float>> ranges) {
    nlohmann::json all = nlohmann::json::array();
    for (const tensor_range<const float>& range : ranges) {
        all.push_back({range.key(), dims_of(range.what), range.first, range.values.size()});
    }
    return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PULSE_INLINE std::vector<held_range> parse_ranges(std::string_view text) {
    std::vector<held_range> all;
    for (const nlohmann::json& one : parse_answer(text)) {
        all.push_back({one[0].get<std::string>(), one[1].get<std::vector<std::int64_t>>(), one[2].get<std::int64_t>(),
                       one[3].get<std::int64_t>()});
    }
    return all;
}

/// [folder, step, [[[range, first, elements], ...], ...]]
PULSE_INLINE std::string print_task(const save_task& task) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& of_rank : task.shares) {
        nlohmann::json list = nlohmann::json::array();
        for (const range_share& share : of_rank) { list.push_back({share.range, share.first, share.elements}); }
        all.push_back(std::move(list));
    }
    return nlohmann::json{task.folder, task.step, std::move(all)}.dump();
}

PULSE_INLINE save_task parse_task(std::string_view text) {
    const nlohmann::json said = parse_answer(text);
    save_task task{.folder = said[0].get<std::string>(), .step = said[1].get<std::int64_t>()};
    for (const nlohmann::json& list : said[2]) {
        std::vector<range_share>& shares = task.shares.emplace_back();
        for (const nlohmann::json& one : list) {
            shares.push_back({one[0].get<std::size_t>(), one[1].get<std::int64_t>(), one[2].get<std::int64_t>()});
        }
    }
    return task;
}

/// [file bytes, [[share, offset, first, elements, crc32], ...]]
PULSE_INLINE std::string print_shard(const written_shard& shard) {
    nlohmann::json pieces = nlohmann::json::array();
    for (std::size_t i = 0; i != shard.pieces.size(); ++i) {
        const checkpoint_piece& piece = shard.pieces[i];
        pieces.push_back({shard.share[i], piece.offset, piece.first, piece.elements, piece.crc32});
    }
    return nlohmann::json{shard.bytes, std::move(pieces)}.dump();
}

PULSE_INLINE checkpoint_manifest manifest_of(const std::vector<std::vector<held_range>>& held,
                                             const std::vector<std::vector<range_share>>& shares,
                                             const std::vector<std::string>& written) {
    std::map<std::string, checkpoint_entry> entries;
    for (const auto& of_rank : held) {
        for (const held_range& range : of_rank) { entries[range.key] = {range.key, range.dims, {}}; }
    }
    checkpoint_manifest manifest{.world = static_cast<int>(written.size())};
    for (std::size_t rank = 0; rank != written.size(); ++rank) {
        const nlohmann::json shard = parse_answer(written[rank]);
        if (shard[0] == 0) { continue; }
        for (const nlohmann::json& piece : shard[1]) {
            const range_share& share = shares[rank][piece[0].get<std::size_t>()];
            entries[held[rank][share.range].key].pieces.push_back(
                {manifest.files.size(), piece[1].get<std::int64_t>(), piece[2].get<std::int64_t>(),
                 piece[3].get<std::int64_t>(), piece[4].get<std::uint32_t>()});
        }
        manifest.files.push_back({shard_name(rank), shard[0].get<std::int64_t>()});
    }
    for (auto& [key, entry] : entries) {
        std::sort(entry.pieces.begin(), entry.pieces.end(),
                  [](const checkpoint_piece& a, const checkpoint_piece& b) { return a.first < b.first; });
        manifest.tensors.push_back(std::move(entry));
    }
    return manifest;
}

} // namespace pulse::train::detail
