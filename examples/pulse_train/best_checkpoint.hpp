#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace pulse_train {

/// The step of a run with the lowest validation loss, whose checkpoint is in the run's folder `best`; a note beside it
/// records the step for resumed runs.
class best_checkpoint {
public:
    /// `folder` is the run's. If the run continues there after `first` steps, the note's step counts if it is not
    /// later, unless it used another `measure`: what it was validated by. Throws input_error naming a note that cannot
    /// be read.
    best_checkpoint(const std::filesystem::path& folder, std::string measure, bool goes_on, std::int64_t first);

    /// Infinity if there is none yet.
    [[nodiscard]] double loss() const noexcept { return loss_; }
    /// Records that the checkpoint of this step is there; throws input_error if the note cannot be written.
    void note(std::int64_t step, double loss);

private:
    std::filesystem::path path_;
    std::string measure_;
    double loss_{std::numeric_limits<double>::infinity()};
};

} // namespace pulse_train
