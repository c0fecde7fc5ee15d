#pragma once

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
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

/// Reads frozen_tasks and frozen_hosts; a plan has both or neither.
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

/// One list per device, one entry per line.
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

/// Reads what the plans of all extents have in common.
[[nodiscard]] inline plan read_common(const io::json_field& root) {
    plan made{};
    made.model = root["model"].name();
    made.cut.kind = root["placement"].one_of<placement>({{"folded", placement::folded},
                                                         {"sequential", placement::sequential},
                                                         {"interleaved", placement::interleaved}});
    made.pipeline_degree = made.cut.devices = root["pipeline_degree"].small_integer();
    made.data_degree = root["data_degree"].small_integer();
    if (root.has("node_replicas")) { made.node_replicas = root["node_replicas"].small_integer(); }
    made.cut.waves = root["waves"].small_integer();
    made.microbatches = root["microbatches"].small_integer();
    made.microbatch_size = root["microbatch_size"].small_integer();
    made.split_backward = root["split_backward"].boolean();
    if (root.has("skip_routing")) {
        made.routing = root["skip_routing"].one_of<skip_routing>(
            {{"direct", skip_routing::direct}, {"relayed", skip_routing::relayed}});
    }
    if (root.has("recomputation")) {
        made.recompute = root["recomputation"].one_of<recomputation>({{"none", recomputation::none},
                                                                      {"skips", recomputation::skips},
                                                                      {"stages", recomputation::stages},
                                                                      {"selective", recomputation::selective}});
    }
    if (root.has("skip_policy")) {
        if (root.has("recomputation")) { root["skip_policy"].fail("must be absent when recomputation is given"); }
        made.recompute = root["skip_policy"].one_of<recomputation>(
            {{"resident", recomputation::none}, {"recomputed", recomputation::skips}});
    }
    if (made.recompute.kind == recomputation::selective) {
        for (const io::json_field& one : root["recomputed_stages"].list()) {
            made.recompute.stages.push_back(one.boolean() ? 1 : 0);
        }
    } else if (root.has("recomputed_stages")) {
        root["recomputed_stages"].fail("must be absent unless recomputation is selective");
    }
    if (root.has("gradient_release")) { made.gradient_release = root["gradient_release"].boolean(); }
    if (root.has("previews")) { made.previews = root["previews"].small_integer(); }
    for (const io::json_field& one : root["stages"].list()) {
        one.only({"index", "device", "first_layer", "last_layer"});
        made.cut.stages.push_back({one["index"].small_integer(), one["device"].small_integer(),
                                   one["first_layer"].small_integer(), one["last_layer"].small_integer()});
    }
    if (root.has("further_chains")) {
        for (const io::json_field& one : root["further_chains"].list()) {
            made.further_chains.push_back(one.small_integer());
        }
    }
    return made;
}

/// Reads the rest, for a plan or one of its extents: order and prediction.
inline void read_step(const io::json_field& from, plan& made) {
    if (from.has("spare_sends")) { made.spare_sends = from["spare_sends"].small_integer(); }
    for (const io::json_field& device : from["schedule"].list()) {
        made.order.devices.emplace_back();
        for (const io::json_field& one : device.list()) { made.order.devices.back().push_back(read_pass(one)); }
    }
    read_frozen(from, made);
    made.predicted = read_prediction(from["predicted"]);
}

/// A field as it stands in the file, without the comma.
[[nodiscard]] inline std::string print_field(const char* name, const nlohmann::ordered_json& value) {
    return std::string(" \"") + name + "\": " + value.dump();
}

[[nodiscard]] inline std::string print_recomputed(const stage_recomputation& of) {
    if (of.kind != recomputation::selective) { return {}; }
    return print_field("recomputed_stages", std::vector<bool>(of.stages.begin(), of.stages.end())) + ",\n";
}

/// Writes what read_common reads, but for further_chains; `alone` if the fields of read_step follow in the same object.
[[nodiscard]] inline std::string print_common(const plan& planned, bool alone) {
    using json = nlohmann::ordered_json;
    std::string text{};
    try {
        text = print_field("format", "pulse-plan/1") + ",\n" + print_field("model", planned.model.view()) + ",\n";
    } catch (const json::exception&) { throw input_error("plan: model is not UTF-8"); }
    text +=
        print_field("placement", name_of(planned.cut.kind)) + ",\n" +
        print_field("pipeline_degree", planned.pipeline_degree) + ",\n" +
        print_field("data_degree", planned.data_degree) + ",\n" +
        (planned.node_replicas > 1 ? print_field("node_replicas", planned.node_replicas) + ",\n" : std::string{}) +
        print_field("waves", planned.cut.waves) + ",\n" + print_field("microbatches", planned.microbatches) + ",\n" +
        print_field("microbatch_size", planned.microbatch_size) + ",\n" +
        print_field("split_backward", planned.split_backward) + ",\n" +
        print_field("skip_routing", planned.routing == skip_routing::direct ? "direct" : "relayed") + ",\n" +
        print_field("recomputation", name_of(planned.recompute.kind)) + ",\n" + print_recomputed(planned.recompute) +
        (planned.gradient_release ? print_field("gradient_release", true) + ",\n" : std::string{}) +
        (alone ? print_field("spare_sends", planned.spare_sends) + ",\n" : std::string{}) +
        (planned.previews > 0 ? print_field("previews", planned.previews) + ",\n" : std::string{}) + " \"stages\": [";
    const char* before = "\n  ";
    for (const stage& s : planned.cut.stages) {
        text +=
            before +
            json{{"index", s.index}, {"device", s.device}, {"first_layer", s.first_layer}, {"last_layer", s.last_layer}}
                .dump();
        before = ",\n  ";
    }
    return text + "],\n";
}
[[nodiscard]] inline std::string print_chains(const plan& planned) {
    return planned.further_chains.empty() ? std::string{}
                                          : print_field("further_chains", planned.further_chains) + ",\n";
}
[[nodiscard]] inline std::string print_order(const plan& planned) {
    using json = nlohmann::ordered_json;
    std::string text = print_lists("schedule", planned.order.devices, [](const timed_pass& p) {
        return json{{"op", std::string(1, letter_of(p.op))},
                    {"stage", p.stage},
                    {"microbatch", p.microbatch},
                    {"start_us", p.start_us},
                    {"end_us", p.end_us}};
    });
    if (!planned.frozen_tasks.empty()) {
        text += print_lists("frozen_tasks", planned.frozen_tasks, [](const frozen_task& t) {
            return json{{"component", t.component},   {"first_layer", t.first_layer},
                        {"last_layer", t.last_layer}, {"first_sample", t.first_sample},
                        {"samples", t.samples},       {"start_us", t.start_us},
                        {"end_us", t.end_us}};
        });
        text += print_field("frozen_hosts", planned.frozen_hosts) + ",\n";
    }
    return text;
}
[[nodiscard]] inline std::string print_prediction(const prediction& p) {
    return print_field("predicted", nlohmann::ordered_json{{"step_us", p.step_us},
                                                           {"lower_bound_us", p.lower_bound_us},
                                                           {"bubble_ratio", p.bubble_ratio},
                                                           {"samples_per_s", p.samples_per_s},
                                                           {"peak_memory_bytes", p.peak_memory_bytes},
                                                           {"boundary_bytes", p.boundary_bytes},
                                                           {"skip_bytes", p.skip_bytes}});
}

} // namespace detail

PULSE_INLINE std::vector<extent_plan> parse_plans(std::string_view text, std::string_view source) {
    const nlohmann::json value = io::parse_json(text, source);
    const io::json_field root{value, {source, "the plan", "pulse-plan/1"}};
    root.only({"format",         "model",
               "placement",      "pipeline_degree",
               "data_degree",    "waves",
               "microbatches",   "microbatch_size",
               "split_backward", "skip_routing",
               "recomputation",  "skip_policy",
               "spare_sends",    "previews",
               "stages",         "schedule",
               "frozen_tasks",   "frozen_hosts",
               "further_chains", "predicted",
               "extents",        "recomputed_stages",
               "node_replicas",  "gradient_release"});
    if (root["format"].text() != "pulse-plan/1") { root["format"].fail("must be pulse-plan/1"); }
    const plan common = detail::read_common(root);
    std::vector<extent_plan> all;
    if (!root.has("extents")) {
        all.push_back({.plan = common});
        detail::read_step(root, all.back().plan);
        require_valid(all.back().plan, source);
        return all;
    }
    for (const char* name : {"schedule", "frozen_tasks", "frozen_hosts", "spare_sends", "predicted"}) {
        if (root.has(name)) { root[name].fail("must be absent when extents are given: each extent has its own"); }
    }
    for (const io::json_field& one : root["extents"].list()) {
        one.only({"height", "width", "share", "spare_sends", "schedule", "frozen_tasks", "frozen_hosts", "predicted"});
        all.push_back({{one["height"].small_integer(), one["width"].small_integer()}, one["share"].number(), common});
        if (all.back().extent.height < 1) { one["height"].fail("must be at least 1"); }
        if (all.back().extent.width < 1) { one["width"].fail("must be at least 1"); }
        if (!(all.back().share > 0 && all.back().share <= 1)) { one["share"].fail("must be above 0 and at most 1"); }
        detail::read_step(one, all.back().plan);
        require_valid(all.back().plan, source);
    }
    double shares = 0;
    for (std::size_t e = 0; e != all.size(); ++e) {
        shares += all[e].share;
        for (std::size_t other = 0; other != e; ++other) {
            if (all[other].extent == all[e].extent) { root["extents"].fail("must differ in height or width"); }
        }
    }
    if (!(std::abs(shares - 1) < 1e-6)) { root["extents"].fail("must have shares that add up to 1"); }
    return all;
}

PULSE_INLINE plan parse_plan(std::string_view text, std::string_view source) {
    std::vector<extent_plan> all = parse_plans(text, source);
    if (all.front().extent != extent{}) {
        throw input_error(std::string{source} + ": extents: the file holds plans for " + std::to_string(all.size()) +
                          " extents; expected a single plan");
    }
    return std::move(all.front().plan);
}

PULSE_INLINE std::string print_plans(const std::vector<extent_plan>& plans) {
    if (plans.empty()) { throw input_error("plans: must not be empty"); }
    for (const extent_plan& one : plans) { require_valid(one.plan, "plan"); }
    const plan& first = plans.front().plan;
    if (plans.size() == 1 && plans.front().extent == extent{}) {
        return "{\n" + detail::print_common(first, true) + detail::print_order(first) + detail::print_chains(first) +
               detail::print_prediction(first.predicted) + "\n}\n";
    }
    const std::string common = detail::print_common(first, false) + detail::print_chains(first);
    std::string text = "{\n" + common + " \"extents\": [";
    const char* before = "\n";
    for (const extent_plan& one : plans) {
        if (detail::print_common(one.plan, false) + detail::print_chains(one.plan) != common) {
            throw input_error("plan: extents: their plans differ in more than their orders");
        }
        text += before;
        before = ",\n";
        text += "{\n" + detail::print_field("height", one.extent.height) + ",\n" +
                detail::print_field("width", one.extent.width) + ",\n" + detail::print_field("share", one.share) +
                ",\n" + detail::print_field("spare_sends", one.plan.spare_sends) + ",\n" +
                detail::print_order(one.plan) + detail::print_prediction(one.plan.predicted) + "\n}";
    }
    return text + "]\n}\n";
}

PULSE_INLINE std::string print_plan(const plan& planned) { return print_plans({{.plan = planned}}); }

PULSE_INLINE std::vector<extent_plan> load_plans(const std::filesystem::path& path) {
    return parse_plans(io::read_file(path), path.string());
}

PULSE_INLINE void save_plans(const std::vector<extent_plan>& plans, const std::filesystem::path& path) {
    const std::string text = print_plans(plans);
    try {
        io::write_file(path, text);
    } catch (const input_error&) { throw input_error(path.string() + ": cannot be written"); }
}

} // namespace pulse
