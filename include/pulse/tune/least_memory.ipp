#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include <pulse/core/pass.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/least_memory.hpp>

namespace pulse {

namespace detail {

/// One microbatch alone, every W right after its B.
[[nodiscard]] constexpr schedule one_microbatch(const partition& cut, bool split) {
    schedule order{};
    order.devices.resize(static_cast<std::size_t>(cut.devices));
    double now_us = 0;
    const auto add = [&](pass op, const stage& s) {
        order.devices[static_cast<std::size_t>(s.device)].push_back({op, s.index, 0, now_us, now_us + 1});
        now_us += 1;
    };
    for (const stage& s : cut.stages) { add(pass::forward, s); }
    for (std::size_t s = cut.stages.size(); s-- > 0;) {
        add(pass::backward_input, cut.stages[s]);
        if (split) { add(pass::backward_weight, cut.stages[s]); }
    }
    return order;
}

/// What the layout of every order has room for: for each kind of room (the block, the slots of one size) the most that
/// one microbatch has in it during an F, a B or a recompute, counting a value from the first pass that touches it to
/// the last. W is left out: right after its B it needs what B needs, and an order may move it. So are sends and
/// receives, whose buffers may be released earlier under other microbatches' passes.
[[nodiscard]] constexpr std::int64_t needed_for_passes(const step_model& model, const program& alone) {
    const std::vector<buffer_place> places = lifetimes_of(model, alone);
    const std::vector<instruction>& code = alone.instructions;
    std::vector<int> first(places.size(), -1);
    std::vector<int> last(places.size(), -1);
    std::vector<std::int64_t> sizes{}; // of slots
    for (std::size_t i = 0; i != code.size(); ++i) {
        if (!is_compute(code[i])) { continue; }
        const int at = static_cast<int>(i);
        for (const buffer_access& a : model.accesses(alone.device, code[i])) {
            for (std::size_t p = 0; p != places.size(); ++p) {
                if (places[p].buffer != a.buffer || at < places[p].first || places[p].last < at) { continue; }
                if (first[p] < 0) { first[p] = at; }
                last[p] = at;
            }
        }
    }
    for (const buffer_place& p : places) {
        if (!in_block(p) && std::find(sizes.begin(), sizes.end(), p.bytes) == sizes.end()) { sizes.push_back(p.bytes); }
    }
    std::int64_t block = 0;
    std::vector<std::int64_t> slots(sizes.size(), 0);
    for (std::size_t i = 0; i != code.size(); ++i) {
        if (!is_compute(code[i]) || std::holds_alternative<op::backward_weight>(code[i])) { continue; }
        const int at = static_cast<int>(i);
        std::int64_t in_the_block = 0;
        std::vector<std::int64_t> in_slots(sizes.size(), 0);
        for (std::size_t p = 0; p != places.size(); ++p) {
            if (first[p] < 0 || at < first[p] || last[p] < at) { continue; }
            if (in_block(places[p])) {
                in_the_block += aligned(places[p].bytes);
                continue;
            }
            const auto size = std::find(sizes.begin(), sizes.end(), places[p].bytes);
            in_slots[static_cast<std::size_t>(size - sizes.begin())] += places[p].bytes;
        }
        block = std::max(block, in_the_block);
        for (std::size_t k = 0; k != sizes.size(); ++k) { slots[k] = std::max(slots[k], in_slots[k]); }
    }
    std::int64_t sum = block;
    for (const std::int64_t bytes : slots) { sum += bytes; }
    return sum;
}

} // namespace detail

PULSE_CONSTEXPR std::vector<least_memory> least_memory_of(const cost_table& costs, const partition& cut,
                                                          bool split_backward, skip_routing routing,
                                                          const stage_recomputation& recompute,
                                                          const parameter_memory& kept, int replicas,
                                                          bool gradient_release) {
    plan alone{};
    alone.pipeline_degree = cut.devices;
    alone.microbatches = 1;
    alone.split_backward = split_backward;
    alone.routing = routing;
    alone.recompute = recompute;
    alone.gradient_release = gradient_release;
    alone.cut = cut;
    alone.order = detail::one_microbatch(cut, split_backward);
    const step_model model{alone, costs};
    std::vector<least_memory> least{};
    for (const program& of_rank : lower(alone, model)) {
        const int d = of_rank.device;
        const std::int64_t rooms = replica_bytes_on(model, d, replicas, kept);
        const std::int64_t scratch = scratch_bytes_on(model, d, kept);
        least.push_back({d, kept_bytes_on(model, d, replicas, replicas - 1, kept) - rooms - scratch, rooms,
                         workspace_bytes_of(model, d) + scratch, detail::needed_for_passes(model, of_rank)});
    }
    return least;
}

} // namespace pulse
