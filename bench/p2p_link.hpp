#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link_fit.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

#include "p2p.hpp"

namespace pulse_bench {

inline constexpr const char* p2p_format = "pulse-bench-p2p/1";

/// A link as the planner sees it, from the path that ranks would use, and the machine it was measured on.
struct p2p_link {
    std::string path{};
    bool between_hosts{};
    pulse::link line{};
    int devices_per_node{};
    std::int64_t memory_bytes{}; ///< of a device
};

/// The line through the latencies of a path, or why none fits.
struct p2p_fit {
    std::optional<pulse::link_fit> found{};
    std::string why_not{};
};
[[nodiscard]] inline p2p_fit fit_of(const p2p_report& report) {
    std::vector<pulse::link_sample> samples{};
    for (const p2p_row& row : report.rows) { samples.push_back({row.size.bytes, row.p50_us}); }
    try {
        return {pulse::fit_link(samples), {}};
    } catch (const pulse::input_error& e) { return {std::nullopt, e.what()}; }
}

/// Among several paths, the one that ranks would use: transports before bare copies.
[[nodiscard]] inline const p2p_report& path_of_ranks(const std::vector<p2p_report>& reports) {
    constexpr std::array<std::string_view, 6> order{"mpi",  "nccl-registered", "nccl", "cuda-threads",
                                                    "copy", "threads"};
    const auto rank = [&](const p2p_report& r) { return std::find(order.begin(), order.end(), r.path); };
    return *std::min_element(reports.begin(), reports.end(),
                             [&](const p2p_report& a, const p2p_report& b) { return rank(a) < rank(b); });
}

/// The link of an earlier run's --json file. Throws input_error naming file and field.
[[nodiscard]] inline p2p_link load_link(const std::filesystem::path& file) {
    const std::string source = file.string();
    const nlohmann::json value = pulse::io::parse_json(pulse::io::read_file(file), source);
    const pulse::io::json_field root{value, {source, "the result", p2p_format}};
    if (root["format"].text() != p2p_format) { root["format"].fail(std::string{"must be "} + p2p_format); }
    const auto link = root["link"];
    p2p_link read{};
    read.path = link["path"].text();
    read.between_hosts = link["between_hosts"].boolean();
    read.line = {link["latency_us"].time(), link["bandwidth_gb_per_s"].time()};
    read.devices_per_node = root["devices_per_node"].count();
    read.memory_bytes = root["memory_bytes"].bytes();
    return read;
}

/// What the command line says of the cluster; 0: derived from the measured links.
struct p2p_cluster_options {
    int nodes{};
    int devices_per_node{};
    std::int64_t memory_bytes{};
};

/// A cluster of measured links. Without a link between hosts it has one node; without one inside a host, a node has one
/// device. Throws input_error where the options say otherwise.
[[nodiscard]] inline pulse::cluster cluster_of(const std::optional<p2p_link>& intra,
                                               const std::optional<p2p_link>& inter,
                                               const p2p_cluster_options& options) {
    const p2p_link& machine = intra ? *intra : *inter;
    pulse::cluster made{};
    made.nodes = options.nodes != 0 ? options.nodes : inter ? 2 : 1;
    made.devices_per_node = options.devices_per_node != 0 ? options.devices_per_node
                            : intra                       ? machine.devices_per_node
                                                          : 1;
    made.memory_bytes = options.memory_bytes != 0 ? options.memory_bytes : machine.memory_bytes;
    if (made.nodes > 1 && !inter) {
        throw pulse::input_error("--nodes: the link between hosts was not measured; give it with --inter");
    }
    if (made.devices_per_node > 1 && !intra) {
        throw pulse::input_error("--devices-per-node: the link inside a host was not measured; give it with --intra");
    }
    if (intra) { made.intra_node = intra->line; }
    if (inter) { made.inter_node = inter->line; }
    return made;
}

} // namespace pulse_bench
