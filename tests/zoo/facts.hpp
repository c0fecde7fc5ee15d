#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/description.hpp>

#include <support/eager.hpp>

namespace pulse::test {

/// A table of facts about a published backbone (see its "source"): names, shapes, FLOPs, kept tensors, edges, counts.
/// "parameters" holds the parameter lists that layers share; a layer's names begin with its "root".
inline nlohmann::json table(const std::string& name) {
    const std::string path = std::string{PULSE_TEST_ZOO_DATA} + "/" + name + ".json";
    std::ifstream in{path};
    REQUIRE_MESSAGE(in.good(), path);
    return nlohmann::json::parse(in);
}

/// What a layer type declares, as values: checks on values are compiled once, not per layer.
struct layer_facade {
    std::string name;
    std::vector<int> in, out, skip, conditioning, context;
    int heads{};
    double flops{};
    std::int64_t saved{}, kept{};
    std::vector<parameter> parameters;
};

struct module_facade {
    std::string name;
    double flops{};
    std::int64_t kept{};
    std::vector<parameter> parameters;
};

struct model_facade {
    std::string name;
    std::vector<layer_facade> layers;
    std::vector<module_facade> modules;
    std::vector<int> conditioning, context;
    std::int64_t parameter_count{};
    graph_view graph, eager;
};

template <class Shape>
std::vector<int> dims_of() {
    return {Shape::dims.begin(), Shape::dims.end()};
}

template <class L>
std::vector<parameter> parameters_of() {
    static constexpr auto parameters = L::parameters();
    return {parameters.begin(), parameters.end()};
}

template <class L>
layer_facade facade_of() {
    layer_facade f{};
    f.name = L::name.str();
    f.in = dims_of<typename L::input>();
    f.out = dims_of<typename L::output>();
    f.flops = L::forward_flops();
    f.saved = L::saved_elements;
    f.kept = eager_elements<L>();
    f.parameters = parameters_of<L>();
    if constexpr (concatenates<L>) { f.skip = dims_of<typename L::skip_input>(); }
    if constexpr (reads_conditioning<L>) { f.conditioning = dims_of<typename L::conditioning>(); }
    if constexpr (reads_context<L>) { f.context = dims_of<typename L::context>(); }
    if constexpr (requires { L::math.heads; }) { f.heads = L::math.heads; }
    if constexpr (requires { L::math.core.heads; }) { f.heads = L::math.core.heads; }
    return f;
}

/// A part of a conditioning module, under the name that the tables use.
template <class Part>
module_facade module_facade_of(const label& name, const Part& part) {
    nn::description sums;
    static_cast<void>(part.describe(sums));
    std::vector<parameter> parameters(sums.sizes().parameter_count);
    nn::description listed{name, parameters.data()};
    static_cast<void>(part.describe(listed));
    return {name.str(), sums.sizes().forward_flops, nn::eager_elements(part), std::move(parameters)};
}
inline std::vector<module_facade> module_facades(const nn::time_embedding& t) {
    return {module_facade_of("time_embedding", t)};
}
inline std::vector<module_facade> module_facades(const nn::text_conditioning& t) {
    std::vector<module_facade> all = module_facades(t.time);
    if (t.adds()) { all.push_back(module_facade_of("add_embedding", t.added_mlp())); }
    return all;
}
inline std::vector<module_facade> module_facades(const nn::hunyuan_conditioning& h) {
    return {module_facade_of("time_extra_emb", h.time), module_facade_of("text_embedder", h.text)};
}

/// The modules of M; the parameters of the whole are theirs, one after the other.
template <class M>
std::vector<module_facade> module_facades_of() {
    if constexpr (M::is_conditioned) {
        std::vector<module_facade> all = module_facades(M::conditioning::math);
        std::vector<parameter> joined;
        for (const module_facade& one : all) {
            joined.insert(joined.end(), one.parameters.begin(), one.parameters.end());
        }
        CHECK(joined == parameters_of<typename M::conditioning>());
        return all;
    } else {
        return {};
    }
}

template <class M>
model_facade model_facade_of() {
    static constexpr auto graph = uncut_graph_of<M>();
    static constexpr auto eager = eager_graph_of<M>();
    model_facade f{};
    f.name = M::name.str();
    f.layers = []<std::size_t... I>(std::index_sequence<I...>) {
        return std::vector<layer_facade>{facade_of<typename M::template layer_at<I>>()...};
    }
    (std::make_index_sequence<M::layer_count>{});
    f.modules = module_facades_of<M>();
    if constexpr (M::is_conditioned) {
        f.conditioning = dims_of<typename M::conditioning::output>();
        if constexpr (reads_context<typename M::conditioning>) {
            f.context = dims_of<typename M::conditioning::context>();
        }
    }
    f.parameter_count = M::parameter_count();
    f.graph = graph.view();
    f.eager = eager.view();
    return f;
}

/// Compares everything in a model's table with the model.
void check_against_table(const model_facade& model);

/// Checks every model, with or without a table: `tensors` parameters with distinct names and `parameters` scalars in
/// all, counted four ways.
void check_totals(const model_facade& model, std::int64_t parameters, std::size_t tensors);

} // namespace pulse::test
