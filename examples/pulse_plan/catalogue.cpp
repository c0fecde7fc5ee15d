#include "catalogue.hpp"

#include <pulse/core/error.hpp>
#include <pulse/zoo/frozen_parts.hpp>
#include <pulse/zoo/known_models.hpp>

namespace pulse_plan {

std::vector<std::string> backbone_names() {
    std::vector<std::string> names;
    for (const pulse::known_model& known : pulse::known_models) { names.push_back(known.name.str()); }
    return names;
}

pulse::graph_view backbone_of(const std::string& name) {
    const pulse::known_model* const known = pulse::find_model(name);
    if (known == nullptr) { throw pulse::input_error("--model: '" + name + "' is no backbone of the zoo"); }
    return known->graph;
}

std::vector<pulse::frozen_component> frozen_costs_of(const std::string& name, const pulse::device& on,
                                                     int scalar_bytes) {
    return pulse::frozen_costs(name, on, scalar_bytes);
}

} // namespace pulse_plan
