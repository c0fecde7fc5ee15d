#pragma once

#include <exception>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/io/atomic_file.hpp>

namespace pulse_bench {

/// The file of --json: made before anything is measured, so that one that cannot be written is found before the long
/// run; whole or not there.
class json_output {
public:
    /// Writes nothing where `path` is empty. Throws CLI::ValidationError, naming --json, when the file cannot be made.
    explicit json_output(const std::string& path) {
        try {
            if (!path.empty()) { file_.emplace(path); }
        } catch (const std::exception& e) { throw CLI::ValidationError("--json", e.what()); }
    }

    /// Throws input_error when the file cannot be written. Call once.
    void write(const nlohmann::ordered_json& figures) {
        if (!file_) { return; }
        file_->write(figures.dump(2) + "\n");
        file_->commit();
    }

private:
    std::optional<pulse::io::atomic_file> file_{};
};

} // namespace pulse_bench
