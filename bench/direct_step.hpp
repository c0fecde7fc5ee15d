#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/model/graph_of.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/runtime/parameters.hpp>

namespace pulse_bench {

/// A training step without an executor, to compare one at P = 1 with: every layer in turn, on preallocated buffers.
template <class Model, pulse::backend B>
class direct_step {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;

    direct_step(B& math, int batch) :
        math_{math}, batch_{batch}, parameters_{pulse::whole_model<Model, scalar, accumulator>()} {
        const auto n = static_cast<std::size_t>(batch);
        std::int64_t workspace = 0;
        for (const pulse::layer_node& node : graph.layers) {
            output_.emplace_back(static_cast<std::size_t>(node.output_elements) * n);
            gradient_.emplace_back(static_cast<std::size_t>(node.output_elements) * n);
            saved_.emplace_back(static_cast<std::size_t>(node.saved_elements) * n);
            statistics_.emplace_back(static_cast<std::size_t>(node.statistics_elements) * n);
            deferred_.emplace_back(static_cast<std::size_t>(node.deferred_elements) * n);
            workspace = node.workspace_elements > workspace ? node.workspace_elements : workspace;
        }
        for (const pulse::skip_link& edge : graph.skips) {
            skip_gradient_.emplace_back(static_cast<std::size_t>(edge.elements) * n);
        }
        workspace_.resize(static_cast<std::size_t>(workspace) * n);
        input_.resize(static_cast<std::size_t>(graph.layers[0].input_elements) * n);
        conditioning_.resize(static_cast<std::size_t>(graph.conditioning_elements) * n);
        conditioning_gradient_.resize(conditioning_.size());
    }

    [[nodiscard]] pulse::rank_parameters<scalar, accumulator>& parameters() noexcept { return parameters_; }

    template <class Task>
    void step(Task& task, int microbatches) {
        math_.weights_changed(); // as an optimizer would have changed them
        for (int m = 0; m != microbatches; ++m) {
            task.input(m, input_.data());
            gradients_ = m == 0 ? pulse::into::write : pulse::into::add;
            auto conditioner = condition_frame(task, m);
            conditioner.output = conditioning_.data();
            Model::conditioning::forward(math_, conditioner);
            for (std::size_t l = 0; l != table.size(); ++l) { table[l].forward(math_, frame(l)); }
            task.loss(m, output_.back().data(), gradient_.back().data());
            math_.fill(static_cast<std::int64_t>(conditioning_gradient_.size()), 0.0F, conditioning_gradient_.data());
            for (std::size_t l = table.size(); l-- > 0;) {
                for (std::size_t e = 0; e != graph.skips.size(); ++e) {
                    if (graph.skips[e].from == static_cast<int>(l)) {
                        math_.add(graph.skips[e].elements * batch_, skip_gradient_[e].data(), gradient_[l].data());
                    }
                }
                table[l].backward_input(math_, frame(l));
                table[l].backward_weight(math_, frame(l));
            }
            auto backward = condition_frame(task, m);
            backward.output_gradient = conditioning_gradient_.data();
            backward.gradients = gradients_;
            backward.parameter_gradients = parameters_.gradients_of(pulse::conditioning_block).data();
            Model::conditioning::backward_weight(math_, backward);
        }
        task.optimize();
    }

private:
    static constexpr auto table = pulse::layer_table<Model, B>();
    static constexpr auto graph = pulse::uncut_graph_of<Model>();

    template <class Task>
    pulse::backend_frame<B> condition_frame(Task& task, int m) {
        pulse::backend_frame<B> f;
        f.batch = batch_;
        f.timesteps = task.timesteps(m);
        f.parameters = parameters_.values_of(pulse::conditioning_block).data();
        f.saved = saved_[0].data() + Model::template layer_at<0>::saved_elements * batch_;
        f.workspace = workspace_.data();
        return f;
    }
    /// The first part of layer l, whose parameters precede those of its other parts.
    [[nodiscard]] static int first_part(std::size_t l) { return static_cast<int>(pulse::first_part_of<Model>(l)); }
    pulse::backend_frame<B> frame(std::size_t l) {
        pulse::backend_frame<B> f;
        f.batch = batch_;
        f.input = l == 0 ? input_.data() : output_[l - 1].data();
        f.conditioning = conditioning_.data();
        f.parameters = parameters_.values_of(first_part(l)).data();
        f.output = output_[l].data();
        f.saved = saved_[l].data();
        f.statistics = statistics_[l].data();
        f.output_gradient = gradient_[l].data();
        f.input_gradient = l == 0 ? nullptr : gradient_[l - 1].data();
        f.conditioning_gradient = conditioning_gradient_.data();
        f.deferred = deferred_[l].data();
        f.gradients = gradients_;
        f.parameter_gradients = parameters_.gradients_of(first_part(l)).data();
        f.workspace = workspace_.data();
        for (std::size_t e = 0; e != graph.skips.size(); ++e) {
            if (graph.skips[e].to != static_cast<int>(l)) { continue; }
            f.skip = output_[static_cast<std::size_t>(graph.skips[e].from)].data();
            f.skip_gradient = skip_gradient_[e].data();
        }
        return f;
    }

    B& math_;
    int batch_;
    pulse::into gradients_{}; ///< whether the passes write or add gradients of parameters
    pulse::rank_parameters<scalar, accumulator> parameters_;
    std::vector<std::vector<scalar>> output_, gradient_, saved_, deferred_, skip_gradient_;
    std::vector<std::vector<accumulator>> statistics_;
    std::vector<scalar> workspace_, input_, conditioning_, conditioning_gradient_;
};

} // namespace pulse_bench
