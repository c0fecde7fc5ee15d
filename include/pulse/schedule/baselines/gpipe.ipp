#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

PULSE_CONSTEXPR schedule gpipe(const schedule_problem& problem) {
    const detail::indexed_problem index = detail::index_problem(problem, detail::taken_chains::several);
    detail::device_orders orders(index.on_device.size());
    for (std::size_t d = 0; d != orders.size(); ++d) {
        for (const int op : index.on_device[d]) {
            const stage_pass p = index.pass_of(op);
            if (p.op == pass::backward_weight) { continue; }
            for (int k = problem.first_microbatch(p.op); k != index.microbatches; ++k) {
                orders[d].push_back({p.op, p.stage, k});
                if (p.op == pass::backward_input && problem.split_backward) {
                    orders[d].push_back({pass::backward_weight, p.stage, k});
                }
            }
        }
    }
    return detail::timed_from_orders(problem, orders);
}

} // namespace pulse
