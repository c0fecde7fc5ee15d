#include <array>
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
#include <pulse/zoo/ddpm.hpp>
#include <support/check_both.hpp>

using namespace pulse;

namespace {

/// A table of facts about a published backbone (see its "source"): names, shapes, FLOPs, skip edges, counts.
nlohmann::json table(const std::string& name) {
    const std::string path = std::string{PULSE_TEST_ZOO_DATA} + "/" + name + ".json";
    std::ifstream in{path};
    REQUIRE_MESSAGE(in.good(), path);
    return nlohmann::json::parse(in);
}

/// What a layer type says about itself, as values: checks on values are compiled once, not once per layer.
struct layer_facade {
    std::string name;
    std::vector<int> in, out, skip;
    bool conditioned{};
    int heads{};
    double flops{};
    std::vector<parameter> parameters;
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
    layer_facade f{.name = L::name.str(),
                   .in = dims_of<typename L::input>(),
                   .out = dims_of<typename L::output>(),
                   .skip = {},
                   .conditioned = reads_conditioning<L>,
                   .heads = 0,
                   .flops = L::forward_flops(),
                   .parameters = parameters_of<L>()};
    if constexpr (concatenates<L>) { f.skip = dims_of<typename L::skip_input>(); }
    if constexpr (requires { L::math.heads; }) { f.heads = L::math.heads; }
    return f;
}

template <class M>
std::vector<layer_facade> facades_of() {
    return []<std::size_t... I>(std::index_sequence<I...>) {
        return std::vector<layer_facade>{facade_of<typename M::template layer_at<I>>()...};
    }(std::make_index_sequence<M::layer_count>{});
}

void check_parameters(const std::vector<parameter>& parameters, const nlohmann::json& expected) {
    REQUIRE(parameters.size() == expected.size());
    for (std::size_t p = 0; p != parameters.size(); ++p) {
        CHECK(parameters[p].name.view() == expected[p][0].get<std::string>());
        const std::vector<int> dims(parameters[p].dims.begin(), parameters[p].dims.begin() + parameters[p].rank);
        CHECK(dims == expected[p][1].get<std::vector<int>>());
    }
}

void check_layer(const layer_facade& layer, const nlohmann::json& expected) {
    CAPTURE(layer.name);
    CHECK(layer.name == expected["name"].get<std::string>());
    CHECK(layer.in == expected["in"].get<std::vector<int>>());
    CHECK(layer.out == expected["out"].get<std::vector<int>>());
    CHECK(layer.skip == (expected["skip"].is_null() ? std::vector<int>{} : expected["skip"].get<std::vector<int>>()));
    CHECK(layer.conditioned == expected["conditioned"].get<bool>());
    CHECK(layer.heads == (expected["heads"].is_null() ? 0 : expected["heads"].get<int>()));
    CHECK(layer.flops == expected["flops"].get<double>());
    check_parameters(layer.parameters, expected["params"]);
}

template <class M>
void check_model(const std::string& name) {
    const nlohmann::json expected = table(name);
    CHECK(M::name.view() == name);

    const nlohmann::json& layers = expected["layers"];
    REQUIRE(M::layer_count == layers.size());
    const std::vector<layer_facade> facades = facades_of<M>();
    for (std::size_t l = 0; l != facades.size(); ++l) { check_layer(facades[l], layers[l]); }

    using module = typename M::conditioning;
    const nlohmann::json& conditioning = expected["conditioning"];
    CHECK(module::name.view() == conditioning["name"].get<std::string>());
    CHECK(dims_of<typename module::output>() == conditioning["out"].get<std::vector<int>>());
    CHECK(module::forward_flops() == conditioning["flops"].get<double>());
    check_parameters(parameters_of<module>(), conditioning["params"]);

    static constexpr auto graph = graph_of<M>();
    const nlohmann::json& skips = expected["skips"];
    REQUIRE(graph.skips.size() == skips.size());
    for (std::size_t e = 0; e != skips.size(); ++e) {
        const auto from = static_cast<std::size_t>(graph.skips[e].from);
        const auto to = static_cast<std::size_t>(graph.skips[e].to);
        CHECK(graph.layers[from].name.view() == skips[e]["from"].get<std::string>());
        CHECK(graph.layers[to].name.view() == skips[e]["to"].get<std::string>());
        CHECK(graph.skips[e].elements == skips[e]["elements"].get<std::int64_t>());
        CHECK(layers[to]["skip_from"].get<int>() == graph.skips[e].from);
    }

    double flops = 0.0;
    std::int64_t parameters = 0;
    for (const layer_node& layer : graph.layers) {
        flops += layer.forward_flops;
        parameters += layer.parameter_elements;
    }
    CHECK(flops == expected["flops"].get<double>() + conditioning["flops"].get<double>());
    CHECK(parameters == expected["params"].get<std::int64_t>());
    CHECK(M::parameter_count() == parameters);
}

/// Every full parameter name of a model, the conditioning module's first.
template <class M>
std::vector<std::string> names_of() {
    std::vector<std::string> names;
    const auto append = [&](const std::vector<parameter>& parameters) {
        for (const parameter& p : parameters) { names.push_back(p.name.str()); }
    };
    append(parameters_of<typename M::conditioning>());
    for (const layer_facade& layer : facades_of<M>()) { append(layer.parameters); }
    return names;
}

} // namespace

TEST_CASE("ddpm_fmnist equals its table in every name, shape, edge, count and FLOP") {
    check_model<ddpm_fmnist>("ddpm_fmnist");
    CHECK_BOTH(ddpm_fmnist::parameter_count() == 1'623'169);
}

TEST_CASE("ddpm_cifar10 equals its table in every name, shape, edge, count and FLOP") {
    check_model<ddpm_cifar10>("ddpm_cifar10");
    CHECK_BOTH(ddpm_cifar10::parameter_count() == 35'746'307);
}

TEST_CASE("no two parameters of a model share a name") {
    const auto check = [](const std::vector<std::string>& names, std::size_t tensors) {
        CHECK(names.size() == tensors);
        CHECK(std::set<std::string>{names.begin(), names.end()}.size() == names.size());
    };
    check(names_of<ddpm_fmnist>(), table("ddpm_fmnist")["param_tensors"].get<std::size_t>());
    check(names_of<ddpm_cifar10>(), table("ddpm_cifar10")["param_tensors"].get<std::size_t>());
}

TEST_CASE("every flaw of a unet_config is found") {
    constexpr unet_config good = ddpm_fmnist::config;
    CHECK_BOTH(flaw_of(good) == unet_flaw::none);
    CHECK_BOTH(flaw_of(ddpm_cifar10::config) == unet_flaw::none);
    const auto flaw_after = [](auto change) {
        unet_config c = ddpm_fmnist::config;
        change(c);
        return flaw_of(c);
    };
    CHECK(flaw_after([](unet_config& c) { c.name = {}; }) == unet_flaw::name);
    CHECK(flaw_after([](unet_config& c) { c.block_out_channels = {}; }) == unet_flaw::levels);
    CHECK(flaw_after([](unet_config& c) { c.block_out_channels = {32, 0, 64}; }) == unet_flaw::levels);
    CHECK(flaw_after([](unet_config& c) { c.attention[3] = true; }) == unet_flaw::attention);
    CHECK(flaw_after([](unet_config& c) { c.sample_size = 0; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.in_channels = 0; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.layers_per_block = 0; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.block_out_channels = {32, -64, 64}; }) == unet_flaw::sizes);
    CHECK(flaw_after([](unet_config& c) { c.sample_size = 30; }) == unet_flaw::halving);
    CHECK(flaw_after([](unet_config& c) { c.norm_num_groups = 12; }) == unet_flaw::groups);
    CHECK(flaw_after([](unet_config& c) { c.attention_head_dim = 24; }) == unet_flaw::heads);
    CHECK(flaw_after([](unet_config& c) { c.downsample_padding = 2; }) == unet_flaw::padding);
    CHECK(flaw_after([](unet_config& c) { c.freq_shift = 16; }) == unet_flaw::sinusoid);
}
