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

/// The passes of every device, in order; the times are ignored.
using device_orders = std::vector<std::vector<timed_pass>>;

[[noreturn]] inline void throw_bad_order(std::size_t device, const timed_pass& p, const char* what) {
    throw input_error("order of device " + std::to_string(device) + ": " + describe(p) + " " + what);
}

[[noreturn]] inline void throw_deadlock(const indexed_problem& index, const std::vector<std::vector<int>>& sequences,
                                        const std::vector<std::size_t>& next, const std::vector<double>& start) {
    std::string text = "the orders deadlock:";
    const int m = index.microbatches;
    for (std::size_t d = 0; d != sequences.size(); ++d) {
        if (next[d] == sequences[d].size()) { continue; }
        const int x = sequences[d][next[d]];
        text += " device " + std::to_string(d) + " is at " + describe(index.timed(x)) + " and waits for ";
        for (const auto& link : index.before[static_cast<std::size_t>(x / m)]) {
            const int before = link.op * m + x % m;
            if (!index.runs_on(static_cast<std::size_t>(link.op), x % m)) { continue; }
            if (start[static_cast<std::size_t>(before)] >= 0) { continue; }
            text += describe(index.timed(before));
            break;
        }
        text += ";";
    }
    text.back() = '.';
    throw input_error(text);
}

/// The start of every instance, as early as the dependencies and the sequence of its device, which is free from
/// `free_us` on, allow; -1 for instances in no sequence. Throws input_error when the sequences deadlock (the text says
/// where every device stands).
[[nodiscard]] constexpr std::vector<double> earliest_starts(const indexed_problem& index,
                                                            const std::vector<std::vector<int>>& sequences,
                                                            std::vector<double> free_us) {
    const int m = index.microbatches;
    std::vector<double> start(static_cast<std::size_t>(index.ops() * m), -1.0);
    std::vector<std::size_t> next(sequences.size(), 0);
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t d = 0; d != sequences.size(); ++d) {
            for (; next[d] != sequences[d].size(); ++next[d], moved = true) {
                const int x = sequences[d][next[d]];
                const auto op = static_cast<std::size_t>(x / m);
                double at = free_us[d];
                bool ready = true;
                for (const auto& link : index.before[op]) {
                    const auto from = static_cast<std::size_t>(link.op);
                    if (!index.runs_on(from, x % m)) { continue; }
                    const double begun = start[static_cast<std::size_t>(link.op * m + x % m)];
                    ready = ready && begun >= 0;
                    at = std::max(at, begun + index.duration[from] + link.lag_us);
                }
                if (!ready) { break; }
                start[static_cast<std::size_t>(x)] = at;
                free_us[d] = at + index.duration[op];
            }
        }
    }
    for (std::size_t d = 0; d != sequences.size(); ++d) {
        if (next[d] != sequences[d].size()) { throw_deadlock(index, sequences, next, start); }
    }
    return start;
}

/// Starts every pass as early as the order of its device and the dependencies allow.
///
/// Throws input_error when an order misses or repeats a pass, has an unknown pass or one of another device, or when the
/// orders deadlock (the text says where every device stands).
[[nodiscard]] constexpr schedule timed_from_orders(const schedule_problem& problem, const device_orders& orders) {
    const indexed_problem index = index_problem(problem, taken_chains::several);
    if (orders.size() != static_cast<std::size_t>(index.devices)) {
        throw input_error("orders: must have one list per device");
    }
    std::vector<char> listed(static_cast<std::size_t>(index.ops() * index.microbatches), 0);
    std::size_t count = 0;
    std::vector<std::vector<int>> sequences(orders.size());
    for (std::size_t d = 0; d != orders.size(); ++d) {
        for (const auto& p : orders[d]) {
            const bool known = p.stage >= 0 && p.stage < static_cast<int>(problem.stages.size()) && p.microbatch >= 0 &&
                               p.microbatch < index.microbatches && problem.has(p.op) &&
                               p.microbatch >= problem.first_microbatch(p.op);
            if (!known) { throw_bad_order(d, p, "does not exist"); }
            if (problem.stages[static_cast<std::size_t>(p.stage)].device != static_cast<int>(d)) {
                throw_bad_order(d, p, "belongs to another device");
            }
            sequences[d].push_back(index.instance_of(p));
            char& seen = listed[static_cast<std::size_t>(sequences[d].back())];
            if (seen != 0) { throw_bad_order(d, p, "is listed twice"); }
            seen = 1;
            ++count;
        }
    }
    if (count != index.instances()) { throw input_error("orders: a pass is missing"); }
    return to_schedule(index, sequences, earliest_starts(index, sequences, std::vector<double>(orders.size(), 0.0)));
}

/// The order of another plan, with each pass as early as the costs of `problem` allow.
[[nodiscard]] constexpr schedule retimed(const schedule_problem& problem, const schedule& order) {
    return timed_from_orders(problem, order.devices);
}

} // namespace pulse::detail
