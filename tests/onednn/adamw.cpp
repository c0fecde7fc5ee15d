#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/core/error.hpp>
#include <pulse/onednn/adamw.hpp>

using namespace onednn_tests;
using pulse::optimizer_update;

namespace {

/// Algorithm 2 of arXiv:1711.05101 with PyTorch's decay, elementwise in double.
void plain_step(tensor& w, const tensor& g, tensor& m, tensor& v, tensor& ema, const optimizer_update& now) {
    const pulse::adamw_constants& c = now.constants;
    for (std::size_t i = 0; i != w.size(); ++i) {
        const double gradient = g.twice[i] * now.gradient_scale;
        m.twice[i] = c.beta1 * m.twice[i] + (1.0 - c.beta1) * gradient;
        v.twice[i] = c.beta2 * v.twice[i] + (1.0 - c.beta2) * gradient * gradient;
        const double mean = m.twice[i] / (1.0 - std::pow(c.beta1, static_cast<double>(now.step)));
        const double square = v.twice[i] / (1.0 - std::pow(c.beta2, static_cast<double>(now.step)));
        w.twice[i] -= c.learning_rate * c.weight_decay * w.twice[i];
        w.twice[i] -= c.learning_rate * mean / (std::sqrt(square) + c.epsilon);
        ema.twice[i] = now.average_decay * ema.twice[i] + (1.0 - now.average_decay) * w.twice[i];
    }
}

} // namespace

TEST_CASE("steps of AdamW equal the algorithm in double") {
    source draw{51};
    for (const std::int64_t n : {1, 7, 16, 100, 40000}) {
        CAPTURE(n);
        tensor w = draw.normal(n);
        tensor m{n, 0.0F};
        tensor v{n, 0.0F};
        tensor ema = w;
        optimizer_update c;
        c.constants.learning_rate = 0.01;
        c.constants.weight_decay = 0.1;
        c.gradient_scale = 0.37;
        c.average_decay = 0.9;
        for (c.step = 1; c.step != 12; ++c.step) {
            const tensor g = draw.normal(n, 3.0);
            pulse::onednn::adamw_step(w.single, g.single, m.single, v.single, ema.single, c);
            plain_step(w, g, m, v, ema, c);
        }
        CHECK(worst(w, 2e-6) < 1.0);
        CHECK(worst(m, 2e-6) < 1.0);
        CHECK(worst(v, 2e-6) < 1.0);
        CHECK(worst(ema, 2e-6) < 1.0);
    }
}

TEST_CASE("AdamW without an average does the same to the rest, and refuses sizes that differ") {
    source draw{52};
    tensor w = draw.normal(100);
    tensor m = draw.normal(100);
    tensor v = magnitudes(draw.normal(100));
    const tensor g = draw.normal(100);
    tensor ema = w;
    tensor w2 = w;
    tensor m2 = m;
    tensor v2 = v;
    optimizer_update c;
    c.step = 3;
    pulse::onednn::adamw_step(w.single, g.single, m.single, v.single, ema.single, c);
    pulse::onednn::adamw_step(w2.single, g.single, m2.single, v2.single, {}, c);
    CHECK(w.single == w2.single);
    CHECK(m.single == m2.single);
    CHECK(v.single == v2.single);
    const std::span<float> less = std::span<float>{m.single}.first(99);
    CHECK_THROWS_WITH_AS(pulse::onednn::adamw_step(w.single, g.single, less, v.single, {}, c),
                         "pulse: adamw_step: 100 weights, 100 gradients, 99 and 100 moments, 0 averages; "
                         "the numbers must be equal (averages may be 0)",
                         pulse::input_error);
    c.step = 0;
    CHECK_THROWS_AS(pulse::onednn::adamw_step(w.single, g.single, m.single, v.single, {}, c), pulse::input_error);
}

TEST_CASE("a weight's update does not depend on where it stands, nor on the number of threads") {
    source draw{54};
    const std::size_t n = 40000;
    tensor w = draw.normal(n);
    tensor m = draw.normal(n);
    tensor v = magnitudes(draw.normal(n));
    const tensor g = draw.normal(n);
    tensor ema = draw.normal(n);
    tensor w2 = w;
    tensor m2 = m;
    tensor v2 = v;
    tensor ema2 = ema;
    const optimizer_update now{
        .constants = {.weight_decay = 0.1}, .step = 5, .gradient_scale = 0.3, .average_decay = 0.7};
    pulse::onednn::fused_adamw{.threads = 2}(now, w.single, g.single, m.single, v.single, ema.single);
    for (std::size_t at = 0; at < n;) {
        const std::size_t size = std::min<std::size_t>(static_cast<std::size_t>(draw.between(1, 70)), n - at);
        const auto part = [&](tensor& t) { return std::span<float>{t.single}.subspan(at, size); };
        pulse::onednn::fused_adamw{}(now, part(w2), std::span<const float>{g.single}.subspan(at, size), part(m2),
                                     part(v2), part(ema2));
        at += size;
    }
    CHECK(w.single == w2.single);
    CHECK(m.single == m2.single);
    CHECK(v.single == v2.single);
    CHECK(ema.single == ema2.single);
}
