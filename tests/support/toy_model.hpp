#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::test {

/// The layout of a toy model's skip edges.
enum class wiring { nested, crossing, fan_out, neighbours, none };

/// A model of small dense layers drawn from a seed: widths, skip edges, and which layers read the conditioning.
struct toy_spec {
    static constexpr int capacity = 20;
    int layers{};
    bool conditioned{};
    int width[capacity + 1]{}; ///< width[i] enters layer i, width[i + 1] leaves it
    int skip_from[capacity]{}; ///< source of the skip into layer i, or -1
    bool reads[capacity]{};    ///< layer i reads the conditioning
};

consteval toy_spec draw_toy(unsigned seed, int layers, wiring kind, bool conditioned) {
    toy_spec spec;
    spec.layers = layers;
    spec.conditioned = conditioned;
    unsigned state = seed * 2654435761U + 1U;
    const auto draw = [&](int bound) {
        state = state * 1664525U + 1013904223U;
        return static_cast<int>((state >> 16) % static_cast<unsigned>(bound));
    };
    for (int& w : spec.width) { w = 2 + draw(4); }
    for (int& from : spec.skip_from) { from = -1; }
    for (int i = 0; i != layers; ++i) { spec.reads[i] = conditioned && draw(2) == 0; }
    const int half = layers / 2;
    for (int i = 0; i + 1 < half; ++i) {
        switch (kind) {
        case wiring::nested:
            if (draw(4) != 0) { spec.skip_from[layers - 1 - i] = i; }
            break;
        case wiring::crossing: // pairs of edges that cross inside a window of two layers
            spec.skip_from[layers - 1 - (i ^ 1)] = i;
            break;
        case wiring::fan_out: // one source feeds two decoder layers
            spec.skip_from[layers - 1 - i] = i / 2 * 2;
            break;
        case wiring::neighbours:
            if (draw(3) == 0) { spec.skip_from[i + 2] = i; }
            if (draw(2) == 0) { spec.skip_from[layers - 1 - i] = i; }
            break;
        case wiring::none: break;
        }
    }
    return spec;
}

/// Layer I of a toy model: silu(W x + U skip + V conditioning + b).
template <toy_spec Spec, std::size_t I>
struct toy_layer_base {
    static constexpr label name = label{"l"} + static_cast<unsigned>(I);
    static constexpr int in = Spec.width[I], out = Spec.width[I + 1];
    static constexpr int from = Spec.skip_from[I];
    static constexpr int skip_in = from < 0 ? 0 : Spec.width[from + 1];
    static constexpr int cond_in = Spec.reads[I] ? 3 : 0;
    using input = shape<in>;
    using output = shape<out>;
    static constexpr std::int64_t saved_elements = out, deferred_elements = out, workspace_elements = out;
    /// Layers that do not write their gradients have them zeroed before a step's passes.
    static constexpr bool writes_gradients = I % 2 == 1;
    static constexpr linear_shape main{in, out}, side{skip_in, out}, conditioned{cond_in, out};

    static constexpr auto parameters() {
        return std::array<parameter, 4>{parameter{name + ".weight", {out, in, 1, 1}, 2},
                                        parameter{name + ".bias", {out, 1, 1, 1}, 1},
                                        parameter{name + ".u", {out, skip_in, 1, 1}, 2, skip_in == 0},
                                        parameter{name + ".v", {out, cond_in, 1, 1}, 2, cond_in == 0}};
    }
    static constexpr double forward_flops() { return 2.0 * out * (in + skip_in + cond_in); }

    static constexpr std::ptrdiff_t bias = out * in, skip_weight = bias + out,
                                    cond_weight = skip_weight + out * skip_in;

    template <backend B>
    static void forward(B& math, const backend_frame<B>& f) {
        math.linear(main, f.batch, f.input, f.parameters, f.parameters + bias, f.workspace, into::write);
        if constexpr (skip_in > 0) {
            math.linear(side, f.batch, f.skip, f.parameters + skip_weight, nullptr, f.workspace, into::add);
        }
        if constexpr (cond_in > 0) {
            math.linear(conditioned, f.batch, f.conditioning, f.parameters + cond_weight, nullptr, f.workspace,
                        into::add);
        }
        math.copy(std::int64_t{f.batch} * out, f.workspace, f.saved);
        math.silu(std::int64_t{f.batch} * out, f.saved, f.output);
    }
    template <backend B>
    static void backward_input(B& math, const backend_frame<B>& f) {
        math.silu_backward(std::int64_t{f.batch} * out, f.saved, f.output_gradient, f.deferred, into::write);
        if (f.input_gradient != nullptr) {
            math.linear_backward_input(main, f.batch, f.deferred, f.parameters, f.input_gradient, into::write);
        }
        if constexpr (skip_in > 0) {
            math.linear_backward_input(side, f.batch, f.deferred, f.parameters + skip_weight, f.skip_gradient,
                                       into::write);
        }
        if constexpr (cond_in > 0) {
            math.linear_backward_input(conditioned, f.batch, f.deferred, f.parameters + cond_weight,
                                       f.conditioning_gradient, into::add);
        }
    }
    template <backend B>
    static void backward_weight(B& math, const backend_frame<B>& f) {
        math.linear_backward_weight(main, f.batch, f.input, f.deferred, f.gradient(), f.gradient() + bias);
        if constexpr (skip_in > 0) {
            math.linear_backward_weight(side, f.batch, f.skip, f.deferred, f.gradient() + skip_weight, nullptr);
        }
        if constexpr (cond_in > 0) {
            math.linear_backward_weight(conditioned, f.batch, f.conditioning, f.deferred, f.gradient() + cond_weight,
                                        nullptr);
        }
    }
};

template <toy_spec Spec, std::size_t I, bool Skip, bool Conditioned>
struct toy_layer : toy_layer_base<Spec, I> {};
template <toy_spec Spec, std::size_t I>
struct toy_layer<Spec, I, true, false> : toy_layer_base<Spec, I> {
    using skip_input = shape<toy_layer_base<Spec, I>::skip_in>;
};
template <toy_spec Spec, std::size_t I>
struct toy_layer<Spec, I, false, true> : toy_layer_base<Spec, I> {
    using conditioning = shape<3>;
};
template <toy_spec Spec, std::size_t I>
struct toy_layer<Spec, I, true, true> : toy_layer_base<Spec, I> {
    using skip_input = shape<toy_layer_base<Spec, I>::skip_in>;
    using conditioning = shape<3>;
};

/// A trainable conditioning: (sin t, cos t) W + b, 3 features.
struct toy_conditioning {
    static constexpr label name{"condition"};
    using output = shape<3>;
    static constexpr std::int64_t saved_elements = 2, workspace_elements = 0;
    static constexpr auto parameters() {
        return std::array<parameter, 2>{parameter{"condition.weight", {3, 2, 1, 1}, 2},
                                        parameter{"condition.bias", {3, 1, 1, 1}, 1}};
    }
    static constexpr double forward_flops() { return 12; }
    template <backend B>
    static void forward(B& math, const backend_frame<B>& f) {
        math.sinusoid(f.batch, 2, false, 0.0, f.timesteps, f.saved);
        math.linear({2, 3}, f.batch, f.saved, f.parameters, f.parameters + 6, f.output, into::write);
    }
    template <backend B>
    static void backward_weight(B& math, const backend_frame<B>& f) {
        math.linear_backward_weight({2, 3}, f.batch, f.saved, f.output_gradient, f.parameter_gradients,
                                    f.parameter_gradients + 6);
    }
};

template <toy_spec Spec>
consteval auto toy_edges() {
    constexpr int count = [] {
        int n = 0;
        for (int i = 0; i != Spec.layers; ++i) { n += Spec.skip_from[i] >= 0 ? 1 : 0; }
        return n;
    }();
    std::array<std::pair<int, int>, static_cast<std::size_t>(count)> edges{};
    std::size_t next = 0;
    for (int i = 0; i != Spec.layers; ++i) {
        if (Spec.skip_from[i] >= 0) { edges[next++] = {Spec.skip_from[i], i}; }
    }
    return edges;
}

template <toy_spec Spec, class Layers, class Edges>
struct toy_parts;
template <toy_spec Spec, std::size_t... I, std::size_t... E>
struct toy_parts<Spec, std::index_sequence<I...>, std::index_sequence<E...>> {
    static constexpr auto edges = toy_edges<Spec>();
    using type = model<"toy", layers<toy_layer<Spec, I, (Spec.skip_from[I] >= 0), Spec.reads[I]>...>,
                       skips<pulse::skip<label{"l"} + static_cast<unsigned>(edges[E].first),
                                         label{"l"} + static_cast<unsigned>(edges[E].second)>...>,
                       std::conditional_t<Spec.conditioned, toy_conditioning, unconditioned>>;
};

template <unsigned Seed, int Layers, wiring Kind, bool Conditioned>
struct toy_model
    : toy_parts<draw_toy(Seed, Layers, Kind, Conditioned), std::make_index_sequence<static_cast<std::size_t>(Layers)>,
                std::make_index_sequence<toy_edges<draw_toy(Seed, Layers, Kind, Conditioned)>().size()>>::type {};

} // namespace pulse::test
