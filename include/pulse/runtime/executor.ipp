#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/executor.hpp>

namespace pulse::detail {

PULSE_INLINE replica_place placed(const plan& planned, const any_transport& transport, rank_layout layout) {
    if (planned.data_degree < 1 || planned.pipeline_degree < 1) {
        throw input_error{"pulse: plan: pipeline_degree and data_degree must be at least 1"};
    }
    if (std::int64_t{planned.pipeline_degree} * planned.data_degree != transport.size()) {
        throw input_error{"pulse: the plan is for " + std::to_string(planned.pipeline_degree) + " x " +
                          std::to_string(planned.data_degree) + " ranks (pipeline_degree x data_degree), there are " +
                          std::to_string(transport.size())};
    }
    return place_of({layout, planned.pipeline_degree, planned.data_degree}, transport.rank());
}

PULSE_INLINE std::string place_of_error(const any_transport& transport, std::size_t i, const instruction& at,
                                        const char* what) noexcept {
    try {
        return "rank " + std::to_string(transport.rank()) + ", instruction " + std::to_string(i) + " (" + to_text(at) +
               "): " + what;
    } catch (...) { return {}; }
}

} // namespace pulse::detail
