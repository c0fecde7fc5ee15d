#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <nn/layer_trial.hpp>
#include <support/conditions.hpp>
#include <support/unpipelined.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/reference/backend.hpp>

namespace pulse::test {

[[nodiscard]] inline std::vector<double> drawn(std::mt19937_64& random, std::int64_t count, double least, double most) {
    std::uniform_real_distribution<double> spread{least, most};
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& v : values) { v = spread(random); }
    return values;
}

/// A model with random data; the loss is the output's sum with random weights.
template <class M>
struct whole_trial {
    using reference = reference::backend<double>;

    static constexpr int batch = 2;
    static constexpr auto graph = uncut_graph_of<M>();

    double step; ///< of the finite differences; norms of few values are strongly curved and need smaller steps
    std::mt19937_64 random{7};
    reference backend{};
    unpipelined<M, reference> run{backend, 3};
    std::vector<double> input = drawn(random, batch* graph.layers.front().input_elements, -1.0, 1.0);
    std::vector<double> timesteps = drawn(random, batch, 0.0, 20.0);
    std::vector<double> text = drawn(random, batch* text_elements_of<M>(), -1.0, 1.0);
    std::vector<double> facts = draw_facts<M, double>(9, batch);
    std::vector<double> weights = drawn(random, batch* graph.layers.back().output_elements, -1.0, 1.0);

    explicit whole_trial(double of_differences = 1e-3) : step{of_differences} {
        // Default norms are all 1 and 0, which would hide gradients that mix up two of them.
        std::uniform_real_distribution<double> spread{-0.3, 0.3};
        for (auto& layer : run.parameters) {
            for (double& p : layer) { p += 0.3 * spread(random); }
        }
    }
    [[nodiscard]] double loss() {
        const auto tape = run.forward(batch, input, timesteps, text, facts);
        double sum = 0.0;
        for (std::size_t i = 0; i != weights.size(); ++i) { sum += run.output(tape)[i] * weights[i]; }
        return sum;
    }
    [[nodiscard]] double slope_along(double& variable) {
        const double value = variable;
        const double s = slope(
            [&](double h) {
                variable = value + h;
                return loss();
            },
            step);
        variable = value;
        return s;
    }
    /// Checks at most `most` random elements of `variables`, always including both ends.
    void check_some(std::vector<double>& variables, const std::vector<double>& gradients, std::size_t most) {
        REQUIRE(variables.size() == gradients.size());
        std::vector<std::size_t> at{0, variables.size() - 1};
        std::uniform_int_distribution<std::size_t> any{0, variables.size() - 1};
        while (at.size() < std::min(most, variables.size())) { at.push_back(any(random)); }
        for (const std::size_t i : at) {
            const double expected = slope_along(variables[i]);
            INFO("element ", i, ": ", gradients[i], " and finite difference ", expected);
            CHECK(std::abs(gradients[i] - expected) <= 1e-8 * (1.0 + std::abs(expected)));
        }
    }
    void check(std::size_t most) {
        auto tape = run.forward(batch, input, timesteps, text, facts);
        run.backward_input(tape, weights, true);
        run.backward_weight(tape);
        // If the first layer is locked, nobody computes the whole input gradient.
        if constexpr (!keeps_gradients_back<typename M::template layer_at<0>>) {
            const std::vector<double> input_gradient = tape.input_gradient;
            check_some(input, input_gradient, most);
        }
        // Gradients written over old values equal gradients added to 0.
        const auto added = std::pair{run.gradients, run.conditioning_gradients};
        const double nobody_wrote = std::numeric_limits<double>::quiet_NaN();
        for (auto& all : run.gradients) { std::ranges::fill(all, nobody_wrote); }
        std::ranges::fill(run.conditioning_gradients, nobody_wrote);
        run.mode = into::write;
        run.backward_input(tape, weights, true);
        run.backward_weight(tape);
        CHECK(run.gradients == added.first);
        CHECK(run.conditioning_gradients == added.second);
        std::size_t layer = 0;
        for (auto& parameters : run.parameters) {
            CAPTURE(graph.layers[layer].name.view());
            // Elements are drawn from every tensor of the layer.
            check_tensors(parameters, run.gradients[layer], tensors_of(layer), most);
            ++layer;
        }
        if constexpr (M::is_conditioned) {
            check_tensors(run.conditioning_parameters, run.conditioning_gradients, module_tensors(), most);
        }
    }

private:
    [[nodiscard]] static std::vector<std::int64_t> tensors_of(std::size_t layer) {
        std::vector<std::int64_t> sizes;
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((I == layer ? append<typename M::template layer_at<I>>(sizes) : void()), ...);
        }
        (std::make_index_sequence<M::layer_count>{});
        return sizes;
    }
    [[nodiscard]] static std::vector<std::int64_t> module_tensors() {
        std::vector<std::int64_t> sizes;
        append<typename M::conditioning>(sizes);
        return sizes;
    }
    template <class L>
    static void append(std::vector<std::int64_t>& sizes) {
        static constexpr auto parameters = L::parameters();
        for (const parameter& p : parameters) { sizes.push_back(p.elements()); }
    }
    void check_tensors(std::vector<double>& parameters, const std::vector<double>& gradients,
                       const std::vector<std::int64_t>& sizes, std::size_t most) {
        std::size_t begin = 0;
        for (const std::int64_t size : sizes) {
            const std::size_t end = begin + static_cast<std::size_t>(size);
            for (std::size_t n = 0; n != most; ++n) {
                const std::size_t i = std::uniform_int_distribution<std::size_t>{begin, end - 1}(random);
                const double expected = slope_along(parameters[i]);
                INFO("element ", i, ": ", gradients[i], " and finite difference ", expected);
                CHECK(std::abs(gradients[i] - expected) <= 1e-8 * (1.0 + std::abs(expected)));
            }
            begin = end;
        }
        CHECK(begin == parameters.size());
    }
};

} // namespace pulse::test
