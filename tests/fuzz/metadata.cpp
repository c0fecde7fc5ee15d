#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/data/metadata.hpp>

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array<std::string_view, 4> fields{"file_name", "text", "the object", "the caption"};
    return pulse_fuzz::feed(
        data, size, [](const std::string& text) { return pulse::data::parse_metadata(text, "input.json"); },
        [](const std::vector<pulse::data::metadata_line>& lines) {
            std::string text;
            for (const auto& line : lines) {
                text += nlohmann::json{{"file_name", line.file_name}, {"text", line.text}}.dump() + '\n';
            }
            return text;
        },
        fields);
}
