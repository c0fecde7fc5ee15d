#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <pulse/runtime/transport.hpp>

#include "../pictures/timeline_event.hpp"

namespace pulse_train {

/// What the weights that a step left came to on what is not trained on.
struct validation_loss {
    std::int64_t step{};
    double loss{};                 ///< the mean over timesteps
    std::vector<double> at_time{}; ///< at each of them
};

/// The weights with which a backbone draws, by block.
using drawing_weights = std::map<int, std::vector<float>>;

/// What one rank leaves for the report of its run: a plain value that the rank makes alone.
struct rank_results {
    int rank{};
    std::vector<pictures::timeline_event> events{}; ///< of the step that was traced last
    double busy_us{};                               ///< time of its passes in that step
    pulse::traffic_count sent{};                    ///< in that step
    std::int64_t planned_bytes{};
    std::int64_t measured_bytes{};
    /// Averaged weights of its layers of each backbone, for drawing samples.
    std::vector<drawing_weights> averages{};
    double encode_seconds{};     ///< of all steps, in which frozen networks have encoded the data
    std::int64_t captions_cut{}; ///< that were longer than the text encoder's
    std::int64_t steps_run{};
    std::int64_t last_step{};
    /// Of every step; only rank 0 has them, which are the same for all.
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
    std::vector<validation_loss> validation{};
};

/// The same as bytes, which a rank of the same program reads again. Throws error when they are none.
[[nodiscard]] std::vector<std::byte> to_bytes(const rank_results& results);
[[nodiscard]] rank_results rank_results_from(std::span<const std::byte> bytes);

/// What all ranks of a run left.
struct run_results {
    std::vector<pictures::timeline_event> events{};
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
    std::vector<validation_loss> validation{};
    std::vector<std::int64_t> planned_bytes{}; ///< of each rank, as measured_bytes
    std::vector<std::int64_t> measured_bytes{};
    double busy_us{};
    std::vector<drawing_weights> averages{}; ///< of each backbone
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    std::int64_t gradient_bytes{};
    double encode_seconds{}; ///< of the rank that has encoded longest
    std::int64_t captions_cut{};
    std::int64_t steps_run{};
    std::int64_t last_step{};
};

/// The results of every rank as those of the run; `of_ranks` in the order of ranks.
[[nodiscard]] run_results joined(std::vector<rank_results> of_ranks);

} // namespace pulse_train
