#pragma once

#include <cstddef>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Whether stage s of `problem` lies where `kind` puts it, whichever device comes first, second, ...: the first P
/// stages name the devices, all different, and every later stage is on the device that `device_of` says.
[[nodiscard]] constexpr bool is_placed(const schedule_problem& problem, placement kind) {
    const auto& stages = problem.stages;
    const auto devices = static_cast<std::size_t>(problem.devices);
    if (stages.empty() || stages.size() % devices != 0) { return false; }
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

/// Throws input_error, saying that the order `who` needs it, unless the problem has one stage on each device.
constexpr void require_sequential(const schedule_problem& problem, const char* who) {
    const bool one_each = problem.stages.size() == static_cast<std::size_t>(problem.devices);
    if (one_each && is_placed(problem, placement::sequential)) { return; }
    throw input_error(std::string{who} + ": it is an order for the sequential placement, one stage on each device; " +
                      "the problem has " + std::to_string(problem.stages.size()) + " stages on " +
                      std::to_string(problem.devices) + " devices");
}

/// Chunks on a device; throws input_error, naming `who`, unless stage s is on the device of stage s mod P.
[[nodiscard]] constexpr int require_interleaved(const schedule_problem& problem, const char* who) {
    if (is_placed(problem, placement::interleaved)) {
        return static_cast<int>(problem.stages.size()) / problem.devices;
    }
    throw input_error(std::string{who} + ": it is an order for the interleaved placement, stage s on device s mod P; " +
                      "the problem's " + std::to_string(problem.stages.size()) + " stages on " +
                      std::to_string(problem.devices) + " devices lie otherwise");
}

/// Waves; throws input_error, naming `who`, unless the stages zigzag over the devices, S = 2PW.
[[nodiscard]] constexpr int require_folded(const schedule_problem& problem, const char* who) {
    const auto turn = 2 * static_cast<std::size_t>(problem.devices);
    if (problem.stages.size() % turn == 0 && is_placed(problem, placement::folded)) {
        return static_cast<int>(problem.stages.size() / turn);
    }
    throw input_error(std::string{who} + ": it is an order for the folded placement, zigzag over the devices; the " +
                      "problem's " + std::to_string(problem.stages.size()) + " stages on " +
                      std::to_string(problem.devices) + " devices lie otherwise");
}

/// Throws input_error, naming `who`, unless the stages are folded in one wave: exactly two on each device.
constexpr void require_one_wave(const schedule_problem& problem, const char* who) {
    const int waves = require_folded(problem, who);
    if (waves == 1) { return; }
    throw input_error(std::string{who} + ": it is an order for one wave, two stages on each device; the problem has " +
                      std::to_string(waves) + " waves");
}

/// Throws input_error, naming `who`, unless the backward is split.
constexpr void require_split(const schedule_problem& problem, const char* who) {
    if (problem.split_backward) { return; }
    throw input_error(std::string{who} + ": its order needs the weight gradient apart (split_backward)");
}

} // namespace pulse::detail
