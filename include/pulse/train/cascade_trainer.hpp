#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <pulse/model/cascade.hpp>
#include <pulse/model/model.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/cascade_runner.hpp>
#include <pulse/runtime/nan_trap.hpp>
#include <pulse/train/backbone_rank.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/task.hpp>
#include <pulse/train/trainer_options.hpp>
#include <pulse/train/training_run.hpp>

namespace pulse {

/// One rank of a training run of two backbones: its part of both. Each trains bit for bit as a trainer of it alone
/// would with the same options and data. The plan comes from plan_cascade; all ranks construct the trainer from the
/// same plan and options, and call the same members.
///
/// Tensor names in a checkpoint begin with `first.` or `second.`.
template <any_model First, any_model Second, backend B>
class cascade_trainer : public detail::training_run<cascade_trainer<First, Second, B>, cascade<First, Second>, B> {
    using base = detail::training_run<cascade_trainer<First, Second, B>, cascade<First, Second>, B>;
    using base::executor_;
    using first_rank = train::backbone_rank<First, B>;
    using second_rank = train::backbone_rank<Second, B>;

public:
    /// What the ranks agree on at the end of a step.
    struct step_outcome {
        train::step_outcome first{};
        train::step_outcome second{};
        bool stop{}; ///< a rank asked to stop
    };
    struct losses {
        double first{};
        double second{};

        [[nodiscard]] bool operator==(const losses&) const = default;
    };

    /// See trainer. Both backbones use the same options; each has its own optimizer and loss scale.
    cascade_trainer(any_transport ranks, const planned& made, const trainer_options& options = {}) :
        base{ranks, made, options}, first_{ranks, this->math_, executor_.parameters().first, executor_.place(),
                                           made,  options},
        second_{ranks, this->math_, executor_.parameters().second, executor_.place(), made, options} {}

    /// Runs one step of both; the outcome is the same on every rank. Throws error on every rank when a gradient or loss
    /// is not finite, naming the backbone and its first such tensor; neither backbone has changed then. Where the loss
    /// is scaled, a backbone whose gradients overflow skips only its own step.
    template <class FirstTask, class SecondTask>
    step_outcome step(FirstTask& first, SecondTask& second, bool stop = false) {
        require_task<FirstTask, First, B>();
        require_task<SecondTask, Second, B>();
        const auto run = [&] {
            this->begin_record();
            first_.begin(first, this->samples(), first_.loss_scale().scale());
            second_.begin(second, this->samples(), second_.loss_scale().scale());
            step_task<FirstTask, SecondTask> adapted{
                {first_, first, this->samples()}, {second_, second, this->samples()}, *this, stop};
            executor_.step(adapted);
        };
        run();
        if (not_finite()) { drop_step(this->find_fault(run)); }
        this->count_step();
        return outcome_;
    }

    /// Losses of one step's worth of samples, from global position `position` of both tasks' data on: see
    /// trainer::evaluate.
    template <class FirstTask, class SecondTask>
    [[nodiscard]] losses evaluate(FirstTask& first, SecondTask& second, std::uint64_t position) {
        require_task<FirstTask, First, B>();
        require_task<SecondTask, Second, B>();
        first_.begin(first, position, 1.0);
        second_.begin(second, position, 1.0);
        step_task<FirstTask, SecondTask> adapted{{first_, first, position}, {second_, second, position}, *this};
        executor_.evaluate(adapted);
        return {first_.evaluated_loss(), second_.evaluated_loss()};
    }

    /// Bytes that the rank uses for a step and for its state, as a plan predicts them.
    [[nodiscard]] std::int64_t bytes() const noexcept { return this->step_bytes() + first_.bytes() + second_.bytes(); }

    /// The rank's part of each backbone: its weights, state and loss scale.
    [[nodiscard]] first_rank& first() noexcept { return first_; }
    [[nodiscard]] second_rank& second() noexcept { return second_; }
    /// Calls `visit` with a detail::named_backbone for each backbone of a checkpoint, and returns its result.
    template <class Visit>
    auto with_backbones(const Visit& visit) {
        return visit(detail::named_backbone<first_rank>{first_, "first."},
                     detail::named_backbone<second_rank>{second_, "second."});
    }
    /// Sets the counters to continue from, once all blocks of both backbones have their state.
    using base::set_progress;

private:
    template <class FirstTask, class SecondTask>
    struct step_task {
        typename first_rank::template step_task<FirstTask> first;
        typename second_rank::template step_task<SecondTask> second;
        cascade_trainer& trained;
        bool stop{};

        void optimize() { trained.optimize(stop); }
    };

    [[nodiscard]] bool not_finite() const noexcept {
        return !first_.not_finite().empty() || !second_.not_finite().empty();
    }
    /// Neither backbone changes before both are known to be finite.
    void optimize(bool stop) {
        if (not_finite()) { return; } // the step is only rerun to locate the fault
        const bool first_is_finite = first_.measure(stop);
        if (!second_.measure(stop) || !first_is_finite) { return; }
        outcome_.first = first_.update(this->steps() + 1, this->learning_rate());
        outcome_.second = second_.update(this->steps() + 1, this->learning_rate());
        outcome_.stop = outcome_.first.stop;
    }
    /// `fault` uses the plan's numbering, in which the second backbone's stages and layers follow the first's.
    [[noreturn]] void drop_step(std::optional<value_fault> fault) {
        const int second_stage = executor_.model().further_chains().front();
        const bool in_second = fault && fault->stage >= second_stage;
        if (in_second && fault->layer >= 0) { fault->layer -= executor_.model().first_layer(second_stage); }
        const std::string first = first_.take_fault(in_second ? std::nullopt : fault);
        const std::string second = second_.take_fault(in_second ? fault : std::nullopt);
        std::string text = "step " + std::to_string(this->steps() + 1) + ": ";
        if (!first.empty()) { text += "first backbone '" + First::name.str() + "': " + first; }
        if (!first.empty() && !second.empty()) { text += "; "; }
        if (!second.empty()) { text += "second backbone '" + Second::name.str() + "': " + second; }
        throw train::not_finite_error{text};
    }

    first_rank first_;
    second_rank second_;
    step_outcome outcome_{};
};

} // namespace pulse
