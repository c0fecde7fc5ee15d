#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/control.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/launch/agree.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/pictures.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/same_run.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/sampler.hpp>
#include <pulse/train/scheduler_settings.hpp>
#include <pulse/tune/extent_plans.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "by_prompt.hpp"
#include "captioned.hpp"
#include "data_changes.hpp"
#include "drawing.hpp"
#include "images.hpp"
#include "measuring.hpp"
#include "metrics.hpp"
#include "new_folder.hpp"
#include "pipeline_folder.hpp"
#include "setup.hpp"
#include "synthetic.hpp"
#include "training.hpp"

namespace pulse_train {

/// Why the backbone of a diffusers folder is not Model; empty: it is. What a folder does not say, --model does.
template <class Model>
[[nodiscard]] std::string why_not(const std::filesystem::path& folder) {
    if constexpr (pulse::reads_hint<Model>) { return "a ControlNet is trained where --model names it"; }
    bool in_chunks = false;
    pulse::frozen::networks_of<Model>::each_text(
        [&]<class Text>(const Text*) { in_chunks = in_chunks || Text::chunks.chunks != 1; });
    if (in_chunks) { return "captions are read in chunks where --model names it"; }
    try {
        namespace diffusers = pulse::diffusers;
        diffusers::require_fit(diffusers::config_of(Model::config), folder / diffusers::backbone_folder(Model::config));
        return {};
    } catch (const pulse::input_error& e) { return e.what(); }
}

/// Makes the plan of the run (make_plan): with frozen tasks where these are asked for, or nothing else is and there is
/// such a plan.
template <class Model, class Side>
void plan_run(const Side& side, run_inputs& in, const measurements& known, const pulse::extent_cost_source& blank,
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
            } else {
                side.run_workers(1, [&](const pulse::any_transport& alone) {
                    ahead.frozen = task::tasks::measured(
                        a.source(), pulse::backend_on<typename task::frozen_backend>(alone, a.threads),
                        pictures->sizes(), pulse::normalized_shares(in.extents));
                });
            }
            try {
                return make_plan(in, ahead, blank);
            } catch (const pulse::infeasible_error&) {
                if (a.encode) { throw; }
            }
        }
    }
    make_plan(in, known, blank);
}

/// Draws what the arguments ask for and writes it into a folder. Whether there is something now.
template <class Model, class Side>
bool draw(const Side& side, const run_inputs& in, const run_results& results, const std::filesystem::path& folder) {
    if (in.args.sample == 0 || *in.stop) { return false; }
    std::printf("drawing %d images ...\n", in.args.sample);
    std::fflush(stdout);
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        if (in.args.draws_pictures()) {
            const by_prompt<Model, Side> of_prompts{side, in.args, in.sizes};
            std::vector<float> latents = draw_samples<Model>(side, in, results, of_prompts.conditions());
            if (latents.empty()) { return false; }
            const std::vector<float> drawn = of_prompts.decode(std::move(latents));
            write_samples(folder, in.args, drawn, of_prompts.shape());
            write_pictures(folder, in.args, drawn, of_prompts.shape());
            return true;
        }
    }
    const std::vector<float> drawn = draw_samples<Model>(side, in, results, {.wanted = in.conditions_of_images()});
    if (!drawn.empty()) { write_samples(folder, in.args, drawn, in.shape); }
    return !drawn.empty();
}

/// Says, where the folder of --from asks for another way of drawing than --sampler, that it is not followed.
inline void tell_other_drawing(const arguments& a) {
    if (a.from.empty()) { return; }
    const auto asked = pulse::diffusers::read_drawing(std::filesystem::path{a.from} / "scheduler");
    const bool betas = !a.scheduler.flow && !a.scheduler.edm;
    const bool solver = betas && a.sampler == pulse::train::sampler_kind::dpm_solver;
    const std::string drawn_by = solver ? "DPMSolverMultistepScheduler" : pulse::diffusers::class_of(a.scheduler);
    if (asked.class_name == drawn_by && asked.others.empty()) { return; }
    std::string text = asked.class_name;
    for (const std::string& other : asked.others) { text += ", " + other; }
    std::printf("drawing by %s, where the folder's scheduler asks for %s\n",
                betas ? (solver ? "--sampler dpm++" : "--sampler ddim") : "Euler's method", text.c_str());
}

/// Throws input_error unless what the arguments want drawn can be, which is looked at before a run begins.
template <class Model, class Side>
void require_drawable(const Side& side, const arguments& a, const pulse::frozen::picture_extents& sizes) {
    if (a.sample == 0) { return; }
    constexpr bool by_class =
        pulse::frozen::sample_row{pulse::conditions_read_by<Model>()}.count(pulse::condition_kind::class_label) != 0;
    const std::string option = by_class ? "--class" : "--prompt";
    const std::string none_reads = "there are no networks that draw pictures of " + a.model + " by " + option;
    if (!a.draws_pictures()) {
        if (!a.from.empty() && (by_class || pulse::reads_text<typename Model::conditioning>)) {
            throw pulse::input_error{"--sample: with --from, " +
                                     (pulse::frozen::networks_of<Model>::known
                                          ? "pictures of " + a.model + " are drawn by " + option
                                          : none_reads)};
        }
        return;
    }
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        static_cast<void>(by_prompt<Model, Side>{side, a, sizes});
        tell_other_drawing(a);
    } else {
        throw pulse::input_error{(a.classes.empty() ? "--prompt: " : "--class: ") + none_reads};
    }
}

/// What is to be done with a folder's weights as they are: a run of no steps.
template <class Model, class Side>
void use_untrained(const Side& side, run_inputs& in) {
    const arguments& a = in.args;
    const std::vector<pulse::parameter> all = pulse::diffusers::model_parameters<Model>();
    const pulse::diffusers::tensor_values values =
        first_values(in.branch != nullptr ? in.branch : in.start, a.seed, all);
    make_folder(in);
    if (!a.export_to.empty()) {
        if constexpr (pulse::reads_hint<Model>) {
            pulse::diffusers::export_control<Model>(a.export_to, values, export_format(a));
        } else {
            pulse::diffusers::export_pipeline<Model>(a.source(), a.export_to, values, export_format(a));
        }
    }
    if (a.sample == 0) { return; }
    in.plan.pipeline_degree = a.ranks;
    run_results untrained;
    std::size_t tensor = 0;
    for (int block = Model::is_conditioned ? pulse::conditioning_block : 0;
         block != static_cast<int>(Model::part_count); ++block) {
        std::vector<float>& to = untrained.averages[block];
        for (std::size_t n = pulse::parameters_of<Model>(block).size(); n != 0; --n) {
            values(tensor++, [&](std::span<const float> piece) { to.insert(to.end(), piece.begin(), piece.end()); });
        }
    }
    draw<Model>(side, in, untrained, a.out);
}

/// Height and width of a run's pictures and of what the model reads of them; `a` says the former then, where the folder
/// of --from says another than the model's type. Throws input_error naming the option.
template <class Model>
[[nodiscard]] pulse::frozen::picture_extents sizes_of(arguments& a) {
    constexpr pulse::extent type = pulse::extent_of<Model>();
    if (a.pictures.resample_positions && !pulse::learns_positions<Model>()) {
        throw pulse::input_error{"--resample-positions: " + a.model + " has no learned positions"};
    }
    const auto of_pixels = [&](const pulse::extent& pixels) -> pulse::frozen::picture_extents {
        const std::string& word = a.pictures.words.resample_positions;
        if constexpr (pulse::frozen::networks_of<Model>::known) {
            return pulse::frozen::extents_of<Model>(pixels, a.pictures.resample_positions, word);
        } else {
            if (pixels == pulse::extent{}) { return {pulse::extent_of<Model>(), pulse::extent_of<Model>()}; }
            pulse::require_steps<Model>(pixels);
            if (!a.pictures.resample_positions) { pulse::require_own_positions<Model>(pixels, word); }
            return {pixels, pixels};
        }
    };
    try {
        if (a.size.empty() && !a.from.empty() && pulse::resizable_model<Model>) {
            const pulse::extent latents = pulse::diffusers::read_sample_size(
                std::filesystem::path{a.from} / pulse::diffusers::backbone_folder(Model::config));
            if (latents != pulse::extent{} && latents != type) {
                const int pixels_each = of_pixels({}).pixels.height / type.height;
                a.pictures.size = {pixels_each * latents.height, pixels_each * latents.width};
            }
        }
        if (a.pictures.size == of_pixels({}).pixels) { a.pictures.size = {}; }
        const pulse::extent drawn = a.pictures.size;
        if (!a.buckets.empty()) { a.pictures.size = {}; } // which is that of none of the pictures
        return of_pixels(drawn);
    } catch (const pulse::input_error& e) {
        throw pulse::input_error{(a.size.empty() ? "--from: " : "--size: ") + std::string{e.what()}};
    }
}

/// Channels of what a model is trained on: those that it reads or, where it reads its own prediction beside them, half
/// of them. Throws input_error where it reads anything else besides.
template <class Model>
[[nodiscard]] int image_channels(const arguments& a) {
    constexpr int read = pulse::image_of<Model>::dims[0];
    constexpr int answered = Model::template layer_at<Model::layer_count - 1>::output::dims[0];
    const std::string counted =
        a.model + " reads " + std::to_string(read) + " channels and answers with " + std::to_string(answered);
    if (a.planning.self_conditioning) {
        if (read == 2 * answered) { return answered; }
        throw pulse::input_error{"--self-conditioning: " + counted + ", which is not half of them"};
    }
    if (answered < read && !a.plan_only) {
        throw pulse::input_error{"--model: " + counted + "; what the others are, " +
                                 (read == 2 * answered ? "--self-conditioning may say, or a task of your own"
                                                       : "this program does not know, and a task of your own may")};
    }
    return read;
}

/// The whole job for one backbone on one side (see host_side).
template <class Model, class Side>
void run_on(const Side& side, arguments a, const std::atomic<bool>& stop) {
    constexpr pulse::condition_set wanted = pulse::conditions_read_by<Model>();
    const bool leads = a.processes == nullptr || a.processes->rank() == 0;
    if (a.makes_folder()) {
        if constexpr (pulse::reads_hint<Model>) {
            throw pulse::input_error{"--init: a folder is written for a UNet, and " + a.model + " is a ControlNet"};
        }
        if (leads) { new_folder<Model>::write(a); }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    const int channels = image_channels<Model>(a);
    const std::unique_ptr<const pulse::diffusers::weights> branch = open_branch<Model>(a);
    const std::unique_ptr<const pulse::diffusers::weights> start = open_start<Model>(a);
    const pulse::frozen::picture_extents sizes = sizes_of<Model>(a);
    const sample_shape shape{channels, sizes.latents.height, sizes.latents.width};
    if (leads) { require_drawable<Model>(side, a, sizes); }
    std::optional<made_up_conditions> conditions;
    if (!wanted.empty()) { conditions.emplace(wanted, shape, a.seed); }
    const pulse::train::noise_process noise = pulse::train::process_of(a.scheduler);
    if (a.validates() && a.validate_times > noise.steps()) {
        throw pulse::input_error{"--validate-times: the noise schedule has " + std::to_string(noise.steps()) +
                                 " timesteps"};
    }
    run_inputs in{.args = a,
                  .shape = shape,
                  .sizes = sizes,
                  .extents = {{sizes.latents}},
                  .conditions = conditions ? &*conditions : nullptr,
                  .noise = &noise,
                  .start = start.get(),
                  .branch = branch.get(),
                  .hint = pulse::hint_extent<Model>(),
                  .stop = &stop};
    if (a.steps == 0 && !a.from.empty() && a.resume.empty() && !a.plan_only) {
        if (leads) { use_untrained<Model>(side, in); }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    in.kept = pulse::kept_by<Model, typename Side::math>(false, a.optimizer);
    std::optional<pulse::train::image_dataset> images;
    std::optional<captioned<Model>> pictures;
    std::optional<pulse::train::image_dataset> validation_images;
    std::optional<captioned<Model>> validation_pictures;
    if (wanted.empty() || a.data == synthetic_data) {
        images.emplace(load_images(a, shape));
        in.images = &*images;
        if (a.validates()) { validation_images.emplace(load_validation(a, shape, *images)); }
    } else {
        open_captioned<Model, Side>(in, pictures);
        if constexpr (pulse::frozen::networks_of<Model>::known) {
            if (a.validates()) { open_validation<Model>(in, *pictures, validation_pictures); }
        }
    }
    const auto of_validation = [&] {
        run_inputs of = in;
        if (validation_images) { of.images = &*validation_images; }
        if constexpr (pulse::frozen::networks_of<Model>::known) {
            if (validation_pictures) { of.pictures = &validation_pictures->source(); }
        }
        of.evaluated = pulse::train::evaluation{.samples = of.pictures != nullptr ? of.pictures->pictures().epoch()
                                                                                  : of.images->size()};
        return of;
    };
    if (a.processes != nullptr) {
        pulse::launch::agree(*a.processes,
                             {{"images", text_of_data(in)},
                              {"images of --validate", a.validates() ? text_of_data(of_validation()) : ""}});
    }
    if (!a.resume.empty()) { in.resume_from = pulse::train::find_checkpoint(a.resume); }
    measurements known;
    if (leads) {
        read_plan(in);
        known = read_known(a);
    }
    complete_batch(in);
    const pulse::extent_cost_source blank = [&](int size, const pulse::extent& to) {
        const auto graph = pulse::graph_of<Model>(pulse::resize<Model>(to));
        return pulse::blank_costs(graph.view(), size, static_cast<int>(sizeof(typename Side::scalar)));
    };
    measure_unknown<Model>(side, in, known);
    if (leads) { plan_run<Model>(side, in, known, blank, pictures ? &*pictures : nullptr); }
    if (a.processes != nullptr) { share_plan(in, *a.processes); }
    if (leads && in.pictures != nullptr && !a.buckets.empty()) {
        std::printf("%s\n", in.pictures->bucket_report(in.samples_of_step()).c_str());
        std::fflush(stdout);
    }
    if (a.plan_only) {
        if (leads) { open_folder(in); }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    in.config = config_of(in);
    if (a.processes != nullptr) { pulse::require_same_run<Model, typename Side::math>(*a.processes, in.planned()); }
    if (!a.resume.empty()) { require_same_config(in); }
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        if (pictures && !a.cache.empty()) { fill_cache<Model>(side, in, *pictures); }
    }
    std::optional<run_inputs> validation;
    if (a.validates()) { in.validation = &validation.emplace(of_validation()); }
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        if (validation_pictures) { fill_cache<Model>(side, *validation, *validation_pictures); }
    }

    metrics log{a.out, a.log_every, goes_on_in_its_folder(in)};
    const run_results results = [&] {
        const run_moments during{
            .ready =
                [&] {
                    open_folder(in);
                    keep_listing(in);
                },
            .drawing =
                [&](const run_results& so_far) {
                    const auto folder = drawing_folder(in, so_far.last_step);
                    if (!draw<Model>(side, in, so_far, folder)) { return; }
                    log.drawn(so_far.last_step, folder / samples_name);
                },
            .step_done = [&](const step_metrics& made) { log.step_done(made); },
            .validated = [&](const validation_loss& made) { log.validated(made, in.validation_times()); }};
        if constexpr (pulse::frozen::networks_of<Model>::known) {
            if (pictures) {
                const pulse::planned made = in.planned();
                return train<Model>(side, in, during, [&](const pulse::any_transport& among, const run_inputs& of) {
                    return pulse::pictures_task<Model, typename Side::math>{of.evaluated ? *validation_pictures
                                                                                         : *pictures,
                                                                            among,
                                                                            made,
                                                                            noise,
                                                                            of.task_options(among.rank()),
                                                                            in.samples_of_run()};
                });
            }
        }
        return train<Model>(side, in, during, [&](const pulse::any_transport& among, const run_inputs& of) {
            return typename Side::task{of, among};
        });
    }();
    if (in.pictures != nullptr && !in.pictures->damaged().empty()) { a.pictures.warn(in.pictures->damaged()); }
    if (a.processes != nullptr) {
        a.processes->leave();
        if (!leads) { return; }
    }
    const run_summary summary = summarise(in, results);
    write_artifacts(in, results, summary);
    const bool drawn = draw<Model>(side, in, results, a.out);
    if (drawn) { log.drawn(results.last_step, in.file(samples_name)); }
    print_summary(in, results, summary, drawn, log.written());
}

} // namespace pulse_train
