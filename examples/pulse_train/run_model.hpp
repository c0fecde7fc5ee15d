#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/control.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/pictures.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/same_run.hpp>
#include <pulse/tune/extent_plans.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "backbone_run.hpp"
#include "captioned.hpp"
#include "data_changes.hpp"
#include "drawn_images.hpp"
#include "measuring.hpp"
#include "metrics.hpp"
#include "new_folder.hpp"
#include "pipeline_folder.hpp"
#include "run.hpp"
#include "run_config.hpp"
#include "setup.hpp"
#include "trained.hpp"
#include "training.hpp"

namespace pulse_train {

/// Why a diffusers folder's backbone is not Model; empty: it is. What the folder cannot say, --model must.
template <class Model>
[[nodiscard]] std::string why_not(const std::filesystem::path& folder) {
    if constexpr (pulse::reads_hint<Model>) { return "a ControlNet must be named by --model"; }
    bool in_chunks = false;
    pulse::frozen::networks_of<Model>::each_text(
        [&]<class Text>(const Text*) { in_chunks = in_chunks || Text::chunks.chunks != 1; });
    if (in_chunks) { return "a model that reads captions in chunks must be named by --model"; }
    try {
        namespace diffusers = pulse::diffusers;
        diffusers::require_fit(diffusers::config_of(Model::config), folder / diffusers::backbone_folder(Model::config));
        return {};
    } catch (const pulse::input_error& e) { return e.what(); }
}

/// Makes the plan of the run (make_plan): with frozen tasks if --encode asks for them, or if it is absent and such a
/// plan exists.
template <class Model, class Side>
void plan_run(const Side& side, run_inputs& in, const measurements& known, const pulse::extent_cost_source& estimated,
              const captioned<Model>* pictures) {
    const arguments& a = in.args;
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        const bool possible = a.plan_file.empty() || !in.plan.frozen_tasks.empty();
        if (pictures != nullptr && pictures->has_buckets() && a.plan_file.empty()) {
            in.extents = pictures->shares(static_cast<std::uint64_t>(a.planning.global_batch));
        }
        if (pictures != nullptr && a.encode.value_or(encode_when::bubbles) == encode_when::bubbles &&
            (a.encode || (possible && known.machine.unlike.empty()))) {
            using task = pulse::pictures_task<Model, typename Side::math>;
            measurements ahead = known;
            const auto read = known.costs.begin();
            if (!a.profile.empty() && !read->second.front().frozen.empty()) {
                require_same_frozen(read->second.front(), task::tasks::components(pictures->sizes()), a.profile);
                ahead.frozen = read->second.front().frozen;
            } else if (!a.plan_file.empty() && a.profile_out.empty()) {
                ahead.frozen = task::tasks::components(pictures->sizes());
            } else {
                side.run_workers(1, [&](const pulse::any_transport& alone) {
                    ahead.frozen = task::tasks::measured(
                        a.source(), pulse::backend_on<typename task::frozen_backend>(alone, a.threads),
                        pictures->sizes(), pulse::normalized_shares(in.extents));
                });
            }
            try {
                return make_plan(in, ahead, estimated);
            } catch (const pulse::infeasible_error&) {
                if (a.encode) { throw; }
            }
        }
    }
    make_plan(in, known, estimated);
}

/// Writes --export of a backbone's initial weights, in a run of no steps. Returns the weights to draw with.
template <class Model>
[[nodiscard]] drawing_weights use_untrained(const run_inputs& in) {
    const arguments& a = in.args;
    const std::vector<pulse::parameter> all = pulse::diffusers::model_parameters<Model>();
    const pulse::diffusers::tensor_values values =
        first_values(in.branch != nullptr ? in.branch : in.start, a.seed, all);
    if (!a.export_to.empty()) {
        if constexpr (pulse::reads_hint<Model>) {
            pulse::diffusers::export_control<Model>(a.export_to, values, export_format(a));
        } else {
            pulse::diffusers::export_pipeline<Model>(a.source(), a.export_to, values, export_format(a));
        }
    }
    drawing_weights untrained;
    if (a.sample == 0) { return untrained; }
    std::size_t tensor = 0;
    for (int block = Model::is_conditioned ? pulse::conditioning_block : 0;
         block != static_cast<int>(Model::part_count); ++block) {
        std::vector<float>& to = untrained[block];
        for (std::size_t n = pulse::parameters_of<Model>(block).size(); n != 0; --n) {
            values(tensor++, [&](std::span<const float> piece) { to.insert(to.end(), piece.begin(), piece.end()); });
        }
    }
    return untrained;
}

/// Trains with train_by(moments), writes the run's output and prints its summary; draw(results, folder) draws into a
/// folder and returns whether there are images. Ranks that are processes part here.
template <class Draw, class TrainBy>
void run_and_report(const run_inputs& in, const Draw& draw, const TrainBy& train_by) {
    const arguments& a = in.args;
    metrics log{a.out, a.log_every, goes_on_in_its_folder(in)};
    const run_results results = train_by(
        run_moments{.ready =
                        [&] {
                            open_folder(in);
                            keep_listing(in);
                        },
                    .drawing =
                        [&](const run_results& so_far) {
                            const auto folder = drawing_folder(in, so_far.last_step);
                            if (draw(so_far, folder)) { log.drawn(so_far.last_step, folder / samples_name); }
                        },
                    .step_done = [&](const step_metrics& made) { log.step_done(made); },
                    .validated = [&](const validation_loss& made) { log.validated(made, in.validation_times()); }});
    if (in.pictures != nullptr && !in.pictures->damaged().empty()) { a.pictures.warn(in.pictures->damaged()); }
    if (a.processes != nullptr) {
        a.processes->leave();
        if (a.processes->rank() != 0) { return; }
    }
    const run_summary summary = summarise(in, results);
    write_artifacts(in, results, summary);
    const bool drawn = draw(results, a.out);
    if (drawn) { log.drawn(results.last_step, in.file(samples_name)); }
    print_summary(in, results, summary, drawn, log.written());
}

/// The whole job for one backbone on one side (see host_side).
template <class Model, class Side>
void run_on(const Side& side, arguments said, const std::atomic<bool>& stop) {
    if (said.makes_folder()) {
        if constexpr (pulse::reads_hint<Model>) {
            throw pulse::input_error{"--init: cannot write a folder for " + said.model + ", which is a ControlNet"};
        }
        if (said.processes == nullptr || said.processes->rank() == 0) { new_folder<Model>{said}.finish(); }
        if (said.processes != nullptr) { said.processes->leave(); }
        return;
    }
    backbone_run<Model, Side> run{side, std::move(said), stop};
    run_inputs& in = run.in;
    const arguments& a = in.args;
    const auto draw = [&](const std::vector<drawing_weights>& weights, const std::filesystem::path& folder) {
        return tell_drawing(in) && write_drawn(folder, a, draw_images_of<Model>(side, in, weights.front()));
    };
    if (a.uses_untrained()) {
        if (run.leads()) {
            make_folder(in);
            in.plan.pipeline_degree = a.ranks;
            static_cast<void>(draw({use_untrained<Model>(in)}, a.out));
        }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    in.kept = pulse::kept_by<Model, typename Side::math>(false, a.optimizer);
    run.open_data();
    run.agree_on_data();
    if (!a.resume.empty()) { in.resume_from = pulse::train::find_checkpoint(a.resume); }
    measurements known;
    if (run.leads()) {
        read_plan(in);
        known = read_known(a);
    }
    complete_batch(in);
    measure_unknown<Model>(side, in, known);
    if (run.leads()) { plan_run<Model>(side, in, known, run.estimated, run.pictures()); }
    if (a.processes != nullptr) { share_plan(in, *a.processes); }
    if (run.leads() && in.pictures != nullptr && !a.buckets.empty()) {
        std::printf("%s\n", in.pictures->bucket_report(in.samples_of_step()).c_str());
        std::fflush(stdout);
    }
    if (a.plan_only) {
        if (run.leads()) { open_folder(in); }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    in.config = config_of(in);
    if (a.processes != nullptr) { pulse::require_same_run<Model, typename Side::math>(*a.processes, in.planned()); }
    if (!a.resume.empty()) { require_same_config(in); }
    side.template time_engines<Model>(in, in);
    run.fill_caches();
    run_and_report(
        in,
        [&](const run_results& so_far, const std::filesystem::path& folder) { return draw(so_far.averages, folder); },
        [&](const run_moments& during) {
            const auto train_on = [&](const auto& tasks) {
                using tasks_type = std::remove_cvref_t<decltype(tasks)>;
                return train<trained_backbone<Model, Side, tasks_type>>(side, in, during, tasks);
            };
            if constexpr (pulse::frozen::networks_of<Model>::known) {
                if (run.reads_pictures()) { return train_on(run.tasks_of_pictures()); }
            }
            return train_on(run.tasks_of_images());
        });
}

} // namespace pulse_train
