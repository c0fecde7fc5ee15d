#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/checkpoint/merged.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/saving.hpp>

#include "artifacts.hpp"
#include "best_checkpoint.hpp"
#include "images.hpp"
#include "metrics.hpp"
#include "progress.hpp"
#include "rank_results.hpp"
#include "run_config.hpp"
#include "run_inputs.hpp"
#include "timeline.hpp"
#include "trained.hpp"

namespace pulse_train {

/// What rank 0 does at points of a run.
struct run_moments {
    /// Called once, when every rank has all its inputs and has checked them: nothing is written before.
    std::function<void()> ready{};
    /// Called after every --sample-every steps except the last, with the results so far, while the other ranks wait.
    std::function<void(const run_results&)> drawing{};
    /// Called after each step.
    std::function<void(const step_metrics&)> step_done{};
    /// Called after each validation.
    std::function<void(const validation_loss&)> validated{};
};

/// One rank's part of a training run; `Trained` is what it trains, with its data (see trained_backbone).
template <class Trained>
class training_rank {
public:
    /// `data`: further constructor arguments of Trained.
    template <class... Data>
    training_rank(const run_inputs& in, const pulse::any_transport& among, const run_moments& during,
                  const Data&... data) :
        in_{in},
        during_{during}, transport_{among}, trained_{in, among, data...}, trainer_{trained_.trainer()} {
        in.args.resume.empty() ? trained_.begin() : resume();
    }
    training_rank(const training_rank&) = delete;
    training_rank& operator=(const training_rank&) = delete;

    /// Trains, and returns the rank's results.
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
            // The fifth step is warm; the first is a fallback for shorter runs.
            const bool traced = trainer_.steps() == first || trainer_.steps() == first + 4;
            if (traced) {
                transport_.sum({});
                trainer_.record();
                before = transport_.sent();
            }
            const auto began = clock::now();
            if (traced) { origin_ns_ = pulse::trace::now_ns(); }
            require_samples([&] { return trained_.fault(purpose::training, trainer_.samples()); },
                            "step " + std::to_string(trainer_.steps() + 1));
            const trained_step made = trained_.step(asks_to_stop());
            const pulse::train::step_outcome& done = made.outcome;
            stop = done.stop;
            const double seconds = seconds_since(began);
            if (traced) { keep_trace(before); }
            if (rank() == 0) {
                mine_.losses.push_back(done.loss);
                mine_.step_seconds.push_back(seconds);
                shown->step_done(trainer_.steps(), done.loss, samples / seconds);
                during_.step_done({.step = trainer_.steps(),
                                   .loss = done.loss,
                                   .losses = made.losses,
                                   .gradient_norm = done.gradient_norm,
                                   .learning_rate = rate.at(trainer_.steps()),
                                   .samples_per_s = samples / seconds,
                                   .loss_scale = scaled ? std::optional{done.loss_scale} : std::nullopt,
                                   .skipped = done.skipped});
            }
            const auto is_due = [&](std::int64_t every) { return every > 0 && trainer_.steps() % every == 0; };
            const bool ends = trainer_.steps() >= in_.args.steps;
            // A resumed run does not repeat a validation, so a checkpoint follows the validation of its step; but the
            // last checkpoint waits for nothing.
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

    [[nodiscard]] static double seconds_since(clock::time_point t) {
        return std::chrono::duration<double>(clock::now() - t).count();
    }
    [[nodiscard]] int rank() const { return transport_.rank(); }

    [[nodiscard]] bool asks_to_stop() const {
        return in_.stop->load() || (in_.args.time_limit_s > 0 && seconds_since(start_) > in_.args.time_limit_s);
    }

    /// Ends the run if a rank cannot read some samples (fault_of() says why), with a checkpoint if it has made steps.
    /// The ranks agree before any of them starts on these; `then` is what cannot be done without them.
    template <class FaultOf>
    void require_samples([[maybe_unused]] const FaultOf& fault_of, [[maybe_unused]] const std::string& then) {
        if constexpr (Trained::may_fault) {
            const std::string fault = fault_of();
            double faults = fault.empty() ? 0 : 1;
            transport_.sum({&faults, 1});
            if (faults == 0) { return; }
            const bool keeps = trainer_.steps() != first_step_;
            if (keeps && saved_.first != trainer_.steps()) { save(); }
            if (!fault.empty()) {
                throw pulse::input_error{fault + "; " + then + " cannot run" +
                                         (keeps ? "; --resume goes on from the last checkpoint" : "")};
            }
            transport_.sum({}); // ended by a rank that cannot read
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

    /// The best earlier step, which rank 0 reads for all.
    void find_best(std::int64_t first) {
        if (!in_.args.keep_best || in_.validation == nullptr) { return; }
        if (rank() == 0) {
            std::string measure = text_of_data(*in_.validation);
            for (const int time : in_.validation_times()) { measure += ", " + std::to_string(time); }
            best_.emplace(in_.args.out, measure, goes_on_in_its_folder(in_), first);
        }
        double least = rank() == 0 && std::isfinite(best_->loss()) ? best_->loss() : 0.0; // never a loss
        transport_.sum({&least, 1});
        if (least != 0) { least_loss_ = least; }
    }
    /// Computes the validation loss at each of some timesteps; keeps the checkpoint if it is the lowest yet. Returns
    /// false if stopped before there was a result.
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
            require_samples([&] { return trained_.fault(purpose::validation, first); },
                            "the validation after step " + std::to_string(trainer_.steps()));
            for (std::size_t k = 0; k != times.size(); ++k) {
                made.at_time[k] += trained_.validate({times[k], samples}, first);
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
        // Threads share one clock; processes may not, so each counts from the moment when all have met.
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

    /// The rank's planned bytes: those of its device on the replica with the largest shares of state and the most
    /// scratch, with its own state and scratch instead.
    [[nodiscard]] std::int64_t planned_bytes() const {
        const int device = trainer_.runner().place().device;
        const auto kept_by = [&](int replica) {
            return pulse::kept_bytes_on(trainer_.runner().model(), device, in_.plan.data_degree, replica, in_.kept);
        };
        // `of`: what is kept, or only the layers' scratch
        const auto scratch_of = [&](const auto& of) {
            std::int64_t most = 0;
            in_.planned().each_extent(
                [&](const auto&, const pulse::plan& made, const pulse::cost_table& costs, double) {
                    most = std::max(most, pulse::scratch_bytes_on(pulse::step_model{made, costs}, device, of));
                });
            return most;
        };
        return in_.plan.predicted.peak_memory_bytes[static_cast<std::size_t>(device)] -
               kept_by(in_.plan.data_degree - 1) + kept_by(trainer_.runner().place().replica) - scratch_of(in_.kept) +
               std::min(scratch_of(in_.kept.scratch), trainer_.scratch_bytes());
    }

    /// Writes the last checkpoint and collects the rank's results.
    void finish(std::int64_t first) {
        mine_.rank = rank();
        mine_.planned_bytes = planned_bytes();
        mine_.measured_bytes = trainer_.bytes() + trainer_.scratch_bytes();
        trained_.report(mine_);
        if (saved_.first != trainer_.steps()) { save(); }
        if (in_.args.sample != 0) { mine_.averages = trained_.averages(); }
        if (rank() == 0) {
            pulse::train::export_merged(saved_.second, in_.file(checkpoint_name));
            trained_.export_from(saved_.second);
        }
        mine_.steps_run = trainer_.steps() - first;
        mine_.last_step = trainer_.steps();
    }
    void draw() {
        rank_results so_far;
        so_far.rank = rank();
        so_far.last_step = trainer_.steps();
        so_far.averages = trained_.averages();
        std::vector<rank_results> all;
        for (const auto& bytes : transport_.gather(to_bytes(so_far))) { all.push_back(rank_results_from(bytes)); }
        if (rank() == 0) { during_.drawing(joined(std::move(all))); }
        transport_.sum({});
    }
    const run_inputs& in_;
    const run_moments& during_;
    pulse::any_transport transport_;
    Trained trained_;
    std::remove_reference_t<decltype(std::declval<Trained&>().trainer())>& trainer_;
    std::optional<best_checkpoint> best_{}; ///< on rank 0, if it is kept
    double least_loss_{std::numeric_limits<double>::infinity()};
    std::int64_t first_step_{}; ///< earlier steps belong to a run that this one continues
    std::pair<std::int64_t, std::filesystem::path> saved_{-1, {}}; ///< step and folder of the last checkpoint
    rank_results mine_{};
    std::int64_t origin_ns_{};
    clock::time_point start_{};
};

/// Trains, on the ranks of a side, what is made with `data`; rethrows here whatever stops a rank. If ranks are
/// processes, rank 0 has the results.
template <class Trained, class Side, class... Data>
[[nodiscard]] run_results train(const Side& side, const run_inputs& in, const run_moments& during,
                                const Data&... data) {
    std::vector<rank_results> results;
    side.run_ranks(in, [&](const pulse::any_transport& among) {
        training_rank<Trained> rank{in, among, during, data...};
        among.sum({});
        if (among.rank() == 0) { during.ready(); }
        const auto all = among.gather(to_bytes(rank.run()));
        for (const auto& bytes : all) { results.push_back(rank_results_from(bytes)); }
    });
    return joined(std::move(results));
}

} // namespace pulse_train
