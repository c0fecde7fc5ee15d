#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/improve/sequence_state.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace pulse::test {

/// A random problem; two out of three have little more memory than a single microbatch needs.
inline schedule_problem random_problem(std::mt19937& random, int round, int most_microbatches = 8) {
    const auto instance = random_instance(random, 4, 2, most_microbatches);
    auto problem = make_problem(instance.costs, instance.cut, instance.options);
    if (round % 3 != 0) {
        auto alone = problem;
        alone.microbatches = 1;
        const int tenths = std::uniform_int_distribution<int>{10, 30}(random);
        for (const auto need : peak_holds(alone, gpipe(alone))) {
            problem.memory_limit_bytes.push_back(need * tenths / 10);
        }
    }
    return problem;
}

/// Sequences of a list run with random priorities: a poor schedule within the memory limits.
inline std::vector<std::vector<int>> random_sequences(std::mt19937& random, const schedule_problem& problem,
                                                      const detail::indexed_problem& index) {
    const auto count = static_cast<std::size_t>(index.ops() * index.microbatches);
    std::vector<double> keys(count, 0.0);
    for (auto& k : keys) { k = std::uniform_real_distribution<double>{}(random); }
    return detail::run_list(index, detail::profile_memory(problem, index), keys, std::vector<double>(count, 0.0), {})
        .order;
}

/// A state's instances as a schedule.
inline schedule schedule_of(const detail::indexed_problem& index, const detail::sequence_state& state,
                            const std::vector<std::vector<int>>& sequences) {
    schedule out{};
    for (const auto& sequence : sequences) {
        out.devices.emplace_back();
        for (const int x : sequence) {
            const auto p = index.pass_of(x / index.microbatches);
            out.devices.back().push_back({p.op, p.stage, x % index.microbatches, state.start(x), state.end(x)});
        }
    }
    return out;
}

} // namespace pulse::test
