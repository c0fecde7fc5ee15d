#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <support/operations/trial.hpp>

// Functions of single numbers and their gradients equal the plain ones in double, in place as well.

namespace pulse::test {

/// Errors of a function on the host, in units of float's epsilon: of y, relative to 1 + |x|, and of dx.
struct function_error {
    double y, dx;
};

/// forward(backend, n, x, y) and backward(backend, n, x, dy, dx, how).
template <class Trial, class Forward, class Backward>
void check_activation(Trial& t, std::int64_t n, double deviation, const function_error& error, const Forward& forward,
                      const Backward& backward) {
    CAPTURE(n);
    CAPTURE(t.offset);
    const doubles x = t.normal(n, deviation);
    const doubles dy = t.normal(n);
    doubles sizes = magnitudes(x);
    for (double& v : sizes) { v += 1.0; }
    const double device = 6.0 * float_epsilon;
    const error_bound of_y = Trial::either({error.y * float_epsilon, sizes}, {device, {greatest(x)}});
    const error_bound of_dx = Trial::either({error.dx * float_epsilon, {1.0}}, {device, {greatest(x) * greatest(dy)}});
    outcome in_place{.before = x, .error = of_y, .same_as = 0};
    t.check({x}, {}, {t.writes(n, of_y), in_place}, [&](auto& on, const auto& o) {
        forward(on, n, o.x[0], o.y[0]);
        forward(on, n, o.y[1], o.y[1]);
    });
    in_place = {.before = dy, .error = of_dx};
    for (const into how : {into::add, into::write}) {
        if (how == into::write) { in_place.same_as = 0; }
        t.check({x, dy}, {}, {t.puts(how, n, of_dx), in_place}, [&](auto& on, const auto& o) {
            backward(on, n, o.x[0], o.x[1], o.y[0], how);
            backward(on, n, o.x[0], o.y[1], o.y[1], into::write);
        });
    }
}

template <class Trial>
void check_activations(Trial& t, const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t n : sizes) {
        check_activation(
            t, n, 4.0, {1.1, 17.0}, [](auto& on, auto... a) { on.silu(a...); },
            [](auto& on, auto... a) { on.silu_backward(a...); });
        check_activation(
            t, n, 3.0, {1.5, 7.5}, [](auto& on, auto... a) { on.gelu(a...); },
            [](auto& on, auto... a) { on.gelu_backward(a...); });
        check_activation(
            t, n, 3.0, {3.4, 17.0}, [](auto& on, auto... a) { on.gelu_tanh(a...); },
            [](auto& on, auto... a) { on.gelu_tanh_backward(a...); });
    }
}

template <class Trial>
void check_simple_functions(Trial& t, std::int64_t n) {
    CAPTURE(n);
    CAPTURE(t.offset);
    const doubles x = t.normal(n);
    const outcome in_place{.before = x, .same_as = 1};
    t.check({x}, {}, {t.puts(into::add, n, 0.0), t.writes(n, 0.0), t.moves(n), t.writes(n, 0.0), in_place},
            [&](auto& on, const auto& o) {
                on.add(n, o.x[0], o.y[0]);
                on.scale(n, 0.7F, o.x[0], o.y[1]);
                on.copy(n, o.x[0], o.y[2]);
                on.fill(n, 0.3F, o.y[3]);
                on.scale(n, 0.7F, o.y[4], o.y[4]);
            });
}

template <class Trial>
void check_geglu(Trial& t, std::int64_t rows, int features) {
    CAPTURE(features);
    const std::int64_t n = rows * features;
    const doubles x = t.normal(2 * n, 2.0);
    const doubles dy = t.normal(n);
    const double size = greatest(x) * greatest(x);
    const error_bound host{3.4 * float_epsilon, {20.0}};
    t.check({x, dy}, {},
            {t.writes(n, Trial::either(host, {6.0 * float_epsilon, {size}})),
             t.writes(2 * n, Trial::either(host, {6.0 * float_epsilon, {size * greatest(dy)}}))},
            [&](auto& on, const auto& o) {
                on.geglu(rows, features, o.x[0], o.y[0]);
                on.geglu_backward(rows, features, o.x[0], o.x[1], o.y[1]);
            });
}
template <class Trial>
void check_geglus(Trial& t) {
    for (const auto& [rows, features] :
         {std::pair{5, 64}, {1, 8}, {13, 7}, {40, 320}, {3, 1}, {17, 70}, {2, 33}, {9, 16}}) {
        check_geglu(t, rows, features);
    }
}

/// Quick GELU, and the gate, which multiplies by a given tensor.
template <class Trial>
void check_gates(Trial& t, std::int64_t n) {
    CAPTURE(n);
    outcome product{t.normal(n), {0.49 * float_epsilon}};
    t.check({t.normal(n, 3.0, 0.5)}, {},
            {t.writes(n, Trial::either({7.4 * float_epsilon}, {20.0 * float_epsilon})), product},
            [&](auto& on, const auto& o) {
                on.quick_gelu(n, o.x[0], o.y[0]);
                on.gate(n, o.x[0], o.y[1]);
            });
}

template <class Trial>
void check_sinusoids(Trial& t) {
    const error_bound error = Trial::either({0.49 * float_epsilon, {1.0}}, {6.0 * float_epsilon, {1.0}});
    for (const int features : {2, 32, 128, 320}) {
        for (const bool flip : {false, true}) {
            for (const double shift : {0.0, 0.5, 1.0}) {
                if (features == 2 && shift == 1.0) { continue; } // one frequency less a shift of 1 divides by 0
                t.check({}, {{0.0, 1.0, 17.0, 37.0, 250.0, 500.0, 999.0, 0.5, 123456.0}},
                        {t.writes(9 * features, error)},
                        [&](auto& on, const auto& o) { on.sinusoid(9, features, flip, shift, o.a[0], o.y[0]); });
            }
        }
    }
}

/// Posteriors of moments, some of which exceed the limits on either side.
template <class Trial>
void check_posterior(Trial& t, int channels) {
    CAPTURE(channels);
    constexpr std::int64_t pixels = 37;
    doubles moments = t.normal(pixels * 2 * channels, 3.0);
    moments[static_cast<std::size_t>(channels)] = -50.0;    // clamped to -30
    moments[static_cast<std::size_t>(3 * channels)] = 30.0; // clamped to 20
    const doubles noise = t.normal(pixels * channels);
    constexpr float factor = 0.18215F;
    // each result's error scales with 1 + its magnitude
    doubles z(noise.size());
    t.side.oracle.posterior(pixels, channels, static_cast<double>(factor), moments.data(), noise.data(), z.data());
    for (double& v : z) { v = std::abs(v) + 1.0; }
    const double relative = Trial::either({16.2 * float_epsilon}, {64.0 * float_epsilon}).relative;
    t.check({moments, noise}, {}, {t.writes(pixels * channels, error_bound{relative, z})},
            [&](auto& on, const auto& o) { on.posterior(pixels, channels, factor, o.x[0], o.x[1], o.y[0]); });
}

} // namespace pulse::test
