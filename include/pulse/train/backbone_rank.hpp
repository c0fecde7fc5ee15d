#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/nan_trap.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/task.hpp>
#include <pulse/train/trainer_options.hpp>

namespace pulse::train {

/// An open folder of weights, such as diffusers::weights.
template <class T>
concept weights_source = requires(const T& from, const parameter& what, std::span<float> to) {
    from.read(what, 0, to);
};

/// One rank's part of a backbone in training: parameters, optimizer and losses. A trainer has one and forwards its
/// members to it; a cascade_trainer has two.
template <any_model Model, backend B>
class backbone_rank {
    using updates = decltype(updates_of(std::declval<const B&>()));
    using rules = pulse::detail::task_rules<Model, B>;

public:
    using model = Model;
    using scalar = typename B::scalar;
    using space = space_of<B>;
    using block = typename backend_parameters<B>::block;

    /// `math` and `parameters` must outlive it. Throws input_error when an option is out of range.
    backbone_rank(const any_transport& ranks, B& math, backend_parameters<B>& parameters, const replica_place& place,
                  const planned& made, const trainer_options& options) :
        ranks_{ranks},
        math_{math}, parameters_{parameters}, place_{place}, seed_{options.seed},
        optimizer_{Model::part_count, static_cast<std::size_t>(made.plan.microbatches), parameters,
                   optimizer_options{.constants = options.adamw,
                                     .clip_norm = options.clip_norm,
                                     .clip_by_last_norm = options.clip_by_last_norm,
                                     .average_decay = options.average_decay,
                                     .scaling = options.loss_scale,
                                     .replicas = {place, made.kept.sharded},
                                     .form = made.kept.form,
                                     .seed = options.seed,
                                     .gradient_release = made.plan.gradient_release},
                   updates_of(math)},
        losses_(static_cast<std::size_t>(made.plan.microbatches)), batch_{made.plan.microbatch_size} {
        made.each_extent([&](const extent& to, const auto&...) {
            const auto graph = graph_of<Model>(resize<Model>(to));
            const auto of_batch = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * batch_); };
            elements_.push_back(
                {of_batch(graph.layers.front().input_elements), of_batch(graph.layers.back().output_elements)});
        });
        optimizer_.start_by_block(parameters_, [&](const block& of, std::span<float> values) {
            nn::initialise<float>(parameters_of<Model>(of.layer), seed_, values);
        });
        initialise_frozen<Model>(parameters_, seed_);
    }
    backbone_rank(const backbone_rank&) = delete;
    backbone_rank& operator=(const backbone_rank&) = delete;

    /// See trainer::start.
    void start(std::span<const float> weights) { optimizer_.start(weights, parameters_); }
    template <weights_source Weights>
    void start(const Weights& from) {
        optimizer_.start_by_block(parameters_, [&](const block& of, std::span<float> values) {
            for (const parameter& what : parameters_of<Model>(of.layer)) {
                const auto n = static_cast<std::size_t>(what.elements());
                from.read(what, 0, values.first(n));
                values = values.subspan(n);
            }
        });
    }
    /// See trainer::lock.
    template <weights_source Weights>
    void lock(const Weights& from) {
        read_frozen<Model>(parameters_, from);
        math_.weights_changed();
    }
    /// See trainer::start_as_locked.
    void start_as_locked() { start(with_locked_values<Model>(parameters_, initial_values<Model>(parameters_, seed_))); }
    /// See trainer::read_state.
    [[nodiscard]] rank_state read_state(const block& of) { return optimizer_.read_state(parameters_, of, ranks_); }
    [[nodiscard]] rank_state read_state() {
        rank_state all;
        for (const block& of : parameters_.blocks()) {
            const rank_state one = read_state(of);
            for (const auto part : rank_state_parts) {
                (all.*part).insert((all.*part).end(), (one.*part).begin(), (one.*part).end());
            }
        }
        return all;
    }
    /// See trainer::set_state.
    void set_state(rank_state kept, const block& of) { optimizer_.set_state(std::move(kept), parameters_, of); }
    [[nodiscard]] const optimizer_form& form() const noexcept { return optimizer_.form(); }
    [[nodiscard]] bool is_sharded() const noexcept { return optimizer_.is_sharded(); }

    [[nodiscard]] backend_parameters<B>& parameters() noexcept { return parameters_; }
    [[nodiscard]] const backend_parameters<B>& parameters() const noexcept { return parameters_; }
    [[nodiscard]] loss_scaler& loss_scale() noexcept { return optimizer_.scaler(); }
    /// The norm that clips the next step (trainer_options::clip_by_last_norm); 0: none.
    [[nodiscard]] double last_norm() const noexcept { return optimizer_.last_norm(); }
    void set_last_norm(double norm) noexcept { optimizer_.set_last_norm(norm); }
    /// Bytes of parameters and optimizer.
    [[nodiscard]] std::int64_t bytes() const noexcept { return parameters_.bytes() + optimizer_.bytes(); }

    // Called by a trainer during a step.

    /// Adapts a task to the executor's task concept, except for optimize().
    template <class Task>
    struct step_task {
        backbone_rank& of;
        Task& data;
        std::uint64_t first; ///< position of the step's first sample

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
            data.encode(first + (call.for_next_step ? of.step_samples() : 0) + of.samples_before(0), call);
        }
        void encoded(const encoded_results& results) requires rules::template encodes<Task> { data.encoded(results); }
    };

    [[nodiscard]] std::size_t extents() const noexcept { return elements_.size(); }
    /// Sets the extent of the next step.
    void select(std::size_t extent) noexcept { selected_ = extent; }
    /// Begins the step whose samples start at `first`: resets its losses and tells the task.
    template <class Task>
    void begin(Task& data, std::uint64_t first, [[maybe_unused]] double scale) {
        optimizer_.memory().clear(std::span<double>{losses_.data(), losses_.size()});
        if constexpr (rules::template begins_scaled<Task>) {
            data.begin(first, scale);
        } else if constexpr (rules::template begins<Task>) {
            data.begin(first);
        }
    }
    /// The loss of an evaluation, on every rank; collective.
    [[nodiscard]] double evaluated_loss() {
        optimizer_.memory().wait();
        std::vector<double> shares(losses_.size() * static_cast<std::size_t>(place_.replicas()));
        const std::size_t mine = static_cast<std::size_t>(place_.replica) * losses_.size();
        space::template download<double>(losses_.data(), std::span{shares}.subspan(mine, losses_.size()));
        ranks_.sum(shares);
        return std::accumulate(shares.begin(), shares.end(), 0.0);
    }
    /// Sums squared gradients and losses of the step over all ranks; changes no weights. Returns whether all are
    /// finite, or true where the loss is scaled; the same on every rank. Collective.
    [[nodiscard]] bool measure(bool stop) {
        try {
            optimizer_.measure(parameters_, ranks_, std::span<const double>{losses_.data(), losses_.size()}, stop);
        } catch (const not_finite_error& e) { not_finite_ = e.what(); }
        return not_finite_.empty();
    }
    /// Where gradients are released, updates layers `first` to `last`, before measure().
    void update_layers(int first, int last, std::int64_t step, double learning_rate) {
        optimizer_.update_layers(parameters_, first, last, step, learning_rate);
    }
    /// Updates the parameters from what measure() summed; `step` counts from 1.
    [[nodiscard]] step_outcome update(std::int64_t step, double learning_rate) {
        return optimizer_.apply(parameters_, ranks_, step, learning_rate);
    }
    /// What measure() found not finite; empty if all is finite.
    [[nodiscard]] const std::string& not_finite() const noexcept { return not_finite_; }
    /// Takes the text of not_finite(), with the place where the first such value arose if it is known.
    [[nodiscard]] std::string take_fault(const std::optional<value_fault>& first) {
        std::string text = std::exchange(not_finite_, {});
        if (first && !text.empty()) {
            static constexpr auto graph = graph_of<Model>();
            text += "; " + to_text(*first, graph.view());
        }
        return text;
    }

private:
    struct microbatch_elements {
        std::size_t input{};
        std::size_t output{};
    };

    /// Elements of a microbatch's tensors in the current step.
    [[nodiscard]] const microbatch_elements& now() const noexcept { return elements_[selected_]; }
    [[nodiscard]] std::uint64_t step_samples() const noexcept {
        return static_cast<std::uint64_t>(batch_) * losses_.size() * static_cast<std::uint64_t>(place_.replicas());
    }
    /// Samples of a step before microbatch m of this replica.
    [[nodiscard]] std::uint64_t samples_before(int m) const noexcept {
        const auto before = static_cast<std::uint64_t>(place_.replica) * losses_.size() + static_cast<std::uint64_t>(m);
        return before * static_cast<std::uint64_t>(batch_);
    }
    [[nodiscard]] work<B> work_of(int m, std::uint64_t first) noexcept {
        return {m,     batch_, first + samples_before(m), static_cast<std::int64_t>(step_samples()), losses_.data() + m,
                &math_};
    }

    any_transport ranks_;
    B& math_;
    backend_parameters<B>& parameters_;
    replica_place place_;
    std::uint64_t seed_;
    rank_optimizer<updates> optimizer_;
    typename space::template array<double> losses_;
    int batch_;
    std::vector<microbatch_elements> elements_{}; ///< by extent
    std::size_t selected_{};                      ///< extent of the step
    std::string not_finite_{};
};

} // namespace pulse::train
