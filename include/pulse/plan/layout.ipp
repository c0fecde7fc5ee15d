#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/releases.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

namespace detail {

[[noreturn]] inline void refuse_lifetime(const program& of_rank, std::size_t at, const buffer_id& buffer,
                                         const char* why) {
    throw input_error("pulse: rank " + std::to_string(of_rank.device) + ", instruction " + std::to_string(at) + " (" +
                      to_text(of_rank.instructions[at]) + "): " + to_text(buffer) + why);
}

/// One place for each value of each buffer; slots and offsets are filled in later.
[[nodiscard]] constexpr std::vector<buffer_place> lifetimes_of(const step_model& model, const program& of_rank) {
    std::vector<buffer_place> places{};
    std::vector<std::size_t> alive{}; // positions in places
    const auto find = [&](const buffer_id& buffer) {
        return std::find_if(alive.begin(), alive.end(), [&](std::size_t p) { return places[p].buffer == buffer; });
    };
    for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
        const instruction& what = of_rank.instructions[i];
        if (const auto* r = std::get_if<op::release>(&what)) {
            const auto ended = find(r->buffer);
            if (ended == alive.end()) { refuse_lifetime(of_rank, i, r->buffer, " is not alive"); }
            places[*ended].last = static_cast<int>(i);
            alive.erase(ended);
            continue;
        }
        for (const buffer_access& a : model.accesses(of_rank.device, what)) {
            const bool is_alive = find(a.buffer) != alive.end();
            if (a.mode != access::write) {
                if (!is_alive) { refuse_lifetime(of_rank, i, a.buffer, " is read before it is written"); }
                continue;
            }
            if (is_alive) { refuse_lifetime(of_rank, i, a.buffer, " is written while its old value is alive"); }
            alive.push_back(places.size());
            places.push_back({a.buffer, static_cast<int>(i), -1, model.bytes(a.buffer), -1, -1});
        }
    }
    if (!alive.empty()) {
        const buffer_place& left = places[alive.front()];
        refuse_lifetime(of_rank, static_cast<std::size_t>(left.first), left.buffer, " is never released");
    }
    return places;
}

/// Peak of live bytes over the places for which `counts` holds; sizes `rounded` up to the alignment or not.
template <class Counts>
[[nodiscard]] constexpr std::int64_t peak_of(const std::vector<buffer_place>& places, std::size_t length, bool rounded,
                                             Counts counts) {
    std::vector<std::int64_t> change(length + 1, 0);
    for (const buffer_place& p : places) {
        if (!counts(p)) { continue; }
        const std::int64_t bytes = rounded ? aligned(p.bytes) : p.bytes;
        change[static_cast<std::size_t>(p.first)] += bytes;
        change[static_cast<std::size_t>(p.last)] -= bytes;
    }
    std::int64_t live = 0;
    std::int64_t peak = 0;
    for (const std::int64_t c : change) {
        live += c;
        peak = peak < live ? live : peak;
    }
    return peak;
}

[[nodiscard]] constexpr bool in_block(const buffer_place& p) noexcept { return lies_in_block(p.buffer); }

/// First fit: places the given positions in their order, each at the lowest offset that is free for its whole lifetime;
/// returns the highest end.
[[nodiscard]] constexpr std::int64_t pack(std::vector<buffer_place>& places, const std::vector<std::size_t>& order) {
    std::vector<std::size_t> placed{}; // by offset
    std::int64_t end = 0;
    for (const std::size_t at : order) {
        buffer_place& p = places[at];
        std::int64_t offset = 0;
        for (const std::size_t other : placed) {
            const buffer_place& q = places[other];
            if (q.last < p.first || p.last < q.first) { continue; }
            if (offset + aligned(p.bytes) <= q.offset) { break; }
            offset = std::max(offset, q.offset + aligned(q.bytes));
        }
        p.offset = offset;
        end = std::max(end, offset + aligned(p.bytes));
        const auto where = std::find_if(placed.begin(), placed.end(),
                                        [&](std::size_t other) { return places[other].offset > offset; });
        placed.insert(where, at);
    }
    return end;
}

/// Packs the block in several orders and keeps the best: first fit has no best order, each of these wins sometimes.
constexpr std::int64_t pack_block(std::vector<buffer_place>& places, std::int64_t bound) {
    std::vector<std::size_t> order{};
    for (std::size_t i = 0; i != places.size(); ++i) {
        if (in_block(places[i])) { order.push_back(i); }
    }
    std::int64_t best = -1;
    std::vector<buffer_place> kept{};
    for (int rule = 0; rule != 4 && best != bound; ++rule) {
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const buffer_place& x = places[a];
            const buffer_place& y = places[b];
            const std::int64_t x_life = x.last - x.first;
            const std::int64_t y_life = y.last - y.first;
            if (rule == 0 && x.bytes != y.bytes) { return x.bytes > y.bytes; }
            if (rule <= 1 && x_life != y_life) { return x_life > y_life; }
            if (rule == 2 && x.bytes * x_life != y.bytes * y_life) { return x.bytes * x_life > y.bytes * y_life; }
            return a < b;
        });
        std::vector<buffer_place> attempt = places;
        const std::int64_t end = pack(attempt, order);
        if (best < 0 || end < best) {
            best = end;
            kept = std::move(attempt);
        }
    }
    places = std::move(kept);
    return best < 0 ? 0 : best;
}

/// Gives every place outside the block a slot of its size; as few slots as places of that size are alive at one time.
[[nodiscard]] constexpr std::vector<std::int64_t> assign_slots(std::vector<buffer_place>& places) {
    std::vector<std::int64_t> sizes{};
    std::vector<int> free_after{}; // per slot: the last instruction of its latest place
    for (buffer_place& p : places) {
        if (in_block(p)) { continue; }
        std::size_t slot = 0;
        while (slot != sizes.size() && (sizes[slot] != p.bytes || free_after[slot] >= p.first)) { ++slot; }
        if (slot == sizes.size()) {
            sizes.push_back(p.bytes);
            free_after.push_back(-1);
        }
        p.slot = static_cast<int>(slot);
        free_after[slot] = p.last;
    }
    return sizes;
}

} // namespace detail

PULSE_CONSTEXPR memory_layout lay_out(const step_model& model, const program& of_rank) {
    memory_layout made{};
    made.places = detail::lifetimes_of(model, of_rank);
    const std::size_t length = of_rank.instructions.size();
    made.block_bound_bytes = detail::peak_of(made.places, length, true, detail::in_block);
    made.live_peak_bytes = detail::peak_of(made.places, length, false, [](const buffer_place&) { return true; });
    made.block_bytes = detail::pack_block(made.places, made.block_bound_bytes);
    made.slot_bytes = detail::assign_slots(made.places);
    made.workspace_bytes = workspace_bytes_of(model, of_rank.device);
    made.result_bytes = 2 * model.frozen().room_bytes(of_rank.device);
    return made;
}

} // namespace pulse
