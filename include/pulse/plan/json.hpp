#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

namespace detail {

/// A JSON value and its path, which every error names.
class plan_field {
public:
    plan_field(const nlohmann::json& value, std::string path, std::string_view source)
        : value_(value), path_(std::move(path)), source_(source) {}

    [[noreturn]] void fail(const std::string& why) const {
        throw input_error(std::string(source_) + ": " + (path_.empty() ? "the plan" : path_) + ' ' + why);
    }
    [[nodiscard]] plan_field operator[](const char* name) const {
        if (!value_.is_object()) { fail("must be an object"); }
        const auto found = value_.find(name);
        const std::string path = path_.empty() ? name : path_ + '.' + name;
        if (found == value_.end()) { throw input_error(std::string(source_) + ": " + path + " is missing"); }
        return {*found, path, source_};
    }
    [[nodiscard]] bool has(const char* name) const { return value_.is_object() && value_.contains(name); }
    /// A name that is not known would otherwise be a setting that is silently ignored.
    void only(std::initializer_list<std::string_view> names) const {
        if (!value_.is_object()) { fail("must be an object"); }
        for (const auto& entry : value_.items()) {
            bool known = false;
            for (const std::string_view name : names) { known = known || name == entry.key(); }
            if (!known) { fail("has the field '" + printable(entry.key()) + "', which pulse-plan/1 does not know"); }
        }
    }
    [[nodiscard]] std::vector<plan_field> list() const {
        if (!value_.is_array()) { fail("must be an array"); }
        std::vector<plan_field> all{};
        for (std::size_t i = 0; i != value_.size(); ++i) {
            all.emplace_back(value_[i], path_ + '[' + std::to_string(i) + ']', source_);
        }
        return all;
    }
    [[nodiscard]] std::int64_t integer() const {
        if (!value_.is_number_integer()) { fail("must be an integer"); }
        if (value_.is_number_unsigned() &&
            value_.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            fail("is out of range");
        }
        return value_.get<std::int64_t>();
    }
    [[nodiscard]] int small_integer() const {
        const std::int64_t value = integer();
        if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) { fail("is out of range"); }
        return static_cast<int>(value);
    }
    [[nodiscard]] double number() const {
        if (!value_.is_number()) { fail("must be a number"); }
        return value_.get<double>();
    }
    [[nodiscard]] bool boolean() const {
        if (!value_.is_boolean()) { fail("must be true or false"); }
        return value_.get<bool>();
    }
    [[nodiscard]] const std::string& text() const {
        if (!value_.is_string()) { fail("must be a string"); }
        return value_.get_ref<const std::string&>();
    }
    [[nodiscard]] label name() const {
        const std::string& chars = text();
        if (chars.size() >= label::capacity) { fail("has more than 95 characters"); }
        if (chars.find('\0') != std::string::npos) { fail("must not contain a zero character"); }
        return label{std::string_view{chars}};
    }
    template <class T>
    [[nodiscard]] T one_of(std::initializer_list<std::pair<std::string_view, T>> choices) const {
        std::string known{};
        for (const auto& [word, value] : choices) {
            if (text() == word) { return value; }
            known += (known.empty() ? "" : ", ") + std::string(word);
        }
        fail("is '" + printable(text()) + "'; it must be one of " + known);
    }

private:
    const nlohmann::json& value_;
    std::string path_;
    std::string_view source_;

    /// Control characters of a damaged file stay out of error messages; long ones are cut.
    [[nodiscard]] static std::string printable(std::string text) {
        if (text.size() > 40) { text = text.substr(0, 40) + "..."; }
        for (char& c : text) { c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; }
        return text;
    }
};

[[nodiscard]] inline timed_pass read_pass(const plan_field& field) {
    field.only({"op", "stage", "microbatch", "start_us", "end_us"});
    return {field["op"].one_of<pass>({{"F", pass::forward}, {"B", pass::backward_input}, {"W", pass::backward_weight}}),
            field["stage"].small_integer(), field["microbatch"].small_integer(), field["start_us"].number(),
            field["end_us"].number()};
}

[[nodiscard]] inline prediction read_prediction(const plan_field& field) {
    field.only({"step_us", "lower_bound_us", "bubble_ratio", "samples_per_s", "peak_memory_bytes", "boundary_bytes",
                "skip_bytes"});
    prediction made{};
    made.step_us = field["step_us"].number();
    made.lower_bound_us = field["lower_bound_us"].number();
    made.bubble_ratio = field["bubble_ratio"].number();
    made.samples_per_s = field["samples_per_s"].number();
    for (const plan_field& one : field["peak_memory_bytes"].list()) { made.peak_memory_bytes.push_back(one.integer()); }
    made.boundary_bytes = field["boundary_bytes"].integer();
    made.skip_bytes = field["skip_bytes"].integer();
    return made;
}

/// The JSON value of `text`; also refuses an object that names a field twice, of which one would be ignored.
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text, std::string_view source) {
    std::vector<std::set<std::string>> open{};
    const auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
        using event_t = nlohmann::json::parse_event_t;
        if (event == event_t::object_start) { open.emplace_back(); }
        if (event == event_t::object_end) { open.pop_back(); }
        if (event == event_t::key && !open.back().insert(value.get<std::string>()).second) {
            throw input_error(std::string(source) + ": a field is there twice: " + value.dump());
        }
        return true;
    };
    try {
        return nlohmann::json::parse(text.begin(), text.end(), watch);
    } catch (const nlohmann::json::exception& e) {
        throw input_error(std::string(source) + ": not valid JSON: " + e.what());
    }
}

} // namespace detail

/// The plan that `text` (format `pulse-plan/1`) describes. Throws input_error, which names `source` and the first field
/// that is missing, unknown, of a wrong type or inconsistent.
///
/// Beyond the fixed format it reads "skip_routing" ("direct" if absent, or "relayed") and "skip_policy" ("resident" if
/// absent, or "recomputed").
[[nodiscard]] inline plan parse_plan(std::string_view text, std::string_view source = "plan") {
    const nlohmann::json value = detail::parse_json(text, source);
    const detail::plan_field root{value, "", source};
    root.only({"format", "model", "placement", "pipeline_degree", "data_degree", "waves", "microbatches", "microbatch_size",
               "split_backward", "skip_routing", "skip_policy", "stages", "schedule", "predicted"});
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
    if (root.has("skip_policy")) {
        made.skips = root["skip_policy"].one_of<skip_policy>(
            {{"resident", skip_policy::resident}, {"recomputed", skip_policy::recomputed}});
    }
    for (const detail::plan_field& one : root["stages"].list()) {
        one.only({"index", "device", "first_layer", "last_layer"});
        made.cut.stages.push_back({one["index"].small_integer(), one["device"].small_integer(),
                                   one["first_layer"].small_integer(), one["last_layer"].small_integer()});
    }
    for (const detail::plan_field& device : root["schedule"].list()) {
        made.order.devices.emplace_back();
        for (const detail::plan_field& one : device.list()) { made.order.devices.back().push_back(detail::read_pass(one)); }
    }
    made.predicted = detail::read_prediction(root["predicted"]);
    require_valid(made, source);
    return made;
}

/// The plan as `pulse-plan/1`, one stage and one pass a line; parse_plan gives the same plan back. Throws input_error when
/// the plan is not valid, so that nothing is written that cannot be read.
[[nodiscard]] inline std::string print_plan(const plan& planned) {
    require_valid(planned, "plan");
    using json = nlohmann::ordered_json;
    const auto field = [](const char* name, const json& value) { return std::string(" \"") + name + "\": " + value.dump(); };
    std::string text{};
    try {
        text = "{\n" + field("format", "pulse-plan/1") + ",\n" + field("model", planned.model.view()) + ",\n";
    } catch (const json::exception&) {
        throw input_error("plan: model is not UTF-8");
    }
    text += field("placement", name_of(planned.cut.kind)) + ",\n" + field("pipeline_degree", planned.pipeline_degree) +
            ",\n" + field("data_degree", planned.data_degree) + ",\n" + field("waves", planned.cut.waves) + ",\n" +
            field("microbatches", planned.microbatches) + ",\n" + field("microbatch_size", planned.microbatch_size) + ",\n" +
            field("split_backward", planned.split_backward) + ",\n" +
            field("skip_routing", planned.routing == skip_routing::direct ? "direct" : "relayed") + ",\n" +
            field("skip_policy", planned.skips == skip_policy::resident ? "resident" : "recomputed") + ",\n \"stages\": [";
    const char* before = "\n  ";
    for (const stage& s : planned.cut.stages) {
        text += before + json{{"index", s.index}, {"device", s.device}, {"first_layer", s.first_layer},
                              {"last_layer", s.last_layer}}.dump();
        before = ",\n  ";
    }
    text += "],\n \"schedule\": [";
    before = "\n  [";
    for (const auto& passes : planned.order.devices) {
        text += before;
        before = "\n   ";
        for (const timed_pass& p : passes) {
            text += before + json{{"op", std::string(1, letter_of(p.op))}, {"stage", p.stage}, {"microbatch", p.microbatch},
                                  {"start_us", p.start_us}, {"end_us", p.end_us}}.dump();
            before = ",\n   ";
        }
        text += ']';
        before = ",\n  [";
    }
    const prediction& p = planned.predicted;
    return text + "],\n" + field("predicted", json{{"step_us", p.step_us}, {"lower_bound_us", p.lower_bound_us},
                                                   {"bubble_ratio", p.bubble_ratio}, {"samples_per_s", p.samples_per_s},
                                                   {"peak_memory_bytes", p.peak_memory_bytes},
                                                   {"boundary_bytes", p.boundary_bytes}, {"skip_bytes", p.skip_bytes}}) +
           "\n}\n";
}

/// Reads a plan from a file. Throws input_error naming the file.
[[nodiscard]] inline plan load_plan(const std::filesystem::path& path) {
    std::error_code unused{};
    if (std::filesystem::is_directory(path, unused)) { throw input_error(path.string() + ": is a folder"); }
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) { throw input_error(path.string() + ": cannot be read"); }
    return parse_plan(text, path.string());
}

/// Writes a plan to a file that appears whole or not at all (temporary name, sync, rename). Throws input_error.
inline void save_plan(const plan& planned, const std::filesystem::path& path) {
    const std::string text = print_plan(planned);
    const std::string temporary = path.string() + '.' + std::to_string(::getpid()) + ".tmp";
    std::FILE* file = std::fopen(temporary.c_str(), "wbx");
    bool good = file != nullptr;
    if (good) {
        good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
        good = std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0 && good;
        good = std::fclose(file) == 0 && good;
        good = good && std::rename(temporary.c_str(), path.c_str()) == 0;
        if (!good) { std::remove(temporary.c_str()); }
    }
    if (!good) { throw input_error(path.string() + ": cannot be written"); }
}

} // namespace pulse
