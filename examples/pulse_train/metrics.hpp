#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "event_file.hpp"

namespace pulse_train {

/// What a step came to.
struct step_metrics {
    std::int64_t step{};
    double loss{};
    double gradient_norm{}; ///< before clipping
    double learning_rate{};
    double samples_per_s{};
    /// Of the next step; 1 where losses are not scaled.
    double loss_scale{1};
    bool skipped{}; ///< gradients overflowed, and no weight changed
};

/// Writes down what a run comes to while it goes on: a line of JSON in metrics.jsonl, and the same for TensorBoard in the folder
/// tensorboard.
///
/// What was written before of a step that a run makes, or of a later one, goes: a run that is resumed in its own folder
/// has one line a step. Where nothing can be written any more, stderr says so once, and the run goes on.
class metrics {
public:
    /// Of every `every`th step.
    metrics(std::filesystem::path folder, std::int64_t every) : folder_{std::move(folder)}, every_{every} {}

    void step_done(const step_metrics& made);
    /// `file`, a PNG, was drawn after a step.
    void drawn(std::int64_t step, const std::filesystem::path& file);

private:
    void open(std::int64_t first_step);
    template <class Write>
    void attempt(const Write& write);

    std::filesystem::path folder_;
    std::int64_t every_;
    bool failed_{};
    std::ofstream lines_{};
    std::optional<event_file> events_{};
};

} // namespace pulse_train
