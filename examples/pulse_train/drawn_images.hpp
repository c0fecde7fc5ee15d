#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/train/sampler.hpp>
#include <pulse/zoo/frozen_networks.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "by_prompt.hpp"
#include "drawing.hpp"
#include "rank_results.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// Images drawn by a backbone, one after another; empty if the run was asked to stop.
struct drawn_images {
    std::vector<float> values{};
    sample_shape shape{};
};

/// Draws what the arguments ask for; the second backbone of a cascade draws from the `small` images of the first.
template <class Model, class Side>
[[nodiscard]] drawn_images draw_images_of(const Side& side, const run_inputs& in, const drawing_weights& weights,
                                          std::span<const float> small = {}) {
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        if (in.args.draws_pictures()) {
            const by_prompt<Model, Side> of_prompts{side, in.args, in.sizes};
            image_conditions by = of_prompts.conditions();
            by.small = small;
            std::vector<float> latents = draw_samples<Model>(side, in, weights, by);
            if (latents.empty()) { return {}; }
            return {of_prompts.decode(std::move(latents)), of_prompts.shape()};
        }
    }
    return {draw_samples<Model>(side, in, weights, {.wanted = in.conditions_of_images(), .small = small}), in.shape};
}

/// Writes the drawn images into a folder. Returns whether there are any.
[[nodiscard]] inline bool write_drawn(const std::filesystem::path& folder, const arguments& a,
                                      const drawn_images& drawn) {
    if (drawn.values.empty()) { return false; }
    write_samples(folder / samples_name, a, drawn.values, drawn.shape);
    if (a.draws_pictures()) { write_pictures(folder, a, drawn.values, drawn.shape); }
    return true;
}

/// Announces the drawing. Returns whether there are images to draw.
[[nodiscard]] inline bool tell_drawing(const run_inputs& in) {
    if (in.args.sample == 0 || *in.stop) { return false; }
    std::printf("drawing %d image%s ...\n", in.args.sample, in.args.sample == 1 ? "" : "s");
    std::fflush(stdout);
    return true;
}

/// Tells the user if the scheduler in --from asks for another sampler, which is not used.
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

/// Throws input_error, before a run begins, unless what the arguments ask for can be drawn.
template <class Model, class Side>
void require_drawable(const Side& side, const arguments& a, const pulse::frozen::picture_extents& sizes) {
    if (a.sample == 0) { return; }
    constexpr bool by_class =
        pulse::frozen::sample_row{pulse::conditions_read_by<Model>()}.count(pulse::condition_kind::class_label) != 0;
    const std::string option = by_class ? "--class" : "--prompt";
    const std::string none_reads = "no networks are known that draw pictures of " + a.model + " by " + option;
    if (!a.draws_pictures()) {
        if (!a.from.empty() && (by_class || pulse::reads_text<typename Model::conditioning>)) {
            throw pulse::input_error{"--sample: with --from, " +
                                     (pulse::frozen::networks_of<Model>::known
                                          ? "pictures of " + a.model + " must be drawn by " + option
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

} // namespace pulse_train
