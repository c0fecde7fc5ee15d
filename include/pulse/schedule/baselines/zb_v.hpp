#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/v_order.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/baselines/zb_v_greedy.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

/// The fixed order of ZB-V (Qi et al., 2024) for F = B = W: no device idles between its first and its last pass.
///
/// Defined for at least 2P - 1 microbatches; with fewer, it is the order for 2P - 1 without the surplus. Holds at most
/// 2P stage activations on every device. Ignores memory limits. Throws input_error unless the placement is folded in
/// one wave and the backward split.
[[nodiscard]] constexpr schedule zb_v_fixed(const schedule_problem& problem) {
    detail::require_needs(problem, schedule_method::zb_v);
    const int devices = problem.devices;
    const int built = std::max(problem.microbatches, 2 * devices - 1);
    detail::device_orders orders(static_cast<std::size_t>(devices));
    for (int rank = 0; rank != devices; ++rank) {
        detail::v_order v{rank, 2 * devices - 1 - rank, problem.microbatches};
        for (int i = 0; i != 2 * (devices - rank) - 1; ++i) { v.forward(0); }
        for (int i = 0; i != rank; ++i) {
            v.forward(1);
            v.forward(0);
        }
        for (int i = 0; i != devices - rank; ++i) {
            v.forward(1);
            v.whole_backward(1);
        }
        while (v.done(pass::forward, 1) < built) {
            if (v.done(pass::forward, 0) < built) { v.forward(0); }
            v.whole_backward(0);
            v.forward(1);
            v.whole_backward(1);
        }
        for (int i = 0; i != rank; ++i) {
            v.backward(0);
            v.backward(1);
        }
        for (int i = 0; i != devices - rank; ++i) { v.whole_backward(0); }
        for (const int half : {1, 0}) {
            while (v.done(pass::backward_weight, half) < built) { v.weight(half); }
        }
        orders[static_cast<std::size_t>(problem.stages[static_cast<std::size_t>(rank)].device)] = v.order();
    }
    return detail::timed_from_orders(problem, orders);
}

/// ZB-V as its authors run it: the best of the fixed order and of the greedy run in its four fill modes, on the
/// problem's own times and lags, with room for 2P stage activations on a device.
///
/// Under memory limits, the best of these that fits; with room for less than 2P the greedy run finds no order (its
/// authors use other schedules there). Throws infeasible_error when nothing fits, input_error as `zb_v_fixed`.
[[nodiscard]] constexpr schedule zb_v(const schedule_problem& problem) {
    const schedule fixed = zb_v_fixed(problem);
    schedule best{};
    const auto keep = [&](schedule timed) {
        if (!fits_memory(problem, timed)) { return; }
        if (best.devices.empty() || timed.makespan_us() < best.makespan_us()) { best = std::move(timed); }
    };
    keep(fixed);
    const detail::indexed_problem index = detail::index_problem(problem);
    detail::v_greedy_run greedy{problem, index, 2 * problem.devices};
    for (int mode = 0; mode != 4; ++mode) {
        const auto orders = greedy.build({(mode & 1) != 0, (mode & 2) != 0});
        if (!orders.empty()) { keep(detail::timed_from_orders(problem, orders)); }
    }
    if (best.devices.empty()) { detail::require_fits_memory(problem, fixed, "zb_v"); }
    return best;
}

} // namespace pulse
