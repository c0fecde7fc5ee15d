#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/frozen/decoded_ahead.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/pictures_task.hpp>
#include <pulse/frozen/plan_for.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/io/png.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/task.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/zoo/frozen_networks.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

struct small_pixels : pulse::unet<pulse::unet_config{.name = "small_pixels",
                                                     .sample_size = 8,
                                                     .in_channels = 3,
                                                     .out_channels = 3,
                                                     .block_out_channels = {8, 16},
                                                     .layers_per_block = 1,
                                                     .attention = {false, true},
                                                     .norm_num_groups = 4}> {};

} // namespace

template <>
struct pulse::frozen::networks_of<small_pixels>
    : pulse::frozen::pixel_networks<pulse::frozen::tiny_pixels("small_pixels", 8)> {};

namespace {

using namespace pulse;
using math = reference::backend<float>;
using pixel_task = pictures_task<small_pixels, math>;

constexpr std::uint64_t step_samples = 4;

/// A folder of two steps' pictures, each unlike the others.
struct picture_folder {
    test::scratch scratch{};

    picture_folder() {
        for (unsigned i = 0; i != 2 * step_samples; ++i) {
            test::put(scratch.path / (std::to_string(i) + ".png"),
                      io::encode_png(test::some_picture(8, 8, i + 1, 100)));
            test::put(scratch.path / (std::to_string(i) + ".txt"), "a cat");
        }
    }
};

/// What the model reads in the step that begins at a position.
std::vector<float> inputs_at(pixel_task& data, std::uint64_t position) {
    const math on{};
    std::vector<float> all;
    data.begin(position);
    for (int m = 0; m != static_cast<int>(step_samples); ++m) {
        std::vector<float> x(8 * 8 * 3);
        double loss = 0;
        data.input(work<math>{m, 1, position + static_cast<std::uint64_t>(m), step_samples, &loss, &on}, x);
        all.insert(all.end(), x.begin(), x.end());
    }
    return all;
}

} // namespace

TEST_CASE("a step that begins after one whose picture could not be read has the samples of its own position") {
    const picture_folder folder;
    pictures<small_pixels> all{{.data = folder.scratch.path, .seed = 3}};
    const planned made = plan_for<small_pixels, math>({.devices = 1,
                                                       .global_batch = step_samples,
                                                       .device = cpu_core,
                                                       .microbatch_size = 1,
                                                       .frozen = frozen_mode::none,
                                                       .seconds = 0},
                                                      all.options());
    const train::noise_schedule noise = train::noise_schedule::linear();
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        pixel_task whole{all, transport, made, noise, {.seed = 5}};
        const std::vector<float> first = inputs_at(whole, 0);
        const std::vector<float> second = inputs_at(whole, step_samples);
        REQUIRE(first != second);

        const data::picture_index& index = all.source().pictures().index();
        const std::filesystem::path bad =
            folder.scratch.path / index.entries[all.source().pictures().picture_at(step_samples + 1)].name;
        const std::filesystem::path away = folder.scratch.path / "away";
        for (const bool goes_back : {true, false}) {
            CAPTURE(goes_back);
            std::filesystem::rename(bad, away);
            pixel_task broken{all, transport, made, noise, {.seed = 5}};
            CHECK(inputs_at(broken, 0) == first);
            CHECK_THROWS_AS(broken.begin(step_samples), input_error);
            std::filesystem::rename(away, bad);
            if (goes_back) { CHECK(inputs_at(broken, 0) == first); }
            if (!goes_back) { CHECK(inputs_at(broken, step_samples) == second); }
        }
    });
}

TEST_CASE("images beside the pictures of a step that are decoded again are those of their positions") {
    const picture_folder folder;
    const pictures_options options{.data = folder.scratch.path, .seed = 3};
    const frozen::picture_source source{options, {.size = {8, 8}, .channels = 3}};
    std::atomic<bool> fails{true}; // read by the threads that decode
    // The picture's number and the position stand for the image.
    const auto decode = [&](std::uint32_t picture, std::uint64_t position) {
        if (fails && position == step_samples + 1) { throw std::runtime_error{"no memory"}; }
        return std::vector<float>{static_cast<float>(picture), static_cast<float>(position)};
    };
    frozen::decoded_ahead images{source, decode, step_samples, step_samples};
    const auto check = [&](std::uint64_t first) {
        images.begin(first);
        for (std::uint64_t i = 0; i != step_samples; ++i) {
            CHECK(images.of(i)[0] == static_cast<float>(source.pictures().picture_at(first + i)));
            CHECK(images.of(i)[1] == static_cast<float>(first + i));
        }
    };
    check(0);
    CHECK_THROWS_AS(images.begin(step_samples), std::runtime_error);
    check(0);
    CHECK_THROWS_AS(images.begin(step_samples), std::runtime_error);
    fails = false;
    check(step_samples);
}
