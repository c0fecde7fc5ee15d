#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/runtime/nan_trap.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_tensors.hpp>
#include <pulse/runtime/step_memory.hpp>

namespace pulse::detail {

/// T, a task of the executor, writes the model's input from data alone, or from data and a prediction.
template <class T, class Scalar>
concept takes_input = requires(T& task, Scalar* x) {
    task.input(0, x);
};
template <class T, class Scalar>
concept takes_prediction = requires(T& task, Scalar* x, const Scalar* y) {
    task.input(0, x, y);
};

/// For passes whose tensors are not observed.
struct nobody_looks {
    constexpr void operator()(auto&&...) const noexcept {}
};

/// Runs the passes of whole stages: binds every layer's frame to the step's memory and calls the layer.
///
/// What a task does (feed, conditions_for, loss) is separate from what the layers compute (forward, backward_input,
/// backward_weight): the task's work differs in every step, the layers' is the same work on the same addresses.
/// `look(where, layer, values, elements)` can observe each tensor as the layers produce it.
template <class Model, backend B>
class stage_runner : stage_tensors<Model, B> {
    using tensors = stage_tensors<Model, B>;

public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    static constexpr auto table = layer_table<Model, B>();
    using conditioning_module = typename Model::conditioning;
    using conditions = backend_conditions<B>;

    /// `model` must come from costs that fit the Model at these sizes and batch (require_fit), from `first_stage` on.
    stage_runner(B& math, const step_model& model, const resizing& size, int batch, backend_parameters<B>& parameters,
                 const basic_step_memory<space_of<B>>& memory, int first_stage = 0) :
        tensors{model, size, batch, memory, first_stage},
        math_{math}, parameters_{parameters} {}

    using tensors::tensor;

    /// Throws input_error, on every rank, unless the task has the input that the plan needs: one that takes a
    /// prediction if the plan has previews, one without otherwise.
    template <class Task>
    void require_input() const {
        static_assert(takes_input<Task, scalar> || takes_prediction<Task, scalar>,
                      "pulse: a task writes the model's input as input(m, x), or input(m, x, prediction)");
        if (model_.previews() > 0 && !takes_prediction<Task, scalar>) {
            throw input_error{"pulse: the plan has previews, so the input of this run's task must take a prediction"};
        }
        if (model_.previews() == 0 && !takes_input<Task, scalar>) {
            throw input_error{"pulse: the input of this run's task takes a prediction, but the plan has no previews"};
        }
    }
    /// For stage 0, lets the task write a microbatch's input from its data and its preview's prediction; else a no-op.
    template <class Task>
    void feed(stage_id stage, microbatch_id m, const prepared_instruction& at, Task& task) {
        if (index_of(stage) != first_stage_) { return; }
        scalar* const x = block(first_stage_, m, at, buffer_kind::saved, model_.footprint(first_stage_).input);
        if (model_.previews() == 0) {
            if constexpr (takes_input<Task, scalar>) { task.input(data_of(m), x); }
        } else if constexpr (takes_prediction<Task, scalar>) {
            const bool predicted = model_.has_preview(m);
            const scalar* const y = predicted ? tensor(at, {buffer_kind::prediction, 0, preview_of(m)}) : nullptr;
            task.input(data_of(m), x, y);
        }
    }
    /// The conditions that the task provides for a microbatch of stage 0; none for other stages.
    template <class Task>
    [[nodiscard]] conditions conditions_for(stage_id stage, microbatch_id m, Task& task) {
        return index_of(stage) == first_stage_ ? conditions_of<Model, B>(task, data_of(m)) : conditions{};
    }
    /// For the last stage, lets the task compute the gradient of its output; a no-op for other stages.
    template <class Task>
    void loss(stage_id stage, microbatch_id m, const prepared_instruction& at, Task& task) {
        const int s = index_of(stage);
        if (!model_.ends_chain(s)) { return; }
        const int last = model_.last_layer(s);
        task.loss(index_of(m), output_of(s, last, m, at), output_gradient_of(s, last, m, at));
    }

    /// `known` is the result of conditions_for; `again` means that the stage is recomputed.
    template <class Cache, class Look = nobody_looks>
    void forward(stage_id stage, microbatch_id m, const prepared_instruction& at, const Cache& skips,
                 const conditions& known, bool again, Look&& look = {}) {
        const int s = index_of(stage);
        if (s == first_stage_) {
            begin(m, at, known, again);
            if (Model::is_conditioned && !again) {
                look(value_fault::place::output, conditioning_block,
                     tensor(at, {buffer_kind::conditioning, first_stage_, m}), conditioning_elements());
            }
        }
        for (int l = model_.first_layer(s); l <= model_.last_layer(s); ++l) {
            auto frame = frame_of(s, l, m, at, skips);
            if (l == first_layer_) {
                bind_conditions(frame, known);
                look(value_fault::place::output, value_fault::model_input, frame.input,
                     graph_.layers[0].input_elements * batch_);
            }
            frame.output = written_by(s, l, m, at, again);
            bind_residual(frame, s, l, m, at, again);
            entry(l).forward(math_, frame);
            hand_on_residual(frame, s, l, m, at);
            look(value_fault::place::output, l, frame.output, output_elements(l));
        }
    }

    template <class Cache, class Look = nobody_looks>
    void backward_input(stage_id stage, microbatch_id m, bool with_weight, const prepared_instruction& at,
                        const Cache& skips, const conditions& known, Look&& look = {}) {
        const int s = index_of(stage);
        const int last = model_.last_layer(s);
        if (model_.ends_chain(s)) {
            look(value_fault::place::loss_gradient, last, output_gradient_of(s, last, m, at), output_elements(last));
        }
        if (model_.ends_chain(s) && model_.has_conditioning_gradient(first_stage_)) {
            const auto elements =
                model_.chain_of(first_stage_).conditioning_gradient_bytes() / static_cast<std::int64_t>(sizeof(scalar));
            math_.fill(elements, 0.0F, tensor(at, {buffer_kind::conditioning_gradient, run(s), m}));
        }
        for (int l = last; l >= model_.first_layer(s); --l) {
            if (!model_.has_gradient(l)) { continue; }
            add_skip_gradients(s, l, m, at);
            auto frame = frame_of(s, l, m, at, skips);
            bind_gradients(frame, s, l, m, at);
            if (l == first_layer_) { bind_conditions(frame, known); }
            begin_gradients(entry(l).writes_gradients, l - first_layer_, at.first_of_input);
            frame.gradients = mode_of(entry(l).writes_gradients, at.first_of_input);
            entry(l).backward_input(math_, frame);
            if (open_elements(l) != 0 && l == model_.first_layer(s) && place(l).part != 0) {
                math_.copy(open_elements(l), frame.residual_gradient, frame.input_gradient + gradient_elements(l - 1));
            }
            if (frame.input_gradient != nullptr) {
                look(value_fault::place::input_gradient, l, frame.input_gradient, gradient_elements(l - 1));
            }
            frame.gradients = mode_of(entry(l).writes_gradients, at.first_of_weight);
            if (with_weight) { entry(l).backward_weight(math_, frame); }
        }
        if (with_weight && s == first_stage_) { end(m, at, known); }
    }

    template <class Cache>
    void backward_weight(stage_id stage, microbatch_id m, const prepared_instruction& at, const Cache& skips,
                         const conditions& known) {
        const int s = index_of(stage);
        for (int l = model_.last_layer(s); l >= model_.first_layer(s); --l) {
            if (!model_.has_gradient(l)) { continue; }
            auto frame = frame_of(s, l, m, at, skips);
            frame.output_gradient = output_gradient_of(s, l, m, at);
            frame.residual_gradient = residual_gradient_of(s, l, m, at);
            frame.deferred = block(s, m, at, buffer_kind::deferred, model_.footprint(s).of_layer(l).deferred);
            frame.parameter_gradients = parameters_.gradients_of(l - first_layer_).data();
            frame.gradients = mode_of(entry(l).writes_gradients, at.first_of_weight);
            if (l == first_layer_) { bind_conditions(frame, known); }
            entry(l).backward_weight(math_, frame);
        }
        if (s == first_stage_) { end(m, at, known); }
    }

private:
    [[nodiscard]] const layer_entry<B>& entry(int l) const noexcept {
        return table[static_cast<std::size_t>(place(l).layer)];
    }
    [[nodiscard]] int run(int s) const noexcept { return model_.conditioning_run(s); }
    [[nodiscard]] std::int64_t conditioning_elements() const noexcept {
        return model_.chain_of(first_stage_).conditioning_bytes / static_cast<std::int64_t>(sizeof(scalar));
    }
    /// Where a layer makes its residual, the first part writes it where the last part adds to it: to the last part's
    /// output or, at a cut, behind the stage's output.
    void bind_residual(backend_frame<B>& frame, int s, int l, microbatch_id m, const prepared_instruction& at,
                       bool again) {
        if (open_elements(l) == 0) { return; }
        const bool made = place(l).makes_residual;
        const int end = model_.last_layer(s);
        if (made && l == first_part(l)) {
            frame.made_residual = last_part(l) <= end ? written_by(s, last_part(l), m, at, again)
                                                      : written_by(s, end, m, at, again) + output_elements(end);
        }
        if (l != last_part(l)) { return; }
        if (!made) {
            frame.residual = residual_of(s, l, m, at);
        } else if (first_part(l) < model_.first_layer(s)) {
            math_.copy(open_elements(l), residual_of(s, l, m, at), frame.output);
        }
    }
    /// A cut inside a layer also sends the residual, behind the output.
    void hand_on_residual(const backend_frame<B>& frame, int s, int l, microbatch_id m,
                          const prepared_instruction& at) {
        if (open_elements(l) == 0 || l != model_.last_layer(s) || l == last_part(l)) { return; }
        if (place(l).makes_residual && first_part(l) >= model_.first_layer(s)) { return; } // already there
        math_.copy(open_elements(l), residual_of(s, l, m, at), frame.output + output_elements(l));
    }
    /// The part of the frame that F, B and W of a layer share.
    template <class Cache>
    [[nodiscard]] backend_frame<B> frame_of(int s, int l, microbatch_id m, const prepared_instruction& at,
                                            const Cache& skips) {
        backend_frame<B> frame;
        frame.batch = batch_;
        frame.size = size_;
        frame.part = place(l).of_frame();
        frame.input = input_of(s, l, m, at);
        if (model_.has_conditioning(first_stage_)) {
            const scalar* const conditioning = tensor(at, {buffer_kind::conditioning, run(s), m});
            bind_conditioning<conditioning_module>(frame, conditioning);
        }
        if (const int e = edge_into(s, l); e >= 0) { frame.skip = skip_of(s, e, m, at, skips); }
        frame.parameters = parameters_.values_of(l - first_layer_).data();
        frame.frozen_parameters = parameters_.frozen_values_of(l - first_layer_).data();
        frame.saved = saved_of(s, l, m, at);
        frame.statistics = statistics_of(s, l, m, at);
        frame.workspace = reinterpret_cast<scalar*>(memory_.workspace());
        return frame;
    }

    /// Whether a pass of a layer, or of the conditioning module, writes its gradients or adds: see writes_gradients.
    [[nodiscard]] static into mode_of(bool writes, bool first) noexcept {
        return writes && first ? into::write : into::add;
    }
    /// Sets gradients to 0 before the first pass of a step, for layers that add to them.
    void begin_gradients(bool writes, int layer, bool first) {
        const std::span<accumulator> all = parameters_.gradients_of(layer);
        if (writes || !first || all.empty()) { return; }
        // The sum of no rows is 0; in chunks, because backends count features as int.
        constexpr std::size_t most = std::size_t{1} << 30U;
        for (std::size_t at = 0; at < all.size(); at += most) {
            const std::span<accumulator> some = all.subspan(at, std::min(most, all.size() - at));
            math_.sum_rows(0, static_cast<std::int64_t>(some.size()), static_cast<const scalar*>(nullptr),
                           gradient_place<accumulator>{some.data(), into::write});
        }
    }

    [[nodiscard]] int edge_into(int s, int l) const noexcept {
        for (const int e : model_.edges_into(s)) {
            if (model_.edge(e).to == l) { return e; }
        }
        return -1;
    }
    template <class Cache>
    [[nodiscard]] const scalar* skip_of(int s, int e, microbatch_id m, const prepared_instruction& at,
                                        const Cache& skips) const {
        if (model_.is_inside(e)) { return output_of(s, model_.edge(e).from, m, at); }
        if (model_.is_crossing(e)) { return tensor(at, {buffer_kind::skip, e, m}); }
        return skips.fetch(edge_id{e}, m);
    }

    /// In ascending order of edges, after the main path's share, so that every cut sums in the same order.
    void add_skip_gradients(int s, int l, microbatch_id m, const prepared_instruction& at) {
        for (const int e : model_.edges_from(s)) {
            if (model_.edge(e).from != l) { continue; }
            math_.add(gradient_elements(l), tensor(at, {buffer_kind::skip_gradient, e, m}),
                      output_gradient_of(s, l, m, at));
        }
    }

    void bind_gradients(backend_frame<B>& frame, int s, int l, microbatch_id m, const prepared_instruction& at) {
        frame.output_gradient = output_gradient_of(s, l, m, at);
        frame.residual_gradient = residual_gradient_of(s, l, m, at);
        // Null where not needed: for the first layer, and for one behind layers that run forward only.
        if (l != first_layer_ && !model_.has_gradient(l - 1)) {
            frame.input_gradient = nullptr;
        } else if (l != model_.first_layer(s)) {
            frame.input_gradient = output_gradient_of(s, l - 1, m, at);
        } else if (l != first_layer_) {
            frame.input_gradient = tensor(at, {buffer_kind::activation_gradient, l - 1, m});
        }
        if (const int e = edge_into(s, l); e >= 0) {
            frame.skip_gradient = model_.has_gradient(model_.edge(e).from)
                                      ? tensor(at, {buffer_kind::skip_gradient, e, m})
                                      : scratch_after(l);
        }
        if (model_.has_conditioning_gradient(first_stage_)) {
            bind_conditioning_gradient<conditioning_module>(
                frame, tensor(at, {buffer_kind::conditioning_gradient, run(s), m}));
        }
        frame.deferred = block(s, m, at, buffer_kind::deferred, model_.footprint(s).of_layer(l).deferred);
        frame.parameter_gradients = parameters_.gradients_of(l - first_layer_).data();
    }

    /// Computes a microbatch's conditioning before layer 0.
    void begin([[maybe_unused]] microbatch_id m, [[maybe_unused]] const prepared_instruction& at,
               [[maybe_unused]] const conditions& known, [[maybe_unused]] bool again) {
        if constexpr (Model::is_conditioned) {
            auto frame = conditioner_frame(m, at, known);
            // When stage 0 is recomputed, the conditioning is in use, perhaps being sent to another rank: leave it
            // alone.
            frame.output =
                again ? scratch_after(first_layer_) : tensor(at, {buffer_kind::conditioning, first_stage_, m});
            conditioning_module::forward(math_, frame);
        }
    }
    /// Runs the conditioning module's backward: its output gradient is complete once stage 0 has added its share.
    void end([[maybe_unused]] microbatch_id m, [[maybe_unused]] const prepared_instruction& at,
             [[maybe_unused]] const conditions& known) {
        if constexpr (Model::is_conditioned) {
            auto frame = conditioner_frame(m, at, known);
            if (model_.has_conditioning_gradient(first_stage_)) {
                frame.output_gradient = tensor(at, {buffer_kind::conditioning_gradient, first_stage_, m});
            }
            frame.parameter_gradients = parameters_.gradients_of(conditioning_block).data();
            constexpr bool writes = writes_gradients<conditioning_module>;
            begin_gradients(writes, conditioning_block, at.first_of_weight);
            frame.gradients = mode_of(writes, at.first_of_weight);
            conditioning_module::backward_weight(math_, frame);
        }
    }
    /// The conditioner's saved tensors and statistics follow those of layer 0, each in its own area.
    [[nodiscard]] backend_frame<B> conditioner_frame(microbatch_id m, const prepared_instruction& at,
                                                     const conditions& known) {
        backend_frame<B> frame;
        frame.batch = batch_;
        bind_conditions(frame, known);
        frame.parameters = parameters_.values_of(conditioning_block).data();
        frame.frozen_parameters = parameters_.frozen_values_of(conditioning_block).data();
        const layer_node& both = graph_.layers.front();
        frame.saved = saved_of(first_stage_, first_layer_, m, at) +
                      (both.saved_elements - conditioning_module::saved_elements) * batch_;
        frame.statistics = statistics_of(first_stage_, first_layer_, m, at) +
                           (both.statistics_elements - statistics_elements<conditioning_module>()) * batch_;
        frame.workspace = reinterpret_cast<scalar*>(memory_.workspace());
        return frame;
    }

    using tensors::batch_;
    using tensors::first_layer_;
    using tensors::first_stage_;
    using tensors::graph_;
    using tensors::memory_;
    using tensors::model_;
    using tensors::size_;

    using tensors::block;
    using tensors::first_part;
    using tensors::gradient_elements;
    using tensors::input_of;
    using tensors::last_part;
    using tensors::open_elements;
    using tensors::output_elements;
    using tensors::output_gradient_of;
    using tensors::output_of;
    using tensors::place;
    using tensors::residual_gradient_of;
    using tensors::residual_of;
    using tensors::saved_of;
    using tensors::scratch_after;
    using tensors::statistics_of;
    using tensors::written_by;

    B& math_;
    backend_parameters<B>& parameters_;
};

} // namespace pulse::detail
