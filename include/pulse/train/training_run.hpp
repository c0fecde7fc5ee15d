#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/nan_trap.hpp>
#include <pulse/train/trainer_options.hpp>

namespace pulse::detail {

/// A train::backbone_rank, and the prefix of its names in a checkpoint.
template <class Backbone>
struct named_backbone {
    Backbone& of;
    const char* prefix{};
};

/// Base of trainer and cascade_trainer: executor, progress and checkpoints.
template <class Trainer, class Model, backend B>
class training_run {
public:
    training_run(const training_run&) = delete;
    training_run& operator=(const training_run&) = delete;

    /// Writes a checkpoint, one shard per rank, below `place`: a folder that all ranks see, or a
    /// train::checkpoint_place. Returns its location. Needs <pulse/train/saving.hpp>.
    template <class Place>
    auto save(const Place& place) {
        Trainer& self = static_cast<Trainer&>(*this);
        static_assert(
            requires { save_trainer(self, place); },
            "pulse: to save a trainer, include <pulse/train/saving.hpp> and link the target pulse::io");
        return save_trainer(self, place);
    }
    /// Continues bit for bit from a saved trainer, under any plan with the same number of replicas and of samples per
    /// step. Throws input_error when there is no checkpoint, or when its model, or, if options say so, config differs.
    /// Needs <pulse/train/saving.hpp>.
    template <class Folder>
    void resume(const Folder& folder) {
        Trainer& self = static_cast<Trainer&>(*this);
        static_assert(
            requires { resume_trainer(self, folder); },
            "pulse: to resume a trainer, include <pulse/train/saving.hpp> and link the target pulse::io");
        resume_trainer(self, folder);
    }

    /// Does nothing here; trainer's own throws when a step has spoilt the state.
    void require_whole() const noexcept {}

    /// Steps done, including those before a resume.
    [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
    /// Samples seen.
    [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
    /// Samples of a step, over all replicas.
    [[nodiscard]] std::uint64_t step_samples() const noexcept { return step_samples_; }

    /// Records the next step on this rank.
    void record() noexcept { records_ = true; }
    /// The executor: for its trace, its parameters and its place.
    [[nodiscard]] executor<Model, B>& runner() noexcept { return executor_; }
    [[nodiscard]] const executor<Model, B>& runner() const noexcept { return executor_; }
    /// Whether stochastic rounding uses the options' seed.
    [[nodiscard]] bool rounds_by_chance() const noexcept { return rounds_by_chance_; }
    [[nodiscard]] const trainer_options& options() const noexcept { return options_; }
    [[nodiscard]] const any_transport& ranks() const noexcept { return ranks_; }
    /// Scratch that the backend has taken so far within a plan's limit (parameter_memory::scratch); not in bytes().
    [[nodiscard]] std::int64_t scratch_bytes() const noexcept {
        if constexpr (requires { B::most_scratch; }) {
            return math_.scratch_bytes();
        } else {
            return 0;
        }
    }

protected:
    training_run(any_transport ranks, const planned& made, const trainer_options& options) :
        options_{options}, ranks_{ranks}, math_(backend_on<B>(ranks, options.threads)), executor_{math_, ranks, made},
        step_samples_{static_cast<std::uint64_t>(made.plan.microbatch_size) *
                      static_cast<std::uint64_t>(made.plan.microbatches) *
                      static_cast<std::uint64_t>(executor_.place().replicas())},
        rounds_by_chance_{made.kept.form.weights == weight_form::stochastic} {}
    ~training_run() = default;

    /// Bytes of a step as a plan predicts them, without parameters and optimizers.
    [[nodiscard]] std::int64_t step_bytes() const noexcept {
        return executor_.used().total() + executor_.replica_bytes();
    }
    [[nodiscard]] double learning_rate() const noexcept { return options_.learning_rate.at(steps_ + 1); }
    void begin_record() {
        if (std::exchange(records_, false)) { executor_.record(executor_.instructions().instructions.size()); }
    }
    void count_step() noexcept {
        ++steps_;
        samples_ += step_samples_;
    }
    void set_progress(std::int64_t steps, std::uint64_t samples) noexcept {
        executor_.forget_results();
        steps_ = steps;
        samples_ = samples;
    }
    /// Locates the first value that is not finite in a step that changed nothing, by rerunning it with `again`.
    template <class Run>
    [[nodiscard]] std::optional<value_fault> find_fault(const Run& again) {
        executor_.watch_values(true);
        again();
        const auto first = earliest_fault(ranks_, executor_.first_fault());
        executor_.watch_values(false);
        return first;
    }

    trainer_options options_;
    any_transport ranks_;
    B math_;
    executor<Model, B> executor_;

private:
    std::uint64_t step_samples_;
    bool rounds_by_chance_;
    bool records_{};
    std::int64_t steps_{};
    std::uint64_t samples_{};
};

} // namespace pulse::detail
