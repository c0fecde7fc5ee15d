#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/core/error.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::test {

/// Stands in for training: arbitrary 32 bits, infinities and NaN included, as a function of the element and `version`.
inline float value_of(std::uint64_t version, const std::string& key, std::int64_t element) {
    std::uint64_t h = version * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(element) * 0xD1B54A32D192ED03ULL;
    for (const char c : key) { h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL; }
    h = (h ^ h >> 29U) * 0xBF58476D1CE4E5B9ULL;
    return std::bit_cast<float>(static_cast<std::uint32_t>(h >> 32U));
}

/// Tests do not wait for the disk unless they test it.
struct unsynced_disk : io::disk {
    void sync(const io::output_file&) const {}
    void sync_folder(const std::filesystem::path&) const {}
};

/// Draws parameters; `count` is at most 11, as names repeat after that.
[[nodiscard]] inline std::vector<parameter> random_parameters(std::mt19937_64& draw, int count) {
    std::vector<parameter> all;
    for (int i = 0; i != count; ++i) {
        parameter p{
            label{"block." + std::to_string((i * 5 + 3) % 11) + ".weight"}, {}, static_cast<int>(1 + draw() % 4)};
        for (int d = 0; d != p.rank; ++d) { p.dims[static_cast<std::size_t>(d)] = static_cast<int>(1 + draw() % 5); }
        if (draw() % 16 == 0) { p.dims[0] = 0; }
        all.push_back(p);
    }
    return all;
}

/// How a model's state is distributed over P pipeline devices times D replicas.
struct world_shape {
    int pipeline = 1;
    int data = 1;
    bool sharded = false;            ///< moments and averages are split over the replicas
    bool weights_too = false;        ///< weights are split, too
    std::vector<std::size_t> cuts{}; ///< P - 1 ascending places between parameters

    [[nodiscard]] int ranks() const { return pipeline * data; }
};

[[nodiscard]] inline world_shape random_world(std::mt19937_64& draw, std::size_t parameters) {
    world_shape shape{.pipeline = static_cast<int>(1 + draw() % 4),
                      .data = static_cast<int>(1 + draw() % 3),
                      .sharded = draw() % 2 == 0,
                      .weights_too = draw() % 2 == 0};
    for (int p = 1; p < shape.pipeline; ++p) { shape.cuts.push_back(draw() % (parameters + 1)); }
    std::sort(shape.cuts.begin(), shape.cuts.end());
    return shape;
}

/// The state of one rank.
struct rank_state {
    std::deque<std::vector<float>> memory{};
    std::vector<train::tensor_range<float>> ranges{};

    [[nodiscard]] std::vector<train::tensor_range<const float>> held() const {
        std::vector<train::tensor_range<const float>> all;
        for (const auto& r : ranges) { all.push_back({r.what, r.part, r.first, r.values}); }
        return all;
    }
    void fill(std::uint64_t version) {
        for (const auto& r : ranges) {
            for (std::size_t i = 0; i != r.values.size(); ++i) {
                r.values[i] = value_of(version, r.key(), r.first + static_cast<std::int64_t>(i));
            }
        }
    }
    /// Number of elements that differ from `version`'s, bit for bit.
    [[nodiscard]] std::size_t differing(std::uint64_t version) const {
        std::size_t count = 0;
        for (const auto& r : ranges) {
            for (std::size_t i = 0; i != r.values.size(); ++i) {
                const float wanted = value_of(version, r.key(), r.first + static_cast<std::int64_t>(i));
                count += std::bit_cast<std::uint32_t>(wanted) != std::bit_cast<std::uint32_t>(r.values[i]) ? 1 : 0;
            }
        }
        return count;
    }
};

/// Appends the ranges of `values`, which hold the elements from `first` on of a flat array of consecutive parameters.
inline void append_ranges(std::vector<train::tensor_range<float>>& all, std::span<const parameter> parameters,
                          train::tensor_part part, std::int64_t first, std::span<float> values) {
    const std::int64_t last = first + static_cast<std::int64_t>(values.size());
    std::int64_t begin = 0;
    for (const parameter& what : parameters) {
        const std::int64_t end = begin + what.elements();
        const std::int64_t from = std::max(first, begin);
        const std::int64_t to = std::min(last, end);
        if (from < to || (begin == end && first <= begin && begin <= last)) {
            all.push_back(
                {what, part, from - begin,
                 values.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from))});
        }
        begin = end;
    }
}

/// Memory of world rank r P + p, filled with another version's values.
[[nodiscard]] inline rank_state state_of_rank(const std::vector<parameter>& model, const world_shape& shape, int rank) {
    const auto p = static_cast<std::size_t>(rank % shape.pipeline);
    const auto r = rank / shape.pipeline;
    const std::size_t begin = p == 0 ? 0 : shape.cuts[p - 1];
    const std::size_t end = p + 1 == static_cast<std::size_t>(shape.pipeline) ? model.size() : shape.cuts[p];
    const std::span<const parameter> stage = std::span{model}.subspan(begin, end - begin);
    std::int64_t elements = 0;
    for (const parameter& one : stage) { elements += one.elements(); }
    rank_state state;
    for (int part = 0; part != 4; ++part) {
        const bool cut = shape.sharded && (part != 0 || shape.weights_too);
        const std::int64_t first = cut ? elements * r / shape.data : 0;
        const std::int64_t last = cut ? elements * (r + 1) / shape.data : elements;
        auto& memory = state.memory.emplace_back(static_cast<std::size_t>(last - first), 0.0F);
        append_ranges(state.ranges, stage, static_cast<train::tensor_part>(part), first, memory);
    }
    state.fill(0xABCDEF);
    return state;
}

/// The state beside the tensors at `version`.
[[nodiscard]] inline train::training_state state_at(std::uint64_t version) {
    return {.step = static_cast<std::int64_t>(version),
            .position = version * 64,
            .seed = 0xFFFFFFFFFFFFFFFFULL - version,
            .config = {{"model", "random"}, {"odd \"text\"", "line\nbreak \xC3\xA9"}}};
}

/// Collective: saves that version's values once; the step is the version. A rank has memory for one range at a time,
/// and is asked for all ranges in order, whether it can write or not.
template <class Disk, class Transport>
train::saved_checkpoint save_version(train::sharded_checkpoints<Disk>& to, Transport& transport,
                                     const std::vector<parameter>& model, const world_shape& shape,
                                     std::uint64_t version) {
    rank_state mine = state_of_rank(model, shape, transport.rank());
    mine.fill(version);
    std::vector<train::tensor_range<const float>> held = mine.held();
    std::size_t most = 0;
    for (const auto& range : held) { most = std::max(most, range.values.size()); }
    std::vector<float> room(most);
    for (auto& range : held) { range.values = std::span{room}.first(range.values.size()); }
    std::size_t asked = 0;
    const auto load = [&](std::size_t range, bool read) {
        CHECK(range == asked++);
        std::ranges::fill(room, -7.0F);
        if (read) { std::ranges::copy(mine.ranges.at(range).values, room.begin()); }
    };
    const auto require_all = [&] { CHECK(asked == held.size()); };
    try {
        const train::saved_checkpoint saved = to.save(transport, held, state_at(version), load);
        require_all();
        return saved;
    } catch (const input_error&) {
        if (asked != 0) { require_all(); } // otherwise there was nothing to write
        throw;
    }
}

/// Elements of a whole world that differ from the version's after reading `checkpoint`.
[[nodiscard]] inline std::size_t differing_after_load(const std::filesystem::path& checkpoint,
                                                      const std::vector<parameter>& model, const world_shape& shape,
                                                      std::uint64_t version) {
    std::size_t count = 0;
    for (int rank = 0; rank != shape.ranks(); ++rank) {
        rank_state mine = state_of_rank(model, shape, rank);
        train::checkpoint_reader reader{checkpoint};
        reader.read(mine.ranges);
        count += mine.differing(version) + (reader.state() == state_at(version) ? 0 : 1);
    }
    return count;
}

} // namespace pulse::test
