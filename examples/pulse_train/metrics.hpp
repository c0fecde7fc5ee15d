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

/// What a step came to.
struct step_metrics {
    std::int64_t step{};
    double loss{};
    std::vector<double> losses{}; ///< of each backbone, where there are several: their sum is the loss
    double gradient_norm{};       ///< before clipping
    double learning_rate{};
    double samples_per_s{};
    std::optional<double> loss_scale{}; ///< of the next step, where losses are scaled
    bool skipped{};                     ///< gradients overflowed, and no weight changed
};

/// Writes down what a run comes to while it goes on: a line of JSON in metrics.jsonl, and the same for TensorBoard in
/// the folder tensorboard.
///
/// Where nothing can be written any more, stderr says so once, and the run goes on.
class metrics {
public:
    /// Of every `every`th step. A run that goes on in its own folder keeps what it has of steps before its first; other
    /// runs keep nothing.
    metrics(std::filesystem::path folder, std::int64_t every, bool goes_on) :
        folder_{std::move(folder)}, every_{every}, goes_on_{goes_on} {}

    void step_done(const step_metrics& made);
    /// `times`: of which timesteps the losses are.
    void validated(const validation_loss& made, const std::vector<int>& times);
    /// `file`, a PNG, was drawn after a step of this run.
    void drawn(std::int64_t step, const std::filesystem::path& file);
    /// Whether all that there was is written.
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
