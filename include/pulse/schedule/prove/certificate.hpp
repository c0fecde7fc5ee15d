#pragma once

#include <cstdint>
#include <functional>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>

namespace pulse {

/// The result of a certification.
struct certificate {
    /// No schedule is shorter: a refuted makespan, or the given bound.
    double lower_bound_us{};
    /// The best schedule known: the incumbent, or a shorter one.
    schedule best{};
    double makespan_us{};
    /// Bound and makespan agree as `synthesis::proved` requires: exactly when times have a common measure, else within
    /// 1e-9.
    bool closed{};
    /// Branches of the search and nodes of the solver, which the limit counts together; integer programs solved.
    std::int64_t nodes{};
    std::int64_t programs{};
    double seconds{};
};

namespace detail {

/// One more kind of proof: certifies a schedule, given a bound, within a limit.
using proof_of = std::function<certificate(const schedule_bound&, const schedule&, const search_limit&)>;

} // namespace detail

} // namespace pulse
