#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/checkpoint/merged.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/control.hpp>
#include <pulse/model/image.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/train/trainer.hpp>

#include "artifacts.hpp"
#include "best_checkpoint.hpp"
#include "images.hpp"
#include "metrics.hpp"
#include "pipeline_folder.hpp"
#include "progress.hpp"
#include "rank_results.hpp"
#include "run_inputs.hpp"
#include "setup.hpp"
#include "timeline.hpp"

namespace pulse_train {

/// What rank 0 does in a run.
struct run_moments {
    /// Called once, when every rank has all that it needs and has checked it: nothing is written before.
    std::function<void()> ready{};
    /// Called after each of --sample-every steps but the last, with what is known of the run by then, while the other
    /// ranks wait.
    std::function<void(const run_results&)> drawing{};
    /// Called after each step.
    std::function<void(const step_metrics&)> step_done{};
    /// Called after each validation.
    std::function<void(const validation_loss&)> validated{};
};

/// One rank's part of a training run on a side (see host_side), with the data that a task has: make_task(transport, in)
/// for what is trained on, and for what it is validated by, which in.validation says.
template <class Model, class Side, class MakeTask>
class training_rank {
public:
    using math = typename Side::math;

    training_rank(const run_inputs& in, const pulse::any_transport& among, const run_moments& during,
                  const MakeTask& make_task) :
        in_{in},
        during_{during}, transport_{among}, trainer_{among, in.planned(), in.training()}, task_(make_task(among, in)) {
        if (in.validation != nullptr) { validation_.reset(new task(make_task(among, *in.validation))); }
        if constexpr (pulse::reads_hint<Model>) {
            if (in.start != nullptr) { trainer_.lock(*in.start); }
        }
        if (!in.args.resume.empty()) {
            resume();
        } else if constexpr (pulse::reads_hint<Model>) {
            in.branch != nullptr ? trainer_.start(*in.branch) : trainer_.start_as_locked();
        } else if (in.start != nullptr) {
            trainer_.start(*in.start);
        }
    }

    /// What the rank leaves.
    [[nodiscard]] rank_results run() {
        const std::int64_t first = first_step_ = trainer_.steps();
        const auto samples = static_cast<double>(trainer_.step_samples());
        const auto rate = in_.training().learning_rate;
        const bool scaled = in_.args.precision == precision_kind::fp16;
        std::optional<progress> shown;
        start_ = clock::now();
        find_best(first);
        if (first == 0) { validate(shown); }
        if (rank() == 0) { shown.emplace(first, in_.args.steps, in_.args.time_limit_s); }
        pulse::traffic_count before;
        for (bool stop = false; trainer_.steps() < in_.args.steps && !stop;) {
            // The fifth step is a warm one; the first is kept in case that no more follow.
            const bool traced = trainer_.steps() == first || trainer_.steps() == first + 4;
            if (traced) {
                transport_.sum({});
                trainer_.record();
                before = transport_.sent();
            }
            const auto began = clock::now();
            if (traced) { origin_ns_ = pulse::trace::now_ns(); }
            require_samples(task_, trainer_.samples(), "step " + std::to_string(trainer_.steps() + 1));
            const pulse::train::step_outcome done = trainer_.step(task_, asks_to_stop());
            stop = done.stop;
            const double seconds = seconds_since(began);
            if (traced) { keep_trace(before); }
            if (rank() == 0) {
                mine_.losses.push_back(done.loss);
                mine_.step_seconds.push_back(seconds);
                shown->step_done(trainer_.steps(), done.loss, samples / seconds);
                during_.step_done({.step = trainer_.steps(),
                                   .loss = done.loss,
                                   .gradient_norm = done.gradient_norm,
                                   .learning_rate = rate.at(trainer_.steps()),
                                   .samples_per_s = samples / seconds,
                                   .loss_scale = scaled ? std::optional{done.loss_scale} : std::nullopt,
                                   .skipped = done.skipped});
            }
            const auto is_due = [&](std::int64_t every) { return every > 0 && trainer_.steps() % every == 0; };
            const bool ends = trainer_.steps() >= in_.args.steps;
            // A run does not validate again what it goes on from, so a checkpoint comes behind the validation of its
            // step; but the last one waits for nothing.
            if (is_due(in_.args.validate_every) && !ends && !stop) { stop = !validate(shown); }
            if (is_due(in_.args.checkpoint_every) || ends || stop) { save(); }
            if (ends && !stop) { validate(shown); }
            if (is_due(in_.args.sample_every) && !stop && !ends) { draw(); }
        }
        shown.reset();
        finish(first);
        return std::move(mine_);
    }

private:
    using clock = std::chrono::steady_clock;
    using task = std::invoke_result_t<const MakeTask&, const pulse::any_transport&, const run_inputs&>;

    [[nodiscard]] static double seconds_since(clock::time_point t) {
        return std::chrono::duration<double>(clock::now() - t).count();
    }
    [[nodiscard]] int rank() const { return transport_.rank(); }

    [[nodiscard]] bool asks_to_stop() const {
        return in_.stop->load() || (in_.args.time_limit_s > 0 && seconds_since(start_) > in_.args.time_limit_s);
    }

    /// Ends the run where a rank cannot read the samples of a task from `position` on, with a checkpoint if it has made
    /// steps. The ranks agree before any of them begins with these; `then` is what cannot be done without them.
    void require_samples(task& of, std::uint64_t position, const std::string& then) {
        if constexpr (requires { of.prepare(position); }) {
            const std::string fault = of.prepare(position);
            double faults = fault.empty() ? 0 : 1;
            transport_.sum({&faults, 1});
            if (faults == 0) { return; }
            const bool keeps = trainer_.steps() != first_step_;
            if (keeps && saved_.first != trainer_.steps()) { save(); }
            if (!fault.empty()) {
                throw pulse::input_error{fault + "; " + then + " cannot be made" +
                                         (keeps ? ", --resume goes on from the one before" : "")};
            }
            transport_.sum({}); // which a rank that cannot read ends
        }
    }
    void resume() {
        try {
            trainer_.resume(in_.resume_from);
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--resume: "} + e.what()}; }
    }
    void save() {
        const auto saved = trainer_.save(checkpoints_of(in_));
        saved_ = {trainer_.steps(), saved.folder};
        tell_not_removed(saved);
    }
    void tell_not_removed(const pulse::train::saved_checkpoint& saved) const {
        if (rank() == 0 && !saved.not_removed.empty()) {
            std::fprintf(stderr, "pulse_train: %s\n", saved.not_removed.c_str());
        }
    }

    /// The best step of the steps before, which rank 0 reads for all.
    void find_best(std::int64_t first) {
        if (!in_.args.keep_best || in_.validation == nullptr) { return; }
        if (rank() == 0) {
            std::string measure = text_of_data(*in_.validation);
            for (const int time : in_.validation_times()) { measure += ", " + std::to_string(time); }
            best_.emplace(in_.args.out, measure, goes_on_in_its_folder(in_), first);
        }
        double least = rank() == 0 && std::isfinite(best_->loss()) ? best_->loss() : 0.0; // which no loss is
        transport_.sum({&least, 1});
        if (least != 0) { least_loss_ = least; }
    }
    /// The loss of what is not trained on, at each of some timesteps; the checkpoint is kept where none was less. Whether
    /// that was not stopped before there was a result.
    bool validate(std::optional<progress>& shown) {
        if (in_.validation == nullptr) { return true; }
        const std::uint64_t samples = in_.validation->evaluated->samples;
        const std::vector<int> times = in_.validation_times();
        validation_loss made{.step = trainer_.steps(), .at_time = std::vector<double>(times.size())};
        const std::uint64_t of_step = trainer_.step_samples();
        for (std::uint64_t first = 0; first < samples; first += of_step) {
            double stops = asks_to_stop() ? 1 : 0;
            transport_.sum({&stops, 1});
            if (stops != 0) { return false; }
            require_samples(*validation_, first, "the validation behind step " + std::to_string(trainer_.steps()));
            for (std::size_t k = 0; k != times.size(); ++k) {
                validation_->evaluate_at({times[k], samples});
                made.at_time[k] += trainer_.evaluate(*validation_, first);
            }
        }
        for (double& loss : made.at_time) {
            loss *= static_cast<double>(of_step) / static_cast<double>(samples);
            made.loss += loss / static_cast<double>(times.size());
        }
        if (rank() == 0) {
            const std::string text = text_of(made, times);
            if (shown) {
                shown->say(text);
            } else {
                std::puts(text.c_str());
            }
            during_.validated(made);
            mine_.validation.push_back(made);
        }
        if (!in_.args.keep_best || !(made.loss < least_loss_)) { return true; }
        least_loss_ = made.loss;
        tell_not_removed(trainer_.save(best_of(in_)));
        if (rank() == 0) { best_->note(made.step, made.loss); }
        return true;
    }
    [[nodiscard]] static std::string text_of(const validation_loss& made, const std::vector<int>& times) {
        char text[64];
        std::snprintf(text, sizeof text, "validation after step %lld: loss %.4f", static_cast<long long>(made.step),
                      made.loss);
        std::string all = text;
        for (std::size_t k = 0; k != times.size(); ++k) {
            std::snprintf(text, sizeof text, "%s%.4f at %d", k == 0 ? ": " : ", ", made.at_time[k], times[k]);
            all += text;
        }
        return all;
    }

    void keep_trace(const pulse::traffic_count& before) {
        transport_.sum({});
        // Threads have one clock. Processes may not: each counts from when all have come.
        double origin = rank() == 0 || in_.args.processes != nullptr ? static_cast<double>(origin_ns_) : 0.0;
        if (in_.args.processes == nullptr) { transport_.sum({&origin, 1}); }
        const auto& ran = trainer_.runner();
        const traced_rank of_rank{rank(), ran.place(), ran.model(), ran.instructions().instructions,
                                  static_cast<std::int64_t>(origin)};
        mine_.events = events_of(of_rank, ran.recorded().events());
        for (auto& e : reductions_of(of_rank, ran.recorded().reductions())) { mine_.events.push_back(std::move(e)); }
        mine_.busy_us = 0;
        for (const auto& e : mine_.events) {
            mine_.busy_us += e.lane == 0 && e.kind != 'O' ? e.end_us - e.start_us : 0.0;
        }
        const pulse::traffic_count after = transport_.sent();
        mine_.sent = {};
        mine_.sent.boundary = after.boundary - before.boundary;
        mine_.sent.skip = after.skip - before.skip;
        mine_.sent.gradient = after.gradient - before.gradient;
    }

    /// What the plan has for the rank: for its device on the replica with the largest shares of state, with its own
    /// instead.
    [[nodiscard]] std::int64_t planned_bytes() const {
        const int device = trainer_.runner().place().device;
        const auto kept_by = [&](int replica) {
            return pulse::kept_bytes_on(trainer_.runner().model(), device, in_.plan.data_degree, replica, in_.kept);
        };
        return in_.plan.predicted.peak_memory_bytes[static_cast<std::size_t>(device)] -
               kept_by(in_.plan.data_degree - 1) + kept_by(trainer_.runner().place().replica);
    }

    /// The last checkpoint, and what the rank leaves.
    void finish(std::int64_t first) {
        mine_.rank = rank();
        mine_.planned_bytes = planned_bytes();
        mine_.measured_bytes = trainer_.bytes();
        if constexpr (requires { task_.encode_seconds(); }) {
            mine_.measured_bytes += task_.bytes();
            mine_.encode_seconds = task_.encode_seconds();
            mine_.captions_cut = task_.captions_cut();
        }
        if (saved_.first != trainer_.steps()) { save(); }
        if (in_.args.sample != 0) { keep_averages(mine_); }
        if (rank() == 0) {
            pulse::train::export_merged(saved_.second, in_.file(checkpoint_name));
            if (!in_.args.export_to.empty()) { export_checkpoint(); }
        }
        mine_.steps_run = trainer_.steps() - first;
        mine_.last_step = trainer_.steps();
    }
    void export_checkpoint() const {
        const arguments& a = in_.args;
        if constexpr (pulse::reads_hint<Model>) {
            pulse::diffusers::export_control<Model>(saved_.second, a.export_to, a.export_part, export_format(a));
        } else {
            pulse::diffusers::export_checkpoint<Model>(saved_.second, a.source(), a.export_to, a.export_part,
                                                       export_format(a));
        }
    }
    void draw() {
        rank_results so_far;
        so_far.rank = rank();
        so_far.last_step = trainer_.steps();
        keep_averages(so_far);
        std::vector<rank_results> all;
        for (const auto& bytes : transport_.gather(to_bytes(so_far))) { all.push_back(rank_results_from(bytes)); }
        if (rank() == 0) { during_.drawing(joined(std::move(all))); }
        transport_.sum({});
    }
    void keep_averages(rank_results& to) {
        trainer_.with_state([&](const auto& kept) {
            if (trainer_.runner().place().replica != 0) { return; }
            for (const auto& block : trainer_.runner().parameters().blocks()) {
                const auto average = std::span{kept.average}.subspan(block.first, block.size);
                to.averages[block.layer].assign(average.begin(), average.end());
            }
        });
    }

    const run_inputs& in_;
    const run_moments& during_;
    pulse::any_transport transport_;
    pulse::trainer<Model, math> trainer_;
    task task_;
    std::unique_ptr<task> validation_{};
    std::optional<best_checkpoint> best_{}; ///< of rank 0, where it is kept
    double least_loss_{std::numeric_limits<double>::infinity()};
    std::int64_t first_step_{}; ///< those before are of a run that this one continues
    std::pair<std::int64_t, std::filesystem::path> saved_{-1, {}}; ///< the step of the last checkpoint, and its folder
    rank_results mine_{};
    std::int64_t origin_ns_{};
    clock::time_point start_{};
};

/// Trains on the ranks of a side; whatever stops one rank is thrown here. Where ranks are processes, rank 0 has the
/// results.
template <class Model, class Side, class MakeTask>
[[nodiscard]] run_results train(const Side& side, const run_inputs& in, const run_moments& during,
                                const MakeTask& make_task) {
    std::vector<rank_results> results;
    side.run_ranks(in, [&](const pulse::any_transport& among) {
        training_rank<Model, Side, MakeTask> rank{in, among, during, make_task};
        among.sum({});
        if (among.rank() == 0) { during.ready(); }
        const auto all = among.gather(to_bytes(rank.run()));
        for (const auto& bytes : all) { results.push_back(rank_results_from(bytes)); }
    });
    return joined(std::move(results));
}

} // namespace pulse_train
