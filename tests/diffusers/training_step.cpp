#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

#ifdef PULSE_TEST_DIFFUSERS_GENERATED
#include <inpaint_tiny.hpp>
#include <ssd_tiny.hpp>
#endif

#include <support/difference.hpp>
#include <support/skip.hpp>
#include <support/unpipelined.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::test;
using math = reference::backend<float>;

constexpr int batch = 2;

/// Parameters of the conditioning module, then of each layer.
template <class M>
[[nodiscard]] std::vector<std::vector<float>*> values_of(unpipelined<M, math>& run) {
    std::vector<std::vector<float>*> all{&run.conditioning_parameters};
    for (auto& layer : run.parameters) { all.push_back(&layer); }
    return all;
}

/// The parts of a work item that the task reads.
struct microbatch_of {
    int microbatch{};
    double* loss{};
};

/// The loss and all gradients of a step of diffusion_task at an extent equal those of diffusers for the same folder.
/// compute(folder) runs diffusers; returns false if that does.
///
/// The rounding error of a sum of n terms grows like sqrt(n) eps, and the layers' errors add. diffusers computes the
/// angles of sinusoids and the products of betas in float: a relative error of eps for each time step up to t.
template <class M, class Compute>
[[nodiscard]] bool check_step(const extent& to, const Compute& compute) {
    CAPTURE(M::name.str());
    CAPTURE(to.height);
    const scratch folder;
    math backend;
    unpipelined<M, math> run{backend, 5, to};
    std::mt19937_64 random{11};
    const auto draw = [&](float least, float most) { return std::uniform_real_distribution{least, most}(random); };
    std::vector<float> values;
    for (auto* const block : values_of(run)) {
        for (float& value : *block) { value += draw(-0.1F, 0.1F); }
        values.insert(values.end(), block->begin(), block->end());
    }
    drawn_values written{diffusers::model_parameters<M>(), 0};
    auto next = values.begin();
    for (auto& one : written.values) {
        std::copy_n(next, one.size(), one.begin());
        next += static_cast<std::ptrdiff_t>(one.size());
    }
    REQUIRE(next == values.end());
    const train::scheduler_settings settings{.betas = train::beta_shape::scaled_linear,
                                             .prediction = train::prediction_type::velocity};
    write_pipeline<M>(folder.path / "pipeline", written, diffusers::print_scheduler(settings));

    constexpr unet_config config = M::config;
    constexpr int channels = config.out_channels;
    const auto elements = static_cast<std::size_t>(channels * to.height * to.width);
    std::vector<std::uint8_t> pixels(3 * elements);
    for (auto& pixel : pixels) { pixel = static_cast<std::uint8_t>(random() % 256); }
    const train::image_dataset data{to.height, to.width, channels, pixels, {.seed = 3}};
    const train::noise_schedule schedule = train::schedule_of(settings);
    const train::condition_source conditions{conditions_read_by<M>(),
                                             [&](std::uint64_t, std::size_t which, std::span<float> to) {
                                                 const bool text = conditions_read_by<M>().all()[which].is_text();
                                                 for (float& value : to) {
                                                     value = text ? draw(-1, 1) : std::round(draw(1, 20));
                                                 }
                                             }};
    constexpr std::uint64_t position = 77;
    train::diffusion_task task{
        data, schedule, {.seed = 5, .prediction = settings.prediction, .microbatch_size = batch}, conditions};
    task.begin(position);
    double loss = 0;
    const microbatch_of at{0, &loss};
    std::vector<float> x(batch * elements);
    task.input(at, x);

    // Python's inputs: a file of numbers, with their names and shapes.
    std::vector<float> given;
    nlohmann::json given_names;
    const auto give = [&](const char* name, std::vector<int> dims, const float* from) {
        std::int64_t count = 1;
        for (const int extent : dims) { count *= extent; }
        given.insert(given.end(), from, from + count);
        given_names.push_back({name, std::move(dims)});
    };
    std::vector<float> images(batch * elements);
    std::vector<float> noise(batch * elements);
    data.batch(position, images);
    train::random_source{5, train::random_stream::noise}.fill_normal(position * elements, noise);
    give("image", {batch, to.height, to.width, channels}, images.data());
    give("noise", {batch, to.height, to.width, channels}, noise.data());
    give("times", {batch}, task.timesteps(at));
    give("text", {batch, config.context_tokens, config.text_features()}, task.text(at));
    if (config.adds_embedding()) {
        give("pooled", {batch, config.pooled()},
             task.text(at) + batch * config.context_tokens * config.text_features());
        give("sizes", {batch, 6}, task.facts(at));
    }
    // The additional input channels of an inpainting model.
    constexpr int more = config.in_channels - channels;
    if constexpr (more != 0) {
        const std::vector<float> sample = std::exchange(x, {});
        std::vector<float> others(sample.size() / channels * more);
        for (float& value : others) { value = draw(-1, 1); }
        give("others", {batch, to.height, to.width, more}, others.data());
        for (std::size_t pixel = 0; pixel != sample.size() / channels; ++pixel) {
            const auto append = [&](const std::vector<float>& from, int count) {
                const auto begin = from.begin() + static_cast<std::ptrdiff_t>(pixel) * count;
                x.insert(x.end(), begin, begin + count);
            };
            append(sample, channels);
            append(others, more);
        }
    }
    nlohmann::json wanted_names;
    for (const parameter& one : written.parameters) { wanted_names.push_back(one.name.str()); }
    std::ofstream{folder.path / "in", std::ios::binary}.write(reinterpret_cast<const char*>(given.data()),
                                                              static_cast<std::streamsize>(4 * given.size()));
    std::ofstream{folder.path / "shapes.json"} << nlohmann::json{{"in", given_names}, {"out", wanted_names}};
    if (!compute(folder.path)) { return false; }

    const auto copy_of = [](const float* from, std::int64_t count) { return std::vector<float>(from, from + count); };
    auto tape = run.forward(batch, x, copy_of(task.timesteps(at), batch),
                            copy_of(task.text(at), batch * M::conditioning::text_elements),
                            copy_of(task.facts(at), batch * M::conditioning::fact_elements));
    std::vector<float> gradient(batch * elements);
    task.loss(at, run.output(tape), gradient);
    run.backward(tape, gradient);

    std::int64_t longest = batch * to.height * to.width;
    for (const parameter& one : written.parameters) { longest = std::max(longest, one.elements() / one.dims[0]); }
    const double tolerance = static_cast<double>(std::numeric_limits<float>::epsilon()) *
                             (std::sqrt(static_cast<double>(longest)) * static_cast<double>(M::layer_count) +
                              static_cast<double>(settings.train_steps));
    std::ifstream out{folder.path / "out", std::ios::binary};
    const auto compare = [&](const char* what, const std::vector<float>& mine) {
        std::vector<float> theirs(mine.size());
        out.read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(4 * theirs.size()));
        REQUIRE(out.gcount() == static_cast<std::streamsize>(4 * theirs.size()));
        const pulse::test::difference off = pulse::test::difference_of(mine, theirs);
        CAPTURE(what);
        CAPTURE(off.worst);
        CHECK(off.greatest > 0.0);
        CHECK(off.worst <= tolerance * off.greatest);
    };
    compare("loss", {static_cast<float>(loss)});
    compare("conditioning", run.conditioning_gradients);
    static constexpr auto graph = uncut_graph_of<M>();
    for (std::size_t l = 0; l != M::layer_count; ++l) { compare(graph.layers[l].name.chars, run.gradients[l]); }
    CHECK(out.peek() == std::ifstream::traits_type::eof());
    return true;
}

} // namespace

#ifdef PULSE_TEST_DIFFUSERS_GENERATED
TEST_CASE("a training step of models that were made of their folders has the loss and every gradient of diffusers") {
    for (const char* const packages : {PULSE_TEST_PYTHON_PACKAGES, PULSE_TEST_PYTHON_NEWEST}) {
        CAPTURE(packages);
        const bool computed = check_step<pulse_models::ssd_tiny>({12, 20}, [&](const fs::path& one) {
            return check_step<pulse_models::inpaint_tiny>({10, 6}, [&](const fs::path& two) {
                return run_python(PULSE_TEST_DIFFUSERS_STEP, packages, {one, two});
            });
        });
        if (!computed) { pulse::test::skip("no torch and diffusers"); }
    }
}
#endif

TEST_CASE("a training step of the tiny UNets with text has the loss and every gradient that diffusers has") {
    for (const char* const packages : {PULSE_TEST_PYTHON_PACKAGES, PULSE_TEST_PYTHON_NEWEST}) {
        CAPTURE(packages);
        // one process for all models
        const auto compute = [&](const auto&... folders) {
            return run_python(PULSE_TEST_DIFFUSERS_STEP, packages, {folders...});
        };
        const auto check_all = [&]<class M>(const M*, std::span<const extent> sizes, const auto& then) {
            return check_step<M>(sizes[0], [&](const fs::path& one) {
                return check_step<M>(sizes[1], [&](const fs::path& two) {
                    return check_step<M>(sizes[2], [&](const fs::path& three) {
                        return check_step<M>(sizes[3], [&](const fs::path& four) {
                            return check_step<M>(
                                sizes[4], [&](const fs::path& five) { return then(one, two, three, four, five); });
                        });
                    });
                });
            });
        };
        constexpr std::array sizes{extent_of<sd_tiny>(), extent{4, 20}, extent{14, 6}, extent{10, 18}, extent{2, 22}};
        static_assert(extent_of<sd_tiny>() == extent_of<sdxl_tiny>());
        const bool computed = check_all(static_cast<const sd_tiny*>(nullptr), sizes, [&](const auto&... of_sd) {
            return check_all(static_cast<const sdxl_tiny*>(nullptr), sizes,
                             [&](const auto&... of_sdxl) { return compute(of_sd..., of_sdxl...); });
        });
        if (!computed) { pulse::test::skip("no torch and diffusers"); }
    }
}
