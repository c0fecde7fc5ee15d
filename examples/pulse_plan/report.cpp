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

/// "device 1", "every device", "devices 0, 2"; or "devices 0, 2 by layers" if no host runs all layers.
std::string hosts_text(const pulse::frozen_work& work, std::size_t component) {
    std::string text;
    std::size_t count = 0;
    for (std::size_t d = 0; d != work.hosts.size(); ++d) {
        if (!work.may_host(static_cast<int>(component), static_cast<int>(d))) { continue; }
        text += (count++ == 0 ? "" : ", ") + std::to_string(d);
    }
    const bool by_layers = count > 1 && !work.split.empty() && !work.split[component].empty();
    if (count > 1 && count == work.hosts.size() && !by_layers) { return "every device"; }
    return (count == 1 ? "device " : "devices ") + text + (by_layers ? " by layers" : "");
}

/// "1", "2 to 8": samples per call of a component.
std::string calls_text(const pulse::plan& of, std::size_t component) {
    int least = 0;
    int most = 0;
    for (const auto& tasks : of.frozen_tasks) {
        for (const pulse::frozen_task& t : tasks) {
            if (t.component != static_cast<int>(component)) { continue; }
            least = least == 0 ? t.samples : std::min(least, t.samples);
            most = std::max(most, t.samples);
        }
    }
    return std::to_string(least) + (most > least ? " to " + std::to_string(most) : "");
}

/// "1.18x": a step of that many microseconds relative to this one.
std::string against(const char* what, double other_us, double step_us) {
    return "  against " + pulse::duration_text(other_us) + " " + what + ": " + number_text(other_us / step_us, 3) +
           "x\n";
}

} // namespace

std::string frozen_text(const pulse::tuning& found, const pulse::tuning& without) {
    const pulse::frozen_work& work = found.frozen.work;
    const double step_us = found.plan.predicted.step_us;
    const double cached_us = without.plan.predicted.step_us;
    // Every replica encodes its own samples, on all its ranks or on one.
    const double even_us = found.frozen.work_us() / found.plan.pipeline_degree;
    const double added_us = std::max(0.0, step_us - cached_us);
    double first_pass_us = found.plan.order.makespan_us();
    for (const auto& passes : found.plan.order.devices) {
        if (!passes.empty()) { first_pass_us = std::min(first_pass_us, passes.front().start_us); }
    }
    double last_task_us = 0;
    for (const auto& tasks : found.plan.frozen_tasks) {
        for (const pulse::frozen_task& t : tasks) { last_task_us = std::max(last_task_us, t.end_us); }
    }
    std::string text = std::string{"frozen components, encoded "} +
                       (last_task_us <= first_pass_us ? "first" : "in the bubbles") + ": " +
                       pulse::duration_text(even_us) + " of every device, " +
                       percent_text(std::clamp(1 - added_us / even_us, 0.0, 1.0)) + " of it hidden\n";
    pulse::text_table table;
    table.row({"component", "hosts", "layers", "weights", "samples a call", "ms a sample", "result a sample"});
    std::int64_t cache_bytes = 0;
    for (std::size_t c = 0; c != work.components.size(); ++c) {
        const pulse::frozen_component& one = work.components[c];
        cache_bytes += one.result_bytes;
        table.row({one.name.str(), hosts_text(work, c), std::to_string(one.layers.size()), bytes(one.parameter_bytes()),
                   calls_text(found.plan, c),
                   number_text(pulse::least_work_us(one, work.samples) * 1e-3 / work.samples, 3),
                   bytes(one.result_bytes)});
    }
    text += table.str(2);
    text += against("with all ranks encoding first, alike", cached_us + even_us, step_us);
    text += against("with the first rank of a pipeline encoding first",
                    cached_us + even_us * without.plan.pipeline_degree, step_us);
    text += against("reading a cache", cached_us, step_us);
    text +=
        "  a cache has " + bytes(cache_bytes) + " a sample, " + bytes(1'000'000 * cache_bytes) + " of a million, and ";
    // All ranks make the cache once; each epoch then saves the time that encoding adds.
    const double epochs = even_us / added_us;
    return text + (epochs < 1e6 ? "wins from epoch " + std::to_string(static_cast<int>(epochs) + 1) + " on\n"
                                : std::string{"never wins\n"});
}

std::string cascade_text(const pulse::cascade_tuning& found) {
    std::string text = "each alone, on a pipeline of the same devices:\n";
    double sum_us = 0;
    for (const pulse::tuning* alone : {&found.first, &found.second}) {
        const double step_us = alone->plan.predicted.step_us;
        sum_us += step_us;
        text += "  " + alone->plan.model.str() + ": " + pulse::duration_text(step_us) + " (" +
                pulse::to_text(alone->best_row().candidate) + ")\n";
    }
    return text + "  one after the other " + pulse::duration_text(sum_us) + ": " + number_text(found.gain(), 3) +
           "x the cascade's step\n";
}

std::string heading_text(const arguments& a, const pulse::tuning& found) {
    const pulse::cost_table& costs = found.costs;
    std::int64_t parameter_bytes = 0;
    for (const pulse::layer_cost& layer : costs.layers) { parameter_bytes += layer.parameter_bytes; }
    std::string text = costs.model.str() + " on " + std::to_string(a.asked.devices) + " x " +
                       (costs.device.empty() ? "device" : costs.device.str()) + ": ";
    text += a.profile.empty() ? pulse::grouped(pulse::elements_of(parameter_bytes, found.kept)) + " parameters"
                              : bytes(parameter_bytes) + " of parameters";
    text +=
        ", " + std::to_string(costs.layers.size()) + " layers, " + std::to_string(costs.skips.size()) + " skip edges";
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
