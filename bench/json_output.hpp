#pragma once

#include <exception>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/io/atomic_file.hpp>

namespace pulse_bench {

/// The file of --json. It is opened before anything is measured, so that a path that cannot be written fails before the
/// long run; it appears whole or not at all.
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
