// Results of frozen networks for pictures and captions, kept in a folder. The networks here are short functions.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

#include "encoded_files.hpp"

namespace encoded_tests {

// Values of an independent implementation that hashes the eight bytes of the length and then the text.
static_assert(pulse::wide_fingerprint{}.add("a").value() >> 64U == 0x426D56754E03AD9AU);
static_assert(static_cast<std::uint64_t>(pulse::wide_fingerprint{}.add("a").value()) == 0xDB79F299C730F21FU);

TEST_CASE("what is encoded once is what encoding each step gives") {
    for (const bool damaged : {false, true}) {
        const captioned_files folder{damaged};
        const captioned_pictures pictures{open_pictures(folder.path),
                                          with(damaged ? bad_picture::skip : bad_picture::stop)};
        const pulse::test::scratch cache;
        networks frozen;
        encoded_pictures encoded = opened(pictures, cache.path / "new");
        CHECK(!encoded.complete());
        const encoding_report report = encoded.encode(frozen.picture(), frozen.caption());
        CHECK(encoded.complete());
        check_same(pictures, encoded);
        // Each picture once as it is and once mirrored; each text once, and the empty one.
        CHECK(frozen.asked_pictures == 2 * (damaged ? count - 1 : count));
        CHECK(frozen.asked_texts.size() == 5);
        for (const auto& [text, times] : frozen.asked_texts) { CHECK(times == 1); }
        CHECK(report.pictures == 2 * count);
        CHECK(report.captions == 5);
        CHECK(report.bytes == (2 * count * 12 + 5 * 6) * sizeof(float));
        CHECK(report.bytes == encoded.pictures().bytes() + encoded.captions().bytes());
        CHECK(report.each_step_seconds(2) > report.each_step_seconds(1));

        // Opened again, nothing is left to encode.
        encoded_pictures again = opened(pictures, cache.path / "new");
        CHECK(again.complete());
        const encoding_report none = again.encode(frozen.picture(), frozen.caption());
        CHECK(none.pictures + none.captions + none.bytes == 0);
        CHECK(frozen.asked_pictures == 2 * (damaged ? count - 1 : count));
        check_same(pictures, again);

        // Ranks share the work, and each sees the others' results.
        networks many;
        encoded_pictures first = opened(pictures, cache.path / "shared");
        encoded_pictures second = opened(pictures, cache.path / "shared");
        first.encode(many.picture(), many.caption(), {.rank = 0, .ranks = 2});
        CHECK(!first.complete());
        second.encode(many.picture(), many.caption(), {.rank = 1, .ranks = 2, .ahead = {.threads = 1, .ahead = 1}});
        CHECK(many.asked_pictures == frozen.asked_pictures);
        first.refresh();
        CHECK(first.complete());
        check_same(pictures, first);
        CHECK(files_in(cache.path / "shared") == files_in(cache.path / "new"));
    }
}

TEST_CASE("a killed process has lost the file that it was at, and no more") {
    const captioned_files folder{true};
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::skip)};
    const pulse::test::scratch whole;
    networks frozen;
    encoded_pictures undisturbed = opened(pictures, whole.path);
    undisturbed.encode(frozen.picture(), frozen.caption());

    for (const int last : {0, 1, 4, 9, 19}) {
        const pulse::test::scratch cache;
        const ::pid_t child = ::fork();
        if (child == 0) {
            networks own;
            encoded_pictures killed = opened(pictures, cache.path);
            const auto encode_picture = own.picture();
            killed.encode(
                [&](const picture_sample& sample, encoded_pictures::row_values values) {
                    if (own.asked_pictures == last) { ::raise(SIGKILL); }
                    encode_picture(sample, values);
                },
                own.caption());
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        // left by a kill during a write
        pulse::test::put(cache.path / ".pictures-0123.safetensors.17-0.tmp", "half");

        networks rest;
        encoded_pictures resumed = opened(pictures, cache.path);
        resumed.tidy();
        resumed.encode(rest.picture(), rest.caption());
        CHECK(rest.asked_texts.empty());
        CHECK(rest.asked_pictures <= frozen.asked_pictures - last + 3);
        CHECK(rest.asked_pictures >= frozen.asked_pictures - last);
        CHECK(files_in(cache.path) == files_in(whole.path));
        check_same(pictures, resumed);
    }
}

TEST_CASE("a table of any size has few enough files to map them all") {
    for (const std::size_t rows : {0U, 1U, 2U, 1024U, 1025U, 70'000U, 1'000'000U}) {
        CAPTURE(rows);
        for (const std::uint64_t row : {1U, 100U}) {
            const encoded_layout layout{.name = "captions",
                                        .keys = std::vector<pulse::wide_fingerprint>(rows),
                                        .parts = {{"states", {static_cast<std::int64_t>(row)}}},
                                        .shard_bytes = 3 * sizeof(float)};
            const std::size_t of_one = layout.rows_of_shard();
            CHECK((rows + of_one - 1) / of_one <= 1024);
            // More rows than fit a file are only in a table that would have too many files.
            CHECK((of_one <= (row == 1 ? 3U : 1U) || (rows + of_one - 2) / (of_one - 1) > 1024));
        }
    }
}

TEST_CASE("one folder serves other crops and encoders, each by what it has made") {
    const captioned_files folder{false};
    const pulse::test::scratch cache;
    const auto encoded_now = [&](const picture_options& options, const encoded_shapes& shapes) {
        const captioned_pictures pictures{open_pictures(folder.path), options};
        encoded_pictures encoded = opened(pictures, cache.path, shapes);
        networks frozen;
        const encoding_report report = encoded.encode(frozen.picture(), frozen.caption());
        if (shapes.picture == small_shapes().picture) { check_same(pictures, encoded); }
        return std::pair{report.pictures, report.captions};
    };
    constexpr std::pair<std::uint64_t, std::uint64_t> nothing{0, 0};
    const picture_options options = with(bad_picture::stop);
    CHECK(encoded_now(options, small_shapes()) == std::pair{std::uint64_t{2 * count}, std::uint64_t{5}});
    picture_options other = options;
    other.seed = 77; // the seed does not affect what is encoded
    other.caption_dropout = 0.5;
    CHECK(encoded_now(other, small_shapes()) == nothing);
    other = options;
    other.horizontal_flip = false;
    CHECK(encoded_now(other, small_shapes()) == nothing);
    other.width = 7;
    CHECK(encoded_now(other, small_shapes()) == std::pair{std::uint64_t{count}, std::uint64_t{0}});
    other.channels = 1;
    CHECK(encoded_now(other, small_shapes()) == std::pair{std::uint64_t{count}, std::uint64_t{0}});
    encoded_shapes shapes = small_shapes();
    shapes.picture_encoder.add(1);
    CHECK(encoded_now(options, shapes) == std::pair{std::uint64_t{2 * count}, std::uint64_t{0}});
    shapes = small_shapes();
    shapes.text_encoder.add(1);
    CHECK(encoded_now(options, shapes) == std::pair{std::uint64_t{0}, std::uint64_t{5}});
    shapes = small_shapes();
    shapes.picture[0][0].dims = {8};
    CHECK(encoded_now(options, shapes) == std::pair{std::uint64_t{2 * count}, std::uint64_t{0}});
    for (const auto& all : {small_shapes(), shapes}) { CHECK(encoded_now(options, all) == nothing); }

    other = options;
    other.random_crop = true;
    CHECK(mentions(refusal_of([&] { encoded_now(other, small_shapes()); }), {"random crops"}));
}

TEST_CASE("damage is named") {
    const captioned_files folder{false};
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
    const pulse::test::scratch cache;
    networks frozen;
    opened(pictures, cache.path).encode(frozen.picture(), frozen.caption());
    // The shard that holds row 6, the first of the third shard.
    const fs::path shard = [&] {
        for (const auto& [name, bytes] : files_in(cache.path)) {
            fs::rename(cache.path / name, cache.path / "away");
            const bool found = name.starts_with("pictures-") && !opened(pictures, cache.path).pictures().has(6);
            fs::rename(cache.path / "away", cache.path / name);
            if (found) { return cache.path / name; }
        }
        return fs::path{};
    }();
    const std::string name = shard.filename().string();
    const std::string bytes = pulse::test::bytes_of(shard);
    const auto refusal = [&](const std::string& now) {
        fs::remove(shard);
        pulse::test::put(shard, now);
        return refusal_of([&] { const encoded_pictures encoded = opened(pictures, cache.path); });
    };
    CHECK(refusal(bytes) == "nothing refused");
    for (const std::size_t kept : {std::size_t{0}, std::size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
        CHECK(mentions(refusal(bytes.substr(0, kept)), {name.c_str(), "remove the file"}));
    }
    std::string other = bytes;
    other.replace(other.find("pulse-encoded/2"), 15, "pulse-encoded/1");
    CHECK(mentions(refusal(other), {name.c_str(), "is not pulse-encoded/2", "give another"}));
    other = bytes;
    other.replace(other.find("keys"), 4, "kays");
    CHECK(mentions(refusal(other), {name.c_str(), "'keys'", "remove the file"}));
    other = bytes;
    other.replace(other.find("moments"), 7, "moment_");
    CHECK(mentions(refusal(other), {name.c_str(), "'moments'", "remove the file"}));

    fs::remove(shard);
    encoded_pictures without = opened(pictures, cache.path);
    CHECK(!without.complete());
    networks again;
    without.encode(again.picture(), again.caption());
    CHECK(again.asked_pictures == 3);
    CHECK(pulse::test::bytes_of(shard) == bytes);
}

TEST_CASE("a folder that cannot be read is refused, not taken for an empty one") {
    const captioned_files folder{false};
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
    const pulse::test::scratch room;
    pulse::test::put(room.path / "file", "x");
    fs::create_symlink("loop", room.path / "loop");
    for (const char* const name : {"file", "loop"}) {
        const fs::path cache = room.path / name;
        CHECK(mentions(refusal_of([&] { const encoded_pictures encoded = opened(pictures, cache); }),
                       {"cannot read the folder", cache.c_str()}));
    }
    const encoded_pictures encoded = opened(pictures, room.path / "none");
    CHECK(!encoded.complete());
}

TEST_CASE("a bad picture stops the encoding if requested, and what was encoded before is used later") {
    const captioned_files folder{true};
    const pulse::test::scratch cache;
    networks frozen;
    const captioned_pictures strict{open_pictures(folder.path), with(bad_picture::stop)};
    CHECK(mentions(refusal_of([&] { const encoded_pictures encoded = opened(strict, cache.path); }),
                   {"107.txt", "UTF-8"}));
    pulse::test::put(folder.path / "107.txt", "caption 3");
    encoded_pictures encoded = opened(strict, cache.path);
    CHECK(mentions(refusal_of([&] { encoded.encode(frozen.picture(), frozen.caption()); }), {"104.png"}));
    CHECK(!encoded.complete());
    CHECK(encoded.pictures().has(5));

    const int before = frozen.asked_pictures;
    const captioned_pictures lenient{open_pictures(folder.path), with(bad_picture::skip)};
    encoded_pictures rest = opened(lenient, cache.path);
    rest.encode(frozen.picture(), frozen.caption());
    CHECK(frozen.asked_pictures - before == 2 * (count - 1) - 6); // 2 shards of 3 rows exist already
    check_same(lenient, rest);
    CHECK_THROWS_AS((void)rest.pictures().read(2 * count, 0, std::span<float>{}), input_error);
}

TEST_CASE("pictures of several buckets are encoded once, each bucket in a table of its own") {
    for (const bool damaged : {false, true}) {
        const captioned_files folder{damaged};
        const picture_index index = open_pictures(folder.path);
        const bad_picture on_bad = damaged ? bad_picture::skip : bad_picture::stop;
        const std::vector<pulse::extent> sizes{{4, 12}, {6, 8}, {8, 6}, {12, 4}};
        captioned_pictures pictures{index, with(on_bad),
                                    sort_into_buckets(check_pictures(index, 1, {}, true).sizes, sizes)};
        REQUIRE(pictures.buckets().sizes.size() > 1);
        const std::size_t buckets = pictures.buckets().sizes.size();
        const pulse::test::scratch cache;
        encoded_shapes shapes = small_shapes();
        shapes.picture.assign(buckets, shapes.picture.front());
        encoded_pictures encoded = opened(pictures, cache.path, shapes);
        networks frozen;
        const encoding_report report = encoded.encode(frozen.picture(), frozen.caption());
        CHECK(report.pictures == 2 * count);
        CHECK(frozen.asked_pictures == (damaged ? 2 * (count - 1) : 2 * count));
        REQUIRE(encoded.complete());
        for (const std::uint64_t step : {3U, 5U}) {
            pictures.set_step(step);
            check_same(pictures, encoded);
        }
        // A run with only one of the sizes finds what it needs of that size.
        picture_options alone = with(on_bad);
        alone.height = pictures.buckets().sizes.back().height;
        alone.width = pictures.buckets().sizes.back().width;
        const captioned_pictures of_one{index, alone};
        encoded_pictures shared = opened(of_one, cache.path);
        networks rest;
        CHECK(shared.encode(rest.picture(), rest.caption()).pictures < 2 * count);
        check_same(of_one, shared);
    }
}

TEST_CASE("a picture that vanishes after buckets are made moves no other one to its bucket") {
    constexpr std::uint32_t all = 3;
    const std::vector<pulse::extent> sizes{{4, 12}, {12, 4}};
    for (std::uint32_t lost = 0; lost != all; ++lost) {
        CAPTURE(lost);
        const pulse::test::scratch folder;
        for (std::uint32_t i = 0; i != all; ++i) {
            const auto image = i == 1 ? pulse::test::some_picture(8, 32, i) : pulse::test::some_picture(32, 8, i);
            pulse::test::put(folder.path / (std::to_string(i) + ".png"), pulse::io::encode_png(image));
            pulse::test::put(folder.path / (std::to_string(i) + ".txt"), "caption");
        }
        const picture_index index = open_pictures(folder.path);
        captioned_pictures pictures{index, with(bad_picture::skip),
                                    sort_into_buckets(check_pictures(index, 1, {}, true).sizes, sizes)};
        REQUIRE(pictures.buckets().sizes.size() == sizes.size());
        fs::remove(folder.path / index.entries[lost].name);
        const pulse::test::scratch cache;
        encoded_shapes shapes = small_shapes();
        shapes.picture.assign(sizes.size(), shapes.picture.front());
        encoded_pictures encoded = opened(pictures, cache.path, shapes);
        networks frozen;
        CHECK(encoded.encode(frozen.picture(), frozen.caption()).pictures == 2 * (all - 1));
        for (std::size_t bucket = 0; bucket != sizes.size(); ++bucket) {
            const auto& of = pictures.buckets().of_picture;
            std::ptrdiff_t here = std::count(of.begin(), of.end(), bucket);
            here -= of[lost] == bucket ? 1 : 0;
            CHECK(std::ssize(encoded.pictures(bucket).layout().keys) == 2 * here);
        }
    }
}

} // namespace encoded_tests
