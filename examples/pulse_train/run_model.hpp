#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <vector>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/same_run.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/scheduler_settings.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "drawing.hpp"
#include "measuring.hpp"
#include "setup.hpp"
#include "synthetic.hpp"
#include "training.hpp"

namespace pulse_train {

/// The whole job for one backbone on one side (see host_side).
template <class Model, class Side>
void run_on(const Side& side, const arguments& a, const std::atomic<bool>& stop) {
    constexpr auto shape = Model::template layer_at<0>::input::dims;
    constexpr sample_shape of_sample{shape[0], shape[1], shape[2]};
    constexpr pulse::condition_set wanted = pulse::conditions_read_by<Model>();
    const pulse::train::image_dataset images = load_images(a, of_sample, !wanted.empty());
    std::optional<made_up_conditions> conditions;
    if (!wanted.empty()) { conditions.emplace(wanted, of_sample, a.seed); }
    const pulse::train::noise_schedule noise = pulse::train::schedule_of(a.scheduler);
    run_inputs in{.args = a,
                  .images = &images,
                  .conditions = conditions ? &*conditions : nullptr,
                  .noise = &noise,
                  .stop = &stop};
    in.kept = pulse::kept_by<Model, typename Side::math>();
    if (!a.resume.empty()) { in.resume_from = pulse::train::find_checkpoint(a.resume); }
    const bool leads = a.processes == nullptr || a.processes->rank() == 0;
    measurements known;
    if (leads) {
        read_plan(in);
        known = read_known(a);
    }
    complete_batch(in);
    const pulse::cost_source blank = [](int size) {
        constexpr auto graph = pulse::graph_of<Model>();
        return pulse::blank_costs(graph.view(), size, static_cast<int>(sizeof(typename Side::scalar)));
    };
    measure_unknown<Model>(side, in, known);
    if (leads) { make_plan(in, known, blank); }
    if (a.processes != nullptr) { share_plan(in, *a.processes); }
    if (a.plan_only) {
        if (leads) { open_folder(in); }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    in.config = config_of(in);
    if (a.processes != nullptr) {
        pulse::require_same_run<Model, typename Side::math>(*a.processes, in.plan, {{"images", text_of(images)}});
    }
    if (!a.resume.empty()) { require_same_config(in); }

    const run_results results = train<Model>(side, in, [&] { open_folder(in); });
    if (a.processes != nullptr) {
        a.processes->leave();
        if (!leads) { return; }
    }
    const run_summary summary = summarise(in, results);
    write_artifacts(in, results, summary);
    std::vector<float> drawn;
    if (a.sample > 0 && !stop) {
        std::printf("drawing %d images ...\n", a.sample);
        std::fflush(stdout);
        drawn = draw_samples<Model>(side, in, results);
        if (!drawn.empty()) { write_samples(in, drawn); }
    }
    print_summary(in, results, summary, !drawn.empty());
}

} // namespace pulse_train
