#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

/// What every device runs, in order; the times mean nothing.
using device_orders = std::vector<std::vector<timed_pass>>;

[[noreturn]] inline void throw_bad_order(std::size_t device, const timed_pass& p, const char* what) {
    throw input_error("order of device " + std::to_string(device) + ": " + describe(p) + " " + what);
}

[[noreturn]] inline void throw_deadlock(const device_orders& orders, const std::vector<std::size_t>& next,
                                        const indexed_problem& index, const std::vector<char>& done) {
    std::string text = "the orders deadlock:";
    const auto m = static_cast<std::size_t>(index.microbatches);
    for (std::size_t d = 0; d != orders.size(); ++d) {
        if (next[d] == orders[d].size()) { continue; }
        const timed_pass& p = orders[d][next[d]];
        text += " device " + std::to_string(d) + " is at " + describe(p) + " and waits for ";
        for (const auto& link : index.before[static_cast<std::size_t>(index.op_of({p.op, p.stage}))]) {
            const auto before = static_cast<std::size_t>(link.op);
            if (!index.runs_on(before, p.microbatch)) { continue; }
            if (done[before * m + static_cast<std::size_t>(p.microbatch)] != 0) { continue; }
            text += describe(index.timed(link.op * index.microbatches + p.microbatch));
            break;
        }
        text += ";";
    }
    text.back() = '.';
    throw input_error(text);
}

/// Every pass as early as the order of its device and the dependencies allow.
///
/// Throws input_error when an order misses or repeats a pass, has one that belongs elsewhere, or when the orders wait
/// for each other in a circle (the text says where every device stands).
[[nodiscard]] constexpr schedule timed_from_orders(const schedule_problem& problem, const device_orders& orders) {
    const indexed_problem index = index_problem(problem, taken_chains::several);
    const auto m = static_cast<std::size_t>(index.microbatches);
    const auto size = static_cast<std::size_t>(index.ops()) * m;
    const std::size_t total = index.instances();
    if (orders.size() != static_cast<std::size_t>(index.devices)) {
        throw input_error("orders: not one list per device");
    }
    std::vector<char> listed(size, 0);
    std::size_t count = 0;
    for (std::size_t d = 0; d != orders.size(); ++d) {
        for (const auto& p : orders[d]) {
            const bool known = p.stage >= 0 && p.stage < static_cast<int>(problem.stages.size()) && p.microbatch >= 0 &&
                               p.microbatch < index.microbatches && problem.has(p.op) &&
                               p.microbatch >= problem.first_microbatch(p.op);
            if (!known) { throw_bad_order(d, p, "does not exist"); }
            const int op = index.op_of({p.op, p.stage});
            if (index.device[static_cast<std::size_t>(op)] != static_cast<int>(d)) {
                throw_bad_order(d, p, "belongs to another device");
            }
            char& seen = listed[static_cast<std::size_t>(op) * m + static_cast<std::size_t>(p.microbatch)];
            if (seen != 0) { throw_bad_order(d, p, "is listed twice"); }
            seen = 1;
            ++count;
        }
    }
    if (count != total) { throw input_error("orders: a pass is missing"); }

    schedule out{};
    out.devices.resize(orders.size());
    std::vector<char> done(size, 0);
    std::vector<double> end(size, 0.0);
    std::vector<std::size_t> next(orders.size(), 0);
    std::vector<double> free_at(orders.size(), 0.0);
    std::size_t placed = 0;
    while (placed != total) {
        const std::size_t before_round = placed;
        for (std::size_t d = 0; d != orders.size(); ++d) {
            for (; next[d] != orders[d].size(); ++next[d]) {
                const timed_pass& p = orders[d][next[d]];
                const auto op = static_cast<std::size_t>(index.op_of({p.op, p.stage}));
                double start = free_at[d];
                bool ready = true;
                for (const auto& link : index.before[op]) {
                    if (!index.runs_on(static_cast<std::size_t>(link.op), p.microbatch)) { continue; }
                    const auto at = static_cast<std::size_t>(link.op) * m + static_cast<std::size_t>(p.microbatch);
                    ready = ready && done[at] != 0;
                    start = std::max(start, end[at] + link.lag_us);
                }
                if (!ready) { break; }
                const auto at = op * m + static_cast<std::size_t>(p.microbatch);
                done[at] = 1;
                end[at] = free_at[d] = start + index.duration[op];
                out.devices[d].push_back({p.op, p.stage, p.microbatch, start, end[at]});
                ++placed;
            }
        }
        if (placed == before_round) { throw_deadlock(orders, next, index, done); }
    }
    return out;
}

/// The order of another plan, each pass as early as the costs of a problem allow.
[[nodiscard]] constexpr schedule retimed(const schedule_problem& problem, const schedule& order) {
    return timed_from_orders(problem, order.devices);
}

} // namespace pulse::detail
