#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <nn/layer_trial.hpp>
#include <pulse/host/reference.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <support/unpipelined.hpp>

using namespace pulse;

namespace {

using reference = host::reference_backend<double>;

std::vector<double> drawn(std::mt19937_64& random, std::int64_t count, double least, double most) {
    std::uniform_real_distribution<double> spread{least, most};
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& v : values) { v = spread(random); }
    return values;
}

/// A model with random data; the loss is the sum of the output with random weights.
template <class M>
struct trial {
    static constexpr int batch = 2;
    static constexpr auto graph = graph_of<M>();

    std::mt19937_64 random{7};
    reference backend{};
    test::unpipelined<M, reference> run{backend, 3};
    std::vector<double> input = drawn(random, batch * graph.layers.front().input_elements, -1.0, 1.0);
    std::vector<double> timesteps = drawn(random, batch, 0.0, 20.0);
    std::vector<double> weights = drawn(random, batch * graph.layers.back().output_elements, -1.0, 1.0);

    trial() {
        // The default norms are all 1 and 0: gradients that mix up two of them would go unseen.
        std::uniform_real_distribution<double> spread{-0.3, 0.3};
        for (auto& layer : run.parameters) {
            for (double& p : layer) { p += 0.3 * spread(random); }
        }
    }
    [[nodiscard]] double loss() {
        const auto tape = run.forward(batch, input, timesteps);
        double sum = 0.0;
        for (std::size_t i = 0; i != weights.size(); ++i) { sum += run.output(tape)[i] * weights[i]; }
        return sum;
    }
    [[nodiscard]] double slope_along(double& variable) {
        const double value = variable;
        const double s = test::slope(
            [&](double h) {
                variable = value + h;
                return loss();
            },
            1e-3);
        variable = value;
        return s;
    }
    /// At most `most` elements of `variables`, drawn at random; the ends always.
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
        auto tape = run.forward(batch, input, timesteps);
        run.backward_input(tape, weights, true);
        run.backward_weight(tape);
        const std::vector<double> input_gradient = tape.input_gradient;
        check_some(input, input_gradient, most);
        std::size_t layer = 0;
        for (auto& parameters : run.parameters) {
            CAPTURE(graph.layers[layer].name.view());
            // Every tensor of the layer is met: the draw is made in each of them.
            check_tensors(parameters, run.gradients[layer], tensors_of(layer), most);
            ++layer;
        }
        check_tensors(run.conditioning_parameters, run.conditioning_gradients, module_tensors(), most);
    }

private:
    [[nodiscard]] static std::vector<std::int64_t> tensors_of(std::size_t layer) {
        std::vector<std::int64_t> sizes;
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((I == layer ? append<typename M::template layer_at<I>>(sizes) : void()), ...);
        }(std::make_index_sequence<M::layer_count>{});
        return sizes;
    }
    [[nodiscard]] static std::vector<std::int64_t> module_tensors() {
        std::vector<std::int64_t> sizes;
        append<typename M::conditioning>(sizes);
        return sizes;
    }
    template <class L>
    static void append(std::vector<std::int64_t>& sizes) {
        for (const parameter& p : L::parameters()) { sizes.push_back(p.elements()); }
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

} // namespace

TEST_CASE("whole UNet: every parameter tensor's gradient equals finite differences") { trial<ddpm_tiny>{}.check(2); }

TEST_CASE("whole UNet of unusual structure: every parameter tensor's gradient equals finite differences") {
    trial<test::crooked_unet>{}.check(4);
}

TEST_CASE("weight passes delayed past later microbatches change no bit") {
    trial<ddpm_tiny> t;
    constexpr int microbatches = 3;
    const auto inputs = [&] {
        std::vector<std::vector<double>> all;
        for (int m = 0; m != microbatches; ++m) {
            all.push_back(drawn(t.random, static_cast<std::int64_t>(t.input.size()), -1.0, 1.0));
        }
        return all;
    }();

    for (const auto& x : inputs) {
        auto tape = t.run.forward(t.batch, x, t.timesteps);
        t.run.backward(tape, t.weights);
    }
    const auto together = t.run.gradients;
    const auto module_together = t.run.conditioning_gradients;

    t.run.clear_gradients();
    std::vector<test::unpipelined<ddpm_tiny, reference>::tape> tapes;
    for (const auto& x : inputs) { tapes.push_back(t.run.forward(t.batch, x, t.timesteps)); }
    for (auto& tape : tapes) { t.run.backward_input(tape, t.weights); }
    for (auto& tape : tapes) { t.run.backward_weight(tape); }
    CHECK(t.run.gradients == together);
    CHECK(t.run.conditioning_gradients == module_together);
}

TEST_CASE("a batch is its samples: output row by row, gradients summed") {
    trial<ddpm_tiny> t;
    auto both = t.run.forward(t.batch, t.input, t.timesteps);
    t.run.backward(both, t.weights);
    const auto gradients = t.run.gradients;

    t.run.clear_gradients();
    const std::size_t half_in = t.input.size() / 2;
    const std::size_t half_out = t.weights.size() / 2;
    for (std::size_t b = 0; b != 2; ++b) {
        const auto at = [&](const std::vector<double>& all, std::size_t half) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(b * half);
            return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(half));
        };
        auto one = t.run.forward(1, at(t.input, half_in), at(t.timesteps, 1));
        CHECK(t.run.output(one) == at(t.run.output(both), half_out));
        t.run.backward(one, at(t.weights, half_out));
    }
    bool all_close = true;
    for (std::size_t l = 0; l != gradients.size(); ++l) {
        for (std::size_t i = 0; i != gradients[l].size(); ++i) {
            const double difference = std::abs(gradients[l][i] - t.run.gradients[l][i]);
            all_close = all_close && difference <= 1e-11 * (1.0 + std::abs(gradients[l][i]));
        }
    }
    CHECK(all_close);
}
