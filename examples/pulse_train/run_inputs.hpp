#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <string>

#include <pulse/host/backend.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/noise_schedule.hpp>

#include "arguments.hpp"

namespace pulse_train {

using math = pulse::host::onednn_backend;

/// What a run needs besides the model's type.
struct run_inputs {
    arguments args{};
    pulse::plan plan{};
    pulse::cost_table costs{};
    const pulse::train::image_dataset* images{};
    const pulse::train::noise_schedule* noise{};
    /// What must be equal in a run that continues this one.
    std::map<std::string, std::string> config{};
    const std::atomic<bool>* stop{};

    /// A file of the run's folder.
    [[nodiscard]] std::filesystem::path file(const char* name) const { return std::filesystem::path{args.out} / name; }
};

} // namespace pulse_train
