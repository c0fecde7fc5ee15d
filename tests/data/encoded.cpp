// What frozen networks make of pictures and captions, kept in a folder. The networks here are short functions.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <random>
#include <set>
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
    return {.picture = {{{"moments", {2, 2, 2}}}},
            .caption = {{"states", {2, 2}}, {"pooled", {2}}},
            .picture_encoder = fingerprint{}.add(1),
            .text_encoder = fingerprint{}.add(2),
            .shard_bytes = 3 * 12 * sizeof(float)};
}

encoded_pictures opened(const captioned_pictures& pictures, const fs::path& cache,
                        const encoded_shapes& shapes = small_shapes()) {
    return {pictures, distinct_samples{pictures, cache}, cache, shapes};
}

/// What was encoded, which depends on nothing else, without notes, which know of the times of files.
std::map<std::string, std::string> files_in(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator{folder}) {
        if (entry.path().extension() == ".notes") { continue; }
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
    for (std::uint64_t position = 0; position != 3 * pictures.size(); ++position) {
        const picture_sample inline_sample = pictures.at(position);
        const encoded_sample sample = encoded.at(position);
        floats moments(8);
        floats sizes(4);
        floats states(4);
        floats pooled(2);
        encoded.pictures(sample.bucket).read(sample.picture_row, 0, moments);
        encoded.pictures(sample.bucket).read(sample.picture_row, 1, sizes);
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

// As a reference of another hand has the eight bytes of a length and the text behind them.
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
        encoded_pictures again = opened(pictures, cache.path / "new");
        CHECK(again.complete());
        const encoding_report none = again.encode(frozen.picture(), frozen.caption());
        CHECK(none.pictures + none.captions + none.bytes == 0);
        CHECK(frozen.asked_pictures == 2 * (damaged ? count - 1 : count));
        check_same(pictures, again);

        // Ranks share the work, and each sees what the others did.
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
        // as a kill within a write would leave it
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

namespace {

/// A folder of pictures with captions beside them, which is edited.
struct edited_files : pulse::test::scratch {
    std::vector<std::string> names{};
    int serial = 0;
    std::mt19937 draw;

    explicit edited_files(unsigned seed) : draw{seed} {
        for (std::size_t i = 0; i != 5; ++i) { add(i); }
    }
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n - 1}(draw); }
    std::string& any() { return names[below(names.size())]; }
    static std::string content(std::size_t number) {
        const auto n = static_cast<int>(number);
        return pulse::io::encode_png(
            pulse::test::some_picture(14 + 3 * (n % 5), 12 + 5 * (n % 3), static_cast<unsigned>(n + 1)));
    }
    [[nodiscard]] fs::path picture(const std::string& name) const { return path / (name + ".png"); }
    [[nodiscard]] fs::path caption(const std::string& name) const { return path / (name + ".txt"); }
    void add(std::size_t number) {
        names.push_back(std::to_string(100 + serial++));
        pulse::test::put(picture(names.back()), content(number));
        pulse::test::put(caption(names.back()), "caption " + std::to_string(number % 4));
    }
    void rename(std::string& name, const std::string& to) {
        fs::rename(picture(name), picture(to));
        fs::rename(caption(name), caption(to));
        name = to;
    }
    void remove(std::size_t which) {
        fs::remove(picture(names[which]));
        fs::remove(caption(names[which]));
        names.erase(names.begin() + static_cast<std::ptrdiff_t>(which));
    }
    /// Seconds enough for the file to be noted.
    void age(const std::string& name, int seconds) const {
        fs::last_write_time(picture(name), fs::file_time_type::clock::now() - std::chrono::seconds{seconds});
    }
    /// What was done.
    std::string edit() {
        switch (below(8)) {
        case 0: add(below(40)); return "add";
        case 1:
            if (names.size() > 2) { remove(below(names.size())); }
            return "remove";
        case 2: rename(any(), "renamed-" + std::to_string(serial++)); return "rename";
        case 3: age(any(), 10 + serial++); return "touch";
        case 4: pulse::test::put(picture(any()), content(below(40))); return "change bytes";
        case 5: pulse::test::put(caption(any()), "caption " + std::to_string(below(9))); return "change a caption";
        case 6: pulse::test::put(picture(any()), pulse::test::bytes_of(picture(any()))); return "copy";
        default: {
            const fs::path to = path.string() + "m";
            fs::rename(path, to);
            path = to;
            return "move the folder";
        }
        }
    }
};

/// The different bytes of pictures and the different texts that a folder has had.
struct contents {
    std::set<std::string> pictures{};
    std::set<std::string> texts{std::string{}}; // of dropped captions

    void add(const edited_files& from) {
        for (const std::string& name : from.names) {
            pictures.insert(pulse::test::bytes_of(from.picture(name)));
            texts.insert(pulse::test::bytes_of(from.caption(name)));
        }
    }
};

/// Ends this process where so many pictures are encoded, if these are as many; else encodes all.
[[noreturn]] void encode_and_die(const captioned_pictures& pictures, const fs::path& cache, int after) {
    encoded_pictures killed = opened(pictures, cache);
    killed.tidy();
    networks own;
    const auto encode_picture = own.picture();
    killed.encode(
        [&](const picture_sample& sample, encoded_pictures::row_values values) {
            if (own.asked_pictures == after) { ::raise(SIGKILL); }
            encode_picture(sample, values);
        },
        own.caption());
    ::_exit(0);
}

} // namespace

TEST_CASE("however pictures are edited, what is new is encoded and nothing else") {
    for (unsigned sequence = 0; sequence != 8; ++sequence) {
        edited_files folder{sequence};
        const pulse::test::scratch cache;
        contents had;
        had.texts.clear();
        std::string edits;
        for (int round = 0; round != 12; ++round) {
            for (std::size_t more = folder.below(3); round != 0 && more != 0; --more) { edits += folder.edit() + "; "; }
            CAPTURE(edits);
            const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
            contents all = had;
            all.texts.insert(std::string{});
            all.add(folder);
            const bool killed = folder.below(3) == 0;
            if (killed) {
                const auto after = static_cast<int>(folder.below(8));
                const ::pid_t child = ::fork();
                if (child == 0) { encode_and_die(pictures, cache.path, after); }
                int status = 0;
                REQUIRE(::waitpid(child, &status, 0) == child);
            }
            networks frozen;
            encoded_pictures encoded = opened(pictures, cache.path);
            encoded.tidy();
            const encoding_report report = encoded.encode(frozen.picture(), frozen.caption());
            if (killed) {
                CHECK(report.pictures <= 2 * (all.pictures.size() - had.pictures.size()));
                CHECK(report.captions <= all.texts.size() - had.texts.size());
            } else {
                CHECK(report.pictures == 2 * (all.pictures.size() - had.pictures.size()));
                CHECK(report.captions == all.texts.size() - had.texts.size());
            }
            CHECK(static_cast<std::uint64_t>(frozen.asked_pictures) == report.pictures);
            check_same(pictures, encoded);
            had = all;
        }
    }
}

TEST_CASE("files that are as they were noted are not read again") {
    edited_files folder{1};
    const pulse::test::scratch cache;
    networks frozen;
    const auto encoded_now = [&] {
        const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
        encoded_pictures encoded = opened(pictures, cache.path);
        encoded.tidy();
        return encoded.encode(frozen.picture(), frozen.caption()).pictures;
    };
    CHECK(encoded_now() == 10);
    folder.age(folder.names[0], 100);
    CHECK(encoded_now() == 0); // another time alone: it is read, and noted
    const std::string notes = [&] {
        for (const auto& entry : fs::directory_iterator{cache.path}) {
            if (entry.path().extension() == ".notes") { return entry.path().string(); }
        }
        return std::string{};
    }();
    REQUIRE(!notes.empty());
    const std::string kept = pulse::test::bytes_of(notes);
    const auto complete = [&] {
        const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
        return opened(pictures, cache.path).complete();
    };
    CHECK(complete());

    // A note of other bytes tells whether the file is looked at.
    std::string forged = kept.substr(0, kept.size() - pulse::wide_fingerprint{}.text().size());
    forged.back() = static_cast<char>(forged.back() ^ 1);
    forged += pulse::wide_fingerprint{}.add(forged).text();
    pulse::test::put(notes, forged);
    CHECK(!complete());
    // Notes that are not whole are none.
    for (std::size_t i = 0; i != forged.size(); ++i) {
        std::string damaged = forged;
        damaged[i] = static_cast<char>(damaged[i] ^ 4);
        pulse::test::put(notes, i % 2 == 0 ? damaged : forged.substr(0, i));
        CHECK(complete());
    }

    pulse::test::put(notes, kept);
    const fs::path edited = folder.picture(folder.names[0]);
    std::string bytes = pulse::test::bytes_of(edited);
    bytes.back() = static_cast<char>(bytes.back() ^ 1); // of a checksum that says nothing of the pixels
    const auto time = fs::last_write_time(edited);
    pulse::test::put(edited, bytes);
    fs::last_write_time(edited, time);
    CHECK(!complete()); // its size and its own time are as they were
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
    other.seed = 77; // chance is not encoded
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

TEST_CASE("a picture that changes while it is encoded is not kept for the other") {
    edited_files folder{3};
    const pulse::test::scratch cache;
    for (const bad_picture on_bad : {bad_picture::stop, bad_picture::skip}) {
        const captioned_pictures pictures{open_pictures(folder.path), with(on_bad)};
        for (const bool removed : {false, true}) {
            const std::string name = folder.names[removed ? 1 : 0];
            const std::string before = pulse::test::bytes_of(folder.picture(name));
            encoded_pictures encoded = opened(pictures, cache.path);
            removed ? static_cast<void>(fs::remove(folder.picture(name)))
                    : pulse::test::put(folder.picture(name), edited_files::content(33));
            networks frozen;
            const encoding_share alone{.ahead = {.threads = 1, .ahead = 1}};
            if (removed) {
                CHECK_THROWS_AS(encoded.encode(frozen.picture(), frozen.caption(), alone), unreadable_picture);
            } else {
                CHECK_THROWS_AS(encoded.encode(frozen.picture(), frozen.caption(), alone), pulse::input_error);
            }
            pulse::test::put(folder.picture(name), before);
        }
    }
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
    encoded_pictures encoded = opened(pictures, cache.path);
    networks frozen;
    encoded.encode(frozen.picture(), frozen.caption());
    check_same(pictures, encoded);
}

TEST_CASE("a renamed picture that cannot be decoded is refused by its new name") {
    const captioned_files folder{true};
    const pulse::test::scratch cache;
    networks frozen;
    {
        const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::skip)};
        opened(pictures, cache.path).encode(frozen.picture(), frozen.caption());
    }
    for (const char* const ending : {".png", ".txt"}) {
        fs::rename(folder.path / captioned_files::name(4, ending), folder.path / captioned_files::name(50, ending));
    }
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::skip)};
    encoded_pictures encoded = opened(pictures, cache.path);
    CHECK(encoded.complete());
    check_same(pictures, encoded);
    pulse::test::put(folder.path / "107.txt", "caption 3");
    const captioned_pictures strict{open_pictures(folder.path), with(bad_picture::stop)};
    CHECK(mentions(refusal_of([&] { static_cast<void>(opened(strict, cache.path)); }), {"150.png"}));
}

TEST_CASE("damage is named") {
    const captioned_files folder{false};
    const captioned_pictures pictures{open_pictures(folder.path), with(bad_picture::stop)};
    const pulse::test::scratch cache;
    networks frozen;
    opened(pictures, cache.path).encode(frozen.picture(), frozen.caption());
    // The file that has row 6, the first of the third.
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
    CHECK(mentions(refusal(other), {name.c_str(), "no pulse-encoded/2", "give another"}));
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

TEST_CASE("a bad picture stops the encoding where it shall, and what is there is used") {
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
    CHECK(frozen.asked_pictures - before == 2 * (count - 1) - 6); // 2 shards of 3 rows are there
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
        // A run with one of the sizes finds what it needs of that size.
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
