#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/profile/json.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] inline std::int64_t read_bytes(const io::json_field& field) {
    const std::int64_t bytes = field.bytes();
    if (bytes > most_bytes) { field.fail("must be at most 2^40: a tebibyte"); }
    return bytes;
}

[[nodiscard]] inline std::int64_t read_bytes_or_none(const io::json_field& field, const char* name) {
    return field.has(name) ? read_bytes(field[name]) : 0;
}

[[nodiscard]] inline layer_cost read_layer(const io::json_field& field) {
    field.only({"name", "forward_us", "backward_input_us", "backward_weight_us", "parameter_bytes", "saved_bytes",
                "output_bytes", "deferred_bytes", "workspace_bytes", "frozen_parameter_bytes", "frozen_output_bytes",
                "open_bytes", "factored_elements"});
    layer_cost layer{};
    layer.name = field["name"].name();
    if (layer.name.empty()) { field["name"].fail("must not be empty"); }
    layer.forward_us = field["forward_us"].time();
    layer.backward_input_us = field["backward_input_us"].time();
    layer.backward_weight_us = field["backward_weight_us"].time();
    layer.parameter_bytes = read_bytes(field["parameter_bytes"]);
    layer.saved_bytes = read_bytes(field["saved_bytes"]);
    layer.output_bytes = read_bytes(field["output_bytes"]);
    layer.deferred_bytes = read_bytes_or_none(field, "deferred_bytes");
    layer.workspace_bytes = read_bytes_or_none(field, "workspace_bytes");
    layer.frozen_parameter_bytes = read_bytes_or_none(field, "frozen_parameter_bytes");
    layer.frozen_output_bytes = read_bytes_or_none(field, "frozen_output_bytes");
    layer.open_bytes = read_bytes_or_none(field, "open_bytes");
    layer.factored_elements = read_bytes_or_none(field, "factored_elements");
    return layer;
}

/// Position of the layer that `field` names.
[[nodiscard]] inline int read_end(const io::json_field& field, const cost_table& costs) {
    const std::string& name = field.text();
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        if (costs.layers[l].name.view() == name) { return static_cast<int>(l); }
    }
    field.fail("is '" + io::printable(name) + "', which is not a layer");
}

[[nodiscard]] inline skip_cost read_edge(const io::json_field& field, const cost_table& costs) {
    field.only({"from", "to", "bytes"});
    skip_cost edge{};
    edge.from = read_end(field["from"], costs);
    edge.to = read_end(field["to"], costs);
    if (edge.to <= edge.from) { field["to"].fail("must name a layer after the one in from"); }
    edge.bytes = read_bytes(field["bytes"]);
    return edge;
}

inline constexpr std::array<std::pair<std::string_view, frozen_use>, 4> frozen_uses{{{"input", frozen_use::input},
                                                                                     {"context", frozen_use::context},
                                                                                     {"facts", frozen_use::facts},
                                                                                     {"target", frozen_use::target}}};

inline constexpr double most_frozen_us = 1e12;

[[nodiscard]] inline double read_frozen_time(const io::json_field& field) {
    const double us = field.time();
    if (us > most_frozen_us) { field.fail("must be at most 1e12: eleven days"); }
    return us;
}

[[nodiscard]] inline frozen_layer read_frozen_layer(const io::json_field& field) {
    field.only({"name", "call_us", "sample_us", "parameter_bytes", "output_bytes", "live_bytes"});
    frozen_layer layer{};
    layer.name = field["name"].name();
    layer.call_us = read_frozen_time(field["call_us"]);
    layer.sample_us = read_frozen_time(field["sample_us"]);
    layer.parameter_bytes = read_bytes(field["parameter_bytes"]);
    layer.output_bytes = read_bytes(field["output_bytes"]);
    layer.live_bytes = read_bytes(field["live_bytes"]);
    return layer;
}

[[nodiscard]] inline frozen_component read_frozen(const io::json_field& field) {
    field.only({"name", "feeds", "input_bytes", "result_bytes", "max_chunk", "layers"});
    frozen_component one{};
    one.name = field["name"].name();
    if (one.name.empty()) { field["name"].fail("must not be empty"); }
    const auto& [input, context, facts, target] = frozen_uses;
    one.feeds = field["feeds"].one_of<frozen_use>({input, context, facts, target});
    one.input_bytes = read_bytes(field["input_bytes"]);
    one.result_bytes = read_bytes(field["result_bytes"]);
    if (one.result_bytes == 0) { field["result_bytes"].fail("must be at least 1: the component feeds nothing"); }
    one.max_chunk = field["max_chunk"].count();
    for (const io::json_field& layer : field["layers"].list()) { one.layers.push_back(read_frozen_layer(layer)); }
    if (one.layers.empty()) { field["layers"].fail("must not be empty"); }
    return one;
}

/// One component as JSON: its own fields on the first line, then one line per layer.
[[nodiscard]] inline std::string print_frozen(const frozen_component& one) {
    using json = nlohmann::ordered_json;
    std::string text = json{
        {"name", one.name.view()},
        {"feeds", frozen_uses[static_cast<std::size_t>(one.feeds)].first},
        {"input_bytes", one.input_bytes},
        {"result_bytes", one.result_bytes},
        {"max_chunk",
         one.max_chunk}}.dump();
    text.back() = ',';
    text += "\"layers\":[";
    const char* before = "\n   ";
    for (const frozen_layer& l : one.layers) {
        text += before + json{{"name", l.name.view()},          {"call_us", l.call_us},
                              {"sample_us", l.sample_us},       {"parameter_bytes", l.parameter_bytes},
                              {"output_bytes", l.output_bytes}, {"live_bytes", l.live_bytes}}
                             .dump();
        before = ",\n   ";
    }
    return text + "]}";
}

/// The file refers to layers by name, so every name must be present and unique.
inline void check_names(const cost_table& costs) {
    std::set<std::string_view> names{};
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        const std::string_view name = costs.layers[l].name.view();
        const std::string path = "profile: layers[" + std::to_string(l) + "].name ";
        if (name.empty()) { throw input_error(path + "must not be empty"); }
        if (!names.insert(name).second) { throw input_error(path + "is the name of another layer"); }
    }
}

/// What parse_profile requires of frozen components beyond check_frozen.
inline void check_read_frozen(const cost_table& costs) {
    for (const frozen_component& one : costs.frozen) {
        const auto fail = [&](const std::string& what) {
            throw input_error("profile: frozen " + one.name.str() + ": " + what);
        };
        if (one.result_bytes == 0) { fail("result_bytes must be at least 1: the component feeds nothing"); }
        for (const frozen_layer& layer : one.layers) {
            if (std::max(layer.call_us, layer.sample_us) <= most_frozen_us) { continue; }
            fail("layer " + layer.name.str() + ": a time must be at most 1e12: eleven days");
        }
    }
}

} // namespace detail

PULSE_INLINE cost_table parse_profile(std::string_view text, std::string_view source) {
    const nlohmann::json value = io::parse_json(text, source);
    const io::json_field root{value, {source, "the profile", "pulse-profile/1"}};
    root.only({"format", "model", "device", "microbatch_size", "layers", "skips", "conditioning_bytes",
               "frozen_conditioning_bytes", "input_bytes", "optimizer_gb_per_s", "frozen"});
    if (root["format"].text() != "pulse-profile/1") { root["format"].fail("must be pulse-profile/1"); }
    cost_table costs{};
    costs.model = root["model"].name();
    costs.device = root["device"].name();
    costs.microbatch_size = root["microbatch_size"].count();
    std::set<std::string> names{};
    for (const io::json_field& one : root["layers"].list()) {
        costs.layers.push_back(detail::read_layer(one));
        if (!names.insert(costs.layers.back().name.str()).second) { one["name"].fail("is the name of another layer"); }
    }
    if (costs.layers.empty()) { root["layers"].fail("must not be empty"); }
    for (const io::json_field& one : root["skips"].list()) { costs.skips.push_back(detail::read_edge(one, costs)); }
    costs.conditioning_bytes = detail::read_bytes(root["conditioning_bytes"]);
    costs.frozen_conditioning_bytes = detail::read_bytes_or_none(root, "frozen_conditioning_bytes");
    if (costs.frozen_conditioning_bytes > costs.conditioning_bytes) {
        root["frozen_conditioning_bytes"].fail("must not be above conditioning_bytes");
    }
    costs.input_bytes = detail::read_bytes_or_none(root, "input_bytes");
    if (root.has("optimizer_gb_per_s")) { costs.optimizer_gb_per_s = root["optimizer_gb_per_s"].time(); }
    if (root.has("frozen")) {
        std::set<std::string> components{};
        for (const io::json_field& one : root["frozen"].list()) {
            costs.frozen.push_back(detail::read_frozen(one));
            if (!components.insert(costs.frozen.back().name.str()).second) {
                one["name"].fail("is the name of another component");
            }
        }
    }
    return costs;
}

PULSE_INLINE std::string print_profile(const cost_table& costs) {
    using json = nlohmann::ordered_json;
    check_costs(costs);
    detail::check_names(costs);
    detail::check_read_frozen(costs);
    const auto name_at = [&costs](int layer) { return costs.layers[static_cast<std::size_t>(layer)].name.view(); };
    try {
        std::string text = "{\n \"format\": \"pulse-profile/1\",\n \"model\": " + json(costs.model.view()).dump() +
                           ",\n \"device\": " + json(costs.device.view()).dump() +
                           ",\n \"microbatch_size\": " + std::to_string(costs.microbatch_size) + ",\n \"layers\": [";
        const char* before = "\n  ";
        for (const layer_cost& l : costs.layers) {
            json one{{"name", l.name.view()},
                     {"forward_us", l.forward_us},
                     {"backward_input_us", l.backward_input_us},
                     {"backward_weight_us", l.backward_weight_us},
                     {"parameter_bytes", l.parameter_bytes},
                     {"saved_bytes", l.saved_bytes},
                     {"output_bytes", l.output_bytes},
                     {"deferred_bytes", l.deferred_bytes},
                     {"workspace_bytes", l.workspace_bytes}};
            if (l.frozen_parameter_bytes != 0) { one["frozen_parameter_bytes"] = l.frozen_parameter_bytes; }
            if (l.frozen_output_bytes != 0) { one["frozen_output_bytes"] = l.frozen_output_bytes; }
            if (l.open_bytes != 0) { one["open_bytes"] = l.open_bytes; }
            if (l.factored_elements != 0) { one["factored_elements"] = l.factored_elements; }
            text += before + one.dump();
            before = ",\n  ";
        }
        text += "],\n \"skips\": [";
        before = "\n  ";
        for (const skip_cost& s : costs.skips) {
            text += before + json{{"from", name_at(s.from)}, {"to", name_at(s.to)}, {"bytes", s.bytes}}.dump();
            before = ",\n  ";
        }
        const std::int64_t frozen = costs.frozen_conditioning_bytes;
        text += "],\n \"conditioning_bytes\": " + std::to_string(costs.conditioning_bytes) +
                (frozen > 0 ? ",\n \"frozen_conditioning_bytes\": " + std::to_string(frozen) : "") +
                ",\n \"input_bytes\": " + std::to_string(costs.input_bytes);
        if (costs.optimizer_gb_per_s > 0) {
            text += ",\n \"optimizer_gb_per_s\": " + json(costs.optimizer_gb_per_s).dump();
        }
        before = ",\n \"frozen\": [\n  ";
        for (const frozen_component& one : costs.frozen) {
            text += before + detail::print_frozen(one);
            before = ",\n  ";
        }
        return text + (costs.frozen.empty() ? "" : "]") + "\n}\n";
    } catch (const json::exception&) { throw input_error("profile: a name is not UTF-8"); }
}

PULSE_INLINE cost_table load_profile(const std::filesystem::path& path) {
    return parse_profile(io::read_file(path), path.string());
}

PULSE_INLINE void save_profile(const cost_table& costs, const std::filesystem::path& path) {
    const std::string text = print_profile(costs);
    try {
        io::write_file(path, text);
    } catch (const input_error&) { throw input_error(path.string() + ": cannot be written"); }
}

} // namespace pulse
