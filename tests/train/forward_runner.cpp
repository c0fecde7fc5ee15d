#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include <support/toy_model.hpp>
#include <support/unpipelined.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/zoo/ddpm.hpp>

namespace {

using namespace pulse;
using namespace pulse::test;

/// Compares forward_runner, made for batches of 3, with the oracle on batches of 3, 1 and 2 samples.
template <class Model>
void check_forward(unsigned seed, const extent& to = {}) {
    using math = reference::backend<double>;
    math backend;
    unpipelined<Model, math> oracle{backend, to};
    forward_runner<Model, math> runner{backend, 3, to};
    std::mt19937 random{seed};
    std::normal_distribution<double> normal{0.0, 0.3};
    const auto fill = [&](auto& values) {
        std::generate(values.begin(), values.end(), [&] { return normal(random); });
    };
    for (auto& values : oracle.parameters) { fill(values); }
    fill(oracle.conditioning_parameters);
    oracle.give(runner.parameters());
    const auto graph = graph_of<Model>(resize<Model>(to));
    for (const int samples : {3, 1, 2}) {
        CAPTURE(samples);
        const auto n = static_cast<std::size_t>(samples);
        std::vector<double> x(n * static_cast<std::size_t>(graph.layers.front().input_elements));
        std::vector<double> times(n);
        fill(x);
        fill(times);
        for (double& t : times) { t = std::floor(500 + 300 * t); }
        const auto tape = oracle.forward(samples, x, times);
        const std::size_t outputs = n * static_cast<std::size_t>(graph.layers.back().output_elements);
        std::vector<double> y(outputs + 1, -7.0);
        runner.run(samples, x.data(), times.data(), y.data());
        CHECK(y.back() == -7.0);
        y.pop_back();
        CHECK(y == oracle.output(tape));
    }
}

} // namespace

TEST_CASE("a forward run without a pipeline equals the unpipelined oracle, bit for bit") {
    check_forward<ddpm_tiny>(1);
    check_forward<ddpm_tiny>(1, {12, 6});
    check_forward<toy_model<1, 18, wiring::nested, true>>(2);
    check_forward<toy_model<2, 18, wiring::crossing, false>>(3);
    check_forward<toy_model<3, 18, wiring::fan_out, true>>(4);
}

TEST_CASE("a forward run refuses more samples than it has room for, and none") {
    reference::backend<double> backend;
    forward_runner<ddpm_tiny, reference::backend<double>> runner{backend, 2};
    std::vector<double> x(3 * 64), y(3 * 64), times(3);
    CHECK_THROWS_WITH_AS(runner.run(3, x.data(), times.data(), y.data()),
                         "pulse: forward_runner: samples must be from 1 to 2, not 3", input_error);
    CHECK_THROWS_AS(runner.run(0, x.data(), times.data(), y.data()), input_error);
    using made = forward_runner<ddpm_tiny, reference::backend<double>>;
    CHECK_THROWS_AS(made(backend, 0), input_error);
}
