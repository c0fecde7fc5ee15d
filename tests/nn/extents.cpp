#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <nn/small_text.hpp>
#include <nn/small_uvit.hpp>
#include <support/locked_models.hpp>
#include <support/pipelined.hpp>
#include <support/sized_model.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Model resized to Size x Size equals the type of that size: in cost, in losses and in every bit of its gradients.
template <class Model, int Size>
void check_square() {
    INFO(Model::name.chars << " at " << Size);
    constexpr extent to{Size, Size};
    constexpr auto typed = graph_of<sized<Model, Size>>();
    const auto resized = graph_of<Model>(resize<Model>(to));
    CHECK(resized.layers == typed.layers);
    CHECK(resized.skips == typed.skips);
    CHECK(resized.conditioning_elements == typed.conditioning_elements);
    using math = reference::backend<float>;
    const auto want = run_unpipelined<sized<Model, Size>, math>(2, 2, 7);
    const auto got = run_unpipelined<Model, math>(2, 2, 7, 0, to);
    CHECK(got.losses == want.losses);
    CHECK(got.gradients == want.gradients);
}

template <class Model>
std::string refused(const extent& to) {
    try {
        static_cast<void>(resize<Model>(to));
    } catch (const input_error& e) { return e.what(); }
    return {};
}

} // namespace

TEST_CASE("a UNet at another extent is the UNet whose type has it, bit for bit") {
    check_square<ddpm_tiny, 4>();
    check_square<ddpm_tiny, 12>();
    check_square<crooked_unet, 2 * crooked_unet::config.sample_size>();
    check_square<small_sd, 6>();
    check_square<small_sdxl, 8>();
    check_square<small_sdxl, 2>();
}

TEST_CASE("a Hunyuan-DiT at another extent is the one whose type has it, bit for bit, and is cut into whole patches") {
    check_square<small_hunyuan_v11, 2>();
    check_square<small_hunyuan_v11, 6>();
    static_assert(steps_of<small_hunyuan_v11>() == extent{2, 2});
    CHECK(refused<small_hunyuan_v11>({6, 3}).find("width of 2 (2 or 4)") != std::string::npos);
}

TEST_CASE("SD 2.1 costs at 64 x 64 what SD 2.1-base costs, in the compiler too") {
    using base = sized<sd21, 64>;
    constexpr auto small = graph_of<sd21>(resize<sd21>({64, 64}));
    static_assert(small.layers == graph_of<base>().layers && small.skips == graph_of<base>().skips);
    static_assert(graph_of<sd21>(resize<sd21>({96, 96})).layers == graph_of<sd21>().layers);
    CHECK(small.layers.front().input_elements == std::int64_t{4} * 64 * 64);
}

TEST_CASE("height and width change a layer's tensors each by its own factor") {
    constexpr auto flat = graph_of<sd21>(resize<sd21>({48, 192}));
    const auto square = graph_of<sd21>();
    for (std::size_t l = 0; l != flat.layers.size(); ++l) {
        CHECK(flat.layers[l].output_elements == square.layers[l].output_elements);
    }
    constexpr auto wide = graph_of<sd21>(resize<sd21>({96, 192}));
    CHECK(wide.layers.front().output_elements == 2 * square.layers.front().output_elements);
    CHECK(wide.layers.back().forward_flops == 2 * square.layers.back().forward_flops);
    CHECK(wide.conditioning_elements == square.conditioning_elements);
}

TEST_CASE("the costs of a model grow with its extent up to the largest") {
    const auto half = graph_of<sd21>(resize<sd21>({8192, 16384}));
    const auto whole = graph_of<sd21>(resize<sd21>({16384, 16384}));
    for (std::size_t l = 0; l != whole.layers.size(); ++l) {
        CAPTURE(whole.layers[l].name.view());
        CHECK(half.layers[l].forward_flops > 0);
        CHECK(whole.layers[l].forward_flops > half.layers[l].forward_flops);
        CHECK(whole.layers[l].output_elements == 2 * half.layers[l].output_elements);
    }
}

TEST_CASE("an extent that does not halve is refused, and the ones beside it are named") {
    static_assert(extent_of<sd21>() == extent{96, 96} && steps_of<sd21>() == extent{8, 8});
    static_assert(steps_of<ddpm_fmnist>() == extent{4, 4});
    static_assert(resize<sd21>({}).same() && resize<sd21>({96, 96}).same() && !resize<sd21>({96, 64}).same());
    CHECK(refused<sd21>({64, 72}).empty());
    CHECK(refused<sd21>({64, 70}) ==
          "model sd21 cannot read 64 x 70: its height must be a multiple of 8 (64), its width of "
          "8 (64 or 72), up to 16384");
    CHECK(refused<sd21>({4, 64}).find("height must be a multiple of 8 (8)") != std::string::npos);
    CHECK(refused<sd21>({-8, 64}).find("height must be a multiple of 8 (8)") != std::string::npos);
    CHECK(refused<sd21>({64, 16392}).find("width of 8 (16384)") != std::string::npos);
    CHECK(refused<sd21>({64, 2147483647}).find("width of 8 (16384)") != std::string::npos);
}

TEST_CASE("a model whose layers do not all resize keeps its extent") {
    static_assert(resizable_model<sd21> && resizable_model<small_sdxl> && resizable_model<small_hunyuan_v11>);
    static_assert(!resizable_model<control_unet> && !resizable_model<encoder_locked_unet>);
    CHECK(refused<control_unet>(extent_of<control_unet>()).empty());
    CHECK(refused<control_unet>({2, 2}).find("it only reads") != std::string::npos);
}

TEST_CASE(
    "a U-ViT at another extent costs what a type of that extent does but for positions, which it resamples if asked") {
    constexpr auto typed = graph_of<sized<small_uvit, 8>>();
    constexpr auto resized = graph_of<small_uvit>(resize<small_uvit>({8, 8}));
    static_assert(std::equal(resized.layers.begin() + 1, resized.layers.end(), typed.layers.begin() + 1));
    layer_node first = typed.layers.front();
    first.parameter_elements = graph_of<small_uvit>().layers.front().parameter_elements;
    first.factored_elements = graph_of<small_uvit>().layers.front().factored_elements;
    CHECK(resized.layers.front() == first);
    CHECK(refused<small_uvit>({8, 5}).find("its width of 2 (4 or 6)") != std::string::npos);

    static_assert(learns_positions<small_uvit>() && !learns_positions<small_hunyuan_v11>() &&
                  !learns_positions<sd21>());
    CHECK_NOTHROW(require_own_positions<small_uvit>({4, 4}, "the option"));
    CHECK_NOTHROW(require_own_positions<small_uvit>({}, "the option"));
    CHECK_NOTHROW(require_own_positions<small_hunyuan_v11>({8, 4}, "the option"));
    CHECK_THROWS_WITH_AS(
        require_own_positions<small_uvit>({16, 8}, "the option", 2),
        "model small_uvit has learned the positions of 8 x 8, not of 16 x 8; the option resamples them", input_error);
}
