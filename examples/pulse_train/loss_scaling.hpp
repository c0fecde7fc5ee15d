#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pulse_train {

/// Where the loss scale of half-precision training stands. It is kept by every run that continues one, so that training
/// may go from one precision to another and back.
struct loss_scaling {
    double scale{};               ///< 0: no run has scaled its loss yet
    std::int64_t good_steps{};    ///< since the last change of the scale
    std::int64_t skipped_steps{}; ///< in all: the optimizer has made so many steps less
};

/// Adds what there is of it to the words that a checkpoint keeps.
void add_to(std::map<std::string, std::string>& config, const loss_scaling& now);

/// What add_to has put there. Throws input_error when that is damaged.
[[nodiscard]] loss_scaling loss_scaling_in(const std::map<std::string, std::string>& config);

} // namespace pulse_train
