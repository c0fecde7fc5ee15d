#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/prove/ilp_model.hpp>
#include <pulse/schedule/synthesis.hpp>

namespace pulse {

/// How a solve ended.
enum class ilp_status : std::uint8_t {
    optimal,    ///< `values` solve it, and nothing is better
    feasible,   ///< `values` solve it; a limit ended the search
    infeasible, ///< no solution exists
    unknown,    ///< a limit ended the search before a solution was found
};

/// What a solver gets besides the program.
struct ilp_request {
    /// No solution costs less than this, so a search that finds a solution of this cost is done.
    double known_bound{-std::numeric_limits<double>::infinity()};
    /// A node is a branch whose relaxation was solved.
    search_limit limit{};
};

/// The result of a solver.
struct ilp_answer {
    ilp_status status{ilp_status::unknown};
    /// The best solution; empty when none was found.
    std::vector<double> values{};
    /// No solution costs less than this.
    double bound{-std::numeric_limits<double>::infinity()};
    std::int64_t nodes{};

    /// Whether the search ended by itself.
    [[nodiscard]] bool closed() const noexcept {
        return status == ilp_status::optimal || status == ilp_status::infeasible;
    }
};

/// A solver of mixed-integer programs. `pulse::glpk_solver` is one; another (HiGHS, CP-SAT, ...) takes one class:
///
/// 1. `ilp_answer solve(const ilp_model&, const ilp_request&)` copies columns and rows into the solver, solves, and
///    reports. It may ignore the known bound, which only saves time, but no limit.
/// 2. The same input under the same limit of nodes gives the same answer.
/// 3. A stop request ends the search with the best solution so far.
/// 4. `bound` is never above the cost of a solution, up to the solver's tolerance.
template <class S>
concept ilp_solver = requires(S& solver, const ilp_model& model, const ilp_request& request) {
    { solver.solve(model, request) } -> std::same_as<ilp_answer>;
};

namespace detail {

template <class S>
constexpr void require_ilp_solver() {
    static_assert(ilp_solver<S>, "pulse: an ilp_solver needs ilp_answer solve(const ilp_model&, const ilp_request&)");
}

} // namespace detail

} // namespace pulse
