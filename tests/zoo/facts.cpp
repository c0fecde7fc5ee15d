#include "facts.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace pulse::test {

namespace {

using nlohmann::json;

std::int64_t product(const std::vector<int>& dims) {
    std::int64_t all = dims.empty() ? 0 : 1;
    for (const int d : dims) { all *= d; }
    return all;
}

std::vector<int> dims_or_none(const json& value) {
    return value.is_null() ? std::vector<int>{} : value.get<std::vector<int>>();
}

bool uses(const json& layer, const char* what) {
    const auto all = layer["uses"].get<std::vector<std::string>>();
    return std::find(all.begin(), all.end(), what) != all.end();
}

void check_parameters(const std::vector<parameter>& parameters, const json& owner, const json& lists) {
    const std::string root = owner["root"].get<std::string>();
    // By name: a layer's parts list their parameters one after the other.
    std::map<std::string, std::vector<int>> expected;
    for (const json& one : lists[owner["params"].get<std::size_t>()]) {
        expected[root + one[0].get<std::string>()] = one[1].get<std::vector<int>>();
    }
    std::map<std::string, std::vector<int>> found;
    for (const parameter& p : parameters) { found[p.name.str()].assign(p.dims.begin(), p.dims.begin() + p.rank); }
    CHECK(found == expected);
    CHECK(found.size() == parameters.size());
}

void check_layer(const layer_facade& layer, const json& expected, const json& all) {
    CAPTURE(layer.name);
    CHECK(layer.name == expected["name"].get<std::string>());
    CHECK(layer.in == expected["in"].get<std::vector<int>>());
    CHECK(layer.out == expected["out"].get<std::vector<int>>());
    CHECK(layer.skip == dims_or_none(expected["skip"]));
    CHECK(layer.conditioning == (uses(expected, "temb") ? dims_or_none(all["temb"]) : std::vector<int>{}));
    CHECK(layer.context == (uses(expected, "context") ? dims_or_none(all["context"]) : std::vector<int>{}));
    if (!expected["heads"].is_null()) { CHECK(layer.heads == expected["heads"].get<int>()); }
    CHECK(layer.flops == expected["flops"].get<double>());
    CHECK(layer.kept == expected["kept"].get<std::int64_t>());
    check_parameters(layer.parameters, expected, all["parameters"]);
}

void check_edge(const model_facade& model, const skip_link& edge, const json& expected) {
    const layer_node& from = model.graph.layers[static_cast<std::size_t>(edge.from)];
    const layer_node& to = model.graph.layers[static_cast<std::size_t>(edge.to)];
    CHECK(from.name.str() == expected["from"].get<std::string>());
    CHECK(to.name.str() == expected["to"].get<std::string>());
    CHECK(edge.elements == expected["elements"].get<std::int64_t>());
}

} // namespace

void check_against_table(const model_facade& model) {
    CAPTURE(model.name);
    const json expected = table(model.name);
    const json& lists = expected["parameters"];

    const json& layers = expected["layers"];
    REQUIRE(model.layers.size() == layers.size());
    for (std::size_t l = 0; l != layers.size(); ++l) { check_layer(model.layers[l], layers[l], expected); }

    const json& modules = expected["modules"];
    REQUIRE(model.modules.size() == modules.size());
    for (std::size_t m = 0; m != modules.size(); ++m) {
        CHECK(model.modules[m].name == modules[m]["name"].get<std::string>());
        CHECK(model.modules[m].flops == modules[m]["flops"].get<double>());
        CHECK(model.modules[m].kept == modules[m]["kept"].get<std::int64_t>());
        check_parameters(model.modules[m].parameters, modules[m], lists);
    }
    CHECK(model.conditioning == dims_or_none(expected["temb"]));
    CHECK(model.context == dims_or_none(expected["context"]));

    const json& skips = expected["skips"];
    REQUIRE(model.graph.skips.size() == skips.size());
    for (std::size_t e = 0; e != model.graph.skips.size(); ++e) {
        const skip_link& edge = model.graph.skips[e];
        check_edge(model, edge, skips[e]);
        const layer_facade& target = model.layers[static_cast<std::size_t>(edge.to)];
        CHECK(product(target.skip) == edge.elements);
        CHECK(layers[static_cast<std::size_t>(edge.to)]["skip_from"].get<int>() == edge.from);
    }

    const json& totals = expected["totals"];
    double flops = 0.0;
    std::int64_t eager = 0;
    for (std::size_t l = 0; l != model.layers.size(); ++l) {
        flops += model.graph.layers[l].forward_flops;
        eager += model.eager.layers[l].saved_elements + product(model.layers[l].in) + product(model.layers[l].skip);
    }
    for (const module_facade& module : model.modules) { eager -= module.kept; }
    CHECK(flops == totals["flops"].get<double>() + totals["flops_conditioning_modules"].get<double>());
    CHECK(2 * eager == totals["act_bytes"].get<std::int64_t>()); // 2 bytes per element
    check_totals(model, totals["params"].get<std::int64_t>(), totals["param_tensors"].get<std::size_t>());
}

void check_totals(const model_facade& model, std::int64_t parameters, std::size_t tensors) {
    CAPTURE(model.name);
    std::set<std::string> names;
    std::size_t count = 0;
    std::int64_t elements = 0;
    const auto add = [&](const std::vector<parameter>& some) {
        for (const parameter& p : some) {
            names.insert(p.name.str());
            elements += p.elements();
        }
        count += some.size();
    };
    for (const module_facade& module : model.modules) { add(module.parameters); }
    for (const layer_facade& layer : model.layers) { add(layer.parameters); }
    CHECK(count == tensors);
    CHECK(names.size() == tensors);
    CHECK(elements == parameters);
    CHECK(model.parameter_count == parameters);
    std::int64_t in_graph = 0;
    REQUIRE(model.eager.layers.size() == model.graph.layers.size());
    for (std::size_t l = 0; l != model.graph.layers.size(); ++l) {
        // The eager graph differs in saved elements and statistics only.
        layer_node eager = model.eager.layers[l];
        eager.saved_elements = model.graph.layers[l].saved_elements;
        CHECK(eager.statistics_elements == 0);
        eager.statistics_elements = model.graph.layers[l].statistics_elements;
        CHECK(eager == model.graph.layers[l]);
    }
    for (const layer_node& layer : model.graph.layers) {
        in_graph += layer.parameter_elements;
        CHECK(layer.saved_elements >= 0);
        CHECK(layer.statistics_elements >= 0);
        CHECK(layer.deferred_elements >= 0);
        CHECK(layer.workspace_elements >= 0);
    }
    CHECK(in_graph == parameters);
    CHECK(model.graph.conditioning_elements == product(model.conditioning) + product(model.context));
    // Hunyuan-DiT maps T5's states with its own parameters; the others use an encoder's states as they are.
    const bool trains = model.name.starts_with("hunyuan");
    CHECK(model.graph.frozen_conditioning_elements == (trains ? 0 : product(model.context)));
}

} // namespace pulse::test
