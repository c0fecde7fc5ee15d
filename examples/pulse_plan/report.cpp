#include "report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <pulse/core/text_table.hpp>
#include <pulse/tune/plan_summary.hpp>

namespace pulse_plan {

using pulse::number_text;
using pulse::percent_text;

namespace {

std::string bytes(std::int64_t value) { return pulse::bytes_text(static_cast<double>(value)); }

} // namespace

std::string heading_text(const arguments& a, const pulse::tuning& found) {
    const pulse::cost_table& costs = found.costs;
    std::int64_t parameter_bytes = 0;
    for (const pulse::layer_cost& layer : costs.layers) { parameter_bytes += layer.parameter_bytes; }
    std::size_t residuals = 0;
    for (const pulse::skip_cost& edge : costs.skips) { residuals += edge.residual ? 1 : 0; }
    std::string text = costs.model.str() + " on " + std::to_string(a.asked.devices) + " x " +
                       (costs.device.empty() ? "device" : costs.device.str()) + ": ";
    text += a.profile.empty() ? pulse::grouped(pulse::elements_of(parameter_bytes, found.kept)) + " parameters"
                              : bytes(parameter_bytes) + " of parameters";
    text += ", " + std::to_string(costs.layers.size()) + " layers, " + std::to_string(costs.skips.size() - residuals) +
            " skip edges";
    if (residuals > 0) { text += ", " + std::to_string(residuals) + " residual edges"; }
    text += "; " + pulse::to_text(found.kept) + "\n";
    for (const std::string& assumption : found.assumptions) { text += "assumed: " + assumption + "\n"; }
    return text;
}

std::string ranking_text(const pulse::tuning& found) {
    std::string text = "the best of " + std::to_string(found.rows.size()) + " candidates (" +
                       std::to_string(found.evaluations) + " scheduled)\n";
    pulse::text_table table;
    table.row({"", "candidate", "step ms", "samples/s", "bubble", "peak", "boundaries", "skips", "gradients"});
    constexpr std::size_t shown = 10;
    for (std::size_t i = 0; i < std::min(shown, found.ranking.size()); ++i) {
        const pulse::tune_row& row = found.rows[found.ranking[i]];
        table.row({std::to_string(i + 1), pulse::to_text(row.candidate), number_text(row.step_us * 1e-3, 2),
                   number_text(row.samples_per_s, 2), percent_text(row.bubble_ratio), bytes(row.peak_memory_bytes),
                   bytes(row.boundary_bytes), bytes(row.skip_bytes), bytes(row.gradient_bytes)});
    }
    text += table.str(2);
    if (found.rows.size() > 1) { text += "why the others lost\n"; }
    std::map<pulse::tune_verdict, const pulse::tune_row*> examples;
    for (const pulse::tune_row& row : found.rows) { examples.try_emplace(row.verdict, &row); }
    for (const auto& [verdict, example] : examples) {
        if (verdict == pulse::tune_verdict::best) { continue; }
        text += "  " + std::string{pulse::name_of(verdict)} + ": " + std::to_string(found.count(verdict)) +
                ", such as " + pulse::to_text(example->candidate) + ": " + example->reason + "\n";
    }
    if (found.indivisible > 0) {
        text += "not tried: " + std::to_string(found.indivisible) +
                " combinations of degrees and microbatch sizes that do not multiply to the global batch\n";
    }
    if (found.unmet > 0) {
        text += "not tried: " + std::to_string(found.unmet) + " candidates that the schedule or the split is not for\n";
    }
    return text;
}

} // namespace pulse_plan
