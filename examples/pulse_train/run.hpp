#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace pulse_train {

/// The whole job for one backbone, or a cascade of two, on one side: data, profile, plan, training, samples, report.
/// `stop` ends it after the current step.
using run_function = void (*)(const arguments& a, const std::atomic<bool>& stop);

/// Why the backbone of a diffusers folder is not the job's; empty: it is.
using fault_function = std::string (*)(const std::filesystem::path& folder);

/// One instance for every job that the program can do. Each is its own source file, so that they compile in parallel,
/// and linking registers it.
struct registration {
    /// `second`: the other backbone of a cascade; empty: there is one.
    registration(const char* model, const char* second, backend_kind where, precision_kind precision, run_function run,
                 fault_function why_not);
};

/// The names of all backbones that this build trains anywhere.
[[nodiscard]] std::vector<std::string> trained_models();

/// The backbone of --from, if exactly one in this build matches, together with --cascade-with if given. Throws
/// input_error naming the option.
[[nodiscard]] std::string model_of_folder(const arguments& a);

/// The job of the arguments. Throws input_error naming the argument if this build lacks it.
[[nodiscard]] run_function run_for(const arguments& a);

} // namespace pulse_train
