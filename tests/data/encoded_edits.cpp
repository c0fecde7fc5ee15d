// Pictures that change, appear and disappear between two encodings of a folder.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <set>
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

#include "encoded_files.hpp"

namespace encoded_tests {

namespace {

/// A folder of pictures with captions beside them that tests edit.
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
    /// Makes the file old enough to be noted.
    void age(const std::string& name, int seconds) const {
        fs::last_write_time(picture(name), fs::file_time_type::clock::now() - std::chrono::seconds{seconds});
    }
    /// Makes a random edit and returns its name.
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

/// The distinct picture contents and texts that a folder has had.
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

/// Kills this process before picture `after` is encoded; encodes everything if there are fewer pictures.
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

TEST_CASE("files that match their notes are not read again") {
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
    CHECK(encoded_now() == 0); // only its time changed: it is read, and noted
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

    // A note with other bytes shows whether the file is read.
    std::string forged = kept.substr(0, kept.size() - pulse::wide_fingerprint{}.text().size());
    forged.back() = static_cast<char>(forged.back() ^ 1);
    forged += pulse::wide_fingerprint{}.add(forged).text();
    pulse::test::put(notes, forged);
    CHECK(!complete());
    // Damaged notes count as no notes.
    for (std::size_t i = 0; i != forged.size(); ++i) {
        std::string damaged = forged;
        damaged[i] = static_cast<char>(damaged[i] ^ 4);
        pulse::test::put(notes, i % 2 == 0 ? damaged : forged.substr(0, i));
        CHECK(complete());
    }

    pulse::test::put(notes, kept);
    const fs::path edited = folder.picture(folder.names[0]);
    std::string bytes = pulse::test::bytes_of(edited);
    bytes.back() = static_cast<char>(bytes.back() ^ 1); // of a checksum, which leaves the pixels as they are
    const auto time = fs::last_write_time(edited);
    pulse::test::put(edited, bytes);
    fs::last_write_time(edited, time);
    CHECK(!complete()); // its size and its modification time are unchanged
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

} // namespace encoded_tests
