#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "blocks.hpp"
#include "text_table.hpp"
#include "torch_peer.hpp"
#include "training_step.hpp"

namespace pulse_bench {

/// A layer or a step in pulse and in each mode of PyTorch.
struct compared_row {
    std::string name{};
    std::string shape{};
    int batch{};
    step_figures own{};
    std::vector<agreed_number> agreed{}; ///< numbers that both sides must agree on
    double ceiling_percent{};
    std::map<std::string, torch_figures> torch{}; ///< by mode
    std::int64_t checked{};
    std::int64_t wrong{};

    /// Seconds of torch's fastest compiled mode; 0 where none ran.
    [[nodiscard]] double compiled_seconds() const {
        double least = 0;
        for (const auto& [mode, found] : torch) {
            const double taken = found.step.seconds;
            if (mode != "eager" && taken > 0 && (least == 0 || taken < least)) { least = taken; }
        }
        return least;
    }
    /// How many times as fast as torch's compiled step; 0 where one of them did not run.
    [[nodiscard]] double speedup() const { return own.seconds > 0 ? compiled_seconds() / own.seconds : 0; }

    void add(const std::string& mode, const torch_figures& found) {
        torch[mode] = found;
        if (!found.step.failure.empty() || !own.failure.empty()) { return; }
        checked += static_cast<std::int64_t>(agreed.size());
        wrong += differing(agreed, found.agreed);
    }
};

/// The time scaled by `unit`, or a word or two on why there is none.
[[nodiscard]] inline std::string time_text(const step_figures& f, double unit) {
    if (f.out_of_memory()) { return "no memory"; }
    return f.failure.empty() ? text_of("%.2f", f.seconds * unit) : "failed";
}

/// The time of a layer (microseconds) or a step (milliseconds) in each mode.
[[nodiscard]] inline text_table table_of(const std::vector<compared_row>& rows, const std::vector<std::string>& modes,
                                         bool steps) {
    const double unit = steps ? 1e3 : 1e6;
    text_table table{{steps ? "training step" : "layer", steps ? "parameters" : "shape", "batch",
                      steps ? "pulse ms" : "pulse us", "+-%", "% of ceiling"}};
    if (steps) { table.heads.insert(table.heads.end(), {"samples/s", "GiB"}); }
    for (const std::string& mode : modes) { table.heads.push_back("torch " + mode); }
    if (steps && !modes.empty()) { table.heads.push_back("torch GiB"); }
    table.heads.insert(table.heads.end(), {"x compiled", "checked", "#wrong"});
    const auto gib = [](std::int64_t bytes) {
        return bytes == 0 ? "-" : text_of("%.1f", static_cast<double>(bytes) / (1 << 30));
    };
    for (const compared_row& row : rows) {
        const bool ran = row.own.failure.empty();
        std::vector<std::string> cells{row.name,
                                       row.shape,
                                       std::to_string(row.batch),
                                       time_text(row.own, unit),
                                       ran ? text_of("%.1f", row.own.spread_percent) : "-",
                                       ran ? text_of("%.1f", row.ceiling_percent) : "-"};
        if (steps) {
            cells.push_back(ran ? text_of("%.2f", row.batch / row.own.seconds) : "-");
            cells.push_back(gib(row.own.bytes));
        }
        std::int64_t most = 0;
        for (const std::string& mode : modes) {
            const auto found = row.torch.find(mode);
            cells.push_back(found == row.torch.end() ? "-" : time_text(found->second.step, unit));
            if (found != row.torch.end()) { most = std::max(most, found->second.step.bytes); }
        }
        if (steps && !modes.empty()) { cells.push_back(gib(most)); }
        cells.insert(cells.end(), {row.speedup() > 0 ? text_of("%.2f", row.speedup()) : "-",
                                   std::to_string(row.checked), std::to_string(row.wrong)});
        table.rows.push_back(cells);
    }
    return table;
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const step_figures& f) {
    if (!f.failure.empty()) { return {{"failure", f.failure}}; }
    nlohmann::ordered_json made{{"us", f.seconds * 1e6}, {"spread_percent", f.spread_percent}};
    if (f.bytes != 0) { made["bytes"] = f.bytes; }
    if (f.parameters != 0) {
        made["parameters"] = f.parameters;
        made["loss"] = f.loss;
        made["gradient_norm"] = f.gradient_norm;
    }
    if (!f.attention.empty()) { made["attention"] = f.attention; }
    if (!f.engines.empty()) { made["engines"] = f.engines; }
    return made;
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const compared_row& row) {
    nlohmann::ordered_json torch = nlohmann::ordered_json::object();
    for (const auto& [mode, found] : row.torch) { torch[mode] = json_of(found.step); }
    return {{"name", row.name},
            {"shape", row.shape},
            {"batch", row.batch},
            {"ceiling_percent", row.ceiling_percent},
            {"pulse", json_of(row.own)},
            {"torch", torch},
            {"times_compiled", row.speedup()},
            {"checked", row.checked},
            {"wrong", row.wrong}};
}

} // namespace pulse_bench
