#include "catalogue.hpp"

#include <pulse/core/error.hpp>
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
    const pulse::extent to =
        at == std::string_view::npos ? pulse::extent{} : pulse_examples::extent_in(text.substr(at + 1));
    return {option, std::string{to == pulse::extent{} ? text : text.substr(0, at)}, to};
}

backbone_name read_backbone_name(const std::string& option, std::string_view text) {
    backbone_name read = split_name(option, text);
    if (pulse::find_model(read.name) == nullptr) {
        throw pulse::input_error(option + ": '" + read.name +
                                 "' is no backbone of the zoo, as sd21 and sd21@64x96 are");
    }
    return read;
}

backbone::backbone(const backbone_name& what) {
    const pulse::known_model& known = *pulse::find_model(what.name);
    known_ = known.graph;
    if (what.extent == pulse::extent{}) { return; }
    if (known.at == nullptr) { throw pulse::input_error(what.option + ": " + what.name + " has one size"); }
    try {
        made_ = known.at(what.extent);
    } catch (const pulse::input_error& e) { throw pulse::input_error(what.option + ": " + e.what()); }
}

std::vector<pulse::frozen_component> frozen_costs_of(const backbone_name& what, const pulse::device& on,
                                                     int scalar_bytes) {
    return pulse::frozen_costs(what.name, on, scalar_bytes, what.extent);
}

} // namespace pulse_plan
