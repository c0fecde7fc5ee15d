#include <cstdint>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include <pulse/checkpoint/manifest.hpp>

#include "reader.hpp"

namespace {

/// The text with a valid checksum: otherwise the checksum would catch all damage before the reader's other checks.
std::string with_checksum(const std::string& text) {
    nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
    if (!root.is_object()) { return text; }
    root.erase("crc32");
    const std::string body = root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    root["crc32"] = pulse::train::detail::crc32_of(std::as_bytes(std::span{body}));
    return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array<std::string_view, 12> fields{"format", "sequence",     "world", "plan",   "state", "config",
                                                      "files",  "the manifest", "crc32", "pieces", "shape", "tensors"};
    const auto parse = [](const std::string& text) { return pulse::train::parse_manifest(text, "input.json"); };
    const auto print = [](const pulse::train::checkpoint_manifest& m) { return pulse::train::print_manifest(m); };
    const std::string text(reinterpret_cast<const char*>(data), size);
    const std::string signed_text = with_checksum(text);
    pulse_fuzz::feed(data, size, parse, print, fields);
    return pulse_fuzz::feed(reinterpret_cast<const std::uint8_t*>(signed_text.data()), signed_text.size(), parse, print,
                            fields);
}
