#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>

namespace pulse {

/// Runs a whole model forward on one backend, without a pipeline: for sampling and validation.
///
/// It allocates its memory at construction, in the backend's space, for batches of up to `batch` samples.
template <class Model, backend B>
class forward_runner {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;

    /// `to` is the extent of the model's input; the default is that of its type. Throws input_error if `batch` is less
    /// than 1, and as resize does.
    forward_runner(B& math, int batch, const extent& to = {}) :
        math_{math}, size_{resize<Model>(to)}, batch_{batch}, parameters_{
                                                                  whole_model<Model, scalar, accumulator, space>()} {
        if (batch < 1) {
            throw input_error{"pulse: forward_runner: batch must be at least 1, not " + std::to_string(batch)};
        }
        const auto n = static_cast<std::size_t>(batch);
        std::int64_t saved = 0;
        std::int64_t statistics = 0;
        std::int64_t workspace = 0;
        for (const layer_node& node : graph_.layers) {
            // The last layer writes to the caller's y.
            if (outputs_.size() + 1 != graph_.layers.size()) {
                outputs_.push_back(scalars(static_cast<std::size_t>(node.output_elements) * n));
            }
            saved = std::max(saved, node.saved_elements);
            statistics = std::max(statistics, node.statistics_elements);
            workspace = std::max(workspace, node.workspace_elements);
        }
        saved_ = scalars(static_cast<std::size_t>(saved) * n);
        statistics_ = typename space::template array<accumulator>(static_cast<std::size_t>(statistics) * n);
        workspace_ = scalars(static_cast<std::size_t>(workspace) * n);
        conditioning_ = scalars(static_cast<std::size_t>(graph_.conditioning_elements) * n);
    }
    forward_runner(const forward_runner&) = delete;
    forward_runner& operator=(const forward_runner&) = delete;

    /// Every layer's parameters; fill them with upload() and upload_frozen(), then call B::weights_changed(). Gradients
    /// are not used.
    [[nodiscard]] backend_parameters<B>& parameters() noexcept { return parameters_; }

    /// y = model(x, timesteps) for `samples` samples, all in the backend's space. Timesteps are read only if the model
    /// has conditioning or its first layer reads them, `text` and `facts` only if the conditioning module or the first
    /// layer reads_text or reads_facts (see layer_frame). Throws input_error unless `samples` is between 1 and the
    /// runner's batch, and if text or facts that are read are null.
    void run(int samples, const scalar* x, const accumulator* timesteps, scalar* y, const scalar* text = nullptr,
             const accumulator* facts = nullptr) {
        if (samples < 1 || samples > batch_) {
            throw input_error{"pulse: forward_runner: samples must be from 1 to " + std::to_string(batch_) + ", not " +
                              std::to_string(samples)};
        }
        const auto require = [](bool given, const char* what) {
            if (!given) {
                throw input_error{std::string{"pulse: forward_runner: the model reads "} + what +
                                  ", but none were given"};
            }
        };
        require(text != nullptr || !reads_text<embedder>, "text states");
        require(facts != nullptr || !(reads_facts<embedder> || reads_facts<first_layer>), "facts of the samples");
        backend_frame<B> frame;
        frame.batch = samples;
        frame.size = size_;
        frame.saved = saved_.data();
        frame.statistics = statistics_.data();
        frame.workspace = workspace_.data();
        detail::bind_conditions(frame, detail::backend_conditions<B>{timesteps, text, facts});
        if constexpr (Model::is_conditioned) {
            frame.output = conditioning_.data();
            frame.parameters = parameters_.values_of(conditioning_block).data();
            frame.frozen_parameters = parameters_.frozen_values_of(conditioning_block).data();
            embedder::forward(math_, frame);
            detail::bind_conditioning<embedder>(frame, static_cast<const scalar*>(conditioning_.data()));
        }
        frame.input = x;
        for (std::size_t l = 0; l != table.size(); ++l) {
            frame.skip = nullptr;
            for (const skip_link& edge : graph_.skips) {
                if (edge.to == static_cast<int>(l)) {
                    frame.skip = outputs_[static_cast<std::size_t>(edge.from)].data();
                }
            }
            // The parts of a layer have consecutive parameters.
            const int first_part = static_cast<int>(first_part_of<Model>(l));
            frame.parameters = parameters_.values_of(first_part).data();
            frame.frozen_parameters = parameters_.frozen_values_of(first_part).data();
            frame.output = l + 1 == table.size() ? y : outputs_[l].data();
            table[l].forward(math_, frame);
            frame.input = frame.output;
        }
    }

private:
    using scalars = typename space::template array<scalar>;

    static constexpr auto table = layer_table<Model, B>();
    using embedder = typename Model::conditioning;
    using first_layer = typename Model::template layer_at<0>;

    B& math_;
    resizing size_;
    static_graph<Model::layer_count, Model::skip_count> graph_{uncut_graph_of<Model>(size_)};
    int batch_;
    backend_parameters<B> parameters_;
    std::vector<scalars> outputs_;
    scalars saved_;
    typename space::template array<accumulator> statistics_;
    scalars workspace_;
    scalars conditioning_;
};

} // namespace pulse
