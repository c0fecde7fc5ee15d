// Aspect-ratio buckets: which sizes exist, which picture gets which, and the order of the pictures.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/bucket_order.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/draw.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::data;
using pulse::extent;
using sizes = std::vector<extent>;

bool has(const sizes& all, const extent& one) { return std::find(all.begin(), all.end(), one) != all.end(); }

/// Pictures of these sizes (width, height) in the files 100, 101, ...
struct sized_files : pulse::test::scratch {
    explicit sized_files(const std::vector<std::pair<int, int>>& of) {
        for (std::size_t i = 0; i != of.size(); ++i) {
            const auto image = pulse::test::some_picture(of[i].first, of[i].second, static_cast<unsigned>(i + 1));
            put(std::to_string(100 + i), ".png", pulse::io::encode_png(image));
        }
    }
    void put(const std::string& name, const char* ending, const std::string& file) const {
        pulse::test::put(path / (name + ending), file);
        pulse::test::put(path / (name + ".txt"), "picture " + name);
    }
};

const std::vector<std::pair<int, int>> wide_and_high{{40, 10}, {41, 11}, {20, 20}, {22, 20}, {20, 22}, {10, 44},
                                                     {21, 21}, {12, 40}, {11, 40}, {20, 19}, {18, 20}};

picture_buckets buckets_of(const picture_index& index, const sizes& of) {
    return sort_into_buckets(check_pictures(index, 2, {}, true).sizes, of);
}

} // namespace

TEST_CASE("SDXL's sizes are those of its paper that fill the area") {
    // Podell et al. 2023, appendix I, up to the square; the others are these with width and height swapped.
    const sizes published{{512, 2048}, {512, 1984}, {512, 1920}, {512, 1856}, {576, 1792}, {576, 1728}, {576, 1664},
                          {640, 1600}, {640, 1536}, {704, 1472}, {704, 1408}, {704, 1344}, {768, 1344}, {768, 1280},
                          {832, 1216}, {832, 1152}, {896, 1152}, {896, 1088}, {960, 1088}, {960, 1024}, {1024, 1024}};
    const sizes found = bucket_sizes({.area = {1024, 1024}});
    for (const extent& one : found) {
        CHECK(has(published, one.height <= one.width ? one : extent{one.width, one.height}));
    }
    // Beside some of them the paper lists smaller ones.
    for (const extent& one : published) {
        const bool fills = (one.width + 64) * one.height > 1024 * 1024 || (one.height + 64) * one.width > 1024 * 1024;
        CHECK(has(found, one) == fills);
        CHECK(has(found, {one.width, one.height}) == fills);
    }
}

TEST_CASE("bucket sizes are multiples of the step within the sides, fill the area and come with their mirror images") {
    for (const bucket_options& o : {bucket_options{.area = {512, 512}},
                                    {.area = {512, 768}, .step = 32},
                                    {.area = {20, 20}, .step = 4, .least = 8, .most = 60},
                                    {.area = {512, 512}, .step = 64, .least = 256, .most = 576}}) {
        const sizes all = bucket_sizes(o);
        const auto side = static_cast<int>(std::sqrt(o.area.height * o.area.width));
        const int least = o.least > 0 ? o.least : side / 2 / o.step * o.step;
        const int most = o.most > 0 ? o.most : 2 * side / o.step * o.step;
        CHECK(has(all, {side / o.step * o.step, side / o.step * o.step}));
        for (const extent& one : all) {
            CHECK(one.height % o.step == 0);
            CHECK(one.width % o.step == 0);
            CHECK(std::min(one.height, one.width) >= least);
            CHECK(std::max(one.height, one.width) <= most);
            CHECK(one.height * one.width <= o.area.height * o.area.width);
            CHECK(has(all, {one.width, one.height}));
        }
        for (int height = least; height <= most; height += o.step) {
            // For each height the widest exists, unless it is too narrow.
            const int width = std::min(most, o.area.height * o.area.width / height / o.step * o.step);
            CHECK(has(all, {height, width}) == (width >= least));
        }
    }
    CHECK_THROWS_AS((void)bucket_sizes({}), pulse::input_error);
    CHECK_THROWS_AS((void)bucket_sizes({.area = {64, 64}, .step = 0}), pulse::input_error);
    CHECK_THROWS_AS((void)bucket_sizes({.area = {64, 64}, .step = 8, .least = 12}), pulse::input_error);
    CHECK_THROWS_AS((void)bucket_sizes({.area = {64, 64}, .step = 8, .least = 80, .most = 72}), pulse::input_error);
    CHECK_THROWS_AS((void)bucket_sizes({.area = {64, 64}, .step = 8, .least = 72, .most = 80}), pulse::input_error);
}

TEST_CASE("a picture has the bucket of the nearest shape") {
    const sizes all = bucket_sizes({.area = {512, 512}});
    std::mt19937 random{7};
    std::uniform_int_distribution<std::uint32_t> side{1, 5000};
    for (int i = 0; i != 2000; ++i) {
        const picture_size one{side(random), side(random)};
        const auto off = [&](const extent& of) {
            return std::abs(std::log(static_cast<double>(one.width) / one.height) -
                            std::log(static_cast<double>(of.width) / of.height));
        };
        const double found = off(all[nearest_bucket(all, one)]);
        for (const extent& other : all) { CHECK(found <= off(other) + 1e-12); }
    }
    // Of two buckets with the same shape, the larger.
    CHECK(nearest_bucket(sizes{{8, 8}, {16, 16}, {4, 4}}, {30, 30}) == 1);
}

TEST_CASE("every step is of one bucket, and an epoch has each picture as often as it is repeated, or once more") {
    // Buckets of five pictures (one of them twice), one, none and twelve.
    std::vector<std::vector<std::uint32_t>> pictures{{0, 1, 2, 2, 3, 4}, {5}, {}, {}};
    for (std::uint32_t i = 6; i != 18; ++i) { pictures[3].push_back(i); }
    const std::map<std::uint32_t, std::size_t> home = [&] {
        std::map<std::uint32_t, std::size_t> all;
        for (std::size_t b = 0; b != pictures.size(); ++b) {
            for (const std::uint32_t i : pictures[b]) { all[i] = b; }
        }
        return all;
    }();
    constexpr std::uint64_t step = 4;
    const bucket_order order{pictures, step, 11, true};
    CHECK(order.steps() == 2 + 1 + 0 + 3);
    CHECK(order.steps_of(0) == 2);
    CHECK(order.steps_of(2) == 0);
    std::set<std::vector<std::size_t>> of_buckets;
    std::set<std::vector<std::uint32_t>> of_pictures;
    for (std::uint64_t epoch = 0; epoch != 6; ++epoch) {
        std::map<std::uint32_t, int> seen;
        std::vector<std::size_t> in_turn;
        std::vector<std::uint32_t> all;
        for (std::uint64_t k = 0; k != order.steps(); ++k) {
            const std::uint64_t first = (epoch * order.steps() + k) * step;
            in_turn.push_back(order.bucket_at(first));
            for (std::uint64_t i = 0; i != step; ++i) {
                CHECK(order.bucket_at(first + i) == in_turn.back());
                const std::uint32_t picture = order.picture_at(first + i);
                CHECK(home.at(picture) == in_turn.back());
                ++seen[picture];
                all.push_back(picture);
                // Substitutes for a bad picture cycle through the whole bucket.
                std::multiset<std::uint32_t> others;
                for (std::uint32_t after = 0; after != order.choices_at(first); ++after) {
                    others.insert(order.picture_at(first + i, after));
                }
                CHECK(others ==
                      std::multiset<std::uint32_t>(pictures[in_turn.back()].begin(), pictures[in_turn.back()].end()));
            }
        }
        for (const auto& [picture, bucket] : home) {
            const int own = picture == 2 ? 2 : 1;
            CHECK(seen[picture] >= own);
            // The last step wraps around: a bucket's only picture fills it alone, and of twelve pictures none repeats.
            CHECK(seen[picture] <= (bucket == 1 ? 4 : bucket == 3 ? own : own + 1 + (own > 1 ? 1 : 0)));
        }
        of_buckets.insert(in_turn);
        of_pictures.insert(all);
    }
    CHECK(of_buckets.size() > 3);
    CHECK(of_pictures.size() == 6);
    CHECK_THROWS_AS((bucket_order{{{}, {}}, step, 1, true}), pulse::input_error);
}

TEST_CASE("a sample of a bucket is the picture cropped to its size, by seed and position alone") {
    const sized_files folder{wide_and_high};
    const picture_index index = open_pictures(folder.path);
    const sizes of{{4, 16}, {8, 8}, {16, 4}, {4, 4}}; // no picture belongs to the last
    const picture_buckets sorted = buckets_of(index, of);
    CHECK(sorted.sizes == sizes{{4, 16}, {8, 8}, {16, 4}});
    CHECK(sorted.of_picture == std::vector<std::uint32_t>{0, 0, 1, 1, 1, 2, 1, 2, 2, 1, 1});
    const picture_options options{
        .height = 1, .width = 1, .seed = 5, .random_crop = true, .horizontal_flip = true, .caption_dropout = 0.25};
    captioned_pictures pictures{index, options, sorted};
    CHECK_THROWS_AS((void)pictures.at(0), pulse::error); // no step size was set
    std::map<std::uint64_t, std::vector<std::uint32_t>> orders;
    for (const std::uint64_t step : {2U, 3U}) {
        pictures.set_step(step);
        const std::uint64_t positions = 3 * step * pictures.order()->steps();
        for (std::uint64_t position = 0; position != positions; ++position) {
            const picture_sample sample = pictures.at(position);
            orders[step].push_back(sample.index);
            const extent size = sorted.sizes[pictures.order()->bucket_at(position)];
            CHECK(pictures.size_of(sample.index) == size);
            picture_options alone = options;
            alone.height = size.height;
            alone.width = size.width;
            const picture_sample want = captioned_pictures{index, alone}.picture(sample.index, draw_at(5, position));
            CHECK(sample.pixels == want.pixels);
            CHECK(sample.crop_left == want.crop_left);
            CHECK(sample.caption_dropped == (draw_at(5, position).caption < 0.25));
            CHECK(pictures.caption_at(position).index == sample.index);
        }
    }
    captioned_pictures again{index, options, sorted};
    again.set_step(2);
    for (std::uint64_t position = orders[2].size(); position-- != 0;) {
        CHECK(again.at(position).index == orders[2][position]);
    }
}

TEST_CASE("pictures that lie on their side are sorted as they stand upright") {
    sized_files folder{{{40, 10}}};
    const auto lying = pulse::test::some_picture(40, 10);
    folder.put("jpeg", ".jpg", pulse::test::encode_jpeg(lying, {.exif = pulse::test::exif_with(6)}));
    folder.put("webp", ".webp", pulse::test::encode_webp(lying, pulse::test::exif_with(8)));
    folder.put("turned", ".jpg", pulse::test::encode_jpeg(lying, {.exif = pulse::test::exif_with(3)}));
    const picture_index index = open_pictures(folder.path);
    captioned_pictures pictures{index, {.height = 1, .width = 1}, buckets_of(index, {{4, 16}, {16, 4}})};
    pictures.set_step(1);
    for (std::uint64_t position = 0; position != 4; ++position) {
        const picture_sample sample = pictures.at(position);
        CAPTURE(index.name(sample.index));
        const bool high = index.entries[sample.index].name.find("peg") != std::string::npos ||
                          index.entries[sample.index].name.find("webp") != std::string::npos;
        CHECK(sample.original_height == (high ? 40 : 10));
        CHECK(pictures.size_of(sample.index) == (high ? extent{16, 4} : extent{4, 16}));
    }
}

TEST_CASE("one of the same bucket takes the place of a picture that cannot be read") {
    sized_files folder{wide_and_high};
    const std::string whole = pulse::io::encode_png(pulse::test::some_picture(20, 20, 3));
    folder.put("102", ".png", whole.substr(0, whole.size() / 2)); // its header is intact
    folder.put("106", ".png", "no picture");
    const picture_index index = open_pictures(folder.path);
    const picture_buckets sorted = buckets_of(index, {{4, 16}, {8, 8}, {16, 4}});
    CHECK(sorted.of_picture[2] == 1);
    CHECK(sorted.of_picture[6] == 3);
    captioned_pictures pictures{
        index, {.height = 1, .width = 1, .seed = 2, .on_bad_picture = bad_picture::skip}, sorted};
    pictures.set_step(3);
    int refused = 0;
    for (std::uint64_t position = 0; position != 3ULL * pictures.order()->steps(); ++position) {
        const picture_sample sample = pictures.at(position);
        CHECK(sample.index != 2);
        CHECK(sample.index != 6);
        CHECK(sorted.of_picture[sample.index] == pictures.order()->bucket_at(position));
        refused += static_cast<int>(sample.refused.size());
    }
    CHECK(refused > 0);
    CHECK_THROWS_AS((void)sort_into_buckets(std::vector<picture_size>{{}, {}}, sizes{{8, 8}}), pulse::input_error);
}
