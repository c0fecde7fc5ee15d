#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include <pulse/schedule/prove/ilp_solver.hpp>

#include "small_problems.hpp"

namespace certify_tests {

using namespace pulse;

/// A solver that never answers.
struct silent_solver {
    ilp_answer solve(const ilp_model&, const ilp_request&) { return {}; }
};

/// A problem whose certification takes some hundred nodes: random durations, binding memory limits.
inline schedule_problem hard_problem(std::mt19937& random, int microbatches = 5, int devices = 2) {
    const std::vector<int> folded = devices == 2 ? std::vector<int>{0, 1, 1, 0} : std::vector<int>{0, 1, 2, 2, 1, 0};
    auto problem = test::chain_problem(folded, devices, microbatches, false, 3, 2, 4, 0.6, 1);
    for (auto& s : problem.stages) {
        s.forward_us *= std::uniform_real_distribution<double>{0.5, 1.5}(random);
        s.backward_input_us *= std::uniform_real_distribution<double>{0.5, 1.5}(random);
    }
    problem.memory_limit_bytes.assign(static_cast<std::size_t>(devices), 4);
    return problem;
}

} // namespace certify_tests
