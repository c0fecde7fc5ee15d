#include "catalogue.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/zoo/frozen_parts.hpp>
#include <pulse/zoo/known_models.hpp>

#include "../command_line.hpp"

namespace pulse_plan {

std::vector<std::string> backbone_names() {
    std::vector<std::string> names;
    for (const pulse::known_model& known : pulse::known_models) { names.push_back(known.name.str()); }
    return names;
}

backbone_name split_name(const std::string& option, std::string_view text) {
    const std::size_t at = text.rfind('@');
    std::vector<pulse::extent_share> found;
    for (std::size_t from = at; from != std::string_view::npos;) {
        const std::size_t next = text.find(',', from + 1);
        const std::string_view one = text.substr(from + 1, next == text.npos ? next : next - from - 1);
        const std::size_t mark = one.find(':');
        pulse::extent_share read{pulse_examples::extent_in(one.substr(0, mark))};
        if (mark != one.npos) {
            const char* const end = one.data() + one.size();
            const auto [stop, fault] = std::from_chars(one.data() + mark + 1, end, read.share);
            if (fault != std::errc{} || stop != end || !(read.share > 0)) { read = {}; }
        }
        if (read.extent == pulse::extent{}) { return {option, std::string{text}}; }
        found.push_back(read);
        from = next;
    }
    return {option, std::string{text.substr(0, at)}, std::move(found)};
}

backbone_name read_backbone_name(const std::string& option, std::string_view text) {
    backbone_name read = split_name(option, text);
    if (pulse::find_model(read.name) == nullptr) {
        throw pulse::input_error(option + ": '" + read.name +
                                 "' is not a backbone of the zoo, such as sd21 or sd21@64x96");
    }
    return read;
}

bool resamples_positions(std::string_view name, const pulse::extent& at) {
    const pulse::known_model* const known = pulse::find_model(name);
    return known != nullptr && known->positions != pulse::extent{} && at != pulse::extent{} && at != known->positions;
}

backbone::backbone(const backbone_name& what, const pulse::extent& to) {
    const pulse::known_model& known = *pulse::find_model(what.name);
    known_ = known.graph;
    if (to == pulse::extent{}) { return; }
    if (known.at == nullptr) { throw pulse::input_error(what.option + ": " + what.name + " has only one size"); }
    try {
        made_ = known.at(to);
    } catch (const pulse::input_error& e) { throw pulse::input_error(what.option + ": " + e.what()); }
}

std::vector<pulse::frozen_component> frozen_costs_of(const backbone_name& what, const pulse::device& on,
                                                     int scalar_bytes) {
    std::vector<pulse::extent_share> extents = what.extents;
    if (extents.empty()) { extents.emplace_back(); }
    const std::vector<double> shares = pulse::normalized_shares(extents);
    std::vector<pulse::frozen_component> mean;
    for (std::size_t e = 0; e != extents.size(); ++e) {
        const auto each = pulse::frozen_costs(what.name, on, scalar_bytes, extents[e].extent);
        if (e == 0) {
            mean = each;
            for (pulse::frozen_component& of : mean) {
                for (pulse::frozen_layer& layer : of.layers) { layer.call_us = layer.sample_us = 0; }
            }
        }
        for (std::size_t c = 0; c != mean.size(); ++c) {
            mean[c].input_bytes = std::max(mean[c].input_bytes, each[c].input_bytes);
            mean[c].result_bytes = std::max(mean[c].result_bytes, each[c].result_bytes);
            for (std::size_t l = 0; l != mean[c].layers.size(); ++l) {
                pulse::frozen_layer& to = mean[c].layers[l];
                const pulse::frozen_layer& of = each[c].layers[l];
                to.call_us += shares[e] * of.call_us;
                to.sample_us += shares[e] * of.sample_us;
                to.output_bytes = std::max(to.output_bytes, of.output_bytes);
                to.live_bytes = std::max(to.live_bytes, of.live_bytes);
            }
        }
    }
    return mean;
}

} // namespace pulse_plan
