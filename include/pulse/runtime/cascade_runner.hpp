#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/model/cascade.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/gradient_places.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/join_costs.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/require_fit.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_runner.hpp>
#include <pulse/runtime/step_memory.hpp>

namespace pulse {

/// The parameters of a rank that runs a cascade; each backbone numbers its layers as its own model does.
template <class B>
struct cascade_parameters {
    backend_parameters<B> first;
    backend_parameters<B> second;

    [[nodiscard]] std::int64_t bytes() const noexcept { return first.bytes() + second.bytes(); }
};

namespace detail {

/// How a rank stores the parameters of a Model or cascade.
template <class Model, class B>
struct model_parameters {
    using type = backend_parameters<B>;

    [[nodiscard]] static type owned(const step_model& model, int rank, const gradient_places& gradients) {
        return owned_parameters<Model, typename B::scalar, typename B::accumulator, space_of<B>>(model, rank,
                                                                                                 gradients);
    }
    [[nodiscard]] static resizing resized(const extent& to) { return resize<Model>(to); }
    /// Returns the costs. Throws input_error unless they are the model's at these sizes.
    [[nodiscard]] static const cost_table& fitting(const cost_table& costs, int microbatch_size,
                                                   const resizing& size = {}) {
        const auto graph = graph_of<Model>(size);
        require_fit(graph.view(), costs, microbatch_size, static_cast<int>(sizeof(typename B::scalar)));
        return costs;
    }
};
template <class First, class Second, class B>
struct model_parameters<cascade<First, Second>, B> {
    using type = cascade_parameters<B>;

    [[nodiscard]] static type owned(const step_model& model, int rank, const gradient_places&) {
        const auto of = [&]<class Model>(const Model*, int first_layer) {
            return parameters_where<Model, typename B::scalar, typename B::accumulator, space_of<B>>(
                [&](int l) { return model.device_of_stage(model.stage_of_layer(first_layer + l)) == rank; });
        };
        return {of(static_cast<const First*>(nullptr), 0),
                of(static_cast<const Second*>(nullptr), model.first_layer(second_chain(model)))};
    }
    /// Throws input_error for any extent but the default: each backbone has that of its type.
    [[nodiscard]] static resizing resized(const extent& to) {
        if (to != extent{}) {
            throw input_error{"extent: the backbones of a cascade run only at the extents of their types"};
        }
        return {};
    }
    [[nodiscard]] static const cost_table& fitting(const cost_table& costs, int microbatch_size, const resizing& = {}) {
        const std::array<cost_table, 2> parts = split_costs(costs);
        static_cast<void>(model_parameters<First, B>::fitting(parts[0], microbatch_size));
        static_cast<void>(model_parameters<Second, B>::fitting(parts[1], microbatch_size));
        return costs;
    }
    /// First stage of the second backbone.
    [[nodiscard]] static int second_chain(const step_model& model) { return model.further_chains().front(); }
};

/// Runs the passes of two backbones; the task contains their tasks as `first` and `second`.
template <class First, class Second, backend B>
class stage_runner<cascade<First, Second>, B> {
public:
    using scalar = typename B::scalar;
    using conditions = backend_conditions<B>;

    stage_runner(B& math, const step_model& model, const resizing& size, int batch, cascade_parameters<B>& parameters,
                 const basic_step_memory<space_of<B>>& memory) :
        second_chain_{model_parameters<cascade<First, Second>, B>::second_chain(model)},
        first_{math, model, size, batch, parameters.first, memory},
        second_{math, model, size, batch, parameters.second, memory, second_chain_} {}

    [[nodiscard]] scalar* tensor(const prepared_instruction& at, buffer_id buffer) const {
        return first_.tensor(at, buffer);
    }
    template <class Task>
    void require_input() const {
        first_.template require_input<std::remove_reference_t<decltype(Task::first)>>();
        second_.template require_input<std::remove_reference_t<decltype(Task::second)>>();
    }
    template <class Task>
    void feed(stage_id stage, microbatch_id m, const prepared_instruction& at, Task& task) {
        is_of_first(stage) ? first_.feed(stage, m, at, task.first) : second_.feed(stage, m, at, task.second);
    }
    template <class Task>
    [[nodiscard]] conditions conditions_for(stage_id stage, microbatch_id m, Task& task) {
        return is_of_first(stage) ? first_.conditions_for(stage, m, task.first)
                                  : second_.conditions_for(stage, m, task.second);
    }
    template <class Task>
    void loss(stage_id stage, microbatch_id m, const prepared_instruction& at, Task& task) {
        is_of_first(stage) ? first_.loss(stage, m, at, task.first) : second_.loss(stage, m, at, task.second);
    }
    /// The other arguments are those of a stage_runner.
    template <class... Rest>
    void forward(stage_id stage, const Rest&... rest) {
        is_of_first(stage) ? first_.forward(stage, rest...) : second_.forward(stage, rest...);
    }
    template <class... Rest>
    void backward_input(stage_id stage, const Rest&... rest) {
        is_of_first(stage) ? first_.backward_input(stage, rest...) : second_.backward_input(stage, rest...);
    }
    template <class... Rest>
    void backward_weight(stage_id stage, const Rest&... rest) {
        is_of_first(stage) ? first_.backward_weight(stage, rest...) : second_.backward_weight(stage, rest...);
    }

private:
    [[nodiscard]] bool is_of_first(stage_id stage) const noexcept { return index_of(stage) < second_chain_; }

    int second_chain_;
    stage_runner<First, B> first_;
    stage_runner<Second, B> second_;
};

} // namespace detail

} // namespace pulse
