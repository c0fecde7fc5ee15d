#pragma once

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

/// GPipe (Huang et al., 2019): every device runs all its forwards, then all its backwards.
///
/// A device with several stages (folded, interleaved) runs all microbatches of one stage before the next: lowest stage
/// first in the forward, highest first in the backward. Microbatches run in order in both; GPipe's backward may reverse
/// them, with the same bubble. Split, W follows its B at once. Ignores memory limits: holds M microbatches. Throws
/// input_error for an ill-formed problem.
[[nodiscard]] constexpr schedule gpipe(const schedule_problem& problem) {
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
