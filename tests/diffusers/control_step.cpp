#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/sdxl.hpp>

#include <support/difference.hpp>
#include <support/skip.hpp>
#include <support/unpipelined.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::test;

/// A ControlNet on a UNet that reads pooled text and sizes.
struct controlnet_sdxl_tiny : controlnet<sdxl_tiny::config> {};

/// A ControlNet's initial values, and its loss and all gradients of a step, equal those of diffusers on the same UNet.
/// compute(folder) runs diffusers with `packages`; returns false if that does.
///
/// The tolerance is that of training_step.cpp.
template <class M, class Unet, class Compute>
[[nodiscard]] bool check_control_step(const char* packages, const Compute& compute) {
    using float_math = reference::backend<float>;
    constexpr int samples = 2;
    const scratch folder;
    float_math backend;
    unpipelined<M, float_math> run{backend, 5};
    std::mt19937_64 random{11};
    const auto draw = [&](float least, float most) { return std::uniform_real_distribution{least, most}(random); };

    // The locked weights, and the values that a rank starts training with.
    std::vector<std::vector<float>*> locked{&run.frozen_conditioning_parameters};
    for (auto& layer : run.frozen_parameters) { locked.push_back(&layer); }
    auto owned = whole_model<M, float>();
    auto to_owned = owned.frozen_values().begin();
    drawn_values written{diffusers::model_parameters<Unet>(), 0};
    std::vector<float> flat;
    for (auto* const block : locked) {
        for (float& value : *block) { value += draw(-0.1F, 0.1F); }
        flat.insert(flat.end(), block->begin(), block->end());
        to_owned = std::copy(block->begin(), block->end(), to_owned);
    }
    REQUIRE(to_owned == owned.frozen_values().end());
    auto next = flat.begin();
    for (auto& one : written.values) {
        REQUIRE(flat.end() - next >= static_cast<std::ptrdiff_t>(one.size()));
        std::copy_n(next, one.size(), one.begin());
        next += static_cast<std::ptrdiff_t>(one.size());
    }
    REQUIRE(next == flat.end());
    const train::scheduler_settings settings{.betas = train::beta_shape::scaled_linear,
                                             .prediction = train::prediction_type::velocity};
    write_pipeline<Unet>(folder.path / "pipeline", written, diffusers::print_scheduler(settings));
    const std::vector<float> start = train::with_locked_values<M>(owned, train::initial_values<M>(owned, 5));

    // The step uses other values: initially the controls are 0, and most gradients with them.
    std::vector<std::vector<float>*> trained{&run.conditioning_parameters};
    for (auto& layer : run.parameters) { trained.push_back(&layer); }
    std::vector<float> values;
    for (auto* const block : trained) {
        for (float& value : *block) { value += draw(-0.1F, 0.1F); }
        values.insert(values.end(), block->begin(), block->end());
    }
    REQUIRE(values.size() == start.size());

    constexpr unet_config config = M::config;
    constexpr int side = config.sample_size;
    constexpr auto elements = static_cast<std::size_t>(config.in_channels * side * side);
    constexpr std::size_t hint_elements = std::size_t{3} * (8 * side) * (8 * side);
    std::vector<std::uint8_t> pixels(3 * elements);
    for (auto& pixel : pixels) { pixel = static_cast<std::uint8_t>(random() % 256); }
    const train::image_dataset data{side, side, config.in_channels, pixels, {.seed = 3}};
    const train::noise_schedule schedule = train::schedule_of(settings);
    const train::condition_source conditions{conditions_read_by<M>(),
                                             [&](std::uint64_t, std::size_t which, std::span<float> to) {
                                                 const bool text = conditions_read_by<M>().all()[which].is_text();
                                                 for (float& value : to) {
                                                     value = text ? draw(-1, 1) : std::round(draw(1, 20));
                                                 }
                                             },
                                             hint_elements,
                                             [&](std::uint64_t, std::span<float> to) {
                                                 for (float& value : to) { value = draw(0, 1); }
                                             }};
    constexpr std::uint64_t position = 77;
    train::diffusion_task task{
        data, schedule, {.seed = 5, .prediction = settings.prediction, .microbatch_size = samples}, conditions};
    task.begin(position);
    struct microbatch {
        int microbatch{};
        double* loss{};
    };
    double loss = 0;
    const microbatch at{0, &loss};
    // The samples, followed by their hints.
    std::vector<float> x(samples * (elements + hint_elements));
    task.input(at, x);
    const std::span<const float> hints = std::span{x}.subspan(samples * elements);

    std::vector<float> given;
    nlohmann::json names;
    const auto give = [&](const char* name, const std::vector<int>& dims, std::span<const float> from) {
        given.insert(given.end(), from.begin(), from.end());
        names["in"].push_back({name, dims});
    };
    std::vector<float> images(samples * elements);
    std::vector<float> noise(samples * elements);
    data.batch(position, images);
    train::random_source{5, train::random_stream::noise}.fill_normal(position * elements, noise);
    const std::span<const float> times{task.timesteps(at), samples};
    const std::span<const float> text{task.text(at), samples * std::size_t{M::conditioning::text_elements}};
    const std::size_t states = std::size_t{samples} * config.context_tokens * config.cross_attention_dim;
    std::vector<float> facts;
    give("image", {samples, side, side, config.in_channels}, images);
    give("noise", {samples, side, side, config.in_channels}, noise);
    give("times", {samples}, times);
    give("text", {samples, config.context_tokens, config.cross_attention_dim}, text.first(states));
    if constexpr (config.adds_embedding()) {
        facts.assign(task.facts(at), task.facts(at) + 6 * samples);
        give("pooled", {samples, config.pooled()}, text.subspan(states));
        give("sizes", {samples, 6}, facts);
    }
    give("hint", {samples, 8 * side, 8 * side, 3}, hints);
    given.insert(given.end(), values.begin(), values.end());
    const std::vector<parameter> parameters = diffusers::model_parameters<M>();
    std::int64_t longest = samples * 64 * side * side;
    for (const parameter& one : parameters) {
        names["parameters"].push_back(
            {one.name.str(), std::vector<int>(one.dims.begin(), one.dims.begin() + one.rank)});
        longest = std::max(longest, one.elements() / one.dims[0]);
    }
    std::ofstream{folder.path / "in", std::ios::binary}.write(reinterpret_cast<const char*>(given.data()),
                                                              static_cast<std::streamsize>(4 * given.size()));
    std::ofstream{folder.path / "shapes.json"} << names;
    if (!compute(folder.path)) { return false; }

    std::ifstream out{folder.path / "out", std::ios::binary};
    const auto theirs_like = [&](std::size_t count) {
        std::vector<float> theirs(count);
        out.read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(4 * count));
        REQUIRE(out.gcount() == static_cast<std::streamsize>(4 * count));
        return theirs;
    };
    // Only the hint's embedding is random, except for its last convolution; everything else is copied or 0.
    const std::vector<float> begun = theirs_like(start.size());
    std::size_t from = 0;
    for (const parameter& one : parameters) {
        CAPTURE(one.name.str());
        const auto count = static_cast<std::size_t>(one.elements());
        const auto begins = [&](const char* with) { return one.name.view().starts_with(with); };
        // Older versions of diffusers draw the pooled text's embedding, too.
        const bool drawn = begins("controlnet_cond_embedding.") ||
                           (begins("add_embedding.") && packages == std::string_view{PULSE_TEST_PYTHON_PACKAGES});
        if (one.zero || !drawn) {
            CHECK(std::equal(start.begin() + static_cast<std::ptrdiff_t>(from),
                             start.begin() + static_cast<std::ptrdiff_t>(from + count),
                             begun.begin() + static_cast<std::ptrdiff_t>(from)));
        }
        from += count;
    }

    auto tape = run.forward(samples, x, {times.begin(), times.end()}, {text.begin(), text.end()}, facts);
    std::vector<float> gradient(samples * elements);
    task.loss(at, run.output(tape), gradient);
    run.backward(tape, gradient);
    const double tolerance = static_cast<double>(std::numeric_limits<float>::epsilon()) *
                             (std::sqrt(static_cast<double>(longest)) * static_cast<double>(M::layer_count) +
                              static_cast<double>(settings.train_steps));
    const auto compare = [&](const char* what, const std::vector<float>& mine) {
        const pulse::test::difference off = pulse::test::difference_of(mine, theirs_like(mine.size()));
        CAPTURE(what);
        CAPTURE(off.worst);
        CHECK(off.greatest > 0.0);
        CHECK(off.worst <= tolerance * off.greatest);
    };
    compare("loss", {static_cast<float>(loss)});
    compare("conditioning", run.conditioning_gradients);
    static constexpr auto graph = uncut_graph_of<M>();
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        if (!run.gradients[l].empty()) { compare(graph.layers[l].name.chars, run.gradients[l]); }
    }
    CHECK(out.peek() == std::ifstream::traits_type::eof());
    return true;
}

} // namespace

TEST_CASE("a training step of the tiny ControlNets begins as diffusers' and has its loss and every gradient") {
    for (const char* const packages : {PULSE_TEST_PYTHON_PACKAGES, PULSE_TEST_PYTHON_NEWEST}) {
        CAPTURE(packages);
        // one process for both models
        const bool computed = check_control_step<controlnet_tiny, sd_tiny>(packages, [&](const fs::path& one) {
            return check_control_step<controlnet_sdxl_tiny, sdxl_tiny>(packages, [&](const fs::path& two) {
                return run_python(PULSE_TEST_DIFFUSERS_CONTROL, packages, {one, two});
            });
        });
        if (!computed) { pulse::test::skip("no torch and diffusers"); }
    }
}
