#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace pulse_train {

/// Which step of a run has come to the least loss of validation, whose checkpoint the run's folder `best` has; a note
/// beside it says so, for who goes on.
class best_checkpoint {
public:
    /// In the run's folder. Of one that goes on there after `first` steps, what the note says of steps up to those
    /// counts, unless it went by another `measure`: what is validated by. Throws input_error naming a note that cannot
    /// be read.
    best_checkpoint(const std::filesystem::path& folder, std::string measure, bool goes_on, std::int64_t first);

    /// None as yet: infinity.
    [[nodiscard]] double loss() const noexcept { return loss_; }
    /// The checkpoint of this step is there now; throws input_error where that cannot be noted.
    void note(std::int64_t step, double loss);

private:
    std::filesystem::path path_;
    std::string measure_;
    double loss_{std::numeric_limits<double>::infinity()};
};

} // namespace pulse_train
