#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <pulse/model/graph_of.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Runs one pass of one layer on tensors of its own, as a profile needs it: the runner of measure_costs.
///
/// The tensors hold small numbers that differ, since some processors are slower on zeros' neighbours (denormals) and
/// softmax on equal inputs is not typical. Layer 0 includes the conditioning module.
template <class Model, backend B>
class layer_bench {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;

    layer_bench(B& math, int batch) : math_{math}, batch_{batch} {
        std::int64_t widest = 0;
        std::int64_t saved = 0;
        std::int64_t statistics = 0;
        std::int64_t deferred = 0;
        std::int64_t workspace = 0;
        std::int64_t parameters = 0;
        for (const layer_node& node : graph.layers) {
            widest = std::max({widest, node.input_elements, node.output_elements});
            saved = std::max(saved, node.saved_elements);
            statistics = std::max(statistics, node.statistics_elements);
            deferred = std::max(deferred, node.deferred_elements);
            workspace = std::max(workspace, node.workspace_elements);
            parameters = std::max(parameters, node.parameter_elements);
        }
        for (const skip_link& edge : graph.skips) { widest = std::max(widest, edge.elements); }
        for (auto* tensor : {&input_, &skip_, &output_, &output_gradient_, &input_gradient_, &skip_gradient_}) {
            fill(*tensor, widest * batch);
        }
        fill(saved_, saved * batch);
        fill(statistics_, statistics * batch);
        fill(deferred_, deferred * batch);
        fill(workspace_, workspace * batch);
        fill(parameters_, parameters);
        fill(parameter_gradients_, parameters);
        fill(conditioning_, graph.conditioning_elements * batch);
        fill(conditioning_gradient_, graph.conditioning_elements * batch);
        fill(timesteps_, batch);
    }

    void operator()(int layer, pass what) {
        const auto at = static_cast<std::size_t>(layer);
        backend_frame<B> frame{batch_,
                               input_.data(),
                               skip_.data(),
                               conditioning_.data(),
                               parameters_.data(),
                               output_.data(),
                               saved_.data(),
                               statistics_.data(),
                               output_gradient_.data(),
                               layer == 0 ? nullptr : input_gradient_.data(),
                               skip_gradient_.data(),
                               conditioning_gradient_.data(),
                               deferred_.data(),
                               parameter_gradients_.data(),
                               workspace_.data(),
                               timesteps_.data()};
        switch (what) {
        case pass::forward: table[at].forward(math_, frame); break;
        case pass::backward_input: table[at].backward_input(math_, frame); break;
        case pass::backward_weight: table[at].backward_weight(math_, frame); break;
        }
        if constexpr (Model::is_conditioned) {
            if (layer == 0) { condition(what); }
        }
    }

private:
    static constexpr auto table = layer_table<Model, B>();
    static constexpr auto graph = graph_of<Model>();

    void condition(pass what) {
        backend_frame<B> frame;
        frame.batch = batch_;
        frame.timesteps = timesteps_.data();
        frame.parameters = parameters_.data();
        frame.output = conditioning_.data();
        frame.output_gradient = conditioning_gradient_.data();
        frame.saved = saved_.data();
        frame.statistics = statistics_.data();
        frame.parameter_gradients = parameter_gradients_.data();
        frame.workspace = workspace_.data();
        if (what == pass::forward) { Model::conditioning::forward(math_, frame); }
        if (what == pass::backward_weight) { Model::conditioning::backward_weight(math_, frame); }
    }

    template <class Array>
    static void fill(Array& tensor, std::int64_t elements) {
        using T = std::remove_reference_t<decltype(*tensor.data())>;
        std::vector<T> values(static_cast<std::size_t>(elements));
        for (std::size_t i = 0; i != values.size(); ++i) {
            values[i] = static_cast<T>(0.01F * static_cast<float>(1 + static_cast<int>(i * 7919 % 61) - 30));
        }
        tensor = Array(values.size());
        space::upload(std::span<const T>{values}, tensor.data());
    }

    B& math_;
    int batch_;
    typename space::template array<scalar> input_, skip_, output_, output_gradient_, input_gradient_, skip_gradient_;
    typename space::template array<scalar> saved_, deferred_, workspace_, parameters_, conditioning_,
        conditioning_gradient_;
    typename space::template array<accumulator> statistics_, parameter_gradients_, timesteps_;
};

} // namespace pulse
