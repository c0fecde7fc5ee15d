#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "event_file.hpp"
#include "rank_results.hpp"

namespace pulse_train {

/// The results of a step.
struct step_metrics {
    std::int64_t step{};
    double loss{};
    std::vector<double> losses{}; ///< of each backbone, if there are several: they add up to the loss
    double gradient_norm{};       ///< before clipping
    double learning_rate{};
    double samples_per_s{};
    std::optional<double> loss_scale{}; ///< of the next step, if losses are scaled
    bool skipped{};                     ///< gradients overflowed, so no weight changed
};

/// Records a run while it runs: a line of JSON in metrics.jsonl, and the same for TensorBoard in the folder
/// tensorboard.
///
/// If writing fails, stderr says so once, and the run continues.
class metrics {
public:
    /// Records every `every`th step. A run that continues in its own folder keeps the records of steps before its
    /// first; other runs start afresh.
    metrics(std::filesystem::path folder, std::int64_t every, bool goes_on) :
        folder_{std::move(folder)}, every_{every}, goes_on_{goes_on} {}

    void step_done(const step_metrics& made);
    /// `times`: the timesteps of the losses.
    void validated(const validation_loss& made, const std::vector<int>& times);
    /// `file`, a PNG, was drawn after a step of this run.
    void drawn(std::int64_t step, const std::filesystem::path& file);
    /// Whether everything was written.
    [[nodiscard]] bool written() const { return events_ && !failed_; }

private:
    void open(std::int64_t first_step);
    void write_line(std::int64_t step, const nlohmann::ordered_json& line,
                    const std::vector<std::pair<std::string, double>>& numbers);
    template <class Write>
    void attempt(const Write& write);

    std::filesystem::path folder_;
    std::int64_t every_;
    bool goes_on_;
    bool failed_{};
    std::ofstream lines_{};
    std::optional<event_file> events_{};
};

} // namespace pulse_train
