#include <algorithm>
#include <bit>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <doctest/doctest.h>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/merged.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/threads/transport.hpp>

#include <io/scratch.hpp>
#include <support/drawn_cases.hpp>
#include <support/single_checkpoint.hpp>

#include "checkpoint_world.hpp"
#include "sharded_checkpoint.hpp"

namespace sharded_test {

using pulse::test::drawn_cases;

TEST_CASE("what one world saved, any other world loads, bit for bit; the merged file is the one of a single save") {
    std::mt19937_64 draw{11};
    for (int round = 0; round != drawn_cases(60); ++round) {
        CAPTURE(round);
        const pulse::test::scratch folder;
        const auto model = pulse::test::random_parameters(draw, static_cast<int>(1 + draw() % 9));
        const world_shape from = pulse::test::random_world(draw, model.size());
        const std::uint64_t version = 1 + draw() % 1000;
        const auto told = save({.folder = folder.path / "deep" / "checkpoints",
                                .plan = "hash",
                                .piece_elements = static_cast<std::int64_t>(1 + draw() % 40)},
                               model, from, version);
        for (const auto& one : told) {
            CHECK(one.folder == told[0].folder);
            CHECK(one.not_removed.empty());
        }
        CHECK(find_checkpoint(folder.path / "deep" / "checkpoints") == told[0].folder);
        CHECK(read_manifest(told[0].folder).world == from.ranks());
        CHECK(read_manifest(told[0].folder).plan == "hash");
        for (int other = 0; other != 3; ++other) {
            const world_shape to = pulse::test::random_world(draw, model.size());
            CHECK(pulse::test::differing_after_load(told[0].folder, model, to, version) == 0);
        }

        rank_state whole = pulse::test::state_of_rank(model, {}, 0);
        whole.fill(version);
        std::map<std::string, named_tensor> tensors;
        for (const auto& range : whole.held()) {
            named_tensor& tensor = tensors[range.what.name.str()];
            tensor.what = range.what;
            (range.part == tensor_part::weight          ? tensor.weight
             : range.part == tensor_part::first_moment  ? tensor.first_moment
             : range.part == tensor_part::second_moment ? tensor.second_moment
                                                        : tensor.average) = range.values;
        }
        std::vector<named_tensor> all;
        std::vector<named_tensor> weights;
        std::vector<named_tensor> averages;
        for (const auto& [name, tensor] : tensors) {
            // In a single file, parts without elements count as not stored.
            if (tensor.what.elements() == 0) { continue; }
            all.push_back(tensor);
            weights.push_back({tensor.what, tensor.weight, {}, {}, {}});
            averages.push_back({tensor.what, tensor.average, {}, {}, {}});
        }
        if (all.size() != tensors.size() || round > 12) { continue; }
        const fs::path merged = folder.path / "merged";
        const fs::path single = folder.path / "single";
        save_single(single, all, pulse::test::state_at(version));
        export_merged(folder.path / "deep" / "checkpoints", merged);
        CHECK(bytes_of(merged) == bytes_of(single));
        // A run continues from a single file, whoever wrote it, and merging that file reproduces it.
        CHECK(pulse::test::differing_after_load(single, model, pulse::test::random_world(draw, model.size()),
                                                version) == 0);
        export_merged(single, merged);
        CHECK(bytes_of(merged) == bytes_of(single));
        if (round > 4) { continue; }
        save_single(single, weights, pulse::test::state_at(version));
        export_merged(told[0].folder, merged, merged_content::weights);
        CHECK(bytes_of(merged) == bytes_of(single));
        save_single(single, averages, pulse::test::state_at(version));
        export_merged(told[0].folder, merged, merged_content::averages);
        CHECK(bytes_of(merged) == bytes_of(single));
    }
}

TEST_CASE("a shard is a safetensors file of what its rank wrote; what all replicas hold is written once, by turns") {
    const pulse::test::scratch folder;
    std::vector<pulse::parameter> model;
    for (int i = 0; i != 12; ++i) { model.push_back({pulse::label{"block." + std::to_string(i)}, {3, 5 + i % 3}, 2}); }
    const world_shape shape{.pipeline = 1, .data = 4};
    save({.folder = folder.path}, model, shape, 7);
    const fs::path step = folder.path / "step-00000007";
    CHECK(names_in(step) == std::set<std::string>{"manifest.json", "rank-0000.safetensors", "rank-0001.safetensors",
                                                  "rank-0002.safetensors", "rank-0003.safetensors"});
    std::set<std::string> seen;
    std::vector<std::uint64_t> written;
    for (const char* rank : {"0000", "0001", "0002", "0003"}) {
        pulse::io::safetensors_file shard{step / ("rank-" + std::string{rank} + ".safetensors")};
        written.push_back(0);
        for (const auto& tensor : shard.tensors()) {
            CHECK(seen.insert(tensor.name).second);
            std::vector<float> values((tensor.end - tensor.begin) / 4);
            shard.read(tensor, std::as_writable_bytes(std::span{values}));
            std::vector<float> wanted(values.size());
            for (std::size_t i = 0; i != wanted.size(); ++i) {
                wanted[i] = pulse::test::value_of(7, tensor.name, static_cast<std::int64_t>(i));
            }
            CHECK(std::ranges::equal(std::as_bytes(std::span{values}), std::as_bytes(std::span{wanted})));
            written.back() += values.size();
        }
    }
    CHECK(seen.size() == 4 * model.size());
    const auto [least, most] = std::minmax_element(written.begin(), written.end());
    CHECK(*most - *least <= 3 * 7); // the largest tensor
}

TEST_CASE("parts of a tensor in a shard say which elements they are") {
    const pulse::test::scratch folder;
    save({.folder = folder.path}, {{pulse::label{"w"}, {10}, 1}}, {.data = 2, .sharded = true}, 1);
    const pulse::io::safetensors_file shard{folder.path / "step-00000001" / "rank-0001.safetensors"};
    const auto* part = shard.find("optimizer.m.w[5:10]");
    REQUIRE(part != nullptr);
    CHECK(part->dims == std::vector<std::int64_t>{5});
}

TEST_CASE("every element is dealt to one rank that holds it, evenly, or the culprit is named") {
    std::mt19937_64 draw{5};
    for (int round = 0; round != 300; ++round) {
        CAPTURE(round);
        const std::size_t ranks = 1 + draw() % 5;
        const std::int64_t elements = static_cast<std::int64_t>(1 + draw() % 30);
        std::vector<std::vector<held_range>> held(ranks);
        std::int64_t largest = 0;
        for (const char* key : {"a", "b", "c"}) {
            for (auto& of_rank : held) {
                const auto first = static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(elements));
                of_rank.push_back(
                    {key,
                     {elements},
                     first,
                     static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(elements - first + 1))});
                largest = std::max(largest, of_rank.back().elements);
            }
        }
        std::map<std::string, std::vector<int>> holders;
        for (const char* key : {"a", "b", "c"}) { holders[key].resize(static_cast<std::size_t>(elements), 0); }
        for (const auto& of_rank : held) {
            for (const auto& h : of_rank) {
                for (std::int64_t e = h.first; e != h.first + h.elements; ++e) {
                    ++holders[h.key][static_cast<std::size_t>(e)];
                }
            }
        }
        const bool complete = std::ranges::all_of(
            holders, [](const auto& one) { return std::ranges::find(one.second, 0) == one.second.end(); });
        if (!complete) {
            CHECK_THROWS_WITH_AS(static_cast<void>(deal_ranges(held)), doctest::Contains("no rank holds elements"),
                                 pulse::input_error);
            continue;
        }
        auto written = holders;
        for (auto& [key, counts] : written) { std::ranges::fill(counts, 0); }
        const auto shares = deal_ranges(held);
        for (std::size_t rank = 0; rank != ranks; ++rank) {
            for (const range_share& s : shares[rank]) {
                const held_range& from = held[rank][s.range];
                CHECK(from.first <= s.first);
                CHECK(s.first + s.elements <= from.first + from.elements);
                for (std::int64_t e = s.first; e != s.first + s.elements; ++e) {
                    ++written[from.key][static_cast<std::size_t>(e)];
                }
            }
        }
        for (const auto& [key, counts] : written) {
            CHECK(std::ranges::count(counts, 1) == static_cast<std::ptrdiff_t>(counts.size()));
        }
    }
    const auto refused = [](std::vector<std::vector<held_range>> held, const char* why) {
        CHECK_THROWS_WITH_AS(static_cast<void>(deal_ranges(held)), doctest::Contains(why), pulse::input_error);
    };
    refused({{{"w", {2, 3}, 0, 6}}, {{"w", {3, 2}, 0, 6}}}, "'w' has different shapes on ranks 0 and 1");
    refused({{{"w", {6}, 0, 6}}, {{"w", {6}, 3, 4}}}, "'w' has 6 elements, but rank 1 holds 3 to 7");
    refused({{{"w", {6}, -1, 6}}}, "rank 0 holds -1 to 5");
    refused({{{"w", {6}, 0, 2}}, {{"w", {6}, 4, 2}}}, "'w': no rank holds elements 2 to 4");
}

TEST_CASE(
    "a rank reads the pieces that it asks for and no other, and damage in those is found before a value changes") {
    const pulse::test::scratch folder;
    const world_shape shape{.pipeline = 1, .data = 2, .sharded = true};
    const std::vector<pulse::parameter> model{{pulse::label{"w"}, {40}, 1}, {pulse::label{"v"}, {30}, 1}};
    save({.folder = folder.path, .piece_elements = 8}, model, shape, 3);
    const fs::path step = folder.path / "step-00000003";
    const checkpoint_manifest manifest = read_manifest(step);
    std::mt19937_64 draw{8};
    for (int round = 0; round != 40; ++round) {
        const auto first = static_cast<std::int64_t>(draw() % 40);
        const auto last = first + static_cast<std::int64_t>(1 + draw() % static_cast<std::uint64_t>(40 - first));
        std::vector<float> mine(static_cast<std::size_t>(last - first), -1.0F);
        const std::vector<tensor_range<float>> wanted{{model[0], tensor_part::average, first, mine}};
        const fs::path copy = folder.path / "copy";
        fs::copy(step, copy);
        std::vector<std::pair<fs::path, std::int64_t>> needed;
        for (const checkpoint_entry& entry : manifest.tensors) {
            for (const checkpoint_piece& piece : entry.pieces) {
                const fs::path file = copy / manifest.files[piece.file].name;
                if (entry.name == "ema.w" && piece.first < last && first < piece.first + piece.elements) {
                    needed.emplace_back(file, piece.offset);
                    continue;
                }
                std::string bytes = bytes_of(file);
                bytes[static_cast<std::size_t>(piece.offset)] ^= 1;
                replace(file, bytes);
            }
        }
        checkpoint_reader{copy}.read(wanted);
        for (std::size_t i = 0; i != mine.size(); ++i) {
            const float expected = pulse::test::value_of(3, "ema.w", first + static_cast<std::int64_t>(i));
            CHECK(std::bit_cast<std::uint32_t>(mine[i]) == std::bit_cast<std::uint32_t>(expected));
        }
        const auto& [file, offset] = needed[draw() % needed.size()];
        std::string bytes = bytes_of(file);
        bytes[static_cast<std::size_t>(offset)] ^= 1;
        replace(file, bytes);
        std::ranges::fill(mine, -1.0F);
        CHECK_THROWS_WITH_AS(checkpoint_reader{copy}.read(wanted), doctest::Contains(file.c_str()), pulse::input_error);
        CHECK(std::ranges::count(mine, -1.0F) == static_cast<std::ptrdiff_t>(mine.size()));
        fs::remove_all(copy);
    }
}

TEST_CASE("the last K stay, by when they were written; steps may come again") {
    std::mt19937_64 draw{2};
    for (int keep = 0; keep != 4; ++keep) {
        const pulse::test::scratch folder;
        std::vector<std::uint64_t> steps;
        run_ranks(2, {}, [&](pulse::threads::transport& transport) {
            sharded_checkpoints<pulse::test::unsynced_disk> writer{{.folder = folder.path, .keep = keep}};
            for (int i = 0; i != 8; ++i) {
                if (transport.rank() == 0) { steps.push_back(1 + draw() % 3); }
                transport.sum({});
                const auto saved = pulse::test::save_version(writer, transport, two_tensors,
                                                             {.pipeline = 2, .cuts = {1}}, steps.back());
                CHECK(saved.not_removed.empty());
                if (transport.rank() == 0) {
                    const auto there = list_checkpoints(folder.path);
                    const auto kept = static_cast<std::size_t>(keep);
                    CHECK(there.size() == (keep == 0 ? steps.size() : std::min(steps.size(), kept)));
                    CHECK(last_checkpoint(folder.path) == saved.folder);
                    CHECK(read_manifest(saved.folder).state.step == static_cast<std::int64_t>(steps.back()));
                }
                transport.sum({});
            }
        });
        // Another run continues the count.
        save({.folder = folder.path, .keep = keep}, two_tensors, {}, 1);
        CHECK(read_manifest(last_checkpoint(folder.path)).sequence == 9);
    }
}

TEST_CASE("what a crash left is removed by the next save, and what is not ours never") {
    const pulse::test::scratch folder;
    save({.folder = folder.path}, two_tensors, {}, 3);
    fs::create_directory(folder.path / "step-00000009");
    pulse::test::put(folder.path / "step-00000009" / "rank-0000.safetensors", "half");
    pulse::test::put(folder.path / "step-00000009" / ".manifest.json.tmp", "half");
    fs::create_directory(folder.path / "step-00000008");
    pulse::test::put(folder.path / "step-00000008" / "my notes", "x");
    fs::create_directory(folder.path / "step-8");
    fs::create_directory(folder.path / "step-00000001.x");
    CHECK(last_checkpoint(folder.path) == folder.path / "step-00000003");
    const auto told = save({.folder = folder.path, .keep = 1}, two_tensors, {}, 4);
    CHECK(names_in(folder.path) ==
          std::set<std::string>{"step-00000004", "step-00000008", "step-8", "step-00000001.x"});
    // A foreign file beside a checkpoint keeps the folder, and the run is told.
    pulse::test::put(told[0].folder / "notes", "x");
    const auto then = save({.folder = folder.path, .keep = 1}, two_tensors, {}, 5);
    CHECK(then[0].not_removed.find("notes") != std::string::npos);
    CHECK(fs::exists(told[0].folder / "manifest.json"));
}

TEST_CASE("a disk that is full is every rank's error, and the checkpoint before stays") {
    const pulse::test::scratch folder;
    const std::vector<pulse::parameter> model{{pulse::label{"w"}, {64, 64}, 2}, {pulse::label{"v"}, {64, 64}, 2}};
    const world_shape shape{.pipeline = 2, .cuts = {1}};
    save({.folder = folder.path}, model, shape, 3);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit small = before;
    small.rlim_cur = 20'000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::vector<std::string> said(2);
    run_ranks(2, {}, [&](pulse::threads::transport& transport) {
        sharded_checkpoints<pulse::test::unsynced_disk> writer{{.folder = folder.path}};
        try {
            static_cast<void>(pulse::test::save_version(writer, transport, model, shape, 4));
        } catch (const pulse::input_error& fault) { said[static_cast<std::size_t>(transport.rank())] = fault.what(); }
    });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(said[0].find("rank 0: cannot write '") == 0);
    CHECK(said[0].find("rank-0000.safetensors': File too large") != std::string::npos);
    CHECK(said[1] == said[0]);
    CHECK(names_in(folder.path) == std::set<std::string>{"step-00000003"});
    CHECK(pulse::test::differing_after_load(find_checkpoint(folder.path), model, {}, 3) == 0);
}

TEST_CASE("what a rank cannot load is its own error, which no rank waits to agree on") {
    const pulse::test::scratch folder;
    const pulse::parameter what{pulse::label{"w"}, {8}, 1};
    const std::vector<float> values(8);
    CHECK_THROWS_WITH_AS(
        run_ranks(2, {},
                  [&](pulse::threads::transport& transport) {
                      sharded_checkpoints<pulse::test::unsynced_disk> writer{{.folder = folder.path}};
                      const std::vector<tensor_range<const float>> mine{{what, tensor_part::weight, 0, values}};
                      const auto load = [&](std::size_t, bool) {
                          if (transport.rank() == 1) { throw std::runtime_error{"the device is gone"}; }
                      };
                      writer.save(transport, mine, pulse::test::state_at(1), load);
                  }),
        "the device is gone", std::runtime_error);
    CHECK(list_checkpoints(folder.path).size() == 1);
    CHECK(!list_checkpoints(folder.path).front().complete);
}

TEST_CASE("ranks agree on the checkpoint that rank 0 finds, or on why there is none") {
    const pulse::test::scratch folder;
    save({.folder = folder.path}, two_tensors, {}, 3);
    std::vector<std::string> found(3);
    std::vector<std::string> said(3);
    run_ranks(3, {}, [&](pulse::threads::transport& transport) {
        const auto rank = static_cast<std::size_t>(transport.rank());
        found[rank] = find_checkpoint(transport, rank == 0 ? folder.path : fs::path{"elsewhere"}).string();
        try {
            static_cast<void>(find_checkpoint(transport, folder.path / "none"));
        } catch (const pulse::input_error& fault) { said[rank] = fault.what(); }
    });
    for (std::size_t rank = 0; rank != 3; ++rank) {
        CHECK(found[rank] == (folder.path / "step-00000003").string());
        CHECK(said[rank].find("none': no such checkpoint") != std::string::npos);
    }
}

} // namespace sharded_test
