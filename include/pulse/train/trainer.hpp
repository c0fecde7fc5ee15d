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

/// One rank of a training run: its part of a model, with optimizer state and losses. All ranks construct it from the
/// same plan and options and call the same members.
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

    /// Creates the rank's backend, in its stream or with options.threads. Throws input_error when plan, costs, model,
    /// backend and number of ranks do not match, or when an option is out of range.
    trainer(any_transport ranks, const planned& made, const trainer_options& options = {}) :
        base{ranks, made, options}, backbone_{ranks, this->math_, executor_.parameters(), executor_.place(),
                                              made,  options} {}

    /// Runs one step. The outcome is the same on every rank; its `stop` says whether any rank passed `stop`. With a
    /// plan of several extents, the task chooses the step's extent (extent_at). Throws error on every rank when a
    /// gradient or loss is not finite and the loss is not scaled, naming the first such tensor; the state is then
    /// unchanged. Where the plan releases gradients, weights have already changed: the error names the layer, and steps
    /// and state reads throw error until set_progress.
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
            spoilt_ = executor_.model().gradient_release(); // another run would use other weights
            const std::string where =
                backbone_.take_fault(spoilt_ ? std::nullopt : this->find_fault(run)) +
                (spoilt_ ? "; the step has already changed weights, because it releases gradients" : "");
            throw train::not_finite_error{"step " + std::to_string(this->steps() + 1) + ": " + where};
        }
        this->count_step();
        return outcome_;
    }

    /// Loss of one step's worth of samples, from global position `first` of the task's data on, with the current
    /// weights; the same on every rank. Runs forward passes only, between steps, and changes nothing except the
    /// selected extent of a plan that has several. Frozen tasks of the plan do not run: the task supplies what the
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

    /// Bytes that the rank uses for a step and for its state, as a plan predicts them.
    [[nodiscard]] std::int64_t bytes() const noexcept { return this->step_bytes() + backbone_.bytes(); }

    /// Starts from these weights of the rank's layers, in the order of parameters().blocks(), instead of the initial
    /// ones. Call it before the first step.
    void start(std::span<const float> weights) { backbone_.start(weights); }
    /// Starts from an open folder of weights, such as diffusers::weights; each rank reads its own layers. Throws as
    /// from.read does.
    template <train::weights_source Weights>
    void start(const Weights& from) {
        backbone_.start(from);
    }
    /// Loads the weights that are not trained from an open folder. Call it before the first step, and after a resume
    /// too, because checkpoints do not hold them. Each rank reads its own layers. Throws as from.read does.
    template <train::weights_source Weights>
    void lock(const Weights& from) {
        backbone_.lock(from);
    }
    /// Starts each trained weight from the locked weight of the same name in its layer, if there is one, instead of its
    /// initial value: a ControlNet starts as a copy of the encoder under it.
    void start_as_locked() { backbone_.start_as_locked(); }
    /// Copies weights, moments and average of one of the runner's parameter blocks to the host. Where replicas share
    /// the state, all of them must call it for their blocks in the same order. Throws error when a step that was not
    /// finite has changed weights.
    [[nodiscard]] train::rank_state read_state(const block& of) {
        require_whole();
        return backbone_.read_state(of);
    }
    /// Reads all blocks, concatenated.
    [[nodiscard]] train::rank_state read_state() {
        require_whole();
        return backbone_.read_state();
    }
    /// Sets a block's state as read_state of any backend returned it. Throws input_error for another form.
    void set_state(train::rank_state kept, const block& of) { backbone_.set_state(std::move(kept), of); }
    /// Sets the counters to continue from, once all blocks have their state.
    void set_progress(std::int64_t steps, std::uint64_t samples) noexcept {
        base::set_progress(steps, samples);
        spoilt_ = false;
    }
    /// Whether replicas share the optimizer state.
    [[nodiscard]] bool is_sharded() const noexcept { return backbone_.is_sharded(); }
    /// Throws error if a step that was not finite has changed weights.
    void require_whole() const {
        if (spoilt_) {
            throw error{
                "a step that was not finite has changed weights, because the plan releases gradients: to go on, "
                "resume from a checkpoint"};
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

    /// Selects the extent of the step whose samples begin at `first`.
    template <class Task>
    void select(Task& data, std::uint64_t first) {
        std::size_t which = 0;
        if constexpr (detail::task_rules<Model, B>::template chooses_extent<Task>) {
            which = data.extent_at(first);
        } else if (backbone_.extents() > 1) {
            throw input_error{"pulse: the plan has several extents, but the task of this run has no extent_at(sample)"};
        }
        if (which >= backbone_.extents()) {
            throw input_error{"pulse: the task's extent_at must be at most " + std::to_string(backbone_.extents() - 1) +
                              ", the plan's last extent, not " + std::to_string(which)};
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
        if (!backbone_.not_finite().empty()) { return; } // the step is only rerun to locate the fault
        if (backbone_.measure(stop)) { outcome_ = backbone_.update(this->steps() + 1, this->learning_rate()); }
    }

    backbone_rank backbone_;
    train::step_outcome outcome_{};
    bool spoilt_{};
};

} // namespace pulse
