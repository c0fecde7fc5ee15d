#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <pulse/host/adamw.hpp>
#include <pulse/io/timeline_event.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/checkpoint.hpp>
#include <pulse/train/rank_optimizer.hpp>

namespace pulse_train {

using rank_optimizer = pulse::train::basic_rank_optimizer<pulse::host::fused_adamw>;

/// What the thread ranks of a run leave for all to see; guarded by its mutex.
struct shared_state {
    std::mutex mutex{};
    std::vector<pulse::train::named_tensor> tensors{};
    std::vector<pulse::io::timeline_event> events{};
    std::vector<double> losses{};
    std::vector<double> step_seconds{};
    std::vector<std::int64_t> planned_bytes{};
    std::vector<std::int64_t> measured_bytes{};
    std::vector<double> busy_us{};
    /// Averaged weights of every layer, for drawing samples.
    std::map<int, std::vector<float>> averages{};
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    std::int64_t steps_run{};
    std::int64_t last_step{};

    void forget_trace() {
        const std::lock_guard lock{mutex};
        events.clear();
        busy_us.clear();
        boundary_bytes = 0;
        skip_bytes = 0;
    }
};

/// Names, weights, moments and averages of what one rank owns, for a checkpoint.
template <class Model, class Tensor>
void append_tensors(std::vector<Tensor>& all, pulse::rank_parameters<float>& parameters,
                    rank_optimizer& optimizer) {
    for (const auto& block : parameters.blocks()) {
        std::size_t at = block.first;
        for (const pulse::parameter& p : pulse::parameters_of<Model>(block.layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            all.push_back({p, parameters.values().subspan(at, n), optimizer.first_moment().subspan(at, n),
                           optimizer.second_moment().subspan(at, n), optimizer.average().subspan(at, n)});
            at += n;
        }
    }
}

} // namespace pulse_train
