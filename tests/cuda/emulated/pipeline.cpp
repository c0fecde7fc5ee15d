#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pulse/cuda/layer_timer.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/nn/unet.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/forward_runner.hpp>

#include <support/random_plan.hpp>
#include <support/replicated.hpp>
#include <support/toy_model.hpp>

#include <device_pipelined.hpp>
#include <reference_backend.hpp>

namespace pipeline_tests {

using namespace pulse;
using namespace pulse::test;

namespace {

using plain = reference::backend<float>;

enum class mood { sound, drifts, fails_eagerly, fails_captured };

/// Linear operations may take the host a random time to launch, so that ranks drift apart in every possible way; or one
/// of them throws, either while the stream is captured or while it is not.
struct math : emulated_reference_backend<float> {
    explicit math(cudaStream_t stream, mood of_rank = mood::sound, unsigned seed = 0) :
        emulated_reference_backend<float>{stream}, how{of_rank}, random{seed} {}
    void linear(const linear_shape& shape, auto... of) {
        if (how == mood::drifts) {
            std::this_thread::sleep_for(std::chrono::microseconds{std::uniform_int_distribution<int>{0, 150}(random)});
        }
        if (how == mood::fails_eagerly || how == mood::fails_captured) {
            cudaStreamCaptureStatus status{};
            cuda::check(cudaStreamIsCapturing(stream(), &status), "cudaStreamIsCapturing");
            const bool captured = status == cudaStreamCaptureStatusActive;
            if (captured == (how == mood::fails_captured) && patience-- == 0) { throw error{"out of patience"}; }
        }
        emulated_reference_backend<float>::linear(shape, of...);
    }
    mood how;
    int patience{3};
    std::mt19937 random;
};

struct small_unet : unet<unet_config{.name = "small_unet",
                                     .sample_size = 4,
                                     .in_channels = 2,
                                     .out_channels = 2,
                                     .block_out_channels = {4, 8},
                                     .layers_per_block = 1,
                                     .attention = {false, true},
                                     .mid_block_attention = false,
                                     .attention_head_dim = 4,
                                     .norm_num_groups = 2}> {};
using nested_toy = toy_model<1, 18, wiring::nested, true>;

template <class Model>
[[nodiscard]] plan draw_plan(placement kind, int devices, int waves, std::mt19937& random, const extent& to = {}) {
    const auto graph = graph_of<Model>(resize<Model>(to));
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (;;) {
        plan p;
        p.pipeline_degree = devices;
        p.microbatches = draw(2, 5);
        p.microbatch_size = draw(1, 2);
        p.split_backward = draw(0, 1) == 1;
        p.routing = kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
        p.recompute = draw(0, 3) == 0 ? recomputation::stages : recomputation::none;
        p.spare_sends = draw(0, 3);
        const cost_table costs = blank_costs(graph.view(), p.microbatch_size, sizeof(float));
        p.cut = draw_cut(costs, kind, devices, waves, random);
        if (p.cut.stages.empty()) { continue; }
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        return p;
    }
}

using make_math = std::function<math(cuda::thread_transport&)>;

template <class Model>
device_run check_run(const plan& p, std::uint64_t data, const device_run_options& options, const make_math& make) {
    const auto run = run_on_device<Model>(p, data, options, make);
    const auto want = run_unpipelined<Model, plain>(p.microbatch_size, p.microbatches, data, 0, options.to);
    REQUIRE(run.gradients == want.gradients);
    REQUIRE(run.losses == want.losses);
    REQUIRE(run.planned_bytes == run.measured_bytes);
    REQUIRE(run.planned_block == run.written_block);
    REQUIRE(run.planned_live == run.measured_live);
    for (const bool equal : run.steps_equal) { REQUIRE(equal); }
    const auto graph = graph_of<Model>(resize<Model>(options.to));
    const cost_table costs = blank_costs(graph.view(), p.microbatch_size, sizeof(float));
    const traffic expected = traffic_of(p.cut, costs, p.routing);
    REQUIRE(run.sent.boundary == expected.boundary() * p.microbatches * options.steps);
    REQUIRE(run.sent.skip == expected.skip() * p.microbatches * options.steps);
    if (p.cut.kind == placement::folded) { REQUIRE(run.sent.skip == 0); }
    return run;
}

math plain_math(cuda::thread_transport& transport) { return math{transport.stream()}; }

template <class Model>
void check_folded(unsigned seed, int devices, int waves, const extent& to = {}) {
    std::mt19937 random{seed};
    for (const bool exchange : {false, true}) {
        const plan p = draw_plan<Model>(placement::folded, devices, waves, random, to);
        INFO("seed ", seed, ", P ", devices, ", exchange ", exchange);
        // The first step launches its work, the second captures it, the others replay it.
        const auto run = check_run<Model>(p, random(), {.steps = 4, .link = {exchange}, .to = to}, plain_math);
        CHECK((run.sent.handed_over > 0) == exchange);
    }
}

} // namespace

TEST_CASE("folded pipelines on one device have the gradients of an unpipelined step, bit for bit") {
    check_folded<nested_toy>(1, 2, 2);
    check_folded<nested_toy>(2, 4, 1);
    check_folded<nested_toy>(3, 4, 2);
    check_folded<small_unet>(4, 2, 1);
    check_folded<small_unet>(5, 4, 1);
    check_folded<small_unet>(6, 4, 1, {2, 6});
}

TEST_CASE("other placements, with skips that cross devices, too") {
    using toy = toy_model<2, 18, wiring::crossing, false>;
    std::mt19937 random{11};
    for (const placement kind : {placement::sequential, placement::interleaved}) {
        const plan p = draw_plan<toy>(kind, 3, kind == placement::sequential ? 1 : 2, random);
        const auto run = check_run<toy>(p, random(), {.steps = 3}, plain_math);
        CHECK(run.sent.skip > 0);
    }
}

TEST_CASE("hosts that drift apart change nothing") {
    std::mt19937 random{21};
    for (int repeat = 0; repeat != 3; ++repeat) {
        const plan p = draw_plan<nested_toy>(placement::folded, 4, 1, random);
        const auto make = [&](cuda::thread_transport& transport) {
            const auto seed = 100U * static_cast<unsigned>(repeat) + static_cast<unsigned>(transport.rank());
            return math{transport.stream(), mood::drifts, seed};
        };
        static_cast<void>(check_run<nested_toy>(p, random(), {.steps = 3, .link = {repeat == 1}}, make));
    }
}

TEST_CASE("replicas on devices add up their gradients in their order, bit for bit") {
    std::mt19937 random{51};
    for (const auto& grid : {std::pair{1, 2}, {2, 2}, {2, 3}, {1, 4}}) {
        for (const bool sharded : {false, true}) {
            plan p = draw_plan<nested_toy>(placement::folded, grid.first, 1, random);
            p.data_degree = grid.second;
            p.node_replicas = p.data_degree == 4 ? 2 : 1;
            const std::uint64_t seed = random();
            constexpr int steps = 3;
            const auto run = run_replicated_on_device<nested_toy>(
                p, seed, steps, {rank_layout::replicas_inside, sharded}, [&](cuda::thread_transport& transport) {
                    return math{transport.stream(), mood::drifts, static_cast<unsigned>(transport.rank())};
                });
            const auto want = added_gradients<nested_toy, plain>(p, seed);
            std::int64_t bytes = 0;
            for (const auto& [layer, values] : want) {
                bytes += static_cast<std::int64_t>(values.size() * sizeof(float));
                for (int r = 0; r != p.data_degree; ++r) {
                    const auto& found = run.gradients[static_cast<std::size_t>(r)].at(layer);
                    const element_range all{0, values.size()};
                    const element_range mine = sharded ? share_of(all, p.data_degree, r) : all;
                    const auto first = static_cast<std::ptrdiff_t>(mine.first);
                    const auto end = first + static_cast<std::ptrdiff_t>(mine.size);
                    REQUIRE(std::equal(values.begin() + first, values.begin() + end, found.begin() + first));
                }
            }
            CHECK(run.gradient_bytes == steps * (sharded ? 1 : 2) * (p.data_degree - 1) * bytes);
            CHECK(run.sums_traced == static_cast<std::size_t>(steps * p.data_degree) * p.cut.stages.size());
        }
    }
}

TEST_CASE("the error of a rank stops every rank, also while a step is captured") {
    std::mt19937 random{31};
    for (const int rank : {0, 2, 3}) {
        for (const mood how : {mood::fails_eagerly, mood::fails_captured}) {
            const plan p = draw_plan<nested_toy>(placement::folded, 4, 1, random);
            const make_math make = [&](cuda::thread_transport& transport) {
                return math{transport.stream(), transport.rank() == rank ? how : mood::sound};
            };
            std::string what;
            try {
                static_cast<void>(run_on_device<nested_toy>(p, 1, {.steps = 4}, make));
            } catch (const error& e) { what = e.what(); }
            INFO(what);
            CHECK(what.find("rank " + std::to_string(rank)) != std::string::npos);
            CHECK(what.find("out of patience") != std::string::npos);
        }
    }
    // The failed run must not disturb the next one.
    static_cast<void>(
        check_run<nested_toy>(draw_plan<nested_toy>(placement::folded, 4, 1, random), 3, {.steps = 3}, plain_math));
}

TEST_CASE("a trace on a device has every instruction, in the order of its stream") {
    std::mt19937 random{41};
    const plan p = draw_plan<small_unet>(placement::folded, 2, 1, random);
    const auto run = check_run<small_unet>(p, 5, {.steps = 2, .traced = true}, plain_math);
    for (const auto& events : run.traces) {
        REQUIRE(!events.empty());
        REQUIRE(events.size() % 2 == 0);
        for (std::size_t i = 0; i != events.size(); ++i) {
            CHECK(events[i].instruction == static_cast<std::int32_t>(i % (events.size() / 2)));
            CHECK(events[i].start_ns <= events[i].end_ns);
            CHECK(events[i].waited_ns >= 0);
            CHECK(events[i].start_ns + events[i].waited_ns <= events[i].end_ns);
            if (i != 0) { CHECK(events[i].start_ns >= events[i - 1].end_ns - 1000); }
        }
    }
}

TEST_CASE("a model runs forward on a device as on the host") {
    const cuda::stream on;
    math backend{on.get()};
    forward_runner<small_unet, math> runner{backend, 3};
    plain host_backend;
    unpipelined<small_unet, plain> oracle{host_backend, 7};
    using space = cuda::device_space;
    for (const auto& block : runner.parameters().blocks()) {
        const std::span<const float> from = block.layer == conditioning_block
                                                ? std::span<const float>{oracle.conditioning_parameters}
                                                : oracle.parameters_of_part(block.layer);
        runner.parameters().upload(block.layer, from);
    }
    const drawn_data<small_unet, float> data{5, 2, 1};
    const auto tape = oracle.forward(2, data.input(0), data.timesteps(0));
    const std::vector<float>& want = oracle.output(tape);
    const auto there = [](const std::vector<float>& values) {
        space::array<float> made(values.size());
        space::upload(std::span<const float>{values}, made.data());
        return made;
    };
    const auto x = there(data.input(0));
    const auto times = there(data.timesteps(0));
    const space::array<float> y(want.size());
    for (int repeat = 0; repeat != 2; ++repeat) { runner.run(2, x.data(), times.data(), y.data()); }
    on.synchronize();
    std::vector<float> found(want.size());
    space::download(static_cast<const float*>(y.data()), std::span{found});
    CHECK(found == want);
}

TEST_CASE("a profile of a device has a time for every pass that has work") {
    const cuda::stream on;
    math backend{on.get()};
    constexpr auto graph = graph_of<nested_toy>();
    cuda::layer_timer<nested_toy, math> timer{backend, 2};
    const auto measured = [&](const measure_options& options) {
        return measure_costs(graph.view(), 2, sizeof(float), "device", timer, options);
    };
    static_cast<void>(measured({.warm_up_sweeps = 2, .sweeps = 1}));
    const std::int64_t before = emulated_cuda::executed_kernels();
    const cost_table costs = measured({.warm_up_sweeps = 0, .sweeps = 4});
    const std::int64_t kernels = emulated_cuda::executed_kernels() - before;
    cost_table bytes = blank_costs(graph.view(), 2, sizeof(float));
    bytes.device = costs.device;
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        CHECK(costs.layers[l].forward_us > 0);
        CHECK(costs.layers[l].backward_input_us > 0);
        CHECK(costs.layers[l].backward_weight_us > 0);
        bytes.layers[l].forward_us = costs.layers[l].forward_us;
        bytes.layers[l].backward_input_us = costs.layers[l].backward_input_us;
        bytes.layers[l].backward_weight_us = costs.layers[l].backward_weight_us;
    }
    CHECK(costs == bytes);
    // Four sweeps with at least two operations per pass ran, although only a graph was launched.
    CHECK(kernels >= 4 * 2 * 2 * static_cast<std::int64_t>(graph.layers.size()));
}

} // namespace pipeline_tests
