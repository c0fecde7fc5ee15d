#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

/// How a folded placement is cut.
enum class fold_cut : std::uint8_t {
    collocated, ///< both ends of every skip on one device
    balanced,   ///< by load alone, as by planners that know no skips: skips cross wherever their ends happen to fall
};

/// One point of the tuner's space: everything but the cut and the order of passes, which follow from it.
struct tune_candidate {
    int pipeline_degree{1};
    int data_degree{1};
    /// Folded: waves; interleaved: chunks on a device; sequential: 1.
    int waves{1};
    int microbatch_size{1};
    int microbatches{1};
    placement kind{placement::folded};
    skip_routing routing{skip_routing::direct};
    bool split_backward{true};
    /// Selective without flags: the stages are not chosen yet.
    stage_recomputation recompute{};
    rank_layout layout{rank_layout::pipeline_inside};
    schedule_method method{schedule_method::list};
    /// Slack of the cut: how much longer than the least load a device may work to save bytes.
    double slack{};
    fold_cut fold{fold_cut::collocated};
    /// Each replica keeps a share of the optimizer's state (ZeRO, stage 1); no effect with one replica.
    bool sharded_optimizer{};

    [[nodiscard]] constexpr bool operator==(const tune_candidate&) const = default;
};

/// Options that are the same for every candidate.
struct candidate_options {
    /// What a rank keeps for each parameter; whether replicas shard the state is up to the candidate.
    parameter_memory kept{};
    /// Rate at which the optimizer reads and writes that, used if the costs have no measured rate; 0: its time does not
    /// count.
    double memory_gb_per_s{};
    /// Per device; 0: the memory of the cluster's devices, and unlimited if that is 0, too.
    std::int64_t memory_limit_bytes{};
    /// How replicas exchange gradients, unless the replicas of a node sum first.
    replica_exchange exchange{replica_exchange::direct};
    /// Effort of the list scheduler.
    list_options list{};
    /// Half of the microbatches have a preview; their number must be even.
    bool self_conditioning{};
    /// Plans release gradients (plan::gradient_release).
    bool gradient_release{};
};

/// Time of a device's optimizer, us.
[[nodiscard]] constexpr double optimizer_us_of(const cost_table& costs, const candidate_options& options,
                                               const parameter_memory& kept, std::int64_t parameter_bytes) noexcept {
    const double measured = costs.optimizer_gb_per_s;
    return optimizer_us(parameter_bytes, kept, measured > 0 ? measured : options.memory_gb_per_s);
}

/// Memory limits of the devices of a candidate's pipeline: the limit asked for or else the device's memory; on unlike
/// devices the smaller of both, for the replica with the least.
[[nodiscard]] constexpr memory_limits memory_limits_of(const cluster& machine, const tune_candidate& c,
                                                       const candidate_options& options) {
    const std::int64_t asked = options.memory_limit_bytes;
    if (machine.unlike.empty()) { return asked > 0 ? asked : machine.memory_bytes; }
    const rank_grid grid{c.layout, c.pipeline_degree, c.data_degree};
    return memory_limits{grid.least_of_replicas([&](int device) {
        return asked > 0 ? std::min(asked, machine.memory_of(device)) : machine.memory_of(device);
    })};
}

/// What each rank of a candidate keeps for its parameters.
[[nodiscard]] constexpr parameter_memory parameter_memory_of(const candidate_options& options,
                                                             const tune_candidate& c) noexcept {
    parameter_memory kept = options.kept;
    kept.sharded = c.sharded_optimizer && c.data_degree > 1;
    return kept;
}

/// Why a candidate cannot be planned with previews, in one clause; empty if it can.
[[nodiscard]] constexpr std::string_view unmet_by_previews(const tune_candidate& c) noexcept {
    if (c.microbatches % 2 != 0) { return "self-conditioning needs an even number of microbatches"; }
    if (c.method != schedule_method::list && c.method != schedule_method::gpipe) {
        return "self-conditioning needs the schedule method list or gpipe: no other method orders previews";
    }
    return {};
}

/// A candidate in a few words: degrees, placement, sizes.
[[nodiscard]] inline std::string to_text(const tune_candidate& c) {
    std::string text = "P" + std::to_string(c.pipeline_degree) + " D" + std::to_string(c.data_degree) + " " +
                       std::string{name_of(c.kind)};
    if (c.waves > 1) { text += (c.kind == placement::folded ? " W" : " x") + std::to_string(c.waves); }
    text += ", " + std::to_string(c.microbatches) + " x " + std::to_string(c.microbatch_size) + " samples";
    if (c.pipeline_degree > 1) {
        text += c.split_backward ? ", split" : ", unsplit";
        if (c.kind != placement::folded) { text += c.routing == skip_routing::relayed ? ", relayed" : ", direct"; }
    }
    const auto& flags = c.recompute.stages;
    const auto whole = std::count_if(flags.begin(), flags.end(), [](char flag) { return flag != 0; });
    if (c.recompute != recomputation::none && (flags.empty() || whole > 0)) {
        text += ", recompute " + std::string{name_of(c.recompute.kind)};
        if (whole > 0) { text += " (" + std::to_string(whole) + " of " + std::to_string(flags.size()) + " stages)"; }
    }
    if (c.pipeline_degree > 1 && c.data_degree > 1) { text += ", " + std::string{name_of(c.layout)}; }
    if (c.sharded_optimizer) { text += ", sharded optimizer"; }
    if (c.kind == placement::folded && c.fold == fold_cut::balanced) { text += ", cut by load"; }
    if (c.method != schedule_method::list) { text += ", " + std::string{name_of(c.method)}; }
    if (c.slack > 0) { text += ", slack " + std::to_string(c.slack).substr(0, 5); }
    return text;
}

} // namespace pulse
