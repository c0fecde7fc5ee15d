#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/threads/transport.hpp>

#include <io/scratch.hpp>

#include "checkpoint_world.hpp"
#include "sharded_checkpoint.hpp"

namespace sharded_test {

TEST_CASE("what does not fit the checkpoint is refused by name") {
    const pulse::test::scratch folder;
    save({.folder = folder.path}, two_tensors, {}, 3);
    const auto refused = [&](const pulse::parameter& what, std::int64_t first, std::size_t elements, const char* why) {
        std::vector<float> values(elements);
        const std::vector<tensor_range<float>> wanted{{what, tensor_part::weight, first, values}};
        CHECK_THROWS_WITH_AS(checkpoint_reader{folder.path / "step-00000003"}.read(wanted), doctest::Contains(why),
                             pulse::input_error);
    };
    refused({pulse::label{"b"}, {5}, 1}, 0, 5, "'b' is missing");
    refused({pulse::label{"a.weight"}, {4, 3}, 2}, 0, 12, "'a.weight' does not have the shape");
    refused(two_tensors[1], 1, 5, "'a.bias' has 5 elements, but 1 to 6 are requested");
    CHECK_THROWS_WITH_AS(static_cast<void>(find_checkpoint(folder.path / "none")), doctest::Contains("none"),
                         pulse::input_error);
    fs::create_directory(folder.path / "empty");
    CHECK_THROWS_WITH_AS(static_cast<void>(find_checkpoint(folder.path / "empty")),
                         doctest::Contains("holds no complete checkpoint"), pulse::input_error);
    fs::create_directory(folder.path / "empty" / "step-00000004");
    CHECK_THROWS_AS(static_cast<void>(find_checkpoint(folder.path / "empty")), pulse::input_error);
    CHECK_THROWS_AS(sharded_checkpoints<>({.folder = ""}), pulse::input_error);
    CHECK_THROWS_AS(sharded_checkpoints<>({.folder = "a", .keep = -1}), pulse::input_error);
    CHECK_THROWS_AS(sharded_checkpoints<>({.folder = "a", .piece_elements = 0}), pulse::input_error);
}

TEST_CASE("a manifest that is wrong is refused by the field, tensor or file") {
    const checkpoint_manifest good{.sequence = 4,
                                   .world = 2,
                                   .plan = "0123",
                                   .state = pulse::test::state_at(12),
                                   .files = {{"rank-0000.safetensors", 100}, {"rank-0001.safetensors", 60}},
                                   .tensors = {{"a", {2, 3}, {{0, 10, 0, 4, 7}, {1, 8, 4, 2, 0xFFFFFFFFU}}},
                                               {"b", {0}, {}},
                                               {"c", {}, {{1, 16, 0, 1, 1}}}}};
    CHECK(parse_manifest(print_manifest(good), "m") == good);
    const auto refused = [&](const std::function<void(checkpoint_manifest&)>& change, const char* why) {
        checkpoint_manifest bad = good;
        change(bad);
        CHECK_THROWS_WITH_AS(static_cast<void>(parse_manifest(print_manifest(bad), "m")), doctest::Contains(why),
                             pulse::input_error);
        CHECK_THROWS_AS(check_manifest(bad, "m"), pulse::input_error);
    };
    using manifest = checkpoint_manifest;
    refused([](manifest& m) { m.sequence = -1; }, "m: sequence");
    refused([](manifest& m) { m.world = 0; }, "m: world");
    refused([](manifest& m) { m.state.step = -1; }, "m: state.step");
    for (const char* name : {"", "..", "../x", "a/b", ".hidden", "manifest.json"}) {
        refused([&](manifest& m) { m.files[0].name = name; }, "is not a valid name for a file");
    }
    refused([](manifest& m) { m.files[0].name = m.files[1].name; }, "'rank-0001.safetensors' is listed twice");
    refused([](manifest& m) { m.tensors[1].name = "a"; }, "'a' is listed twice");
    refused([](manifest& m) { std::swap(m.tensors[0], m.tensors[1]); }, "out of order");
    refused([](manifest& m) { m.tensors[0].dims = {INT64_MAX, 2}; }, "'a' has too many elements");
    refused([](manifest& m) { m.tensors[0].dims = {2, 4}; }, "'a' lacks elements from 6");
    refused([](manifest& m) { m.tensors[0].dims = {5}; }, "'a' has pieces beyond its end");
    refused([](manifest& m) { m.tensors[0].pieces[1].first = 5; }, "'a' lacks elements from 4");
    refused([](manifest& m) { m.tensors[0].pieces[1].first = 3; }, "'a' repeats elements from 3");
    refused([](manifest& m) { m.tensors[0].pieces.pop_back(); }, "'a' lacks elements from 4");
    refused([](manifest& m) { m.tensors[0].pieces[1].elements = 0; },
            "'a' has a piece that is empty or begins before 0");
    refused([](manifest& m) { m.tensors[2].pieces[0].file = 2; }, "'c' is in an unlisted file");
    refused([](manifest& m) { m.tensors[2].pieces[0].offset = 57; }, "'c' does not lie inside 'rank-0001");
    refused([](manifest& m) { m.tensors[2].pieces[0].offset = 12; }, "overlaps 'a'");

    // Every single field with an invalid JSON value.
    const auto text_refused = [&](const std::string& from, const std::string& to, const char* why) {
        std::string text = print_manifest(good);
        const auto at = text.find(from);
        REQUIRE(at != std::string::npos);
        text.replace(at, from.size(), to);
        CHECK_THROWS_WITH_AS(static_cast<void>(parse_manifest(text, "m")), doctest::Contains(why), pulse::input_error);
    };
    text_refused("pulse-checkpoint/2", "pulse-checkpoint/9", "m: format must be pulse-checkpoint/2");
    text_refused("\"sequence\": 4", "\"sequence\": \"4\"", "m: sequence");
    text_refused("\"plan\"", "\"plans\"", "plans");
    text_refused("\"step\":12", "\"step\":13", "m: crc32 does not match");
    text_refused("\"model\":\"random\"", "\"model\":3", "m: state.config has 'model'");
    text_refused("\"bytes\":100", "\"bytes\":-1", "files[0].bytes");
    text_refused("\"crc32\":7", "\"crc32\":4294967296", "tensors[0].pieces[0].crc32");
    text_refused("\"world\": 2,", "", "m: world is missing");
}

TEST_CASE("whatever byte of a checkpoint is damaged, it is refused by file or read as it was") {
    const pulse::test::scratch folder;
    const world_shape shape{.pipeline = 2, .data = 2, .sharded = true, .cuts = {1}};
    save({.folder = folder.path, .piece_elements = 3}, two_tensors, shape, 6);
    const fs::path step = folder.path / "step-00000006";
    std::mt19937_64 draw{4};
    int refused = 0;
    for (const std::string& name : names_in(step)) {
        const std::string good = bytes_of(step / name);
        for (int round = 0; round != 100; ++round) {
            CAPTURE(name);
            CAPTURE(round);
            std::string bad = good;
            if (round % 4 == 0) {
                bad.resize(draw() % bad.size());
            } else {
                bad[draw() % bad.size()] ^= static_cast<char>(1U << draw() % 8);
            }
            replace(step / name, bad);
            rank_state mine = pulse::test::state_of_rank(two_tensors, {}, 0);
            try {
                // Only other tools use the shards' own headers: a flip there changes nothing here.
                checkpoint_reader reader{find_checkpoint(folder.path)};
                reader.read(mine.ranges);
                CHECK(reader.state() == pulse::test::state_at(6));
                CHECK(mine.differing(6) == 0);
            } catch (const pulse::input_error& fault) {
                ++refused;
                CHECK(std::string{fault.what()}.find(name) != std::string::npos);
                CHECK(mine.differing(0xABCDEF) == 0);
            }
        }
        if (name != manifest_name) {
            // Found before any value is read: the size differs from the manifest's.
            for (const std::string& other : {good + "x", good.substr(1), std::string{}}) {
                replace(step / name, other);
                CHECK_THROWS_WITH_AS(checkpoint_reader{step}, doctest::Contains((name + "' has ").c_str()),
                                     pulse::input_error);
            }
        }
        replace(step / name, good);
        fs::rename(step / name, step / "moved");
        CHECK_THROWS_WITH_AS(checkpoint_reader{step}, doctest::Contains(name.c_str()), pulse::input_error);
        fs::rename(step / "moved", step / name);
    }
    CHECK(refused > 150);
}

} // namespace sharded_test
