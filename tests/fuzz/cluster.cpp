#include <pulse/hardware/json.hpp>

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array<std::string_view, 11> fields{"format",       "name",       "nodes",         "devices_per_node",
                                                      "memory_bytes", "intra_node", "inter_node",    "the cluster",
                                                      "devices",      "device",     "relative_speed"};
    return pulse_fuzz::feed(
        data, size, [](const std::string& text) { return pulse::parse_cluster(text, "input.json"); },
        [](const pulse::cluster& machine) { return pulse::print_cluster(machine); }, fields);
}
