#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/value_watch.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/task.hpp>
#include <pulse/train/trainer_options.hpp>

namespace pulse {

/// One rank of a training run: its part of a model, and everything that training does with it. All ranks make it from
/// the same plan and options, and call the same members.
template <any_model Model, backend B>
class trainer {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;

    /// The backend is made for the rank: in its stream, or with options.threads. Throws input_error when plan, costs,
    /// model, backend and number of ranks do not fit together, or when an option is out of range.
    trainer(any_transport ranks, const planned& made, const trainer_options& options = {}) :
        options_{options}, ranks_{ranks}, math_(backend_on<B>(ranks, options.threads)), executor_{math_, ranks, made},
        optimizer_{Model::part_count, static_cast<std::size_t>(made.plan.microbatches), executor_.parameters(),
                   train::optimizer_options{.constants = options.adamw,
                                            .clip_norm = options.clip_norm,
                                            .average_decay = options.average_decay,
                                            .scaling = options.loss_scale,
                                            .replicas = {executor_.place(), made.kept.sharded},
                                            .form = made.kept.form,
                                            .seed = options.seed},
                   train::updates_of(math_)},
        losses_(static_cast<std::size_t>(made.plan.microbatches)), batch_{made.plan.microbatch_size} {
        made.each_extent([&](const extent& to, const auto&...) {
            const auto graph = graph_of<Model>(resize<Model>(to));
            const auto of_batch = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * batch_); };
            elements_.push_back(
                {of_batch(graph.layers.front().input_elements), of_batch(graph.layers.back().output_elements)});
        });
        optimizer_.start(train::initial_values<Model>(executor_.parameters(), options.seed), executor_.parameters());
        train::initialise_frozen<Model>(executor_.parameters(), options.seed);
    }
    trainer(const trainer&) = delete;
    trainer& operator=(const trainer&) = delete;

    /// One step; the result is the same on every rank, and so is `stop`: whether any rank asked to. Of a plan with
    /// several extents the task says which one the step has (extent_at). Throws error, on every rank, when a gradient
    /// or loss is not finite, naming the first tensor that was not; nothing has changed then.
    template <class Task>
    train::step_outcome step(Task& data, bool stop = false) {
        require_task<Task, Model, B>();
        run(data, stop);
        if (!not_finite_.empty()) { find_not_finite(data); }
        ++steps_;
        samples_ += step_samples();
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
        begin(data, first, 1.0);
        step_task<Task> adapted{*this, data, first};
        executor_.evaluate(adapted);
        optimizer_.memory().wait();
        std::vector<double> shares(losses_.size() * static_cast<std::size_t>(executor_.place().replicas()));
        const std::size_t mine = static_cast<std::size_t>(executor_.place().replica) * losses_.size();
        space::template download<double>(losses_.data(), std::span{shares}.subspan(mine, losses_.size()));
        ranks_.sum(shares);
        return std::accumulate(shares.begin(), shares.end(), 0.0);
    }

    /// Writes a checkpoint, a shard from every rank, below `place`: a folder that all ranks see, or a
    /// train::checkpoint_place. Returns where it is. Needs <pulse/train/saving.hpp>.
    template <class Place>
    auto save(const Place& place) {
        static_assert(
            requires { save_trainer(*this, place); },
            "pulse: include <pulse/train/saving.hpp> to save a trainer, with the target pulse::io");
        return save_trainer(*this, place);
    }
    /// Goes on bit for bit where a trainer was saved, under any plan of as many replicas and samples a step. Throws
    /// input_error when there is no checkpoint, or one of another model or, where options say so, config. Needs
    /// <pulse/train/saving.hpp>.
    template <class Folder>
    void resume(const Folder& folder) {
        static_assert(
            requires { resume_trainer(*this, folder); },
            "pulse: include <pulse/train/saving.hpp> to resume a trainer, with the target pulse::io");
        resume_trainer(*this, folder);
    }

    /// Steps made, those before a resume included.
    [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
    /// Samples seen.
    [[nodiscard]] std::uint64_t samples() const noexcept { return samples_; }
    /// Samples of a step, of all replicas.
    [[nodiscard]] std::uint64_t step_samples() const noexcept {
        return static_cast<std::uint64_t>(batch_) * losses_.size() *
               static_cast<std::uint64_t>(executor_.place().replicas());
    }
    /// Memory that the rank takes for a step and for what it keeps, as a plan predicts it.
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return executor_.used().total() + executor_.replica_bytes() + executor_.parameters().bytes() +
               optimizer_.bytes();
    }

    /// Begins with these weights of the rank's layers, in the order of parameters().blocks(), instead of the initial
    /// ones; before the first step.
    void start(std::span<const float> weights) { optimizer_.start(weights, executor_.parameters()); }
    /// The same from an open folder of weights, such as diffusers::weights; each rank reads its own layers. Throws as
    /// from.read does.
    template <class Weights>
        requires requires(const Weights& from, const parameter& what, std::span<float> to) { from.read(what, 0, to); }
    void start(const Weights& from) {
        std::vector<float> weights(executor_.parameters().values().size());
        for (const auto& block : executor_.parameters().blocks()) {
            std::size_t at = block.first;
            for (const parameter& what : parameters_of<Model>(block.layer)) {
                const auto n = static_cast<std::size_t>(what.elements());
                from.read(what, 0, std::span{weights}.subspan(at, n));
                at += n;
            }
        }
        start(std::span<const float>{weights});
    }
    /// Gives the weights that are not trained those of an open folder, before the first step; of a run that goes on too,
    /// for no checkpoint has them. Each rank reads its own layers. Throws as from.read does.
    template <class Weights>
    void lock(const Weights& from) {
        train::read_frozen<Model>(executor_.parameters(), from);
        math_.weights_changed();
    }
    /// Begins with the locked weights, where a trained one has the name of one in its layer, instead of the initial
    /// ones: so does a ControlNet begin as the encoder under it.
    void start_as_locked() {
        auto& mine = executor_.parameters();
        start(train::with_locked_values<Model>(mine, train::initial_values<Model>(mine, options_.seed)));
    }
    /// Calls `act` with weights, moments and average of the rank's layers, in that order, which are copied only where
    /// they are not on the host or replicas share them; every rank calls it.
    template <class Act>
    decltype(auto) with_state(const Act& act) {
        return optimizer_.with_state(executor_.parameters(), ranks_, act);
    }
    /// A copy of them; every rank calls it.
    [[nodiscard]] train::rank_state read_state() { return optimizer_.read_state(executor_.parameters(), ranks_); }
    /// Goes on from a state that was read, after `steps` steps and `samples` samples.
    void set_state(const train::rank_state& kept, std::int64_t steps, std::uint64_t samples) {
        optimizer_.set_state(kept, executor_.parameters());
        executor_.forget_results();
        steps_ = steps;
        samples_ = samples;
    }

    /// The next step is recorded, on this rank.
    void record() noexcept { records_ = true; }
    /// What runs the steps: for its trace, its parameters and its place.
    [[nodiscard]] executor<Model, B>& runner() noexcept { return executor_; }
    [[nodiscard]] const executor<Model, B>& runner() const noexcept { return executor_; }
    [[nodiscard]] train::loss_scaler& loss_scale() noexcept { return optimizer_.scaler(); }
    /// Whether weights are rounded by noise of the options' seed.
    [[nodiscard]] bool rounds_by_chance() const noexcept {
        return optimizer_.form().weights == weight_form::stochastic;
    }
    [[nodiscard]] const trainer_options& options() const noexcept { return options_; }
    [[nodiscard]] const any_transport& ranks() const noexcept { return ranks_; }

private:
    using updates = decltype(train::updates_of(std::declval<const B&>()));
    using rules = detail::task_rules<Model, B>;
    struct microbatch_elements {
        std::size_t input{};
        std::size_t output{};
    };

    /// A task as the executor's.
    template <class Task>
    struct step_task {
        trainer& of;
        Task& data;
        std::uint64_t first; ///< of the step's samples
        bool stop{};

        [[nodiscard]] work<B> work_of(int m) const noexcept { return of.work_of(m, first); }
        [[nodiscard]] auto timesteps(int m) { return data.timesteps(work_of(m)); }
        [[nodiscard]] auto text(int m) { return data.text(work_of(m)); }
        [[nodiscard]] auto facts(int m) { return data.facts(work_of(m)); }
        void input(int m, scalar* x) requires rules::template plain_input<Task> {
            data.input(work_of(m), {x, of.now().input});
        }
        void input(int m, scalar* x, const scalar* prediction) requires rules::template conditioned_input<Task> {
            const std::size_t n = of.now().output;
            data.input(work_of(m), {x, of.now().input}, {prediction, prediction == nullptr ? 0 : n});
        }
        void loss(int m, const scalar* y, scalar* dy) {
            const std::size_t n = of.now().output;
            data.loss(work_of(m), std::span<const scalar>{y, n}, std::span<scalar>{dy, n});
            if constexpr (updates::scales_loss && !rules::template begins_scaled<Task>) {
                of.math_.scale(static_cast<std::int64_t>(n), static_cast<float>(of.optimizer_.loss_scale()), dy, dy);
            }
        }
        void encode(const encoding& call) requires rules::template encodes<Task> {
            data.encode(of.samples_ + (call.for_next_step ? of.step_samples() : 0) + of.samples_before(0), call);
        }
        void encoded(const encoded_results& results) requires rules::template encodes<Task> { data.encoded(results); }
        void optimize() { of.optimize(stop); }
    };

    /// Of a step's samples: those before microbatch m of this replica.
    [[nodiscard]] std::uint64_t samples_before(int m) const noexcept {
        const auto before =
            static_cast<std::uint64_t>(executor_.place().replica) * losses_.size() + static_cast<std::uint64_t>(m);
        return before * static_cast<std::uint64_t>(batch_);
    }
    [[nodiscard]] work<B> work_of(int m, std::uint64_t first) noexcept {
        return {m,     batch_, first + samples_before(m), static_cast<std::int64_t>(step_samples()), losses_.data() + m,
                &math_};
    }

    template <class Task>
    void run(Task& data, bool stop) {
        select(data, samples_);
        if (std::exchange(records_, false)) { executor_.record(executor_.instructions().instructions.size()); }
        begin(data, samples_, optimizer_.loss_scale());
        step_task<Task> adapted{*this, data, samples_, stop};
        executor_.step(adapted);
    }
    /// Tells the task of the step whose samples begin at `first`, of which there are no losses yet.
    template <class Task>
    void begin(Task& data, std::uint64_t first, [[maybe_unused]] double loss_scale) {
        optimizer_.memory().clear(std::span<double>{losses_.data(), losses_.size()});
        if constexpr (rules::template begins_scaled<Task>) {
            data.begin(first, loss_scale);
        } else if constexpr (rules::template begins<Task>) {
            data.begin(first);
        }
    }
    /// The extent of the step whose samples begin at `first`.
    template <class Task>
    void select(Task& data, std::uint64_t first) {
        std::size_t which = 0;
        if constexpr (rules::template chooses_extent<Task>) {
            which = data.extent_at(first);
        } else if (elements_.size() > 1) {
            throw input_error{"pulse: the plan has several extents, and the task of this run has no extent_at(sample)"};
        }
        if (which >= elements_.size()) {
            throw input_error{"pulse: the task asks for extent " + std::to_string(which) + " of a plan that has " +
                              std::to_string(elements_.size())};
        }
        executor_.select(which);
        selected_ = which;
    }
    /// Elements of a microbatch's tensors in the step that runs.
    [[nodiscard]] const microbatch_elements& now() const noexcept { return elements_[selected_]; }
    void optimize(bool stop) {
        if (!not_finite_.empty()) { return; } // the step is run again only to be looked at
        try {
            outcome_ =
                optimizer_.step(executor_.parameters(), ranks_, steps_ + 1, options_.learning_rate.at(steps_ + 1),
                                std::span<const double>{losses_.data(), losses_.size()}, stop);
        } catch (const train::not_finite_error& e) { not_finite_ = e.what(); }
    }
    /// Runs the step again, which changed nothing, and says where the first number that is not finite was made.
    template <class Task>
    [[noreturn]] void find_not_finite(Task& data) {
        executor_.watch_values(true);
        run(data, false);
        const auto first = earliest_fault(ranks_, executor_.first_fault());
        executor_.watch_values(false);
        optimizer_.memory().clear(executor_.parameters().gradients());
        std::string text = "step " + std::to_string(steps_ + 1) + ": " + std::exchange(not_finite_, {});
        if (first) {
            constexpr auto graph = graph_of<Model>();
            text += "; " + to_text(*first, graph.view());
        }
        throw train::not_finite_error{text};
    }

    trainer_options options_;
    any_transport ranks_;
    B math_;
    executor<Model, B> executor_;
    train::rank_optimizer<updates> optimizer_;
    typename space::template array<double> losses_;
    int batch_;
    std::vector<microbatch_elements> elements_{}; ///< by extent
    std::size_t selected_{};                      ///< the extent of the step
    bool records_{};
    std::int64_t steps_{};
    std::uint64_t samples_{};
    train::step_outcome outcome_{};
    std::string not_finite_{}; ///< what the optimizer said of the step
};

} // namespace pulse
