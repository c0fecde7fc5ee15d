// The baseline of bench_paper that splits images by rows: laws, and one small model counted by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>

#include "../../bench/domain_parallel.hpp"

using namespace pulse;
using pulse_bench::row_needs;
using pulse_bench::row_needs_of;
using pulse_bench::split_rows;
using pulse_bench::tune_sharding;
using pulse_bench::tune_split;

namespace {

/// Eight rows of eight pixels, 32 channels: a convolution at either end, five ResNet blocks, one attention.
constexpr unet_config one_level{.name = "one_level",
                                .sample_size = 8,
                                .in_channels = 1,
                                .out_channels = 1,
                                .block_out_channels = {32},
                                .layers_per_block = 1,
                                .norm_num_groups = 8};
/// Three levels of 16, 8 and 4 rows, with text.
constexpr unet_config three_levels{.name = "three_levels",
                                   .sample_size = 16,
                                   .in_channels = 4,
                                   .out_channels = 4,
                                   .block_out_channels = {32, 64, 64},
                                   .mid_block_attention = false,
                                   .transformer_layers_per_block = {1, 1, 0},
                                   .mid_block_transformer_layers = 1,
                                   .cross_attention_dim = 16,
                                   .context_tokens = 8,
                                   .transformer_head_dim = 32};
constexpr uvit_config tokens{
    .name = "tokens", .img_size = 16, .patch_size = 2, .in_chans = 4, .embed_dim = 64, .depth = 4, .num_heads = 2};
constexpr hunyuan_dit_config with_text{.name = "with_text",
                                       .sample_size = 16,
                                       .hidden_size = 64,
                                       .num_layers = 6,
                                       .num_attention_heads = 2,
                                       .mlp_hidden = 256,
                                       .cross_attention_dim = 32,
                                       .cross_attention_dim_t5 = 64,
                                       .text_len = 8,
                                       .text_len_t5 = 8};

template <class Config>
cost_table costs_of(const Config& c, int batch) {
    return analytic_costs(value_graph_of(c).view(), rtx_4090, batch, 2);
}

/// Calls check(costs, needs) with every kind of model.
template <class Check>
void for_each_model(const Check& check) {
    const auto with = [&](const auto& config) {
        check([&](int size) { return costs_of(config, size); }, row_needs_of(config));
    };
    with(one_level);
    with(three_levels);
    with(tokens);
    with(with_text);
}

cluster nodes_of(int nodes, int devices_per_node) {
    return {.nodes = nodes,
            .devices_per_node = devices_per_node,
            .intra_node = {.latency_us = 2.0, .bandwidth_gb_per_s = 1.0},
            .inter_node = {.latency_us = 5.0, .bandwidth_gb_per_s = 0.2}};
}

double total_us(const cost_table& costs) {
    double sum = 0;
    for (const layer_cost& l : costs.layers) { sum += l.load_us(); }
    return sum;
}

} // namespace

TEST_CASE("domain parallel: a group of one is plain data parallelism") {
    for_each_model([](const auto& of, const std::vector<row_needs>& needs) {
        const cluster machine = nodes_of(2, 2);
        const auto alone = split_rows(of(2), needs, machine, 1, 2);
        CHECK(alone.costs == of(2));
        CHECK(alone.sent_bytes == 0);
        CHECK(alone.forward_wait_us + alone.backward_wait_us == 0);
        const pulse_bench::sharded_state state{.memory_gb_per_s = 1.0};
        const auto split = tune_split(of, needs, machine, state, 8, 1);
        REQUIRE(split.has_value());
        const auto whole = tune_sharding(of, machine, state, 8, false);
        const auto hybrid = tune_sharding(of, machine, state, 8, true);
        CHECK(split->step.step_us == std::min(whole->step.step_us, hybrid->step.step_us));
        CHECK(split->sent_bytes == 0);
    });
}

TEST_CASE("domain parallel: halos, keys and sums of one model, counted by hand") {
    // Input channels of 3x3 convolutions: the first one, down and middle blocks, up blocks, the last one.
    const std::int64_t halos = (1 + 3 * (32 + 32) + 2 * (64 + 32) + 32) * 8;
    const std::int64_t keys = 2 * 64 * 32;
    const std::int64_t sums = (2 * 5 + 1 + 1) * 2 * 8;
    // Four devices: three boundaries with a row each way, each device's keys to three others, fp32 sums of four to
    // three.
    const std::int64_t bytes = 3 * 2 * halos * 2 + 3 * keys * 2 + 4 * 3 * sums * 4;
    const cluster machine = nodes_of(1, 8);
    const auto needs = row_needs_of(one_level);
    CHECK(split_rows(costs_of(one_level, 1), needs, machine, 4, 2).sent_bytes == bytes);
    CHECK(split_rows(costs_of(one_level, 3), needs, machine, 4, 2).sent_bytes == 3 * bytes);
    // Per step: one microbatch in each of two groups, forward and backward, and forward again with recomputation.
    const auto best = tune_split([](int size) { return costs_of(one_level, size); }, needs, machine, {}, 2, 4);
    REQUIRE(best.has_value());
    CHECK(best->sent_bytes == 2 * (best->how.recompute ? 3 : 2) * bytes);
}

TEST_CASE("domain parallel: strides, doubling and text") {
    // Down: one row of 16 pixels, 32 channels, then of 8 and 64. Up: two rows before doubling, of 4 and 8 pixels.
    const auto needs = row_needs_of(three_levels);
    const auto costs = costs_of(three_levels, 1);
    std::vector<std::int64_t> halves{};
    std::vector<std::int64_t> doubles{};
    int self_attentions = 0;
    for (std::size_t l = 0; l != needs.size(); ++l) {
        const std::string_view name = costs.layers[l].name.view();
        if (name.find("downsamplers") != name.npos) { halves.push_back(needs[l].halo_rows * needs[l].halo_elements); }
        if (name.find("upsamplers") != name.npos) { doubles.push_back(needs[l].halo_rows * needs[l].halo_elements); }
        self_attentions += needs[l].key_elements != 0 ? 1 : 0;
        CHECK(needs[l].query_share < 1.0);
    }
    CHECK(halves == std::vector<std::int64_t>{32 * 16, 64 * 8});
    CHECK(doubles == std::vector<std::int64_t>{2 * 64 * 4, 2 * 64 * 8});
    CHECK(self_attentions == 2 * 2 + 1 + 2 * 3);
    CHECK_THROWS_AS(static_cast<void>(split_rows(costs, row_needs_of(one_level), {}, 2, 2)), std::logic_error);
}

TEST_CASE("domain parallel: free links divide time by the group, rounded up, and memory of pictures but not weights") {
    for_each_model([](const auto& of, const std::vector<row_needs>& needs) {
        const cost_table whole = of(1);
        for (const int group : {2, 4, 8}) {
            const cluster free{.devices_per_node = group};
            const auto split = split_rows(whole, needs, free, group, 2);
            CHECK(split.forward_wait_us + split.backward_wait_us == 0);
            for (std::size_t l = 0; l != needs.size(); ++l) {
                const int mine = (needs[l].rows + group - 1) / group;
                const layer_cost& from = whole.layers[l];
                const layer_cost& to = split.costs.layers[l];
                CHECK(to.load_us() == doctest::Approx(from.load_us() * mine / needs[l].rows));
                CHECK(to.parameter_bytes == from.parameter_bytes);
                CHECK(to.output_bytes == (from.output_bytes * mine + needs[l].rows - 1) / needs[l].rows);
            }
        }
    });
    // Four rows occupy only four of eight devices.
    const auto needs = row_needs_of(three_levels);
    const cost_table whole = costs_of(three_levels, 1);
    const cost_table split = split_rows(whole, needs, {.devices_per_node = 8}, 8, 2).costs;
    for (std::size_t l = 0; l != needs.size(); ++l) {
        if (needs[l].rows != 4) { continue; }
        CHECK(split.layers[l].forward_us == doctest::Approx(whole.layers[l].forward_us / 4));
    }
}

TEST_CASE("domain parallel: a faster link is never slower, and a wait is part of the passes") {
    std::mt19937 random{7};
    const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most + 1)); };
    for_each_model([&](const auto& of, const std::vector<row_needs>& needs) {
        for (int n = 0; n != 20; ++n) {
            cluster machine = nodes_of(1 + up_to(1), 4);
            machine.intra_node.bandwidth_gb_per_s = 0.1 + 0.1 * up_to(99);
            machine.inter_node.bandwidth_gb_per_s = 0.1 + 0.1 * up_to(19);
            const int group = 2 << up_to(1);
            const auto before = split_rows(of(2), needs, machine, group, 2);
            const auto best = tune_split(of, needs, machine, {}, 8, group);
            cluster faster = machine;
            faster.intra_node.bandwidth_gb_per_s *= 1.7;
            faster.inter_node.bandwidth_gb_per_s *= 1.7;
            const auto after = split_rows(of(2), needs, faster, group, 2);
            CHECK(total_us(after.costs) <= doctest::Approx(total_us(before.costs)));
            CHECK(after.sent_bytes == before.sent_bytes);
            cluster free = machine;
            free.intra_node = free.inter_node = {};
            const double passes = total_us(split_rows(of(2), needs, free, group, 2).costs);
            CHECK(total_us(before.costs) == doctest::Approx(passes + before.forward_wait_us + before.backward_wait_us));
            REQUIRE(best.has_value());
            CHECK(best->wait_us <= best->step.compute_us);
            const auto better = tune_split(of, needs, faster, {}, 8, group);
            REQUIRE(better.has_value());
            CHECK(better->step.step_us <= doctest::Approx(best->step.step_us));
        }
    });
}

TEST_CASE("domain parallel: groups that do not divide the batch, and no memory, have no plan") {
    const auto of = [](int size) { return costs_of(one_level, size); };
    const auto needs = row_needs_of(one_level);
    cluster machine = nodes_of(1, 4);
    CHECK(!tune_split(of, needs, machine, {}, 3, 2).has_value());
    CHECK(tune_split(of, needs, machine, {}, 3, 4).has_value());
    machine.memory_bytes = 1;
    CHECK(!tune_split(of, needs, machine, {}, 4, 2).has_value());
}
