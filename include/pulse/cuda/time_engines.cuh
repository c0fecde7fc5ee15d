#pragma once

#include <memory>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/label.hpp>
#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/layer_bench.hpp>

namespace pulse::cuda {

/// Adds to `choices` an engine for every product, convolution and attention of a model's layers, at microbatches of
/// `batch` samples and an extent (none: that of the model's type): timed as long as the budget lasts, then the
/// heuristics' first. `uses`: microbatches per step, the mean if steps differ. Throws as layer_bench and the backend
/// do.
template <class Model, class Precision>
void time_engines(cudaStream_t stream, std::shared_ptr<engine_choices> choices, int batch, const extent& to,
                  double uses) {
    choices->count_each_as(uses);
    engine_options options;
    options.candidates = timed_candidates;
    options.choices = std::move(choices);
    using math_type = backend<Precision>;
    math_type math{stream, options};
    layer_bench<Model, math_type> bench{math, batch, to};
    const auto graph = graph_of<Model>(resize<Model>(to));
    static_cast<void>(measure_costs(graph.view(), batch, sizeof(typename math_type::scalar), label{}, bench,
                                    {.warm_up_sweeps = 0, .sweeps = 1}));
    math.synchronize();
}

} // namespace pulse::cuda
