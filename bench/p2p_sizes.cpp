#include "p2p_sizes.hpp"

#include <algorithm>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/analytic.hpp>

#include "../examples/pulse_plan/catalogue.hpp"

namespace pulse_bench {

namespace {

/// The distinct sizes of the messages of this kind in a cut, ascending.
std::vector<std::int64_t> bytes_of(pulse::message_kind kind, const pulse::partition& cut,
                                   const pulse::cost_table& costs) {
    pulse::plan planned{};
    planned.cut = cut;
    const pulse::step_model model{planned, costs};
    std::vector<std::int64_t> all{};
    for (const pulse::message_id& message : model.messages(pulse::microbatch_id{0})) {
        if (message.kind != kind) { continue; }
        std::int64_t bytes = 0;
        for (const pulse::buffer_id& part : model.parts(message, model.sender(message))) { bytes += model.bytes(part); }
        all.push_back(bytes);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

} // namespace

std::vector<p2p_size> doubling_sizes(std::int64_t most) {
    std::vector<p2p_size> sizes{};
    for (std::int64_t bytes = 8; bytes <= most; bytes *= 2) { sizes.push_back({bytes, {}}); }
    return sizes;
}

std::vector<p2p_size> model_sizes(const p2p_model& of, bool largest_only) {
    const pulse_plan::backbone_name named = pulse_plan::read_backbone_name("--model", of.name);
    const pulse_plan::backbone what{named, named.extent()};
    const pulse::graph_view graph = what.graph();
    // Which device's rates balance the cut hardly changes the sizes.
    const pulse::cost_table costs = pulse::analytic_costs(graph, pulse::a100_80gb, of.microbatch_size, of.scalar_bytes);
    std::vector<p2p_size> sizes{};
    const auto add = [&](const char* what, const std::vector<std::int64_t>& all) {
        for (const std::int64_t bytes : all) {
            if (!largest_only || bytes == all.back()) { sizes.push_back({bytes, of.name + " " + what}); }
        }
    };
    if (of.pipeline > 1) {
        add("boundary",
            bytes_of(pulse::message_kind::boundary, pulse::skip_aware_partition(costs, of.pipeline), costs));
        add("skip", bytes_of(pulse::message_kind::skip, pulse::sequential_partition(costs, of.pipeline), costs));
    }
    return joined_sizes({}, sizes);
}

std::vector<p2p_size> joined_sizes(std::vector<p2p_size> a, const std::vector<p2p_size>& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::stable_sort(a.begin(), a.end(), [](const p2p_size& x, const p2p_size& y) { return x.bytes < y.bytes; });
    std::vector<p2p_size> joined{};
    for (const p2p_size& size : a) {
        if (joined.empty() || joined.back().bytes != size.bytes) {
            joined.push_back(size);
        } else if (!size.name.empty() && joined.back().name.find(size.name) == std::string::npos) {
            joined.back().name += (joined.back().name.empty() ? "" : ", ") + size.name;
        }
    }
    return joined;
}

} // namespace pulse_bench
