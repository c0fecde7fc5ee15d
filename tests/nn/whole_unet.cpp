#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <nn/whole_trial.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using pulse::test::drawn;
using pulse::test::whole_trial;

TEST_CASE("whole UNet: every parameter tensor's gradient equals finite differences") {
    whole_trial<ddpm_tiny>{}.check(2);
}

TEST_CASE("whole UNet of unusual structure: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::crooked_unet>{}.check(4);
}

TEST_CASE("weight passes delayed past later microbatches change no bit") {
    whole_trial<ddpm_tiny> t;
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
    std::vector<test::unpipelined<ddpm_tiny, reference::backend<double>>::tape> tapes;
    for (const auto& x : inputs) { tapes.push_back(t.run.forward(t.batch, x, t.timesteps)); }
    for (auto& tape : tapes) { t.run.backward_input(tape, t.weights); }
    for (auto& tape : tapes) { t.run.backward_weight(tape); }
    CHECK(t.run.gradients == together);
    CHECK(t.run.conditioning_gradients == module_together);
}

TEST_CASE("a batch is its samples: output row by row, gradients summed") {
    whole_trial<ddpm_tiny> t;
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
