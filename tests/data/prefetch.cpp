#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/io/png.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using pulse::data::prefetcher;

/// Work of uneven length, so that threads overtake each other.
std::uint64_t uneven(std::uint64_t n) {
    if (n * 2654435761U % 7 == 0) { std::this_thread::sleep_for(std::chrono::microseconds{300}); }
    if (n == 20) { throw pulse::input_error("'20.jpg': bad"); }
    return n * n;
}

} // namespace

TEST_CASE("values come in their order whatever the number of threads, what was thrown in its place") {
    for (const int threads : {1, 2, 5}) {
        for (const int ahead : {1, 3, 16}) {
            prefetcher<std::uint64_t> values{uneven, {.threads = threads, .ahead = ahead}};
            for (std::uint64_t n = 0; n != 60; ++n) {
                if (n == 20) {
                    CHECK_THROWS_WITH_AS((void)values.next(), "'20.jpg': bad", pulse::input_error);
                } else {
                    CHECK(values.next() == n * n);
                }
            }
        }
    }
    CHECK_THROWS_AS((prefetcher<int>{[](std::uint64_t) { return 0; }, {.threads = 0}}), pulse::input_error);
    CHECK_THROWS_AS((prefetcher<int>{[](std::uint64_t) { return 0; }, {.ahead = 0}}), pulse::input_error);
}

TEST_CASE("no more than was asked for is made ahead") {
    std::atomic<std::uint64_t> made{0};
    prefetcher<std::uint64_t> values{[&](std::uint64_t n) {
                                         ++made;
                                         return n;
                                     },
                                     {.threads = 4, .ahead = 3}};
    for (std::uint64_t given = 0; given != 20; ++given) {
        for (int wait = 0; wait != 20; ++wait) {
            CHECK(made <= given + 3);
            std::this_thread::sleep_for(std::chrono::microseconds{100});
        }
        CHECK(values.next() == given);
    }
}

TEST_CASE("a prefetcher ends whatever its threads are at") {
    for (int round = 0; round != 50; ++round) {
        prefetcher<std::uint64_t> values{uneven, {.threads = 3, .ahead = 4}};
        for (int n = 0; n != round % 7; ++n) { (void)values.next(); }
    }
}

TEST_CASE("pictures decoded by threads are the same bits, and a bad one is named where it stands") {
    const pulse::test::scratch folder;
    for (int i = 0; i != 12; ++i) {
        std::string file =
            pulse::test::encode_jpeg(pulse::test::some_picture(40 + i, 30, static_cast<unsigned>(i + 1)));
        if (i == 7) { file.resize(300); }
        pulse::test::put(folder.path / (std::to_string(10 + i) + ".jpg"), file);
        pulse::test::put(folder.path / (std::to_string(10 + i) + ".txt"), "c");
    }
    pulse::data::picture_options options{
        .height = 16, .width = 16, .seed = 2, .random_crop = true, .horizontal_flip = true};
    for (const auto policy : {pulse::data::bad_picture::stop, pulse::data::bad_picture::skip}) {
        options.on_bad_picture = policy;
        const pulse::data::captioned_pictures pictures{pulse::data::open_pictures(folder.path), options};
        for (const int threads : {1, 4}) {
            // The second of two ranks, each with every other position, starting at position 13.
            const auto position = [](std::uint64_t n) { return 13 + 2 * n; };
            prefetcher<pulse::data::picture_sample> ahead{[&](std::uint64_t n) { return pictures.at(position(n)); },
                                                          {.threads = threads, .ahead = 5}};
            int named = 0;
            for (std::uint64_t n = 0; n != 18; ++n) {
                try {
                    const auto sample = ahead.next();
                    CHECK(sample == pictures.at(position(n)));
                    named += static_cast<int>(sample.refused.size());
                } catch (const pulse::input_error& fault) {
                    CHECK(std::string{fault.what()}.find("17.jpg': damaged JPEG: ") != std::string::npos);
                    ++named;
                }
            }
            CHECK(named >= 1);
        }
    }
}
