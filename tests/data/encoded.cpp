// What frozen networks make of pictures and captions, kept in a folder. The networks here are short functions.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::fingerprint;
using pulse::input_error;
namespace fs = std::filesystem;
using floats = std::vector<float>;

constexpr int count = 11;

/// Pictures of several shapes with four captions among them; number 4 is cut, and the caption of number 7 is no UTF-8.
struct captioned_files : pulse::test::scratch {
    explicit captioned_files(bool damaged) {
        for (int i = 0; i != count; ++i) {
            const auto image =
                pulse::test::some_picture(14 + 3 * (i % 5), 12 + 5 * (i % 3), static_cast<unsigned>(i + 1));
            std::string file = pulse::io::encode_png(image);
            if (damaged && i == 4) { file.resize(file.size() / 2); }
            pulse::test::put(path / name(i, ".png"), file);
            pulse::test::put(path / name(i, ".txt"), damaged && i == 7 ? "\xFF" : "caption " + std::to_string(i % 4));
        }
    }
    static std::string name(int i, const char* ending) { return std::to_string(100 + i) + ending; }
};

constexpr picture_options with(bad_picture on_bad) {
    return {
        .height = 8, .width = 6, .seed = 5, .horizontal_flip = true, .caption_dropout = 0.25, .on_bad_picture = on_bad};
}

/// Eight moments of a picture, and what is said of a text; `asked` counts.
struct networks {
    std::map<std::string, int> asked_texts{};
    int asked_pictures = 0;

    static floats moments(const picture_sample& sample) {
        floats sums(8, 0.0F);
        for (std::size_t i = 0; i != sample.pixels.size(); ++i) {
            sums[i % 8] += sample.pixels[i] * static_cast<float>(i + 1);
        }
        return sums;
    }
    static floats states(const std::string& text) {
        floats all(6, 0.5F);
        for (std::size_t i = 0; i != text.size(); ++i) { all[i % 6] += static_cast<float>(text[i]); }
        return all;
    }
    auto picture() {
        return [this](const picture_sample& sample, encoded_pictures::row_values values) {
            ++asked_pictures;
            const floats made = moments(sample);
            std::copy(made.begin(), made.end(), values[0].begin());
        };
    }
    auto caption() {
        return [this](const std::string& text, encoded_pictures::row_values values) {
            ++asked_texts[text];
            const floats made = states(text);
            std::copy(made.begin(), made.begin() + 4, values[0].begin());
            std::copy(made.begin() + 4, made.end(), values[1].begin());
        };
    }
};

/// Three pictures or two captions a shard.
encoded_shapes small_shapes() {
    return {.picture = {{"moments", {2, 2, 2}}},
            .caption = {{"states", {2, 2}}, {"pooled", {2}}},
            .picture_encoder = fingerprint{}.add(1),
            .text_encoder = fingerprint{}.add(2),
            .shard_bytes = 3 * 12 * sizeof(float)};
}

std::map<std::string, std::string> files_in(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator{folder}) {
        all[entry.path().filename().string()] = pulse::test::bytes_of(entry.path());
    }
    return all;
}

template <class Act>
std::string refusal_of(const Act& act) {
    try {
        act();
    } catch (const input_error& fault) { return fault.what(); }
    return "nothing refused";
}
bool mentions(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* const part : parts) {
        if (text.find(part) == std::string::npos) {
            MESSAGE("'" << text << "' lacks '" << part << "'");
            return false;
        }
    }
    return text.find('\n') == std::string::npos;
}

/// At every position of three epochs the same as encoding each step.
void check_same(const captioned_pictures& pictures, const encoded_pictures& encoded) {
    for (std::uint64_t position = 0; position != 3 * count; ++position) {
        const picture_sample inline_sample = pictures.at(position);
        const encoded_sample sample = encoded.at(position);
        floats moments(8);
        floats sizes(4);
        floats states(4);
        floats pooled(2);
        encoded.pictures().read(sample.picture_row, 0, moments);
        encoded.pictures().read(sample.picture_row, 1, sizes);
        encoded.captions().read(sample.caption_row, 0, states);
        encoded.captions().read(sample.caption_row, 1, pooled);
        states.insert(states.end(), pooled.begin(), pooled.end());
        CHECK(moments == networks::moments(inline_sample));
        CHECK(states == networks::states(inline_sample.caption));
        CHECK(sizes == floats{static_cast<float>(inline_sample.original_height),
                              static_cast<float>(inline_sample.original_width),
                              static_cast<float>(inline_sample.crop_top), static_cast<float>(inline_sample.crop_left)});
        CHECK(sample.index == inline_sample.index);
        CHECK(sample.label == inline_sample.label);
        CHECK(sample.caption_dropped == inline_sample.caption_dropped);
        CHECK(sample.flipped == inline_sample.flipped);
        CHECK(sample.refused == inline_sample.refused);
    }
}

} // namespace

TEST_CASE("what is encoded once is what encoding each step gives") {
    for (const bool damaged : {false, true}) {
        const captioned_files folder{damaged};
        const captioned_pictures pictures{open_pictures(folder.path),
                                          with(damaged ? bad_picture::skip : bad_picture::stop)};
        const pulse::test::scratch cache;
        networks frozen;
        encoded_pictures encoded{pictures, cache.path / "new", small_shapes()};
        CHECK(!encoded.complete());
        const encoding_report report = encoded.encode(frozen.picture(), frozen.caption());
        CHECK(encoded.complete());
        check_same(pictures, encoded);
        // Each picture as it is and mirrored; each text and the empty one once.
        CHECK(frozen.asked_pictures == 2 * (damaged ? count - 1 : count));
        CHECK(frozen.asked_texts.size() == 5);
        for (const auto& [text, times] : frozen.asked_texts) { CHECK(times == 1); }
        CHECK(report.pictures == 2 * count);
        CHECK(report.captions == 5);
        CHECK(report.bytes == (2 * count * 12 + 5 * 6) * sizeof(float));
        CHECK(report.bytes == encoded.pictures().bytes() + encoded.captions().bytes());
        CHECK(report.each_step_seconds(2) > report.each_step_seconds(1));

        // Opened again there is nothing to do.
        encoded_pictures again{pictures, cache.path / "new", small_shapes()};
        CHECK(again.complete());
        const encoding_report none = again.encode(frozen.picture(), frozen.caption());
        CHECK(none.pictures + none.captions + none.bytes == 0);
        CHECK(frozen.asked_pictures == 2 * (damaged ? count - 1 : count));
        check_same(pictures, again);

        // Ranks share the work, and each sees what the others did.
        networks many;
        encoded_pictures first{pictures, cache.path / "shared", small_shapes()};
        encoded_pictures second{pictures, cache.path / "shared", small_shapes()};
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
    encoded_pictures undisturbed{pictures, whole.path, small_shapes()};
    undisturbed.encode(frozen.picture(), frozen.caption());

    for (const int last : {0, 1, 4, 9, 19}) {
        const pulse::test::scratch cache;
        const ::pid_t child = ::fork();
        if (child == 0) {
            networks own;
            encoded_pictures killed{pictures, cache.path, small_shapes()};
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
        // as a kill within a write would leave it
        pulse::test::put(cache.path / ".pictures-00001.safetensors.17-0.tmp", "half");

        networks rest;
        encoded_pictures resumed{pictures, cache.path, small_shapes()};
        resumed.remove_leftovers();
        resumed.encode(rest.picture(), rest.caption());
        CHECK(rest.asked_texts.empty());
        CHECK(rest.asked_pictures <= frozen.asked_pictures - last + 3);
        CHECK(rest.asked_pictures >= frozen.asked_pictures - last);
        CHECK(files_in(cache.path) == files_in(whole.path));
        check_same(pictures, resumed);
    }
}

TEST_CASE("what was made from something else is refused, and says what changed") {
    const captioned_files folder{false};
    const pulse::test::scratch cache;
    const picture_options options = with(bad_picture::stop);
    networks frozen;
    {
        const captioned_pictures pictures{open_pictures(folder.path), options};
        encoded_pictures encoded{pictures, cache.path, small_shapes()};
        encoded.encode(frozen.picture(), frozen.caption());
    }
    const auto refusal = [&](const picture_options& now, const encoded_shapes& shapes) {
        return refusal_of([&] {
            const captioned_pictures pictures{open_pictures(folder.path), now};
            const encoded_pictures encoded{pictures, cache.path, shapes};
        });
    };
    CHECK(refusal(options, small_shapes()) == "nothing refused");
    picture_options other = options;
    other.seed = 77; // chance is not encoded
    other.caption_dropout = 0.5;
    CHECK(refusal(other, small_shapes()) == "nothing refused");

    other.width = 7;
    CHECK(mentions(refusal(other, small_shapes()), {"pictures-00000.safetensors", "stale", "the crop"}));
    other = options;
    other.random_crop = true;
    CHECK(mentions(refusal(other, small_shapes()), {"random crops"}));
    encoded_shapes shapes = small_shapes();
    shapes.picture_encoder.add(1);
    CHECK(mentions(refusal(options, shapes),
                   {"pictures-00000.safetensors", "encoder of pictures", "remove its pictures-*.safetensors"}));
    shapes = small_shapes();
    shapes.text_encoder.add(1);
    CHECK(mentions(refusal(options, shapes), {"captions-00000.safetensors", "encoder of texts"}));
    shapes = small_shapes();
    shapes.picture[0].dims = {2, 2, 1};
    CHECK(mentions(refusal(options, shapes), {"pictures-00000.safetensors", "moments", "shape"}));

    const fs::path caption = folder.path / captioned_files::name(3, ".txt");
    const std::string before = pulse::test::bytes_of(caption);
    pulse::test::put(caption, "another caption");
    CHECK(mentions(refusal(options, small_shapes()), {"captions-00000.safetensors", "the captions it was made from"}));
    pulse::test::put(caption, before);
    CHECK(refusal(options, small_shapes()) == "nothing refused");

    // The same bytes at another time are another picture: it is not read to know better.
    const fs::path picture = folder.path / captioned_files::name(2, ".png");
    const auto time = fs::last_write_time(picture);
    fs::last_write_time(picture, time + std::chrono::seconds{2});
    CHECK(mentions(refusal(options, small_shapes()), {"pictures-00000.safetensors", "the pictures it was made from"}));
    fs::last_write_time(picture, time);
    CHECK(refusal(options, small_shapes()) == "nothing refused");
    fs::remove(folder.path / captioned_files::name(10, ".png"));
    fs::remove(folder.path / captioned_files::name(10, ".txt"));
    CHECK(mentions(refusal(options, small_shapes()), {"stale", "pictures"}));
}

TEST_CASE("damage is named") {
    const captioned_files folder{false};
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
    const pulse::test::scratch cache;
    networks frozen;
    encoded_pictures{pictures, cache.path, small_shapes()}.encode(frozen.picture(), frozen.caption());
    const fs::path shard = cache.path / "pictures-00002.safetensors";
    const std::string bytes = pulse::test::bytes_of(shard);
    const auto refusal = [&](const std::string& now) {
        fs::remove(shard);
        pulse::test::put(shard, now);
        return refusal_of([&] { const encoded_pictures encoded{pictures, cache.path, small_shapes()}; });
    };
    CHECK(refusal(bytes) == "nothing refused");
    for (const std::size_t kept : {std::size_t{0}, std::size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
        CHECK(mentions(refusal(bytes.substr(0, kept)), {"pictures-00002.safetensors"}));
    }
    std::string other = bytes;
    other.replace(other.find("pulse-encoded/1"), 15, "pulse-encoded/9");
    CHECK(mentions(refusal(other), {"pictures-00002.safetensors", "no pulse-encoded/1"}));
    other = bytes;
    other.replace(other.find("moments"), 7, "moment_");
    CHECK(mentions(refusal(other), {"pictures-00002.safetensors", "'moments'"}));

    fs::remove(shard);
    encoded_pictures without{pictures, cache.path, small_shapes()};
    CHECK(!without.complete());
    networks again;
    without.encode(again.picture(), again.caption());
    CHECK(again.asked_pictures == 3);
    CHECK(pulse::test::bytes_of(shard) == bytes);
}

TEST_CASE("a bad picture stops the encoding where it shall, and what is there is used") {
    const captioned_files folder{true};
    const pulse::test::scratch cache;
    networks frozen;
    const captioned_pictures strict{open_pictures(folder.path), with(bad_picture::stop)};
    CHECK(mentions(refusal_of([&] {
                       const encoded_pictures encoded{strict, cache.path, small_shapes()};
                   }),
                   {"107.txt", "UTF-8"}));
    pulse::test::put(folder.path / "107.txt", "caption 3");
    encoded_pictures encoded{strict, cache.path, small_shapes()};
    CHECK(mentions(refusal_of([&] { encoded.encode(frozen.picture(), frozen.caption()); }), {"104.png"}));
    CHECK(!encoded.complete());
    CHECK(encoded.pictures().has(1));

    const int before = frozen.asked_pictures;
    const captioned_pictures lenient{open_pictures(folder.path), with(bad_picture::skip)};
    encoded_pictures rest{lenient, cache.path, small_shapes()};
    rest.encode(frozen.picture(), frozen.caption());
    CHECK(frozen.asked_pictures - before == 2 * (count - 1) - 6); // 2 shards of 3 rows are there
    check_same(lenient, rest);
    CHECK_THROWS_AS((void)rest.pictures().read(2 * count, 0, std::span<float>{}), input_error);
}
