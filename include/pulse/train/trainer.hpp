#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/model/model.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/train/backbone_rank.hpp>
#include <pulse/train/loss_scale.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/task.hpp>
#include <pulse/train/trainer_options.hpp>
#include <pulse/train/training_run.hpp>

namespace pulse {

/// One rank of a training run: its part of a model, and everything that training does with it. All ranks make it from
/// the same plan and options, and call the same members.
template <any_model Model, backend B>
class trainer : public detail::training_run<trainer<Model, B>, Model, B> {
    using base = detail::training_run<trainer<Model, B>, Model, B>;
    using base::executor_;
    using backbone_rank = train::backbone_rank<Model, B>;

public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;
    using block = typename backbone_rank::block;

    /// The backend is made for the rank: in its stream, or with options.threads. Throws input_error when plan, costs,
    /// model, backend and number of ranks do not fit together, or when an option is out of range.
    trainer(any_transport ranks, const planned& made, const trainer_options& options = {}) :
        base{ranks, made, options}, backbone_{ranks, this->math_, executor_.parameters(), executor_.place(),
                                              made,  options} {}

    /// One step; the result is the same on every rank, and so is `stop`: whether any rank asked to. Of a plan with
    /// several extents the task says which one the step has (extent_at). Throws error, on every rank, when a gradient
    /// or loss is not finite, naming the first tensor that was not; nothing has changed then. Where the plan
    /// releases gradients, that is known when all is changed: the error names the layer, and until set_progress steps
    /// and reads of the state throw error.
    template <class Task>
    train::step_outcome step(Task& data, bool stop = false) {
        require_task<Task, Model, B>();
        require_whole();
        const auto run = [&] {
            select(data, this->samples());
            this->begin_record();
            backbone_.begin(data, this->samples(), loss_scale().scale());
            step_task<Task> adapted{{backbone_, data, this->samples()}, *this, stop};
            executor_.step(adapted);
        };
        run();
        if (!backbone_.not_finite().empty()) {
            spoilt_ = executor_.model().gradient_release(); // another run would have other weights
            const std::string where = backbone_.take_fault(spoilt_ ? std::nullopt : this->find_fault(run)) +
                                      (spoilt_ ? "; the step has changed weights, as it releases gradients" : "");
            throw train::not_finite_error{"step " + std::to_string(this->steps() + 1) + ": " + where};
        }
        this->count_step();
        return outcome_;
    }

    /// The loss of the samples of one step, those from global position `first` of the task's data on, with the weights
    /// as they are: forward passes alone, between steps, which change nothing but, where the plan has several extents,
    /// which is selected. It is the same on every rank. Frozen tasks of the plan do not run: the task has what the
    /// model reads. Throws as the task does.
    template <class Task>
    [[nodiscard]] double evaluate(Task& data, std::uint64_t first) {
        require_task<Task, Model, B>();
        select(data, first);
        backbone_.begin(data, first, 1.0);
        step_task<Task> adapted{{backbone_, data, first}, *this};
        executor_.evaluate(adapted);
        return backbone_.evaluated_loss();
    }

    /// Memory that the rank takes for a step and for what it keeps, as a plan predicts it.
    [[nodiscard]] std::int64_t bytes() const noexcept { return this->step_bytes() + backbone_.bytes(); }

    /// Begins with these weights of the rank's layers, in the order of parameters().blocks(), instead of the initial
    /// ones; before the first step.
    void start(std::span<const float> weights) { backbone_.start(weights); }
    /// The same from an open folder of weights, such as diffusers::weights; each rank reads its own layers. Throws as
    /// from.read does.
    template <train::weights_source Weights>
    void start(const Weights& from) {
        backbone_.start(from);
    }
    /// Gives the weights that are not trained those of an open folder, before the first step; of a run that goes on
    /// too, for no checkpoint has them. Each rank reads its own layers. Throws as from.read does.
    template <train::weights_source Weights>
    void lock(const Weights& from) {
        backbone_.lock(from);
    }
    /// Begins with the locked weights, where a trained one has the name of one in its layer, instead of the initial
    /// ones: so does a ControlNet begin as the encoder under it.
    void start_as_locked() { backbone_.start_as_locked(); }
    /// A copy of weights, moments and average of one of the runner's blocks of parameters, on the host. Where replicas
    /// share the state, each of them calls it, of their blocks in the same order. Throws error when a step that was not
    /// finite has changed weights.
    [[nodiscard]] train::rank_state read_state(const block& of) {
        require_whole();
        return backbone_.read_state(of);
    }
    /// The same of all blocks, one behind the other.
    [[nodiscard]] train::rank_state read_state() {
        require_whole();
        return backbone_.read_state();
    }
    /// Gives a block a state that was read, of this backend or of another. Throws input_error for another form.
    void set_state(train::rank_state kept, const block& of) { backbone_.set_state(std::move(kept), of); }
    /// Goes on from there when all blocks have their state.
    void set_progress(std::int64_t steps, std::uint64_t samples) noexcept {
        base::set_progress(steps, samples);
        spoilt_ = false;
    }
    /// Whether replicas share what it keeps.
    [[nodiscard]] bool is_sharded() const noexcept { return backbone_.is_sharded(); }
    /// Throws error where reads of the state do.
    void require_whole() const {
        if (spoilt_) {
            throw error{
                "a step that was not finite has changed weights, as the plan releases gradients: only the state "
                "of a checkpoint goes on from here"};
        }
    }
    [[nodiscard]] train::loss_scaler& loss_scale() noexcept { return backbone_.loss_scale(); }
    /// See cascade_trainer.
    template <class Visit>
    auto with_backbones(const Visit& visit) {
        return visit(detail::named_backbone<backbone_rank>{backbone_, ""});
    }

private:
    template <class Task>
    struct step_task : backbone_rank::template step_task<Task> {
        trainer& trained;
        bool stop{};

        void optimize() { trained.optimize(stop); }
        void update(stage_id stage) { trained.update(stage); }
    };

    /// The extent of the step whose samples begin at `first`.
    template <class Task>
    void select(Task& data, std::uint64_t first) {
        std::size_t which = 0;
        if constexpr (detail::task_rules<Model, B>::template chooses_extent<Task>) {
            which = data.extent_at(first);
        } else if (backbone_.extents() > 1) {
            throw input_error{"pulse: the plan has several extents, and the task of this run has no extent_at(sample)"};
        }
        if (which >= backbone_.extents()) {
            throw input_error{"pulse: the task asks for extent " + std::to_string(which) + " of a plan that has " +
                              std::to_string(backbone_.extents())};
        }
        executor_.select(which);
        backbone_.select(which);
    }
    void update(stage_id stage) {
        const step_model& model = executor_.model();
        const int s = index_of(stage);
        backbone_.update_layers(model.first_layer(s), model.last_layer(s), this->steps() + 1, this->learning_rate());
    }
    void optimize(bool stop) {
        if (!backbone_.not_finite().empty()) { return; } // the step is run again only to be looked at
        if (backbone_.measure(stop)) { outcome_ = backbone_.update(this->steps() + 1, this->learning_rate()); }
    }

    backbone_rank backbone_;
    train::step_outcome outcome_{};
    bool spoilt_{};
};

} // namespace pulse
