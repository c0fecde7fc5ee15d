#pragma once

#include <algorithm>
#include <cstddef>

#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/v_order.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

/// The order of DualPipeV (DeepSeek, 2025) without its overlap of a forward with a backward: pairs run one after the
/// other, F first. One wave, split backward; waiting W's run in FIFO order.
///
/// Defined for at least 2P microbatches; with fewer, the order for 2P without the surplus. Ignores memory limits: holds
/// 2P + 1 stage activations. Throws input_error unless the placement is folded in one wave and the backward split.
[[nodiscard]] constexpr schedule dualpipe_v(const schedule_problem& problem) {
    detail::require_needs(problem, schedule_method::dualpipe_v);
    const int devices = problem.devices;
    const int built = std::max(problem.microbatches, 2 * devices);
    detail::device_orders orders(static_cast<std::size_t>(devices));
    for (int rank = 0; rank != devices; ++rank) {
        detail::v_order v{rank, 2 * devices - 1 - rank, problem.microbatches};
        const int below = devices - 1 - rank;
        for (int i = 0; i != 2 * below; ++i) { v.forward(0); }
        for (int i = 0; i != rank + 1; ++i) {
            v.forward(0);
            v.forward(1);
        }
        for (int i = 0; i != below; ++i) {
            v.whole_backward(1);
            v.forward(1);
        }
        for (int i = 0; i != built - 2 * devices + rank + 1; ++i) {
            v.forward(0);
            v.whole_backward(1);
            v.forward(1);
            v.whole_backward(0);
        }
        for (int i = 0; i != below; ++i) {
            v.whole_backward(1);
            v.forward(1);
            v.whole_backward(0);
        }
        const int half = (rank + 1) / 2;
        for (int i = 0; i != rank + 1; ++i) {
            const bool both = i > half || (i == half && rank % 2 == 1);
            both ? v.split_backward(1) : v.whole_backward(1);
            i >= half ? v.split_backward(0) : v.whole_backward(0);
        }
        for (int i = 0; i != below; ++i) {
            v.waiting_weight();
            v.split_backward(0);
        }
        for (int i = 0; i != rank + 1; ++i) { v.waiting_weight(); }
        orders[static_cast<std::size_t>(problem.stages[static_cast<std::size_t>(rank)].device)] = v.order();
    }
    return detail::timed_from_orders(problem, orders);
}

} // namespace pulse
