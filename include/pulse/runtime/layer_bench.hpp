#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Runs one pass of a layer, or of a part of one, on tensors of its own, as a profile needs it: the runner of
/// measure_costs.
///
/// The tensors hold small, differing numbers, because some processors are slow on denormals near zero and softmax on
/// equal inputs is not typical. Layer 0 includes the conditioning module.
template <class Model, backend B>
class layer_bench {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;
    using embedder = typename Model::conditioning;
    using first_layer = typename Model::template layer_at<0>;

    /// For the model at an extent of its input; the default is that of its type. Throws input_error as resize does.
    layer_bench(B& math, int batch, const extent& to = {}) : math_{math}, size_{resize<Model>(to)}, batch_{batch} {
        const auto graph = graph_of<Model>(size_);
        std::int64_t widest = 0;
        std::int64_t deferred = 0;
        std::int64_t workspace = 0;
        std::vector<std::int64_t> activations{graph.layers.front().input_elements};
        std::vector<std::int64_t> saved;
        std::vector<std::int64_t> statistics;
        std::vector<std::int64_t> parameters;
        for (const layer_node& node : graph.layers) {
            widest = std::max({widest, node.input_elements, node.output_elements, node.open_elements});
            deferred = std::max(deferred, node.deferred_elements);
            workspace = std::max(workspace, node.workspace_elements);
            activations.push_back(node.output_elements);
            saved.push_back(node.saved_elements);
            statistics.push_back(node.statistics_elements);
            parameters.push_back(std::max(node.parameter_elements, node.frozen_parameter_elements));
        }
        for (const skip_link& edge : graph.skips) { widest = std::max(widest, edge.elements); }
        activations_.place(activations, batch);
        saved_.place(saved, batch);
        statistics_.place(statistics, batch);
        parameters_.place(parameters, 1);
        parameter_gradients_.place(parameters, 1);
        for (auto* tensor : {&skip_, &residual_, &output_gradient_, &input_gradient_, &skip_gradient_}) {
            fill(*tensor, widest * batch);
        }
        fill(deferred_, deferred * batch);
        fill(workspace_, workspace * batch);
        fill(conditioning_, graph.conditioning_elements * batch);
        fill(conditioning_gradient_, graph.conditioning_elements * batch);
        fill(timesteps_, batch);
        if constexpr (reads_text<embedder>) { fill(text_, embedder::text_elements * batch); }
        // Zero-initialised: every model has a class 0.
        if constexpr (reads_facts<embedder>) {
            facts_ = accumulators(static_cast<std::size_t>(embedder::fact_elements * batch));
        } else if constexpr (reads_facts<first_layer>) {
            facts_ = accumulators(static_cast<std::size_t>(first_layer::fact_elements * batch));
        }
    }

    void operator()(int layer, pass what) {
        const auto at = static_cast<std::size_t>(layer);
        backend_frame<B> frame = shared_frame(at);
        const part_place& place = part_places<Model>[at];
        const auto& entry = table[static_cast<std::size_t>(place.layer)];
        frame.part = place.of_frame();
        frame.input = activations_.of(at);
        frame.residual = frame.made_residual = residual_.data();
        frame.residual_gradient = residual_.data();
        frame.skip = skip_.data();
        detail::bind_conditioning<embedder>(frame, static_cast<const scalar*>(conditioning_.data()));
        frame.output = activations_.of(at + 1);
        frame.output_gradient = output_gradient_.data();
        frame.input_gradient = layer == 0 ? nullptr : input_gradient_.data();
        frame.skip_gradient = skip_gradient_.data();
        detail::bind_conditioning_gradient<embedder>(frame, conditioning_gradient_.data());
        frame.deferred = deferred_.data();
        switch (what) {
        case pass::preview:
        case pass::forward: entry.forward(math_, frame); break;
        case pass::backward_input: entry.backward_input(math_, frame); break;
        case pass::backward_weight: entry.backward_weight(math_, frame); break;
        }
        if constexpr (Model::is_conditioned) {
            if (layer == 0) { condition(what); }
        }
    }

private:
    static constexpr auto table = layer_table<Model, B>();
    using scalars = typename space::template array<scalar>;
    using accumulators = typename space::template array<accumulator>;

    /// The members that the frames of a layer and of the conditioning module share.
    [[nodiscard]] backend_frame<B> shared_frame(std::size_t layer) noexcept {
        backend_frame<B> frame;
        frame.batch = batch_;
        frame.size = size_;
        frame.parameters = parameters_.of(layer);
        frame.frozen_parameters = parameters_.of(layer);
        frame.saved = saved_.of(layer);
        frame.statistics = statistics_.of(layer);
        frame.parameter_gradients = parameter_gradients_.of(layer);
        frame.workspace = workspace_.data();
        detail::bind_conditions(frame, detail::backend_conditions<B>{timesteps_.data(), text_.data(), facts_.data()});
        return frame;
    }

    void condition(pass what) {
        backend_frame<B> frame = shared_frame(0);
        frame.output = conditioning_.data();
        frame.output_gradient = conditioning_gradient_.data();
        if (what == pass::forward || what == pass::preview) { embedder::forward(math_, frame); }
        if (what == pass::backward_weight) { embedder::backward_weight(math_, frame); }
    }

    /// One tensor per layer, consecutive as in a step, so that a pass finds as much of it in caches as there. Memory
    /// far beyond the size of any cache is reused, except for the previous tensor's, so that a bench needs less memory
    /// than a step.
    template <class T>
    class places {
    public:
        /// Places one tensor of small values for each entry of `of_sample`, its elements per sample.
        void place(const std::vector<std::int64_t>& of_sample, int batch) {
            constexpr std::int64_t most = (std::int64_t{256} << 20) / static_cast<std::int64_t>(sizeof(T));
            constexpr std::int64_t aligned = 64;
            std::int64_t end = 0;
            std::int64_t at = 0;
            for (const std::int64_t elements : of_sample) {
                const std::int64_t size = (elements * batch + aligned - 1) / aligned * aligned;
                if (at + size > most && !first_.empty() && first_.back() >= static_cast<std::size_t>(size)) { at = 0; }
                first_.push_back(static_cast<std::size_t>(at));
                at += size;
                end = std::max(end, at);
            }
            fill(values_, end, 0.001F);
        }
        [[nodiscard]] T* of(std::size_t i) noexcept { return values_.data() + first_[i]; }

    private:
        std::vector<std::size_t> first_{};
        typename space::template array<T> values_{};
    };

    template <class Array>
    static void fill(Array& tensor, std::int64_t elements, float unit = 0.01F) {
        using T = std::remove_reference_t<decltype(*tensor.data())>;
        std::vector<T> values(static_cast<std::size_t>(elements));
        for (std::size_t i = 0; i != values.size(); ++i) {
            values[i] = static_cast<T>(unit * static_cast<float>(1 + static_cast<int>(i * 7919 % 61) - 30));
        }
        tensor = Array(values.size());
        space::upload(std::span<const T>{values}, tensor.data());
    }

    B& math_;
    resizing size_;
    int batch_;
    places<scalar> activations_, saved_, parameters_;
    places<accumulator> statistics_, parameter_gradients_;
    scalars skip_, residual_, output_gradient_, input_gradient_, skip_gradient_;
    scalars deferred_, workspace_, conditioning_, conditioning_gradient_, text_;
    accumulators timesteps_, facts_;
};

} // namespace pulse
