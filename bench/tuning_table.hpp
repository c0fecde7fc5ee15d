#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include <pulse/tune/tuning.hpp>

namespace pulse_bench {

/// Prints one row of the tuner.
inline void print_row(const pulse::tune_row& row) {
    std::printf("%10.1f %10.1f %9.2f %7.3f %9.2f %10.1f %10.1f %10.1f  %s\n", row.step_us / 1e3, row.bound_us / 1e3,
                row.samples_per_s, row.bubble_ratio, static_cast<double>(row.peak_memory_bytes) / 1e9,
                static_cast<double>(row.boundary_bytes) / 1e6, static_cast<double>(row.skip_bytes) / 1e6,
                static_cast<double>(row.gradient_bytes) / 1e6, to_text(row.candidate).c_str());
}

inline void print_row_heads() {
    std::printf("%10s %10s %9s %7s %9s %10s %10s %10s  %s\n", "step ms", "bound ms", "samples/s", "bubble", "peak GB",
                "act. MB", "skip MB", "grad. MB", "plan");
}

/// Prints the best rows, counts of the verdicts and an example of each.
inline void print_tuning(const pulse::tuning& made, std::size_t best) {
    print_row_heads();
    for (std::size_t k = 0; k != std::min(best, made.ranking.size()); ++k) { print_row(made.rows[made.ranking[k]]); }
    std::printf("%zu candidates, %zu evaluated, %d combinations do not multiply to the global batch\n",
                made.rows.size(), made.evaluations, made.indivisible);
    for (std::size_t v = 0; v != pulse::tune_verdicts; ++v) {
        const auto verdict = static_cast<pulse::tune_verdict>(v);
        if (made.counts[v] == 0 || verdict == pulse::tune_verdict::best) { continue; }
        const auto row = std::find_if(made.rows.begin(), made.rows.end(),
                                      [&](const pulse::tune_row& r) { return r.verdict == verdict; });
        std::printf("%6zu %-11s e.g. %s\n%24s%s\n", made.counts[v], std::string{name_of(verdict)}.c_str(),
                    to_text(row->candidate).c_str(), "", row->reason.c_str());
    }
}

[[nodiscard]] inline nlohmann::ordered_json json_of(const pulse::tune_row& row) {
    const pulse::tune_candidate& c = row.candidate;
    return {{"plan", to_text(c)},
            {"pipeline_degree", c.pipeline_degree},
            {"data_degree", c.data_degree},
            {"placement", std::string{name_of(c.kind)}},
            {"waves", c.waves},
            {"microbatch_size", c.microbatch_size},
            {"microbatches", c.microbatches},
            {"split_backward", c.split_backward},
            {"recompute", std::string{name_of(c.recompute.kind)}},
            {"layout", std::string{name_of(c.layout)}},
            {"step_us", row.step_us},
            {"bound_us", row.bound_us},
            {"samples_per_s", row.samples_per_s},
            {"bubble_ratio", row.bubble_ratio},
            {"peak_memory_bytes", row.peak_memory_bytes},
            {"boundary_bytes", row.boundary_bytes},
            {"skip_bytes", row.skip_bytes},
            {"gradient_bytes", row.gradient_bytes}};
}

} // namespace pulse_bench
