#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <support/tallying_backend.hpp>
#include <support/unpipelined.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/zoo/ddpm.hpp>

namespace {

using namespace pulse;
using namespace pulse::test;

/// A tallying backend that also records the weights of convolutions and checks the outputs of linear layers.
struct counting_backend : tallying_backend<double> {
    std::set<const double*> weights{};
    int not_finite{};

    void conv2d(const conv2d_shape& shape, int samples, const double* x, const double* w, const double* b, double* y,
                into how) {
        tallying_backend<double>::conv2d(shape, samples, x, w, b, y, how);
        weights.insert(w);
    }
    void linear(const linear_shape& shape, std::int64_t rows, const double* x, const double* w, const double* b,
                double* y, into how) {
        tallying_backend<double>::linear(shape, rows, x, w, b, y, how);
        for (std::int64_t i = 0; i != rows * shape.out_features; ++i) { not_finite += std::isfinite(y[i]) ? 0 : 1; }
    }
    /// Calls since the last one, without sums: adding skips belongs to no layer.
    [[nodiscard]] tally taken() {
        seen.erase("add");
        return std::exchange(seen, {});
    }
};

} // namespace

TEST_CASE("a bench of layers runs the operations of a training step, each pass of each layer once") {
    constexpr int batch = 2;
    extent to{};
    SUBCASE("at the type's extent") {}
    SUBCASE("at another one") { to = {4, 20}; }
    const auto graph = graph_of<ddpm_tiny>(resize<ddpm_tiny>(to));
    counting_backend whole;
    unpipelined<ddpm_tiny, counting_backend> oracle{whole, 1, to};
    const auto in = static_cast<std::size_t>(batch * graph.layers.front().input_elements);
    const auto out = static_cast<std::size_t>(batch * graph.layers.back().output_elements);
    auto tape = oracle.forward(batch, std::vector<double>(in, 0.5), {100, 200});
    const tally forward = whole.taken();
    oracle.backward_input(tape, std::vector<double>(out, 0.1));
    const tally backward_input = whole.taken();
    oracle.backward_weight(tape);
    const tally backward_weight = whole.taken();
    REQUIRE(forward.at("conv2d") > 0);
    REQUIRE(forward.at("attention") > 0);
    REQUIRE(whole.not_finite == 0);

    counting_backend apart;
    layer_bench<ddpm_tiny, counting_backend> bench{apart, batch, to};
    const auto every_layer = [&](pass what) {
        for (int l = 0; l != static_cast<int>(ddpm_tiny::part_count); ++l) { bench(l, what); }
        return apart.taken();
    };
    CHECK(every_layer(pass::forward) == forward);
    CHECK(apart.weights.size() == whole.weights.size()); // no two layers share weights
    CHECK(every_layer(pass::backward_input) == backward_input);
    CHECK(every_layer(pass::backward_weight) == backward_weight);
    // A layer run on its own, in any order, has all that it needs.
    for (int l = static_cast<int>(ddpm_tiny::part_count); l-- != 0;) {
        for (const auto what : {pass::backward_weight, pass::backward_input, pass::forward}) { bench(l, what); }
    }
    CHECK(apart.not_finite == 0);
}

TEST_CASE("a profile of a bench has a time for every pass that has work") {
    reference::backend<float> backend;
    layer_bench<ddpm_tiny, reference::backend<float>> bench{backend, 1};
    constexpr auto graph = graph_of<ddpm_tiny>();
    std::array<int, 3> calls{};
    const cost_table costs = measure_costs(graph.view(), 1, sizeof(float), label{"test"},
                                           [&](int layer, pass what) {
                                               ++calls[static_cast<std::size_t>(what)];
                                               bench(layer, static_cast<pass>(what));
                                           },
                                           {.warm_up_sweeps = 1, .sweeps = 2});
    REQUIRE(costs.layers.size() == ddpm_tiny::part_count);
    int with_parameters = 0;
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        CHECK(costs.layers[l].forward_us > 0);
        CHECK(costs.layers[l].backward_input_us > 0);
        CHECK((costs.layers[l].backward_weight_us > 0) == (graph.layers[l].parameter_elements > 0));
        with_parameters += graph.layers[l].parameter_elements > 0 ? 1 : 0;
    }
    CHECK(calls[0] == 3 * static_cast<int>(ddpm_tiny::part_count));
    CHECK(calls[1] == calls[0]);
    CHECK(calls[2] == 3 * with_parameters);
}
