#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/pass.hpp>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/step_graphs.cuh>
#include <pulse/model/extent.hpp>
#include <pulse/runtime/layer_bench.hpp>

namespace pulse::cuda {

/// Runs one pass of one layer on a device and returns the time that the device took, in microseconds by events: the
/// runner for measure_costs on a device.
///
/// As in a step, a pass runs uncaptured the first time and as one captured graph from the second on, so that its time
/// excludes the host's: warm up for at least two sweeps. If the device has to wait for the graph's launch, that wait is
/// part of the time; for a pass of a few microseconds it is most of it.
template <class Model, class B>
class layer_timer {
public:
    /// For microbatches of `batch` samples, at an extent of the model's input; by default that of its type.
    layer_timer(B& math, int batch, const extent& to = {}) :
        stream_{math.stream()}, bench_{math, batch, to}, passes_{math, names()}, before_{timing::on}, after_{
                                                                                                          timing::on} {}

    double operator()(int layer, pass what) {
        before_.record(stream_);
        passes_.run(
            static_cast<std::size_t>(layer) * 3 + static_cast<std::size_t>(what), [](auto&&) {},
            [&] { bench_(layer, what); });
        after_.record(stream_);
        after_.synchronize();
        return 1e6 * seconds_between(before_, after_);
    }

private:
    /// In the order of the passes: forward, backward_input, backward_weight.
    [[nodiscard]] static std::vector<std::string> names() {
        static constexpr auto graph = graph_of<Model>();
        std::vector<std::string> all;
        for (const layer_node& node : graph.layers) {
            for (const char* what : {"forward ", "backward_input ", "backward_weight "}) {
                all.push_back(what + node.name.str());
            }
        }
        return all;
    }

    cudaStream_t stream_;
    layer_bench<Model, B> bench_;
    step_graphs passes_;
    event before_;
    event after_;
};

} // namespace pulse::cuda
