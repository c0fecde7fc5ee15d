#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/core/pass.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// How often to measure. A sweep runs every pass of every layer once.
struct measure_options {
    int warm_up_sweeps{2};
    /// Timed sweeps; their median counts.
    int sweeps{9};
};

/// Runs one pass of one layer on a real backend: `run(layer, pass)` returns when the pass is done, or returns its
/// duration in microseconds when the host's clock cannot see it.
template <class R>
concept layer_runner = std::invocable<R&, int, pass>;

namespace detail {

/// The median; the mean of the middle two for an even number of values. Requires at least one value.
[[nodiscard]] inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) { return *middle; }
    return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

} // namespace detail

/// Costs of a graph as timed on the backend behind `run`; byte counts are those of blank_costs.
///
/// A sweep runs the passes in the order of a training step (F of layers 0 to n-1, then B and W of layers n-1 to 0), so
/// that caches are in their usual state. Each time is the median over the sweeps after the warm-up, in microseconds of
/// Clock or as `run` returns it; all times are then scaled up so that their sum is at least the median sweep. On
/// dedicated cores that changes little. On a shared core a few passes include the time of other processes, which the
/// per-pass medians miss. W is neither run nor charged for a layer without parameters. Throws input_error for the
/// reasons of blank_costs and for invalid options; exceptions of `run` pass through.
template <class Clock = std::chrono::steady_clock, layer_runner Runner>
[[nodiscard]] cost_table measure_costs(const graph_view& graph, int microbatch_size, int scalar_bytes,
                                       label device_name, Runner&& run, const measure_options& options = {}) {
    if (options.warm_up_sweeps < 0) { throw input_error("measure: warm_up_sweeps must be at least 0"); }
    if (options.sweeps < 1) { throw input_error("measure: sweeps must be at least 1"); }
    cost_table table = blank_costs(graph, microbatch_size, scalar_bytes);
    table.device = device_name;

    struct samples {
        std::vector<double> forward{};
        std::vector<double> backward_input{};
        std::vector<double> backward_weight{};
    };
    const std::size_t layers = graph.layers.size();
    std::vector<samples> measured(layers);
    std::vector<double> sweeps_us;
    double sweep_us = 0.0;
    const auto timed = [&run, &sweep_us](std::size_t layer, pass op, std::vector<double>* keep) {
        double us = 0.0;
        if constexpr (std::floating_point<std::invoke_result_t<Runner&, int, pass>>) {
            us = run(static_cast<int>(layer), op);
        } else {
            const auto start = Clock::now();
            run(static_cast<int>(layer), op);
            us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
        }
        if (keep != nullptr) {
            keep->push_back(us);
            sweep_us += us;
        }
    };
    const auto sweep = [&](bool keep) {
        for (std::size_t l = 0; l != layers; ++l) { timed(l, pass::forward, keep ? &measured[l].forward : nullptr); }
        for (std::size_t l = layers; l-- != 0;) {
            if (table.layers[l].forward_only()) { continue; }
            timed(l, pass::backward_input, keep ? &measured[l].backward_input : nullptr);
            if (graph.layers[l].parameter_elements > 0) {
                timed(l, pass::backward_weight, keep ? &measured[l].backward_weight : nullptr);
            }
        }
    };
    for (int i = 0; i != options.warm_up_sweeps; ++i) { sweep(false); }
    for (int i = 0; i != options.sweeps; ++i) {
        sweep_us = 0.0;
        sweep(true);
        sweeps_us.push_back(sweep_us);
    }

    double medians_us = 0.0;
    for (std::size_t l = 0; l != layers; ++l) {
        table.layers[l].forward_us = detail::median(measured[l].forward);
        if (!measured[l].backward_input.empty()) {
            table.layers[l].backward_input_us = detail::median(measured[l].backward_input);
        }
        if (!measured[l].backward_weight.empty()) {
            table.layers[l].backward_weight_us = detail::median(measured[l].backward_weight);
        }
        medians_us +=
            table.layers[l].forward_us + table.layers[l].backward_input_us + table.layers[l].backward_weight_us;
    }
    const double scale = medians_us > 0.0 ? std::max(1.0, detail::median(sweeps_us) / medians_us) : 1.0;
    for (layer_cost& layer : table.layers) {
        layer.forward_us *= scale;
        layer.backward_input_us *= scale;
        layer.backward_weight_us *= scale;
    }
    return table;
}

} // namespace pulse
