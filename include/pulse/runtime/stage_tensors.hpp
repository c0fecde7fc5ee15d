#pragma once

#include <cstddef>
#include <cstdint>

#include <pulse/core/ids.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/step_memory.hpp>

namespace pulse::detail {

/// Addresses of the tensors of layer l, stage s and microbatch m in a step's memory at an instruction. Layers are
/// numbered as in the plan, which counts parts.
template <class Model, backend B>
class stage_tensors {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;

    stage_tensors(const step_model& model, const resizing& size, int batch,
                  const basic_step_memory<space_of<B>>& memory, int first_stage) :
        model_{model},
        size_{size}, batch_{batch}, memory_{memory}, first_stage_{first_stage}, first_layer_{
                                                                                    model.first_layer(first_stage)} {}

    [[nodiscard]] scalar* tensor(const prepared_instruction& at, buffer_id buffer) const {
        return reinterpret_cast<scalar*>(memory_.address(at.place_of(buffer)));
    }

protected:
    [[nodiscard]] const part_place& place(int l) const noexcept { return part_places<Model>[own(l)]; }
    /// Number of part l within the Model.
    [[nodiscard]] std::size_t own(int l) const noexcept { return static_cast<std::size_t>(l - first_layer_); }
    [[nodiscard]] std::int64_t output_elements(int l) const noexcept {
        return graph_.layers[own(l)].output_elements * batch_;
    }
    [[nodiscard]] std::int64_t gradient_elements(int l) const noexcept {
        return output_elements(l) - graph_.layers[own(l)].frozen_output_elements * batch_;
    }
    /// Elements of the residual that is open between the parts of the layer that contains part l; 0 if there is none.
    [[nodiscard]] std::int64_t open_elements(int l) const noexcept {
        return graph_.layers[own(first_part(l))].open_elements * batch_;
    }
    [[nodiscard]] int first_part(int l) const noexcept { return l - place(l).part; }
    [[nodiscard]] int last_part(int l) const noexcept { return first_part(l) + place(l).parts - 1; }
    [[nodiscard]] scalar* block(int s, microbatch_id m, const prepared_instruction& at, buffer_kind kind,
                                std::int64_t offset) const {
        return reinterpret_cast<scalar*>(memory_.address(at.place_of({kind, s, m})) + offset);
    }
    /// Address of layer l's statistics.
    [[nodiscard]] accumulator* statistics_of(int s, int l, microbatch_id m, const prepared_instruction& at) const {
        return reinterpret_cast<accumulator*>(
            block(s, m, at, buffer_kind::saved, model_.footprint(s).of_layer(l).saved));
    }
    /// Address of layer l's saved tensors, which follow its statistics.
    [[nodiscard]] scalar* saved_of(int s, int l, microbatch_id m, const prepared_instruction& at) const {
        const std::int64_t statistics =
            graph_.layers[own(l)].statistics_bytes(batch_, static_cast<int>(sizeof(scalar)));
        return block(s, m, at, buffer_kind::saved, model_.footprint(s).of_layer(l).saved + statistics);
    }
    [[nodiscard]] scalar* output_of(int s, int l, microbatch_id m, const prepared_instruction& at) const {
        if (is_preview(m) && l + 1 == model_.layer_count()) { return tensor(at, {buffer_kind::prediction, 0, m}); }
        if (model_.held_apart(l)) { return tensor(at, {buffer_kind::activation, l, m}); }
        return block(s, m, at, buffer_kind::saved, model_.footprint(s).of_layer(l).output);
    }
    /// Where layer l writes its output: to scratch if the stage is recomputed and nothing reads the output again.
    [[nodiscard]] scalar* written_by(int s, int l, microbatch_id m, const prepared_instruction& at, bool again) const {
        return again && model_.drops_again(l) ? scratch_after(l) : output_of(s, l, m, at);
    }
    [[nodiscard]] scalar* input_of(int s, int l, microbatch_id m, const prepared_instruction& at) const {
        if (l == first_layer_) { return block(s, m, at, buffer_kind::saved, model_.footprint(s).input); }
        if (l == model_.first_layer(s)) { return tensor(at, {buffer_kind::activation, l - 1, m}); }
        return output_of(s, l - 1, m, at);
    }
    /// The residual that is open before part l: the layer's input, or what follows the stage's input. A residual made
    /// in this stage is elsewhere (stage_runner::bind_residual).
    [[nodiscard]] const scalar* residual_of(int s, int l, microbatch_id m, const prepared_instruction& at) const {
        const int begin = model_.first_layer(s);
        return first_part(l) >= begin ? input_of(s, first_part(l), m, at)
                                      : input_of(s, begin, m, at) + output_elements(begin - 1);
    }
    [[nodiscard]] const scalar* residual_gradient_of(int s, int l, microbatch_id m,
                                                     const prepared_instruction& at) const {
        if (open_elements(l) == 0) { return nullptr; }
        const int end = model_.last_layer(s);
        return last_part(l) <= end ? output_gradient_of(s, last_part(l), m, at)
                                   : output_gradient_of(s, end, m, at) + gradient_elements(end);
    }
    [[nodiscard]] scalar* output_gradient_of(int s, int l, microbatch_id m, const prepared_instruction& at) const {
        if (l == model_.last_layer(s)) { return tensor(at, {buffer_kind::activation_gradient, l, m}); }
        return block(s, m, at, buffer_kind::deferred, model_.footprint(s).of_layer(l).output_gradient);
    }

    /// The memory behind layer l's own workspace (workspace_bytes_of).
    [[nodiscard]] scalar* scratch_after(int l) const {
        return reinterpret_cast<scalar*>(memory_.workspace() + aligned(model_.layer(l).workspace_bytes));
    }

    const step_model& model_;
    resizing size_;
    int batch_;
    const basic_step_memory<space_of<B>>& memory_;
    int first_stage_; ///< first stage of the Model, for plans of several models
    int first_layer_;
    static_graph<Model::part_count, Model::skip_count> graph_{graph_of<Model>(size_)};
};

} // namespace pulse::detail
