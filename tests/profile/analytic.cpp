#include <pulse/profile/analytic.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>

#include "../support/check_both.hpp"

namespace {

using namespace pulse;

constexpr device machine{.name = "machine",
                         .memory_bytes = 1,
                         .memory_gb_per_s = 2.0,
                         .tflops_16 = 4.0,
                         .tflops_32 = 1.0,
                         .tflops_64 = 0.0,
                         .efficiency = 0.5,
                         .source = "made up"};

struct random_graph {
    std::vector<layer_node> layers{};
    std::vector<skip_link> skips{};
    std::int64_t conditioning{};

    [[nodiscard]] graph_view view() const { return {"random", layers, skips, conditioning}; }
};

random_graph draw_graph(std::mt19937& random) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    random_graph graph{};
    const int layers = draw(1, 12);
    for (int l = 0; l != layers; ++l) {
        graph.layers.push_back({label{std::string_view{"l"}} + static_cast<unsigned>(l), draw(1, 5000), draw(1, 5000),
                                draw(0, 1) * draw(1, 9000), draw(0, 5000), draw(0, 50), draw(0, 60),
                                static_cast<double>(draw(0, 1) * draw(1, 1 << 24)), draw(0, 1) * draw(1, 40)});
    }
    for (int e = layers == 1 ? 0 : draw(0, 4); e > 0; --e) {
        const int from = draw(0, layers - 2);
        graph.skips.push_back({from, draw(from + 1, layers - 1), draw(1, 3000)});
    }
    graph.conditioning = draw(0, 500);
    return graph;
}

constexpr std::array<layer_node, 2> two{layer_node{"a", 100, 200, 50, 10, 0, 0, 1e6},
                                        layer_node{"b", 200, 7, 0, 0, 0, 0, 0.0}};
constexpr std::array<skip_link, 1> one{skip_link{0, 1, 30}};

constexpr cost_table two_layers(int batch) { return analytic_costs({"two", two, one, 5}, machine, batch, 4); }

} // namespace

TEST_CASE("bytes are elements x batch x scalar bytes, parameters without the batch") {
    std::mt19937 random{3};
    for (int repeat = 0; repeat != 200; ++repeat) {
        const random_graph graph = draw_graph(random);
        const int batch = 1 + static_cast<int>(random() % 9U);
        const int scalar = std::array{2, 4, 8}[random() % 3U];
        const std::int64_t unit = std::int64_t{batch} * scalar;
        const cost_table table = blank_costs(graph.view(), batch, scalar);
        CHECK(table.model.view() == "random");
        CHECK(table.microbatch_size == batch);
        CHECK(table.conditioning_bytes == graph.conditioning * unit);
        CHECK(table.input_bytes == graph.layers[0].input_elements * unit);
        REQUIRE(table.layers.size() == graph.layers.size());
        REQUIRE(table.skips.size() == graph.skips.size());
        for (std::size_t l = 0; l != table.layers.size(); ++l) {
            const layer_cost& cost = table.layers[l];
            const layer_node& node = graph.layers[l];
            CHECK(cost.name == node.name);
            CHECK(cost.load_us() == 0.0);
            CHECK(cost.parameter_bytes == node.parameter_elements * scalar);
            const std::int64_t statistics = node.statistics_elements * batch * std::max(4, scalar);
            const std::int64_t before = cost.saved_bytes - node.saved_elements * unit; // the statistics, rounded up
            CHECK(before % 64 == 0);
            CHECK((before >= statistics && before < statistics + 64));
            CHECK(cost.output_bytes == node.output_elements * unit);
            CHECK(cost.deferred_bytes == node.deferred_elements * unit);
            CHECK(cost.workspace_bytes == node.workspace_elements * unit);
        }
        for (std::size_t e = 0; e != table.skips.size(); ++e) {
            CHECK(table.skips[e] == skip_cost{graph.skips[e].from, graph.skips[e].to, graph.skips[e].elements * unit});
        }
    }
}

TEST_CASE("every pass takes the longer of its FLOPs and its bytes at half the peak") {
    // 0.5 TFLOP/s = 5e5 FLOP per us; 1 GB/s = 1e3 bytes per us; scalars of 4 bytes.
    const cost_table table = two_layers(2);
    // a: 2e6 FLOPs -> 4 us; 4 x (2 x (100 + 200 + 10) + 50) = 2680 bytes -> 2.68 us
    CHECK(table.layers[0].forward_us == doctest::Approx(4.0));
    CHECK(table.layers[0].backward_input_us == doctest::Approx(4.0));
    CHECK(table.layers[0].backward_weight_us == doctest::Approx(4.0));
    // b: no FLOPs; 4 x 2 x (200 + 30 + 7) = 1896 bytes -> 1.896 us; no parameters, so no W
    CHECK(table.layers[1].forward_us == doctest::Approx(1.896));
    CHECK(table.layers[1].backward_input_us == doctest::Approx(1.896));
    CHECK(table.layers[1].backward_weight_us == 0.0);
    CHECK(table.device.view() == "machine");

    // If FLOPs bound a layer without parameters, B includes both products of its backward.
    std::array<layer_node, 1> attention{layer_node{"attention", 1, 1, 0, 0, 0, 0, 1e6}};
    const cost_table alone = analytic_costs({"one", attention, {}, 0}, machine, 1, 4);
    CHECK(alone.layers[0].forward_us == doctest::Approx(2.0));
    CHECK(alone.layers[0].backward_input_us == doctest::Approx(4.0));
    CHECK(alone.layers[0].backward_weight_us == 0.0);
    // 16-bit scalars have four times the rate here.
    CHECK(analytic_costs({"one", attention, {}, 0}, machine, 1, 2).layers[0].forward_us == doctest::Approx(0.5));
    // Time grows with the batch, in proportion if a layer reads nothing else.
    CHECK(analytic_costs({"one", attention, {}, 0}, machine, 6, 4).layers[0].load_us() ==
          doctest::Approx(6.0 * alone.layers[0].load_us()));
}

TEST_CASE("analytic costs are a constant expression") {
    CHECK_BOTH(two_layers(1).layers[0].load_us() > 0.0);
    CHECK_BOTH(two_layers(3).skips[0].bytes == 360);
}

TEST_CASE("a bad graph, batch or scalar is refused by name") {
    const auto refused = [](const graph_view& graph, const device& on, int batch, int scalar) {
        try {
            static_cast<void>(analytic_costs(graph, on, batch, scalar));
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"accepted"};
    };
    const graph_view good{"two", two, one, 5};
    CHECK(refused(good, machine, 1, 4) == "accepted");
    CHECK(refused({}, machine, 1, 4) == "graph: it has no layers");
    CHECK(refused(good, machine, 0, 4) == "microbatch_size: it must be at least 1");
    CHECK(refused(good, machine, 1, 3) == "scalar_bytes: it must be 2, 4 or 8");
    CHECK(refused(good, machine, 1, 8) == "device: it has no rate for scalars of this size");
    for (const skip_link& bad : {skip_link{1, 0, 1}, skip_link{0, 2, 1}, skip_link{-1, 1, 1}, skip_link{1, 1, 1}}) {
        const std::array<skip_link, 1> skips{bad};
        CHECK(refused({"two", two, skips, 5}, machine, 1, 4) ==
              "graph: a skip must go forwards between two of its layers");
    }
}
