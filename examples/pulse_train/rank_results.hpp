#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <pulse/runtime/transport.hpp>

#include "../pictures/timeline_event.hpp"

namespace pulse_train {

/// The validation loss of the weights after a step.
struct validation_loss {
    std::int64_t step{};
    double loss{};                 ///< the mean over timesteps
    std::vector<double> at_time{}; ///< at each timestep
};

/// The weights that a backbone draws with, by block.
using drawing_weights = std::map<int, std::vector<float>>;

/// One rank's results for the report of its run: a plain value, made without other ranks.
struct rank_results {
    int rank{};
    std::vector<pictures::timeline_event> events{}; ///< of the last traced step
    double busy_us{};                               ///< time of its passes in that step
    pulse::traffic_count sent{};                    ///< in that step
    std::int64_t planned_bytes{};
    std::int64_t measured_bytes{};
    /// Averaged weights of its layers, per backbone, for drawing samples.
    std::vector<drawing_weights> averages{};
    double encode_seconds{};     ///< spent by frozen networks on encoding, over all steps
    std::int64_t captions_cut{}; ///< that were longer than the text encoder allows
    std::int64_t steps_run{};
    std::int64_t last_step{};
    /// For every step; the same on all ranks, so only rank 0 has them.
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
    std::vector<validation_loss> validation{};
};

/// Serialization between ranks of the same program. Throws error if the bytes are not such results.
[[nodiscard]] std::vector<std::byte> to_bytes(const rank_results& results);
[[nodiscard]] rank_results rank_results_from(std::span<const std::byte> bytes);

/// The results of all ranks of a run.
struct run_results {
    std::vector<pictures::timeline_event> events{};
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
    std::vector<validation_loss> validation{};
    std::vector<std::int64_t> planned_bytes{}; ///< of each rank, like measured_bytes
    std::vector<std::int64_t> measured_bytes{};
    double busy_us{};
    std::vector<drawing_weights> averages{}; ///< of each backbone
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    std::int64_t gradient_bytes{};
    double encode_seconds{}; ///< of the rank that encoded longest
    std::int64_t captions_cut{};
    std::int64_t steps_run{};
    std::int64_t last_step{};
};

/// Combines the ranks' results into the run's; `of_ranks` is in rank order.
[[nodiscard]] run_results joined(std::vector<rank_results> of_ranks);

} // namespace pulse_train
