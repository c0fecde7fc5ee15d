#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::diffusers::detail {

/// A config.json or model_index.json, and its name in errors.
class config_file {
public:
    /// Throws input_error naming the file when it cannot be read or is not JSON.
    explicit config_file(const std::filesystem::path& file) :
        source_{"'" + file.string() + "'"}, // braces around the value would make a list of it
        value_(io::parse_json(io::read_file(file), source_)) {}
    config_file(const config_file&) = delete; // fields refer to this one
    config_file& operator=(const config_file&) = delete;

    [[nodiscard]] const std::string& source() const noexcept { return source_; }
    [[nodiscard]] const nlohmann::json& value() const noexcept { return value_; }
    [[nodiscard]] io::json_field root() const { return {value_, {source_, "the config", "a diffusers config"}}; }

private:
    std::string source_;
    nlohmann::json value_;
};

} // namespace pulse::diffusers::detail
