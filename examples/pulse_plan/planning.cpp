#include "planning.hpp"

#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/tune/plan_summary.hpp>

#include "../pictures/chrome_trace.hpp"
#include "../pictures/timeline_svg.hpp"
#include "picture.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "request.hpp"
#include "torch_folder.hpp"

namespace pulse_plan {

namespace {

/// Reports an unwritable file before the search instead of after it.
void require_folder_of(const char* option, const std::string& file) {
    if (file.empty()) { return; }
    const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
    std::error_code fault;
    if (!std::filesystem::is_directory(folder, fault)) {
        throw pulse::input_error(std::string{option} + ": there is no folder " + folder.string());
    }
    if (std::filesystem::is_directory(file, fault)) {
        throw pulse::input_error(std::string{option} + ": " + file + " is a folder");
    }
}

/// Compares with the plan without frozen networks, which is made separately; empty if the search for it is stopped.
std::string comparison_text(arguments a, const pulse::tuning& found, const std::stop_token& stop) {
    a.asked.frozen = pulse::frozen_mode::none;
    a.asked.seconds = 0;
    if (a.asked.schedule == pulse::schedule_method::ilp) { a.asked.schedule.reset(); }
    try {
        const pulse::tuning without = plan_of(a);
        if (without.finished) { return frozen_text(found, without) + '\n'; }
    } catch (const pulse::error&) {
        if (!stop.stop_requested()) { throw; }
    }
    return {};
}

void write_pictures(const arguments& a, const pulse::tuning& found) {
    if (a.svg.empty() && a.trace.empty()) { return; }
    const simulated_step step = simulate_step(found);
    if (!a.svg.empty()) {
        std::string title = "One step of " + found.plan.model.str() + ": " + pulse::to_text(found.best_candidate());
        if (found.plan.data_degree > 1) { title += " (passes of one pipeline; the gradients' reduction follows)"; }
        pulse::io::write_file(a.svg,
                              pictures::timeline_svg(step.events, {.title = title, .width = 1600}, step.counters));
    }
    if (!a.trace.empty()) { pulse::io::write_file(a.trace, pictures::chrome_trace(step.events, step.counters)); }
}

} // namespace

void make_plan(const arguments& a, const std::stop_token& stop) {
    require_folder_of("--out", a.out);
    require_folder_of("--svg", a.svg);
    require_folder_of("--trace", a.trace);
    if (!a.torch.empty()) { require_torch_runs(a); }
    progress shown;
    arguments watched = a;
    watched.asked.stop = stop;
    if (!a.torch.empty()) { watched.asked.frozen = pulse::frozen_mode::none; }
    watched.asked.progress = [&shown](const pulse::tune_progress& state) { shown.tuning(state); };
    watched.asked.search_progress = [&shown](const pulse::synthesis_progress& state) { shown.solving(state); };
    pulse::cascade_tuning both{};
    if (!a.cascade_with.empty()) { both = cascade_of(watched); }
    const pulse::tuning found = a.cascade_with.empty() ? plan_of(watched) : both;
    shown.clear();

    std::cout << heading_text(a, found);
    if (!found.finished) { std::cout << "stopped before the search ended: the best plan so far\n"; }
    std::cout << pulse::plan_summary(found) << '\n';
    if (!a.cascade_with.empty()) { std::cout << cascade_text(both) << '\n'; }
    if (!found.plan.frozen_hosts.empty() && !stop.stop_requested()) {
        std::cout << comparison_text(watched, found, stop);
    }
    std::cout << ranking_text(found);
    if (!a.out.empty()) { pulse::save_plans(found.plans(), a.out); }
    write_pictures(a, found);
    if (!a.torch.empty()) { write_torch_folder(a.torch, found); }
    for (const std::string* file : {&a.out, &a.svg, &a.trace, &a.torch}) {
        if (!file->empty()) { std::cout << "wrote " << *file << '\n'; }
    }
}

} // namespace pulse_plan
