#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/onednn/adamw.hpp>
#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/runtime/optimizer_rule.hpp>

namespace pulse::onednn {

PULSE_HOST_INLINE void adamw_step(std::span<float> w, std::span<const float> g, std::span<float> m, std::span<float> v,
                                  std::span<float> ema, const optimizer_update& now, int threads) {
    if (g.size() != w.size() || m.size() != w.size() || v.size() != w.size() ||
        (!ema.empty() && ema.size() != w.size())) {
        throw input_error{"pulse: adamw_step: " + std::to_string(w.size()) + " weights, " + std::to_string(g.size()) +
                          " gradients, " + std::to_string(m.size()) + " and " + std::to_string(v.size()) +
                          " moments, " + std::to_string(ema.size()) +
                          " averages; the numbers must be equal (averages may be 0)"};
    }
    const adamw_constants& c = now.constants;
    if (now.step < 1) {
        throw input_error{"pulse: adamw_step: step must be at least 1, not " + std::to_string(now.step)};
    }
    const auto steps = static_cast<double>(now.step);
    const auto keep = static_cast<float>(1.0 - c.learning_rate * c.weight_decay);
    const auto rate = static_cast<float>(c.learning_rate / (1.0 - std::pow(c.beta1, steps)));
    const auto unbias = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(c.beta2, steps)));
    const auto scale = static_cast<float>(now.gradient_scale);
    const auto first = static_cast<float>(c.beta1);
    const auto first_rest = static_cast<float>(1.0 - c.beta1);
    const auto second = static_cast<float>(c.beta2);
    const auto second_rest = static_cast<float>(1.0 - c.beta2);
    const auto epsilon = static_cast<float>(c.epsilon);
    const auto follow = static_cast<float>(1.0 - now.average_decay);
    float* const ws = w.data();
    const float* const gs = g.data();
    float* const ms = m.data();
    float* const vs = v.data();
    float* const es = ema.empty() ? nullptr : ema.data();
    for_elements(threads, static_cast<std::int64_t>(w.size()), [=]<int W>(std::int64_t i) {
        const floats<W> gradient = load<W>(gs + i) * scale;
        const floats<W> mean = load<W>(ms + i) * first + gradient * first_rest;
        const floats<W> square = load<W>(vs + i) * second + gradient * gradient * second_rest;
        const floats<W> weight = load<W>(ws + i) * keep - mean / (square_root<W>(square) * unbias + epsilon) * rate;
        store<W>(mean, ms + i);
        store<W>(square, vs + i);
        store<W>(weight, ws + i);
        if (es != nullptr) {
            const floats<W> average = load<W>(es + i);
            store<W>(average + (weight - average) * follow, es + i);
        }
    });
}

} // namespace pulse::onednn
