#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

namespace pulse_bench {

/// A machine of the league; `models` are names of paper_models.
struct paper_setting {
    pulse::device on{};
    pulse::cluster machine{};
    int global_batch{};
    std::vector<std::string> models{};
};

namespace detail {

/// SD 2.1 at 256 pixels with other widths, as PULSE scales it (arXiv 2606.19163, evaluation). Its heads have 64
/// channels; for 928 channels 58, the next lower number that divides them.
[[nodiscard]] inline pulse::unet_config scaled_sd21(const pulse::label& name, int channels) {
    pulse::unet_config c = pulse::sd21::config;
    c.name = name;
    c.sample_size = 32;
    c.transformer_head_dim = 64;
    while (channels % c.transformer_head_dim != 0) { --c.transformer_head_dim; }
    c.block_out_channels = {channels, 2 * channels, 4 * channels, 4 * channels};
    return c;
}

/// U-ViT-H/2 with 49 blocks of 2,048 features, from the same paper.
[[nodiscard]] inline pulse::uvit_config scaled_uvit() {
    pulse::uvit_config c = pulse::uvit_h2::config;
    c.name = "uvit_2b7";
    c.embed_dim = 2048;
    c.num_heads = 32;
    c.depth = 48;
    return c;
}

} // namespace detail

/// Every model of the league: those of the zoo, and those that the paper scales.
inline constexpr std::array<std::string_view, 8> paper_models{"sd21",    "uvit_h2", "hunyuan_dit_v12", "sdxl",
                                                              "sd2_1b7", "sd2_4b1", "sd2_7b1",         "uvit_2b7"};

/// Calls use(config) with the config of one of paper_models.
template <class Use>
auto use_paper_config(std::string_view name, const Use& use) {
    if (name == "sd21") { return use(pulse::sd21::config); }
    if (name == "uvit_h2") { return use(pulse::uvit_h2::config); }
    if (name == "hunyuan_dit_v12") { return use(pulse::hunyuan_dit_v12::config); }
    if (name == "sdxl") { return use(pulse::sdxl::config); }
    if (name == "sd2_1b7") { return use(detail::scaled_sd21("sd2_1b7", 448)); }
    if (name == "sd2_4b1") { return use(detail::scaled_sd21("sd2_4b1", 704)); }
    if (name == "sd2_7b1") { return use(detail::scaled_sd21("sd2_7b1", 928)); }
    if (name == "uvit_2b7") { return use(detail::scaled_uvit()); }
    throw std::logic_error("bench_paper: no such model");
}

/// Consumer cards: RTX 4090 on PCIe, which exchange through the host without peer access; 10 Gb/s Ethernet between
/// servers.
[[nodiscard]] constexpr pulse::cluster own_cards(const pulse::label& name, int nodes, int devices_per_node) {
    return {.name = name,
            .nodes = nodes,
            .devices_per_node = devices_per_node,
            .memory_bytes = pulse::rtx_4090.memory_bytes,
            .intra_node = {.latency_us = 15.0, .bandwidth_gb_per_s = 10.0},
            .inter_node = {.latency_us = 30.0, .bandwidth_gb_per_s = nodes > 1 ? 1.25 : 0.0}};
}

/// Servers of V100 cards on PCIe with Ethernet of 12 Gb/s between them.
inline constexpr pulse::cluster slow_nodes{.name = "4x8xv100-slow",
                                           .nodes = 4,
                                           .devices_per_node = 8,
                                           .memory_bytes = pulse::v100_32gb.memory_bytes,
                                           .intra_node = {.latency_us = 10.0, .bandwidth_gb_per_s = 12.0},
                                           .inter_node = {.latency_us = 15.0, .bandwidth_gb_per_s = 1.5}};

/// The paper's cluster A: 300 GB/s of NVLink per card, both ways and to all others together; 10 GB/s between its nodes.
inline constexpr pulse::cluster cluster_a{.name = "2x8xv100",
                                          .nodes = 2,
                                          .devices_per_node = 8,
                                          .memory_bytes = pulse::v100_32gb.memory_bytes,
                                          .intra_node = pulse::nvlink2_pair,
                                          .inter_node = {.latency_us = 5.0, .bandwidth_gb_per_s = 10.0}};

/// The paper's cluster B: 30 GB/s inside a node, 19 GB/s between nodes.
inline constexpr pulse::cluster cluster_b{.name = "8x8x910a-paper",
                                          .nodes = 8,
                                          .devices_per_node = 8,
                                          .memory_bytes = pulse::ascend_910a.memory_bytes,
                                          .intra_node = {.latency_us = 5.0, .bandwidth_gb_per_s = 30.0},
                                          .inter_node = {.latency_us = 5.0, .bandwidth_gb_per_s = 19.0}};

/// Consumer cards; eight devices of one node with memory and links as in known_clusters; slow nodes; and the clusters
/// of the paper with its models, for which it states no batch.
[[nodiscard]] inline std::vector<paper_setting> paper_settings() {
    using namespace pulse;
    const std::vector<std::string> three{"sd21", "uvit_h2", "hunyuan_dit_v12"};
    const std::vector<std::string> four{"sd21", "uvit_h2", "hunyuan_dit_v12", "sdxl"};
    const std::vector<std::string> scaled{"sd2_1b7", "sd2_4b1", "sd2_7b1", "uvit_2b7"};
    return {{rtx_4090, own_cards("8xrtx-4090", 1, 8), 16, four},
            {rtx_4090, own_cards("4xrtx-4090", 1, 4), 16, four},
            {rtx_4090, own_cards("2xrtx-4090", 1, 2), 16, four},
            {rtx_4090, own_cards("2x4xrtx-4090", 2, 4), 16, four},
            {v100_32gb, v100_nvlink_8, 128, three},
            {v100_32gb, v100_pcie_8, 128, three},
            {ascend_910a, ascend_910a_8, 128, three},
            {v100_32gb, slow_nodes, 256, four},
            {v100_32gb, cluster_a, 256, scaled},
            {ascend_910a, cluster_b, 512, scaled}};
}

} // namespace pulse_bench
