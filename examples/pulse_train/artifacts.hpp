#pragma once

#include <array>
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

/// The steps of a run at one of its extents.
struct extent_summary {
    std::int64_t steps{};
    double measured_step_us{}; ///< the median
};

/// Summary of a finished run: the numbers of its report.
struct run_summary {
    double measured_step_us{};  ///< the mean over extents, weighted by their steps
    double predicted_step_us{}; ///< likewise
    std::vector<extent_summary> extents{};
    double samples_per_s{};
    double bubble_ratio{};
    std::int64_t sequential_relayed_bytes{};
};

[[nodiscard]] run_summary summarise(const run_inputs& in, const run_results& results);

/// Makes a folder. Throws input_error naming it, after `option`, if that fails.
void make_folder(const std::filesystem::path& folder, const std::string& option = "");

/// Makes the run's folder. Throws input_error naming --out.
void make_folder(const run_inputs& in);

/// Whether a run is resumed from a checkpoint of its own output folder.
[[nodiscard]] bool goes_on_in_its_folder(const run_inputs& in);

/// Where the folder of the run may be whose checkpoint is resumed: beside a merged file, or beside the folder of
/// checkpoints.
[[nodiscard]] std::array<std::filesystem::path, 2> folders_of_resumed(const run_inputs& in);

/// Makes the run's folder with plan.json, the first file that a run writes, and engines.json if there are engines.
void open_folder(const run_inputs& in);

/// Writes loss.svg, timeline.svg, trace.json and report.json (pulse-report/1) into the run's folder.
void write_artifacts(const run_inputs& in, const run_results& results, const run_summary& summary);

/// Folder for the pictures drawn after a step before the last.
[[nodiscard]] std::filesystem::path drawing_folder(const run_inputs& in, std::int64_t step);

/// Writes a PNG and makes its folder: `images` in a grid, of latents only the first channel.
void write_samples(const std::filesystem::path& file, const arguments& a, const std::vector<float>& images,
                   const sample_shape& shape);

/// Writes each prompt's picture into `folder`/pictures, with the prompts in metadata.jsonl: captioned pictures that
/// --data can read.
void write_pictures(const std::filesystem::path& folder, const arguments& a, const std::vector<float>& images,
                    const sample_shape& shape);

/// Prints what the pipeline did and where everything is.
void print_summary(const run_inputs& in, const run_results& results, const run_summary& summary, bool has_samples,
                   bool has_metrics);

} // namespace pulse_train
