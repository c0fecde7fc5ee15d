#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Whether the stages of `problem` are placed as `kind` says, up to a renumbering of the devices: the first P stages
/// are on different devices, and every later stage is on the device that `device_of` gives in their numbering.
[[nodiscard]] constexpr bool is_placed(const schedule_problem& problem, placement kind) {
    const auto& stages = problem.stages;
    const auto devices = static_cast<std::size_t>(problem.devices);
    if (devices == 0 || stages.empty() || stages.size() % devices != 0) { return false; }
    for (std::size_t d = 0; d != devices; ++d) {
        for (std::size_t e = 0; e != d; ++e) {
            if (stages[d].device == stages[e].device) { return false; }
        }
    }
    for (std::size_t s = devices; s < stages.size(); ++s) {
        const auto as = static_cast<std::size_t>(device_of(kind, static_cast<int>(s), problem.devices));
        if (stages[s].device != stages[as].device) { return false; }
    }
    return true;
}

/// Why `method` is not defined for this problem, in one clause ("needs ..."); empty when it is.
[[nodiscard]] constexpr std::string_view unmet_need(const schedule_problem& problem, schedule_method method) {
    const bool folds = rule_of(method).kind == placement::folded;
    const placement kind = folds ? placement::folded : placement::interleaved;
    const placement elsewhere = folds ? placement::interleaved : placement::folded; // one that does not meet the need
    const bool lies_so = is_placed(problem, kind);
    const int chunks = lies_so ? static_cast<int>(problem.stages.size()) / problem.devices : 0;
    const bool whole_waves = lies_so && !(folds && chunks % 2 != 0);
    return unmet_need(method, whole_waves ? kind : elsewhere, folds ? chunks / 2 : chunks, problem.split_backward);
}

/// Throws input_error, naming the method and its need, unless it is defined for `problem`.
constexpr void require_needs(const schedule_problem& problem, schedule_method method) {
    const std::string_view need = unmet_need(problem, method);
    if (need.empty()) { return; }
    throw input_error(std::string{name_of(method)} + " " + std::string{need} + "; the problem has " +
                      std::to_string(problem.stages.size()) + " stages on " + std::to_string(problem.devices) +
                      " devices");
}

} // namespace pulse::detail
