#include <pulse/profile/json.hpp>

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array<std::string_view, 13> fields{
        "format", "model",       "device",           "microbatch_size",    "layers",
        "skips",  "input_bytes", "open_bytes",       "conditioning_bytes", "frozen_conditioning_bytes",
        "frozen", "the profile", "factored_elements"};
    return pulse_fuzz::feed(
        data, size, [](const std::string& text) { return pulse::parse_profile(text, "input.json"); },
        [](const pulse::cost_table& costs) { return pulse::print_profile(costs); }, fields);
}
