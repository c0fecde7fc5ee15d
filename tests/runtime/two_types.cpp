#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <type_traits>
#include <vector>

#include <support/bfloat16.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Scalars of 2 bytes, accumulators of 4. Counts scalar operands that are not aligned to 16 bytes.
struct narrow_math : reference::backend<bfloat16, float> {
    using base = reference::backend<bfloat16, float>;
    inline static std::atomic<int> operands{}, crooked{};

    void conv2d(auto... of) { see(of...), base::conv2d(of...); }
    void conv2d_backward_input(auto... of) { see(of...), base::conv2d_backward_input(of...); }
    void conv2d_backward_weight(auto... of) { see(of...), base::conv2d_backward_weight(of...); }
    void conv2d_pair(auto... of) { see(of...), base::conv2d_pair(of...); }
    void conv2d_pair_backward_input(auto... of) { see(of...), base::conv2d_pair_backward_input(of...); }
    void conv2d_pair_backward_weight(auto... of) { see(of...), base::conv2d_pair_backward_weight(of...); }
    void linear(const auto&... of) { see(of...), base::linear(of...); }
    void linear_backward_input(auto... of) { see(of...), base::linear_backward_input(of...); }
    void linear_backward_weight(auto... of) { see(of...), base::linear_backward_weight(of...); }
    void group_norm(auto... of) { see(of...), base::group_norm(of...); }
    void group_norm_backward(auto... of) { see(of...), base::group_norm_backward(of...); }
    void attention(auto... of) { see(of...), base::attention(of...); }
    void attention_backward(auto... of) { see(of...), base::attention_backward(of...); }
    void layer_norm(auto... of) { see(of...), base::layer_norm(of...); }
    void layer_norm_backward(auto... of) { see(of...), base::layer_norm_backward(of...); }

private:
    template <class T>
    static void see(T of) {
        if constexpr (std::is_same_v<T, bfloat16*> || std::is_same_v<T, const bfloat16*>) {
            ++operands;
            crooked += reinterpret_cast<std::uintptr_t>(of) % 16 == 0 ? 0 : 1;
        }
    }
    template <class... T>
    static void see(T... of) {
        (see(of), ...);
    }
};
static_assert(backend<narrow_math>);
static_assert(!backend<reference::backend<float, double>>, "a plan counts 4 bytes for a statistic of float scalars");

struct small_unet : unet<unet_config{.name = "small_unet",
                                     .sample_size = 4,
                                     .in_channels = 3,
                                     .out_channels = 3,
                                     .block_out_channels = {8, 16},
                                     .layers_per_block = 1,
                                     .attention = {true, false},
                                     .mid_block_attention = true,
                                     .attention_head_dim = 8,
                                     .norm_num_groups = 1}> {};
struct small_uvit : uvit<uvit_config{.name = "small_uvit",
                                     .img_size = 8,
                                     .patch_size = 4,
                                     .in_chans = 3,
                                     .embed_dim = 16,
                                     .depth = 4,
                                     .num_heads = 2,
                                     .conv = false}> {};

template <class Model>
void check_random_plans(unsigned seed, int plans) {
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int done = 0; done != plans;) {
        plan p;
        p.pipeline_degree = 2 + done % 2;
        p.microbatches = draw(2, 4);
        p.microbatch_size = draw(1, 3);
        p.split_backward = draw(0, 1) == 1;
        p.recompute = done % 3 == 0 ? recomputation::stages : recomputation::none;
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(bfloat16));
        p.cut = draw_cut(costs, placement::folded, p.pipeline_degree, 1, random);
        if (p.cut.stages.empty()) { continue; }
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        const std::uint64_t data = random();
        const auto run = run_pipelined<Model, narrow_math>(p, data);
        const auto want = run_unpipelined<Model, narrow_math>(p.microbatch_size, p.microbatches, data);
        INFO("seed ", seed, ", plan ", done);
        REQUIRE(run.gradients == want.gradients);
        REQUIRE(run.losses == want.losses);
        REQUIRE(run.planned_bytes == run.measured_bytes);
        REQUIRE(run.planned_block == run.written_block);
        ++done;
    }
}

/// The gradients of `n` equal microbatches are n times those of one, to an accumulator's precision. Rounding sums to
/// scalars would show: their epsilon is 2^-8.
template <class Model>
void check_accumulation() {
    constexpr int n = 8;
    constexpr std::uint64_t seed = 5;
    narrow_math backend;
    unpipelined<Model, narrow_math> one{backend, seed};
    unpipelined<Model, narrow_math> many{backend, seed};
    const drawn_data<Model, bfloat16, float> data{seed, 2, 1};
    const auto train = [&](unpipelined<Model, narrow_math>& model) {
        auto tape = model.forward(2, data.input(0), data.timesteps(0));
        model.backward(tape, data.target(0));
    };
    train(one);
    for (int m = 0; m != n; ++m) { train(many); }
    for (std::size_t l = 0; l != Model::layer_count; ++l) {
        float greatest = 0;
        for (const float g : one.gradients[l]) { greatest = std::max(greatest, std::abs(g)); }
        REQUIRE((greatest > 0 || one.gradients[l].empty()));
        for (std::size_t i = 0; i != one.gradients[l].size(); ++i) {
            // n x 2 samples x 16 to 64 pixels add up: at most 1024 roundings of 2^-24, relative to the greatest sum.
            REQUIRE(std::abs(many.gradients[l][i] - n * one.gradients[l][i]) <= n * greatest * 1024 * 0x1p-24F);
        }
    }
}

} // namespace

TEST_CASE(
    "scalars of 2 bytes with accumulators of 4: a pipelined step is the unpipelined one, and its bytes are planned") {
    narrow_math::operands = narrow_math::crooked = 0;
    check_random_plans<small_unet>(1, 6);
    check_random_plans<small_uvit>(2, 6);
    CHECK(narrow_math::operands > 1000);
    CHECK(narrow_math::crooked == 0); // every width is a multiple of 8, except the last
}

TEST_CASE("parameter gradients add up in the accumulator") {
    check_accumulation<small_unet>();
    check_accumulation<small_uvit>();
}

TEST_CASE("statistics lie before the saved tensors, in at least 4 bytes each, rounded up to 64") {
    constexpr layer_node node{.name = "n", .saved_elements = 10, .statistics_elements = 3};
    CHECK(node.statistics_bytes(2, 2) == 64);
    CHECK(node.statistics_bytes(6, 2) == 128); // 72 bytes, rounded up
    CHECK(node.statistics_bytes(2, 4) == 64);
    CHECK(node.statistics_bytes(3, 8) == 128); // 72 bytes, rounded up
    CHECK(node.saved_bytes(2, 2) == 64 + 40);
    CHECK(layer_node{.name = "n", .saved_elements = 10}.saved_bytes(2, 2) == 40);
}
