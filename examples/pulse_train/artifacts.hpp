#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rank_results.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

inline constexpr const char* checkpoint_name = "checkpoint.safetensors";
inline constexpr const char* checkpoints_name = "checkpoints";
inline constexpr const char* best_name = "best";
inline constexpr const char* best_note_name = "best.json";
inline constexpr const char* validation_name = "validation";
inline constexpr const char* samples_name = "samples.png";
inline constexpr const char* first_samples_name = "samples_first.png"; ///< of the first backbone of a cascade
inline constexpr const char* pictures_name = "pictures";
inline constexpr const char* drawn_name = "drawn";
inline constexpr const char* metrics_name = "metrics.jsonl";
inline constexpr const char* tensorboard_name = "tensorboard";
inline constexpr const char* engines_name = "engines.json";

/// The steps of a run that had one of its extents.
struct extent_summary {
    std::int64_t steps{};
    double measured_step_us{}; ///< the median
};

/// What a finished run amounts to: the numbers of its report.
struct run_summary {
    double measured_step_us{};  ///< the mean over extents, as often as each was
    double predicted_step_us{}; ///< likewise
    std::vector<extent_summary> extents{};
    double samples_per_s{};
    double bubble_ratio{};
    std::int64_t sequential_relayed_bytes{};
};

[[nodiscard]] run_summary summarise(const run_inputs& in, const run_results& results);

/// Throws input_error naming the folder, behind `option`, when it cannot be made.
void make_folder(const std::filesystem::path& folder, const std::string& option = "");

/// Makes the run's folder. Throws input_error naming --out.
void make_folder(const run_inputs& in);

/// Whether a run is resumed from a checkpoint of the folder that it writes.
[[nodiscard]] bool goes_on_in_its_folder(const run_inputs& in);

/// Makes the run's folder with its plan.json, the first thing that a run writes, and its engines.json if it has one.
void open_folder(const run_inputs& in);

/// Writes loss.svg, timeline.svg, trace.json and report.json (pulse-report/1) into the folder of the run.
void write_artifacts(const run_inputs& in, const run_results& results, const run_summary& summary);

/// Where what is drawn after a step before the last goes.
[[nodiscard]] std::filesystem::path drawing_folder(const run_inputs& in, std::int64_t step);

/// Writes a PNG, whose folder is made: `images` in a grid, of latents the first channel.
void write_samples(const std::filesystem::path& file, const arguments& a, const std::vector<float>& images,
                   const sample_shape& shape);

/// Writes the pictures of the prompts one by one into `folder`/pictures, with metadata.jsonl, which says the prompts:
/// captioned pictures, as --data takes them.
void write_pictures(const std::filesystem::path& folder, const arguments& a, const std::vector<float>& images,
                    const sample_shape& shape);

/// Tells a person what the pipeline did and where everything is.
void print_summary(const run_inputs& in, const run_results& results, const run_summary& summary, bool has_samples,
                   bool has_metrics);

} // namespace pulse_train
