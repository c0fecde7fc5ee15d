#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/data/metadata.hpp>

#include "reader.hpp"

namespace {

using lines = std::vector<pulse::data::metadata_line>;

/// A field quoted for CSV, whatever it contains.
std::string quoted(const std::string& field) {
    std::string all = "\"";
    for (const char c : field) { all += c == '"' ? std::string{"\"\""} : std::string{c}; }
    return all + '"';
}

} // namespace

// Input that begins with a brace is metadata.jsonl; what follows a bracket is the JSON of one picture; everything else
// is metadata.csv.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array<std::string_view, 11> fields{
        "file_name", "the object", "the caption",        "text",   "caption", "prompt",
        "a field",   "the row",    "conditioning_image", "quotes", "column"};
    if (size == 0) { return 0; }
    if (*data == '[') {
        return pulse_fuzz::feed(
            data + 1, size - 1,
            [](const std::string& text) { return pulse::data::parse_caption_json(text, "input.json"); },
            [](const std::string& caption) {
                return nlohmann::json{{"text", caption}}.dump();
            },
            fields);
    }
    if (*data != '{') {
        return pulse_fuzz::feed(
            data, size, [](const std::string& text) { return pulse::data::parse_metadata_csv(text, "input.json"); },
            [](const lines& all) {
                std::string text = "conditioning_image,file_name,text\r\n";
                for (const auto& line : all) {
                    text += quoted(line.conditioning_image.value_or("")) + ',' + quoted(line.file_name) + ',' +
                            (line.text ? quoted(*line.text) : "") + "\r\n";
                }
                return text;
            },
            fields);
    }
    return pulse_fuzz::feed(
        data, size, [](const std::string& text) { return pulse::data::parse_metadata(text, "input.json"); },
        [](const lines& all) {
            std::string text;
            for (const auto& line : all) {
                nlohmann::json one{{"file_name", line.file_name}, {"text", nullptr}};
                if (line.text) { one["text"] = *line.text; }
                if (line.conditioning_image) { one["conditioning_image"] = *line.conditioning_image; }
                text += one.dump() + '\n';
            }
            return text;
        },
        fields);
}
