#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] inline timed_pass read_pass(const io::json_field& field) {
    field.only({"op", "stage", "microbatch", "start_us", "end_us"});
    return {
        field["op"].one_of<pass>(
            {{"F", pass::forward}, {"B", pass::backward_input}, {"W", pass::backward_weight}, {"P", pass::preview}}),
        field["stage"].small_integer(), field["microbatch"].small_integer(), field["start_us"].number(),
        field["end_us"].number()};
}

[[nodiscard]] inline frozen_task read_frozen_task(const io::json_field& field, int device) {
    field.only({"component", "first_layer", "last_layer", "first_sample", "samples", "start_us", "end_us"});
    return {field["component"].small_integer(),  field["first_layer"].small_integer(),
            field["last_layer"].small_integer(), field["first_sample"].small_integer(),
            field["samples"].small_integer(),    device,
            field["start_us"].number(),          field["end_us"].number()};
}

/// What devices encode, which a plan has both fields for or neither.
inline void read_frozen(const io::json_field& root, plan& made) {
    if (!root.has("frozen_tasks") && !root.has("frozen_hosts")) { return; }
    for (const io::json_field& device : root["frozen_tasks"].list()) {
        const int d = static_cast<int>(made.frozen_tasks.size());
        made.frozen_tasks.emplace_back();
        for (const io::json_field& one : device.list()) {
            made.frozen_tasks.back().push_back(read_frozen_task(one, d));
        }
    }
    for (const io::json_field& device : root["frozen_hosts"].list()) {
        made.frozen_hosts.emplace_back();
        for (const io::json_field& one : device.list()) { made.frozen_hosts.back().push_back(one.small_integer()); }
    }
}

/// Lists of devices, one entry a line.
template <class Entry, class Print>
[[nodiscard]] std::string print_lists(const char* name, const std::vector<std::vector<Entry>>& devices,
                                      const Print& print) {
    std::string text = std::string(" \"") + name + "\": [";
    const char* before = "\n  [";
    for (const auto& list : devices) {
        text += before;
        before = "\n   ";
        for (const Entry& one : list) {
            text += before + print(one).dump();
            before = ",\n   ";
        }
        text += ']';
        before = ",\n  [";
    }
    return text + "],\n";
}

[[nodiscard]] inline prediction read_prediction(const io::json_field& field) {
    field.only({"step_us", "lower_bound_us", "bubble_ratio", "samples_per_s", "peak_memory_bytes", "boundary_bytes",
                "skip_bytes"});
    prediction made{};
    made.step_us = field["step_us"].number();
    made.lower_bound_us = field["lower_bound_us"].number();
    made.bubble_ratio = field["bubble_ratio"].number();
    made.samples_per_s = field["samples_per_s"].number();
    for (const io::json_field& one : field["peak_memory_bytes"].list()) {
        made.peak_memory_bytes.push_back(one.integer());
    }
    made.boundary_bytes = field["boundary_bytes"].integer();
    made.skip_bytes = field["skip_bytes"].integer();
    return made;
}

} // namespace detail

PULSE_INLINE plan parse_plan(std::string_view text, std::string_view source) {
    const nlohmann::json value = io::parse_json(text, source);
    const io::json_field root{value, {source, "the plan", "pulse-plan/1"}};
    root.only({"format",        "model",        "placement",       "pipeline_degree", "data_degree",
               "waves",         "microbatches", "microbatch_size", "split_backward",  "skip_routing",
               "recomputation", "skip_policy",  "spare_sends",     "previews",        "stages",
               "schedule",      "frozen_tasks", "frozen_hosts",    "further_chains",  "predicted"});
    if (root["format"].text() != "pulse-plan/1") { root["format"].fail("must be pulse-plan/1"); }
    plan made{};
    made.model = root["model"].name();
    made.cut.kind = root["placement"].one_of<placement>({{"folded", placement::folded},
                                                         {"sequential", placement::sequential},
                                                         {"interleaved", placement::interleaved}});
    made.pipeline_degree = made.cut.devices = root["pipeline_degree"].small_integer();
    made.data_degree = root["data_degree"].small_integer();
    made.cut.waves = root["waves"].small_integer();
    made.microbatches = root["microbatches"].small_integer();
    made.microbatch_size = root["microbatch_size"].small_integer();
    made.split_backward = root["split_backward"].boolean();
    if (root.has("skip_routing")) {
        made.routing = root["skip_routing"].one_of<skip_routing>(
            {{"direct", skip_routing::direct}, {"relayed", skip_routing::relayed}});
    }
    if (root.has("recomputation")) {
        made.recompute = root["recomputation"].one_of<recomputation>(
            {{"none", recomputation::none}, {"skips", recomputation::skips}, {"stages", recomputation::stages}});
    }
    if (root.has("skip_policy")) {
        if (root.has("recomputation")) { root["skip_policy"].fail("must not be there beside recomputation"); }
        made.recompute = root["skip_policy"].one_of<recomputation>(
            {{"resident", recomputation::none}, {"recomputed", recomputation::skips}});
    }
    if (root.has("spare_sends")) { made.spare_sends = root["spare_sends"].small_integer(); }
    if (root.has("previews")) { made.previews = root["previews"].small_integer(); }
    for (const io::json_field& one : root["stages"].list()) {
        one.only({"index", "device", "first_layer", "last_layer"});
        made.cut.stages.push_back({one["index"].small_integer(), one["device"].small_integer(),
                                   one["first_layer"].small_integer(), one["last_layer"].small_integer()});
    }
    for (const io::json_field& device : root["schedule"].list()) {
        made.order.devices.emplace_back();
        for (const io::json_field& one : device.list()) { made.order.devices.back().push_back(detail::read_pass(one)); }
    }
    detail::read_frozen(root, made);
    if (root.has("further_chains")) {
        for (const io::json_field& one : root["further_chains"].list()) {
            made.further_chains.push_back(one.small_integer());
        }
    }
    made.predicted = detail::read_prediction(root["predicted"]);
    require_valid(made, source);
    return made;
}

PULSE_INLINE std::string print_plan(const plan& planned) {
    require_valid(planned, "plan");
    using json = nlohmann::ordered_json;
    const auto field = [](const char* name, const json& value) {
        return std::string(" \"") + name + "\": " + value.dump();
    };
    std::string text{};
    try {
        text = "{\n" + field("format", "pulse-plan/1") + ",\n" + field("model", planned.model.view()) + ",\n";
    } catch (const json::exception&) { throw input_error("plan: model is not UTF-8"); }
    text += field("placement", name_of(planned.cut.kind)) + ",\n" + field("pipeline_degree", planned.pipeline_degree) +
            ",\n" + field("data_degree", planned.data_degree) + ",\n" + field("waves", planned.cut.waves) + ",\n" +
            field("microbatches", planned.microbatches) + ",\n" + field("microbatch_size", planned.microbatch_size) +
            ",\n" + field("split_backward", planned.split_backward) + ",\n" +
            field("skip_routing", planned.routing == skip_routing::direct ? "direct" : "relayed") + ",\n" +
            field("recomputation", name_of(planned.recompute)) + ",\n" + field("spare_sends", planned.spare_sends) +
            (planned.previews > 0 ? ",\n" + field("previews", planned.previews) : std::string{}) + ",\n \"stages\": [";
    const char* before = "\n  ";
    for (const stage& s : planned.cut.stages) {
        text +=
            before +
            json{{"index", s.index}, {"device", s.device}, {"first_layer", s.first_layer}, {"last_layer", s.last_layer}}
                .dump();
        before = ",\n  ";
    }
    text += "],\n" + detail::print_lists("schedule", planned.order.devices, [](const timed_pass& p) {
                return json{{"op", std::string(1, letter_of(p.op))},
                            {"stage", p.stage},
                            {"microbatch", p.microbatch},
                            {"start_us", p.start_us},
                            {"end_us", p.end_us}};
            });
    if (!planned.frozen_tasks.empty()) {
        text += detail::print_lists("frozen_tasks", planned.frozen_tasks, [](const frozen_task& t) {
            return json{{"component", t.component},   {"first_layer", t.first_layer},
                        {"last_layer", t.last_layer}, {"first_sample", t.first_sample},
                        {"samples", t.samples},       {"start_us", t.start_us},
                        {"end_us", t.end_us}};
        });
        text += field("frozen_hosts", planned.frozen_hosts) + ",\n";
    }
    if (!planned.further_chains.empty()) { text += field("further_chains", planned.further_chains) + ",\n"; }
    const prediction& p = planned.predicted;
    return text +
           field("predicted", json{{"step_us", p.step_us},
                                   {"lower_bound_us", p.lower_bound_us},
                                   {"bubble_ratio", p.bubble_ratio},
                                   {"samples_per_s", p.samples_per_s},
                                   {"peak_memory_bytes", p.peak_memory_bytes},
                                   {"boundary_bytes", p.boundary_bytes},
                                   {"skip_bytes", p.skip_bytes}}) +
           "\n}\n";
}

PULSE_INLINE plan load_plan(const std::filesystem::path& path) {
    return parse_plan(io::read_file(path), path.string());
}

PULSE_INLINE void save_plan(const plan& planned, const std::filesystem::path& path) {
    const std::string text = print_plan(planned);
    try {
        io::write_file(path, text);
    } catch (const input_error&) { throw input_error(path.string() + ": cannot be written"); }
}

} // namespace pulse
