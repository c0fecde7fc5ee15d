#pragma once

#include <filesystem>
#include <vector>

#include <pulse/simulate/simulation.hpp>

#include "shared_state.hpp"
#include "training.hpp"

namespace pulse_train {

/// What a finished run amounts to: the numbers of its report.
struct run_summary {
    double step_us{};
    double samples_per_s{};
    double simulated_step_us{};
    double bubble_ratio{};
    std::int64_t sequential_relayed_bytes{};
};

[[nodiscard]] run_summary summarise(const run_inputs& in, const shared_state& shared);

/// Writes loss.svg, timeline.svg, trace.json and report.json (pulse-report/1) into the folder of the run.
void write_artifacts(const run_inputs& in, const shared_state& shared, const run_summary& summary);

/// Tells a person what the pipeline did and where everything is.
void print_summary(const run_inputs& in, const shared_state& shared, const run_summary& summary);

} // namespace pulse_train
