#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>

namespace pulse {

// Named clusters. The inter-node link bundles all network adapters of a node, because its devices share them; a cluster
// of one node has none.

/// A DGX-1 with V100; neighbours on its ring are joined by two NVLinks.
inline constexpr cluster v100_nvlink_8{.name = "8xv100-nvlink",
                                       .nodes = 1,
                                       .devices_per_node = 8,
                                       .memory_bytes = v100_32gb.memory_bytes,
                                       .intra_node = nvlink2_pair,
                                       .inter_node = {}};
/// V100 cards in a server without NVLink.
inline constexpr cluster v100_pcie_8{.name = "8xv100-pcie",
                                     .nodes = 1,
                                     .devices_per_node = 8,
                                     .memory_bytes = v100_32gb.memory_bytes,
                                     .intra_node = pcie3_x16,
                                     .inter_node = {}};
/// An Atlas 800 training server: two groups of four Ascend 910, with an HCCS port between any two devices of a group.
/// PCIe 4.0 joins the groups; its 31.5 GB/s are close to HCCS, so all pairs are given the HCCS port.
inline constexpr cluster ascend_910a_8{.name = "8x910a",
                                       .nodes = 1,
                                       .devices_per_node = 8,
                                       .memory_bytes = ascend_910a.memory_bytes,
                                       .intra_node = hccs,
                                       .inter_node = {}};
/// Consumer cards in a server: PCIe 4.0, no NVLink.
inline constexpr cluster rtx_4090_8{.name = "8xrtx-4090",
                                    .nodes = 1,
                                    .devices_per_node = 8,
                                    .memory_bytes = rtx_4090.memory_bytes,
                                    .intra_node = pcie4_x16,
                                    .inter_node = {}};
/// Eight DGX-1 with V100, four EDR ports each.
inline constexpr cluster v100_8x8{.name = "8x8xv100",
                                  .nodes = 8,
                                  .devices_per_node = 8,
                                  .memory_bytes = v100_32gb.memory_bytes,
                                  .intra_node = nvlink2_pair,
                                  .inter_node = bundle(infiniband_edr, 4)};
/// Eight servers of V100 cards on PCIe with one 100 Gb/s Ethernet port each: a slow network, common in laboratories.
inline constexpr cluster v100_pcie_8x8{.name = "8x8xv100-pcie",
                                       .nodes = 8,
                                       .devices_per_node = 8,
                                       .memory_bytes = v100_32gb.memory_bytes,
                                       .intra_node = pcie3_x16,
                                       .inter_node = roce_100g};
/// Eight Atlas 800 training servers, one 100 Gb/s Ethernet port per device.
inline constexpr cluster ascend_910a_8x8{.name = "8x8x910a",
                                         .nodes = 8,
                                         .devices_per_node = 8,
                                         .memory_bytes = ascend_910a.memory_bytes,
                                         .intra_node = hccs,
                                         .inter_node = bundle(roce_100g, 8)};
/// Eight DGX A100, eight HDR ports each.
inline constexpr cluster a100_8x8{.name = "8x8xa100",
                                  .nodes = 8,
                                  .devices_per_node = 8,
                                  .memory_bytes = a100_80gb.memory_bytes,
                                  .intra_node = nvlink3,
                                  .inter_node = bundle(infiniband_hdr, 8)};
/// Eight DGX H100, eight NDR ports each.
inline constexpr cluster h100_8x8{.name = "8x8xh100",
                                  .nodes = 8,
                                  .devices_per_node = 8,
                                  .memory_bytes = h100_80gb.memory_bytes,
                                  .intra_node = nvlink4,
                                  .inter_node = bundle(infiniband_ndr, 8)};
/// Eight DGX H200, eight NDR ports each.
inline constexpr cluster h200_8x8{.name = "8x8xh200",
                                  .nodes = 8,
                                  .devices_per_node = 8,
                                  .memory_bytes = h200.memory_bytes,
                                  .intra_node = nvlink4,
                                  .inter_node = bundle(infiniband_ndr, 8)};

/// Every cluster that is known by name.
inline constexpr std::array known_clusters{v100_nvlink_8, v100_pcie_8,     ascend_910a_8, rtx_4090_8, v100_8x8,
                                           v100_pcie_8x8, ascend_910a_8x8, a100_8x8,      h100_8x8,   h200_8x8};

/// The known cluster of this name, or null.
[[nodiscard]] constexpr const cluster* find_cluster(std::string_view name) noexcept {
    for (const cluster& known : known_clusters) {
        if (known.name.view() == name) { return &known; }
    }
    return nullptr;
}

/// One node, its devices joined in pairs by `line`; the default link moves bytes in zero time. Memory 0 is unlimited.
[[nodiscard]] constexpr cluster one_node(int devices, const link& line = link{}, std::int64_t memory_bytes = 0) {
    return {.name = "one node",
            .nodes = 1,
            .devices_per_node = devices,
            .memory_bytes = memory_bytes,
            .intra_node = line,
            .inter_node = {}};
}

/// Default link between the devices of a node: the one that a device is usually sold with.
struct usual_link {
    std::string_view device{};
    std::string_view name{};
    link line{};
};
inline constexpr std::array usual_links{usual_link{v100_16gb.name.view(), "two NVLinks 2", nvlink2_pair},
                                        usual_link{v100_32gb.name.view(), "two NVLinks 2", nvlink2_pair},
                                        usual_link{a100_80gb.name.view(), "NVLink 3", nvlink3},
                                        usual_link{h100_80gb.name.view(), "NVLink 4", nvlink4},
                                        usual_link{h200.name.view(), "NVLink 4", nvlink4},
                                        usual_link{ascend_910a.name.view(), "HCCS", hccs}};

/// The usual link of this device; PCIe 4.0 if none is known.
[[nodiscard]] constexpr usual_link usual_link_of(std::string_view device) noexcept {
    for (const usual_link& known : usual_links) {
        if (known.device == device) { return known; }
    }
    return {device, "PCIe 4.0 x16", pcie4_x16};
}

} // namespace pulse
