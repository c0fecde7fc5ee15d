#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/control.hpp>
#include <pulse/model/image.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/trainer.hpp>

#include "pipeline_folder.hpp"
#include "rank_results.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// The purpose of a rank's data.
enum class purpose : std::uint8_t { training, validation };

/// A rank's data of one backbone: its training data and, if in.validation is set, its validation data, each a task that
/// make_task(transport, in) makes.
template <class MakeTask>
class rank_data {
public:
    using task = std::invoke_result_t<const MakeTask&, const pulse::any_transport&, const run_inputs&>;

    rank_data(const run_inputs& in, const pulse::any_transport& among, const MakeTask& make_task) :
        trained_(make_task(among, in)) {
        if (in.validation != nullptr) { validation_.reset(new task(make_task(among, *in.validation))); }
    }

    /// The training or validation data.
    [[nodiscard]] task& of(purpose use) noexcept { return use == purpose::training ? trained_ : *validation_; }

    /// Why its samples from `position` on cannot be read; empty: they can.
    [[nodiscard]] std::string fault(purpose use, std::uint64_t position) {
        if constexpr (may_fault) {
            return of(use).prepare(position);
        } else {
            return {};
        }
    }
    static constexpr bool may_fault = requires(task & of) { of.prepare(0); };

    /// Adds the frozen networks' costs to the rank's results.
    void report(rank_results& to) const {
        if constexpr (requires { trained_.encode_seconds(); }) {
            to.measured_bytes += trained_.bytes();
            to.encode_seconds += trained_.encode_seconds();
            to.captions_cut += trained_.captions_cut();
        }
    }

private:
    task trained_;
    std::unique_ptr<task> validation_{};
};

/// The weights to draw with, of a rank's share of a backbone with these parameters. Collective.
template <class Backbone, class Parameters>
[[nodiscard]] drawing_weights drawing_weights_of(Backbone& of, const Parameters& parameters,
                                                 const pulse::replica_place& place) {
    drawing_weights mine;
    for (const auto& block : parameters.blocks()) {
        if (place.replica != 0 && !of.is_sharded()) { continue; }
        pulse::train::rank_state kept = of.read_state(block);
        if (place.replica == 0) { mine[block.layer] = std::move(kept.average); }
    }
    return mine;
}

/// Gives a backbone the run's initial weights.
template <class Model, class Backbone>
void begin_with(Backbone& of, const run_inputs& in) {
    if constexpr (pulse::reads_hint<Model>) {
        in.branch != nullptr ? of.start(*in.branch) : of.start_as_locked();
    } else if (in.start != nullptr) {
        of.start(*in.start);
    }
}

/// Writes --export from a checkpoint that prefixes the backbone's names with `prefix`.
template <class Model>
void export_backbone(const arguments& a, const std::filesystem::path& checkpoint, const char* prefix = "") {
    if (a.export_to.empty()) { return; }
    within(a.export_option, [&] {
        if constexpr (pulse::reads_hint<Model>) {
            pulse::diffusers::export_control<Model>(checkpoint, a.export_to, a.export_part, export_format(a), prefix);
        } else {
            pulse::diffusers::export_checkpoint<Model>(checkpoint, a.source(), a.export_to, a.export_part,
                                                       export_format(a), prefix);
        }
    });
}

/// A rank's results of a step, and the loss of each backbone if there are several.
struct trained_step {
    pulse::train::step_outcome outcome{};
    std::vector<double> losses{};
};

/// What one rank trains, with its data: a backbone.
template <class Model, class Side, class MakeTask>
class trained_backbone {
public:
    static constexpr bool may_fault = rank_data<MakeTask>::may_fault;

    trained_backbone(const run_inputs& in, const pulse::any_transport& among, const MakeTask& make_task) :
        in_{in}, trainer_{among, in.planned(), in.training()}, data_{in, among, make_task} {
        if constexpr (pulse::reads_hint<Model>) {
            if (in.start != nullptr) { trainer_.lock(*in.start); }
        }
    }

    [[nodiscard]] auto& trainer() noexcept { return trainer_; }
    [[nodiscard]] const auto& trainer() const noexcept { return trainer_; }
    void begin() { begin_with<Model>(trainer_, in_); }
    [[nodiscard]] std::string fault(purpose use, std::uint64_t position) { return data_.fault(use, position); }
    [[nodiscard]] trained_step step(bool stop) { return {trainer_.step(data_.of(purpose::training), stop)}; }
    [[nodiscard]] double validate(const pulse::train::evaluation& what, std::uint64_t first) {
        auto& judging = data_.of(purpose::validation);
        judging.evaluate_at(what);
        return trainer_.evaluate(judging, first);
    }
    void report(rank_results& to) const { data_.report(to); }
    [[nodiscard]] std::vector<drawing_weights> averages() {
        const auto& runner = trainer_.runner();
        return {drawing_weights_of(trainer_, runner.parameters(), runner.place())};
    }
    void export_from(const std::filesystem::path& checkpoint) const { export_backbone<Model>(in_.args, checkpoint); }

private:
    const run_inputs& in_;
    pulse::trainer<Model, typename Side::math> trainer_;
    rank_data<MakeTask> data_;
};

} // namespace pulse_train
