#pragma once

#include <algorithm>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/tune/candidate.hpp>

namespace pulse {

PULSE_INLINE std::string to_text(const tune_candidate& c) {
    std::string text = "P" + std::to_string(c.pipeline_degree) + " D" + std::to_string(c.data_degree) + " " +
                       std::string{name_of(c.kind)};
    if (c.waves > 1) { text += (c.kind == placement::folded ? " W" : " x") + std::to_string(c.waves); }
    text += ", " + std::to_string(c.microbatches) + " x " + std::to_string(c.microbatch_size) + " samples";
    if (c.pipeline_degree > 1) {
        text += c.split_backward ? ", split" : ", unsplit";
        if (c.kind != placement::folded) { text += c.routing == skip_routing::relayed ? ", relayed" : ", direct"; }
    }
    if (c.recompute != recomputation::none) { text += ", recompute " + std::string{name_of(c.recompute.kind)}; }
    if (const auto& flags = c.recompute.stages; !flags.empty()) {
        const auto whole = std::count_if(flags.begin(), flags.end(), [](char flag) { return flag != 0; });
        text += " (" + std::to_string(whole) + " of " + std::to_string(flags.size()) + " stages)";
    }
    if (c.pipeline_degree > 1 && c.data_degree > 1) { text += ", " + std::string{name_of(c.layout)}; }
    if (c.sharded_optimizer) { text += ", sharded optimizer"; }
    if (c.kind == placement::folded && c.fold == fold_cut::balanced) { text += ", cut by load"; }
    if (c.method != schedule_method::list) { text += ", " + std::string{name_of(c.method)}; }
    if (c.slack > 0) { text += ", slack " + std::to_string(c.slack).substr(0, 5); }
    return text;
}

} // namespace pulse
