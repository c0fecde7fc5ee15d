#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/check_cluster.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/json.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] inline link read_link(const io::json_field& field) {
    field.only({"bandwidth_gb_per_s", "latency_us"});
    return {.latency_us = field["latency_us"].time(), .bandwidth_gb_per_s = field["bandwidth_gb_per_s"].time()};
}

[[nodiscard]] inline unlike_device read_device(const io::json_field& field) {
    field.only({"device", "memory_bytes", "relative_speed"});
    return {.device = field["device"].name(),
            .memory_bytes = field["memory_bytes"].bytes(),
            .relative_speed = field["relative_speed"].number()};
}

} // namespace detail

PULSE_INLINE cluster parse_cluster(std::string_view text, std::string_view source) {
    const nlohmann::json value = io::parse_json(text, source);
    const io::json_field root{value, {source, "the cluster", "pulse-cluster/1"}};
    root.only({"format", "name", "nodes", "devices_per_node", "memory_bytes", "devices", "intra_node", "inter_node"});
    if (root["format"].text() != "pulse-cluster/1") { root["format"].fail("must be pulse-cluster/1"); }
    cluster read{};
    if (root.has("name")) { read.name = root["name"].name(); }
    read.nodes = root["nodes"].count();
    read.devices_per_node = root["devices_per_node"].count();
    if (root.has("devices")) {
        if (root.has("memory_bytes")) { root["memory_bytes"].fail("must be absent when devices have their own"); }
        for (const io::json_field& field : root["devices"].list()) {
            read.unlike.push_back(detail::read_device(field));
        }
        if (read.unlike.empty()) { root["devices"].fail("must not be empty"); }
        read.memory_bytes = read.least_memory_bytes();
    } else {
        read.memory_bytes = root["memory_bytes"].bytes();
    }
    read.intra_node = detail::read_link(root["intra_node"]);
    read.inter_node = detail::read_link(root["inter_node"]);
    try {
        check_cluster(read);
    } catch (const input_error& e) { throw input_error(std::string{source} + ": " + e.what()); }
    return read;
}

PULSE_INLINE std::string print_cluster(const cluster& c) {
    using json = nlohmann::ordered_json;
    try {
        check_cluster(c);
    } catch (const input_error& e) { throw input_error(std::string{"cluster: "} + e.what()); }
    const auto link_text = [](const link& l) {
        return json{{"bandwidth_gb_per_s", l.bandwidth_gb_per_s}, {"latency_us", l.latency_us}}.dump();
    };
    const auto memory = [&]() -> std::string {
        if (c.unlike.empty()) { return ",\n \"memory_bytes\": " + std::to_string(c.memory_bytes); }
        json devices = json::array();
        for (const unlike_device& one : c.unlike) {
            devices.push_back({{"device", one.device.view()},
                               {"memory_bytes", one.memory_bytes},
                               {"relative_speed", one.relative_speed}});
        }
        return ",\n \"devices\": " + devices.dump();
    };
    try {
        const std::string name = c.name.empty() ? "" : ",\n \"name\": " + json(c.name.view()).dump();
        return "{\n \"format\": \"pulse-cluster/1\"" + name + ",\n \"nodes\": " + std::to_string(c.nodes) +
               ",\n \"devices_per_node\": " + std::to_string(c.devices_per_node) + memory() +
               ",\n \"intra_node\": " + link_text(c.intra_node) + ",\n \"inter_node\": " + link_text(c.inter_node) +
               "\n}\n";
    } catch (const json::exception&) { throw input_error("cluster: a name is not UTF-8"); }
}

PULSE_INLINE cluster load_cluster(const std::filesystem::path& path) {
    return parse_cluster(io::read_file(path), path.string());
}

PULSE_INLINE void save_cluster(const cluster& c, const std::filesystem::path& path) {
    const std::string text = print_cluster(c);
    try {
        io::write_file(path, text);
    } catch (const input_error&) { throw input_error(path.string() + ": cannot be written"); }
}

} // namespace pulse
