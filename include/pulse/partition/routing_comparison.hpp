#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// What one device sends another for one microbatch.
struct link_use {
    int from{};
    int to{};
    int messages{};
    std::int64_t bytes{};
    double us{}; ///< time that the link is occupied: every message takes its latency and its bytes

    [[nodiscard]] constexpr bool operator==(const link_use&) const = default;
};

/// Every pair of devices that exchange anything under `cut`, by (from, to), forward and backward together: a boundary
/// is one message and relayed skips ride on it, a direct skip is a message of its own. The bytes sum up to traffic_of.
[[nodiscard]] constexpr std::vector<link_use> link_uses(const partition& cut, const cost_table& costs,
                                                        skip_routing routing, const link& between) {
    const auto devices = static_cast<std::size_t>(cut.devices);
    std::vector<link_use> all(devices * devices, link_use{});
    const auto send = [&](int from, int to, std::int64_t bytes, std::int64_t frozen) {
        for (const bool back : {false, true}) {
            const int a = back ? to : from;
            const int b = back ? from : to;
            link_use& use = all[static_cast<std::size_t>(a) * devices + static_cast<std::size_t>(b)];
            use.from = a;
            use.to = b;
            ++use.messages;
            use.bytes += back ? bytes - frozen : bytes;
            use.us += between.transfer_us(back ? bytes - frozen : bytes);
        }
    };
    const auto device_at = [&](int s) { return cut.stages[static_cast<std::size_t>(s)].device; };
    for (int s = 0; s + 1 < static_cast<int>(cut.stages.size()); ++s) {
        if (device_at(s) == device_at(s + 1)) { continue; }
        std::int64_t bytes = boundary_bytes(costs, cut.stages[static_cast<std::size_t>(s)].last_layer);
        for (const skip_cost& edge : costs.skips) {
            const int from = stage_of(cut.stages, edge.from);
            const int to = stage_of(cut.stages, edge.to);
            const bool rides = routing == skip_routing::relayed && device_at(from) != device_at(to);
            if (rides && from <= s && s < to) { bytes += edge.bytes; }
        }
        send(device_at(s), device_at(s + 1), bytes, costs.frozen_conditioning_bytes);
    }
    for (const skip_cost& edge : costs.skips) {
        const int from = device_at(stage_of(cut.stages, edge.from));
        const int to = device_at(stage_of(cut.stages, edge.to));
        if (routing == skip_routing::direct && from != to) { send(from, to, edge.bytes, 0); }
    }
    std::erase_if(all, [](const link_use& use) { return use.messages == 0; });
    return all;
}

/// One way to cut a model over P devices and to send its skips, and what that costs for one microbatch.
struct routing_choice {
    std::string_view name{}; ///< "collocated", "relayed" or "direct"
    bool feasible{};
    std::string why_not{}; ///< when it is not
    partition cut{};
    skip_routing routing{};
    partition_report report{};
    double transfer_us{}; ///< all messages, one after the other
    link_use busiest{};   ///< the link that is occupied longest; no messages when nothing is sent
    bool link_binds{};    ///< whether that takes longer than the greatest device load
};

/// The same model under folded placement, where every skip stays on its device, and under sequential placement with
/// skips relayed and direct: which of them sends least is not the same for every model and P.
struct routing_comparison {
    routing_choice collocated{};
    routing_choice relayed{};
    routing_choice direct{};

    /// The feasible choice that sends the fewest bytes, the first of equals; one always is feasible when P <= layers.
    [[nodiscard]] constexpr const routing_choice& least_bytes() const noexcept {
        const routing_choice* best = &collocated;
        for (const routing_choice* other : {&relayed, &direct}) {
            if (!other->feasible) { continue; }
            if (!best->feasible || other->report.bytes.total() < best->report.bytes.total()) { best = other; }
        }
        return *best;
    }
};

namespace detail {

template <class Cut>
[[nodiscard]] constexpr routing_choice judge_choice(std::string_view name, const cost_table& costs,
                                                    skip_routing routing, const link& between,
                                                    const std::vector<double>& device_speed, const Cut& make_cut) {
    routing_choice choice{};
    choice.name = name;
    choice.routing = routing;
    try {
        choice.cut = make_cut();
    } catch (const infeasible_error& e) {
        choice.why_not = e.what();
        return choice;
    }
    choice.feasible = true;
    choice.report = report_of(choice.cut, costs, routing, device_speed);
    for (const link_use& use : link_uses(choice.cut, costs, routing, between)) {
        choice.transfer_us += use.us;
        if (choice.busiest.messages == 0 || use.us > choice.busiest.us ||
            (use.us == choice.busiest.us && use.bytes > choice.busiest.bytes)) {
            choice.busiest = use;
        }
    }
    choice.link_binds = choice.busiest.us > choice.report.max_load_us;
    return choice;
}

} // namespace detail

/// Cuts the model in the three ways, each for its own objective with the slack and speeds of `options`; its memory
/// model holds for the folded cut alone, its routing for the residual edges there. `between` joins every two devices.
///
/// Throws input_error as skip_aware_partition does; a way without a cut is not an error but says why it has none.
[[nodiscard]] inline routing_comparison compare_routings(const cost_table& costs, int devices, int waves,
                                                         const link& between, const skip_aware_options& options = {}) {
    const auto sequential = [&](skip_routing routing) {
        return detail::judge_choice(routing == skip_routing::relayed ? "relayed" : "direct", costs, routing, between,
                                    options.device_speed, [&] {
                                        sequential_options chain{};
                                        chain.slack = options.slack;
                                        chain.routing = routing;
                                        chain.device_speed = options.device_speed;
                                        return sequential_partition(costs, devices, chain);
                                    });
    };
    return {detail::judge_choice("collocated", costs, options.routing, between, options.device_speed,
                                 [&] { return skip_aware_partition(costs, devices, waves, options); }),
            sequential(skip_routing::relayed), sequential(skip_routing::direct)};
}

namespace detail {

[[nodiscard]] inline std::string short_number(double value) {
    const auto tenths = static_cast<std::int64_t>(value * 10.0 + 0.5);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

} // namespace detail

/// One line on a choice: bytes and transfer time per microbatch, the greatest device load, and what binds. With `costs`
/// the binding stage is named by its layers.
[[nodiscard]] inline std::string to_text(const routing_choice& choice, const cost_table& costs) {
    const std::string name{choice.name};
    if (!choice.feasible) { return name + ": impossible: " + choice.why_not; }
    const partition_report& r = choice.report;
    std::string text = name + ": " + std::to_string(r.bytes.total()) + " bytes between devices (" +
                       std::to_string(r.bytes.skip()) + " of skips), " + detail::short_number(choice.transfer_us) +
                       " us of transfers; ";
    if (choice.link_binds) {
        const link_use& use = choice.busiest;
        return text + "the link " + std::to_string(use.from) + " -> " + std::to_string(use.to) + " binds with " +
               detail::short_number(use.us) + " us for " + std::to_string(use.messages) +
               (use.messages == 1 ? " message of " : " messages of ") + std::to_string(use.bytes) +
               " bytes, above the greatest device load of " + detail::short_number(r.max_load_us) + " us";
    }
    const stage& heaviest = choice.cut.stages[static_cast<std::size_t>(r.binding_stage)];
    text += "device " + std::to_string(r.binding_device) + " binds with " + detail::short_number(r.max_load_us) +
            " us, most of it in stage " + std::to_string(r.binding_stage) + " (" +
            costs.layers[static_cast<std::size_t>(heaviest.first_layer)].name.str() + " to " +
            costs.layers[static_cast<std::size_t>(heaviest.last_layer)].name.str() + ")";
    if (choice.busiest.messages == 0) { return text + "; no link is used"; }
    return text + "; the busiest link, " + std::to_string(choice.busiest.from) + " -> " +
           std::to_string(choice.busiest.to) + ", takes " + detail::short_number(choice.busiest.us) + " us";
}

/// Three lines, one per choice, and a fourth that says which sends least.
[[nodiscard]] inline std::string to_text(const routing_comparison& compared, const cost_table& costs) {
    std::string text{};
    for (const routing_choice* choice : {&compared.collocated, &compared.relayed, &compared.direct}) {
        text += to_text(*choice, costs) + "\n";
    }
    const routing_choice& best = compared.least_bytes();
    return text + (best.feasible ? "fewest bytes: " + std::string{best.name} : std::string{"no choice is possible"}) +
           "\n";
}

} // namespace pulse
