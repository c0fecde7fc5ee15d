#pragma once

#include <cstdint>
#include <random>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>

#include "instances.hpp"

namespace pulse::test {

/// A random problem with few enough passes for exhaustive search; two out of three have binding memory limits.
inline schedule_problem small_problem(std::mt19937& random, std::size_t most_passes) {
    for (;;) {
        const auto instance = random_instance(random, 3, 1, 3);
        auto problem = make_problem(instance.costs, instance.cut, instance.options);
        const auto passes = problem.stages.size() * static_cast<std::size_t>(problem.passes_per_stage()) *
                            static_cast<std::size_t>(problem.microbatches);
        if (problem.microbatches < 2 || passes > most_passes) { continue; }
        if (std::uniform_int_distribution<int>{0, 2}(random) != 0) {
            for (const auto& peaks : detail::profile_memory(problem, detail::index_problem(problem)).peak_from) {
                const auto alone = peaks.front();
                problem.memory_limit_bytes.push_back(alone +
                                                     alone * std::uniform_int_distribution<int>{0, 4}(random) / 4);
            }
        }
        return problem;
    }
}

} // namespace pulse::test
