#include "artifacts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/png.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/step_model.hpp>

#include "../pictures/chrome_trace.hpp"
#include "../pictures/loss_svg.hpp"
#include "../pictures/timeline_svg.hpp"

namespace pulse_train {

namespace {

double median(std::vector<double> values) {
    if (values.empty()) { return 0; }
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

} // namespace

void make_folder(const std::filesystem::path& folder, const std::string& option) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) { throw pulse::input_error{option + folder.string() + ": " + failed.message()}; }
}

run_summary summarise(const run_inputs& in, const run_results& results) {
    run_summary made;
    const std::int64_t first = results.last_step - results.steps_run;
    std::vector<std::vector<double>> seconds(in.extents.size());
    for (std::size_t i = 0; i != results.step_seconds.size(); ++i) {
        seconds[in.extent_of(first + static_cast<std::int64_t>(i))].push_back(results.step_seconds[i]);
    }
    for (std::size_t e = 0; e != seconds.size(); ++e) {
        // The first steps warm up: they meet every shape for the first time.
        const auto warm = static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, seconds[e].size() / 2));
        const double step_us = 1e6 * median({seconds[e].begin() + warm, seconds[e].end()});
        const double share = results.step_seconds.empty() ? 0.0
                                                          : static_cast<double>(seconds[e].size()) /
                                                                static_cast<double>(results.step_seconds.size());
        made.extents.push_back({static_cast<std::int64_t>(seconds[e].size()), step_us});
        made.measured_step_us += share * step_us;
        made.predicted_step_us += share * in.plan_of(e).predicted.step_us;
    }
    if (in.others.empty()) { made.predicted_step_us = in.plan.predicted.step_us; }
    const double samples = static_cast<double>(in.samples_of_step());
    made.samples_per_s = made.measured_step_us > 0 ? 1e6 * samples / made.measured_step_us : 0.0;

    double span_us = 0;
    for (const auto& e : results.events) { span_us = std::max(span_us, e.kind == 'O' ? e.start_us : e.end_us); }
    if (span_us > 0) { made.bubble_ratio = std::max(0.0, 1.0 - results.busy_us / (in.ranks() * span_us)); }

    // Over all replicas, like the counted bytes, and of the traced step's extent.
    const std::size_t counted = in.extent_of(first + (results.steps_run > 4 ? 4 : 0));
    const pulse::plan& plan = in.plan_of(counted);
    const pulse::cost_table& costs = in.costs_of(counted);
    if (plan.cut.kind == pulse::placement::sequential && plan.routing == pulse::skip_routing::relayed) {
        made.sequential_relayed_bytes = (plan.predicted.boundary_bytes + plan.predicted.skip_bytes) * plan.data_degree;
    } else if (plan.further_chains.empty() && plan.pipeline_degree <= static_cast<int>(costs.layers.size())) {
        const pulse::partition cut = pulse::sequential_partition(
            costs, plan.pipeline_degree, {.slack = in.args.planning.slack, .routing = pulse::skip_routing::relayed});
        made.sequential_relayed_bytes =
            pulse::traffic_of(cut, costs, pulse::skip_routing::relayed).total() * plan.microbatches * plan.data_degree;
    }
    return made;
}

void make_folder(const run_inputs& in) { make_folder(in.args.out, "--out: "); }

std::filesystem::path drawing_folder(const run_inputs& in, std::int64_t step) {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
    return in.file(drawn_name) / name;
}

bool goes_on_in_its_folder(const run_inputs& in) {
    if (in.resume_from.empty()) { return false; }
    std::error_code failed;
    const auto folder = std::filesystem::weakly_canonical(in.args.out, failed);
    const auto from = std::filesystem::weakly_canonical(in.resume_from, failed);
    return !failed && std::mismatch(folder.begin(), folder.end(), from.begin(), from.end()).first == folder.end();
}

std::array<std::filesystem::path, 2> folders_of_resumed(const run_inputs& in) {
    std::filesystem::path checkpoint = std::filesystem::absolute(in.resume_from);
    // "step-00000012/." too; lexically_normal() would not follow the link in "link/.."
    while (checkpoint.has_relative_path() && (!checkpoint.has_filename() || checkpoint.filename() == ".")) {
        checkpoint = checkpoint.parent_path();
    }
    const std::filesystem::path beside = checkpoint.parent_path();
    return {beside, beside.parent_path()};
}

void open_folder(const run_inputs& in) {
    make_folder(in);
    pulse::save_plans(in.planned().plans(), in.file("plan.json"));
    if (!in.engines.empty()) {
        pulse::io::write_file(in.file(engines_name), in.engines);
    } else if (!in.args.plan_only) { // a resumed run must not take another run's
        std::filesystem::remove(in.file(engines_name));
    }
}

void write_artifacts(const run_inputs& in, const run_results& results, const run_summary& summary) {
    std::vector<std::pair<double, double>> validation;
    for (const validation_loss& one : results.validation) {
        validation.emplace_back(static_cast<double>(one.step), one.loss);
    }
    pulse::io::write_file(in.file("loss.svg"),
                          pictures::loss_svg(results.losses, {.first_step = static_cast<std::size_t>(
                                                                  results.last_step - results.steps_run + 1),
                                                              .validation = validation}));
    const std::string title = in.plan.model.str() + " on " + std::to_string(in.ranks()) + " ranks, " +
                              std::string{pulse::name_of(in.plan.cut.kind)} + " placement: one training step";
    pulse::io::write_file(in.file("timeline.svg"), pictures::timeline_svg(results.events, {.title = title}));
    pulse::io::write_file(in.file("trace.json"), pictures::chrome_trace(results.events));

    nlohmann::ordered_json report{
        {"format", "pulse-report/1"},
        {"ranks", in.ranks()},
        {"steps", results.steps_run},
        {"loss", results.losses},
        {"samples_per_s", summary.samples_per_s},
        {"step_us", summary.predicted_step_us},
        {"measured_step_us", summary.measured_step_us},
        {"bubble_ratio", summary.bubble_ratio},
        {"bytes_per_step",
         {{"boundary", results.boundary_bytes}, {"skip", results.skip_bytes}, {"gradient", results.gradient_bytes}}},
        {"sequential_relayed_bytes_per_step", summary.sequential_relayed_bytes},
        {"encode_seconds", results.encode_seconds},
        {"captions_cut", results.captions_cut},
        {"planned_peak_bytes", results.planned_bytes},
        {"measured_peak_bytes", results.measured_bytes}};
    for (std::size_t e = 0; e != in.extents.size() && !in.others.empty(); ++e) {
        report["extents"].push_back({{"height", in.extents[e].extent.height},
                                     {"width", in.extents[e].extent.width},
                                     {"steps", summary.extents[e].steps},
                                     {"step_us", in.plan_of(e).predicted.step_us},
                                     {"measured_step_us", summary.extents[e].measured_step_us}});
    }
    const std::vector<int> times = in.validation_times();
    for (const validation_loss& one : results.validation) {
        nlohmann::ordered_json at_time;
        for (std::size_t k = 0; k != one.at_time.size(); ++k) { at_time[std::to_string(times[k])] = one.at_time[k]; }
        report["validation"].push_back({{"step", one.step}, {"loss", one.loss}, {"at", at_time}});
    }
    pulse::io::write_file(in.file("report.json"), report.dump(2) + "\n");
}

void write_pictures(const std::filesystem::path& of_drawing, const arguments& a, const std::vector<float>& images,
                    const sample_shape& shape) {
    const std::filesystem::path folder = of_drawing / pictures_name;
    make_folder(folder);
    std::string lines;
    for (std::size_t i = 0; i != images.size() / shape.elements(); ++i) {
        char name[16];
        std::snprintf(name, sizeof name, "%04zu.png", i);
        const auto one = std::span{images}.subspan(i * shape.elements(), shape.elements());
        pulse::io::write_png(folder / name, pulse::io::image_grid(one, shape.height, shape.width, shape.channels,
                                                                  {.columns = 1, .scale = 1, .gap = 0}));
        nlohmann::json line{{"file_name", name}};
        if (a.classes.empty()) {
            line["text"] = a.prompts[i % a.prompts.size()];
        } else {
            line["class"] = a.classes[i % a.classes.size()];
        }
        lines += line.dump() + "\n";
    }
    pulse::io::write_file(folder / "metadata.jsonl", lines);
}

void write_samples(const std::filesystem::path& file, const arguments& a, const std::vector<float>& images,
                   const sample_shape& shape) {
    make_folder(file.parent_path());
    const auto channels = static_cast<std::size_t>(shape.channels);
    const bool pictures = channels == 1 || channels == 3;
    std::vector<float> first;
    for (std::size_t i = 0; !pictures && i < images.size(); i += channels) { first.push_back(images[i]); }
    // A few prompts that are drawn repeatedly get a column each.
    pulse::io::grid_options options;
    const std::size_t asked = a.prompts.size() + a.classes.size();
    if (asked > 1 && asked <= 16 && asked * shape.elements() < images.size()) {
        options.columns = static_cast<int>(asked);
    }
    const auto grid = pulse::io::image_grid(pictures ? images : first, shape.height, shape.width,
                                            pictures ? shape.channels : 1, options);
    pulse::io::write_png(file, grid);
}

namespace {

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

void print_measured(const run_inputs& in, const run_results& results, const run_summary& summary) {
    std::printf("step time       %9.1f ms measured (simulated: %.1f ms), %.1f samples/s\n",
                summary.measured_step_us * 1e-3, summary.predicted_step_us * 1e-3, summary.samples_per_s);
    for (std::size_t e = 0; e != in.extents.size() && !in.others.empty(); ++e) {
        std::printf("  %4d x %-4d    %9.1f ms in %lld steps (simulated: %.1f ms)\n", in.extents[e].extent.height,
                    in.extents[e].extent.width, summary.extents[e].measured_step_us * 1e-3,
                    static_cast<long long>(summary.extents[e].steps), in.plan_of(e).predicted.step_us * 1e-3);
    }
    std::printf("bubble          %9.1f %% of the ranks' time, measured in one step\n", 100 * summary.bubble_ratio);
    const std::int64_t crossed = results.boundary_bytes + results.skip_bytes;
    std::printf("across devices  %9.2f MiB a step: boundary %.2f, skip %.2f, as the transport counted\n", mib(crossed),
                mib(results.boundary_bytes), mib(results.skip_bytes));
    if (in.plan.pipeline_degree > 1 && in.plan.further_chains.empty()) {
        const double ratio = static_cast<double>(crossed) / static_cast<double>(summary.sequential_relayed_bytes);
        std::printf(
            "                %9.2f MiB a step would cross in a sequential placement that relays skips: %+.0f %%\n",
            mib(summary.sequential_relayed_bytes), 100.0 * (ratio - 1.0));
    }
    if (in.plan.data_degree > 1) {
        const pulse::step_model model{in.plan, in.costs};
        const std::int64_t planned = pulse::replica_traffic_bytes(model, in.plan.data_degree, in.kept);
        std::printf("gradients       %9.2f MiB a step between replicas, %.2f planned\n", mib(results.gradient_bytes),
                    mib(planned));
    }
    if (results.encode_seconds > 0) {
        std::printf("encoding        %9.1f ms a step %s: text and pictures %s\n",
                    1e3 * results.encode_seconds / static_cast<double>(results.steps_run),
                    in.plan.frozen_tasks.empty() ? "before it begins" : "in that before it, on the rank with most",
                    !in.args.cache.empty() ? "of --cache" : "by frozen networks");
    }
    if (results.captions_cut > 0) {
        std::printf("captions        %9lld were longer than the text encoder takes, and cut\n",
                    static_cast<long long>(results.captions_cut));
    }
    if (!in.engines_report.empty()) { std::printf("engines         %s", in.engines_report.c_str()); }
    for (std::size_t r = 0; r != results.planned_bytes.size(); ++r) {
        std::printf("memory, rank %zu  %9.1f MiB planned, %.1f measured\n", r, mib(results.planned_bytes[r]),
                    mib(results.measured_bytes[r]));
    }
}

} // namespace

void print_summary(const run_inputs& in, const run_results& results, const run_summary& summary, bool has_samples,
                   bool has_metrics) {
    const std::string replicas =
        in.plan.data_degree > 1 ? " in " + std::to_string(in.plan.data_degree) + " replicas" : std::string{};
    std::printf("\n%d ranks%s, %s placement, %zu stages, %d microbatches of %d\n", in.ranks(), replicas.c_str(),
                std::string{pulse::name_of(in.plan.cut.kind)}.c_str(), in.plan.cut.stages.size(), in.plan.microbatches,
                in.plan.microbatch_size);
    for (const pulse::stage& s : in.plan.cut.stages) {
        const auto& first = in.costs.layers[static_cast<std::size_t>(s.first_layer)];
        const auto& last = in.costs.layers[static_cast<std::size_t>(s.last_layer)];
        std::printf("  stage %d on rank %d: %s to %s\n", s.index, s.device, first.name.chars, last.name.chars);
    }
    if (results.steps_run > 0) {
        print_measured(in, results, summary);
    } else {
        std::printf("no step was left to run: step %lld is done\n", static_cast<long long>(results.last_step));
    }
    std::puts("\nwritten:");
    for (const char* name : {samples_name, first_samples_name, pictures_name, drawn_name, "loss.svg", metrics_name,
                             tensorboard_name, "timeline.svg", "trace.json", checkpoints_name, best_name,
                             checkpoint_name, "plan.json", engines_name, "report.json"}) {
        const bool drawn = name == std::string_view{samples_name};
        const bool by_prompt = name == std::string_view{pictures_name};
        if ((drawn && !has_samples) || (by_prompt && (!has_samples || !in.args.draws_pictures()))) { continue; }
        if (name == std::string_view{best_name} && !in.args.keep_best) { continue; }
        if (name == std::string_view{engines_name} && in.engines.empty()) { continue; }
        const bool of_first = name == std::string_view{first_samples_name};
        if (of_first && (!has_samples || in.args.cascade_with.empty())) { continue; }
        const bool sometimes = name == std::string_view{drawn_name} || name == std::string_view{best_name};
        if (sometimes && !std::filesystem::exists(in.file(name))) { continue; }
        const bool metric = name == std::string_view{metrics_name} || name == std::string_view{tensorboard_name};
        if (metric && !has_metrics) { continue; }
        std::printf("  %s\n", in.file(name).c_str());
    }
    for (const std::string& exported : {in.args.export_to, in.args.cascade_export}) {
        if (!exported.empty()) { std::printf("  %s\n", exported.c_str()); }
    }
    // The signal may have reached another rank.
    if (in.stop->load() || (results.last_step < in.args.steps && in.args.time_limit_s == 0)) {
        std::printf("\nstopped after step %lld; the same command with --resume %s goes on\n",
                    static_cast<long long>(results.last_step), in.file(checkpoints_name).c_str());
    }
}

} // namespace pulse_train
