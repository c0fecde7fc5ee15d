#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/io/timeline_event.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse_train {

/// What one rank leaves for the report of its run: a plain value that the rank makes alone.
struct rank_results {
    int rank{};
    std::vector<pulse::io::timeline_event> events{}; ///< of the step that was traced last
    double busy_us{};                                ///< time of its passes in that step
    pulse::traffic_count sent{};                     ///< in that step
    std::int64_t planned_bytes{};
    std::int64_t measured_bytes{};
    /// Averaged weights of its layers, for drawing samples.
    std::map<int, std::vector<float>> averages{};
    std::int64_t steps_run{};
    std::int64_t last_step{};
    /// Of every step; only rank 0 has them, which are the same for all.
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
};

/// The same as bytes, which a rank of the same program reads again. Throws error when they are none.
[[nodiscard]] std::vector<std::byte> to_bytes(const rank_results& results);
[[nodiscard]] rank_results rank_results_from(std::span<const std::byte> bytes);

/// What all ranks of a run left.
struct run_results {
    std::vector<pulse::io::timeline_event> events{};
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
    std::vector<std::int64_t> planned_bytes{}; ///< of each rank, as measured_bytes
    std::vector<std::int64_t> measured_bytes{};
    double busy_us{};
    std::map<int, std::vector<float>> averages{};
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    std::int64_t gradient_bytes{};
    std::int64_t steps_run{};
    std::int64_t last_step{};
};

/// The results of every rank as those of the run; `of_ranks` in the order of ranks.
[[nodiscard]] run_results joined(std::vector<rank_results> of_ranks);

/// Weights, moments and average of all that a rank owns, in host memory and in the order of its parameters.
template <class T>
struct rank_state {
    std::span<T> weights{};
    std::span<T> first_moment{};
    std::span<T> second_moment{};
    std::span<T> average{};
};

/// The tensors of a rank's layers by name, for a checkpoint; `blocks` are of its parameters.
template <class Model, class Blocks, class T>
[[nodiscard]] std::vector<pulse::train::checkpoint_tensor<T>> tensors_of(const Blocks& blocks,
                                                                         const rank_state<T>& state) {
    std::vector<pulse::train::checkpoint_tensor<T>> all;
    for (const auto& block : blocks) {
        std::size_t at = block.first;
        for (const pulse::parameter& p : pulse::parameters_of<Model>(block.layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            all.push_back({p, state.weights.subspan(at, n), state.first_moment.subspan(at, n),
                           state.second_moment.subspan(at, n), state.average.subspan(at, n)});
            at += n;
        }
    }
    return all;
}

} // namespace pulse_train
