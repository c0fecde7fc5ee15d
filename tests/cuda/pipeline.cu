#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/host/reference.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>

#include <support/random_plan.hpp>

#include <device_pipelined.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

#if defined(__CUDACC__)
constexpr bool on_gpu = true;
#else
constexpr bool on_gpu = false; // emulated kernels are slow: the smallest model, in few runs
#endif

struct small_unet : unet<unet_config{.name = "small_unet",
                                     .sample_size = on_gpu ? 16 : 2,
                                     .in_channels = 4,
                                     .out_channels = 4,
                                     .block_out_channels = {8, 16},
                                     .layers_per_block = 1,
                                     .attention = {false, on_gpu},
                                     .mid_block_attention = false,
                                     .attention_head_dim = 8,
                                     .norm_num_groups = 4}> {};

constexpr int batch = on_gpu ? 2 : 1;

/// A folded plan on so many devices; on 1 it is one stage.
template <class Model, class T>
[[nodiscard]] plan draw_plan(int devices, std::mt19937& random) {
    plan p;
    p.pipeline_degree = devices;
    p.microbatches = on_gpu ? 6 : 2;
    p.microbatch_size = batch;
    p.split_backward = devices == 4;
    const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(T));
    p.cut = draw_cut(costs, devices == 1 ? placement::sequential : placement::folded, devices, 1, random, 100000);
    REQUIRE(!p.cut.stages.empty());
    p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
    return p;
}

/// Pipelines of 2 and 4 ranks on one device against one rank with one stage, bit for bit; that one is returned. The
/// first step starts everything as it is, the second captures it, the third replays.
template <class Precision, class Model>
[[nodiscard]] device_run check_pipelines(unsigned seed) {
    using T = typename Precision::scalar;
    std::mt19937 random{seed};
    const auto make = [](cuda::thread_transport& t) { return cuda::backend<Precision>{t.stream()}; };
    const device_run alone = run_on_device<Model, resident>(draw_plan<Model, T>(1, random), seed, {.steps = 3}, make);
    for (const bool equal : alone.steps_equal) { CHECK(equal); }
    CHECK(alone.planned_bytes == alone.measured_bytes);
    for (int devices = 2; devices <= (on_gpu ? 4 : 2); devices += 2) {
        const plan p = draw_plan<Model, T>(devices, random);
        const device_run run = run_on_device<Model, resident>(p, seed, {.steps = 3}, make);
        INFO(Precision::name, ", P ", devices);
        CHECK(run.gradients == alone.gradients);
        CHECK(run.losses == alone.losses);
        CHECK(run.planned_bytes == run.measured_bytes);
        CHECK(run.planned_block == run.written_block);
        for (const bool equal : run.steps_equal) { CHECK(equal); }
        CHECK(run.sent.skip == 0);
        CHECK(run.most_skips_held > 0);
    }
    return alone;
}

/// The norm of the difference of all gradients from those of the same step in double, over the norm of these.
template <class Model>
[[nodiscard]] double distance_from_double(const device_run& run, unsigned seed) {
    const auto want = run_unpipelined<Model, host::reference_backend<double>>(batch, on_gpu ? 6 : 2, seed);
    double difference = 0;
    double all = 0;
    for (const auto& [layer, gradients] : want.gradients) {
        const auto& found = run.gradients.at(layer);
        REQUIRE(found.size() == gradients.size());
        for (std::size_t i = 0; i != found.size(); ++i) {
            const double d = static_cast<double>(found[i]) - gradients[i];
            difference += d * d;
            all += gradients[i] * gradients[i];
        }
    }
    return std::sqrt(difference / all);
}

} // namespace

TEST_CASE("a UNet in a folded pipeline on one device, in bfloat16") {
    // Roundings of independent signs: about the square root of the depth (50 operations) times the type's epsilon.
    CHECK(distance_from_double<small_unet>(check_pipelines<cuda::bf16, small_unet>(2), 2) < 50 * 0x1p-9);
}

#if defined(__CUDACC__)
namespace {

struct small_uvit : uvit<uvit_config{.name = "small_uvit",
                                     .img_size = 16,
                                     .patch_size = 2,
                                     .in_chans = 4,
                                     .embed_dim = 64,
                                     .depth = 8,
                                     .num_heads = 4}> {};

} // namespace

TEST_CASE("a UNet in a folded pipeline on one device, in float") {
    CHECK(distance_from_double<small_unet>(check_pipelines<cuda::fp32, small_unet>(1), 1) < 50 * 0x1p-24);
}

TEST_CASE("a U-ViT in a folded pipeline on one device, in bfloat16") {
    CHECK(distance_from_double<small_uvit>(check_pipelines<cuda::bf16, small_uvit>(3), 3) < 50 * 0x1p-9);
}
#endif
