#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <pulse/core/error.hpp>
#include <pulse/data/held_out.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/pictures.hpp>
#include <pulse/runtime/any_transport.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "data_changes.hpp"
#include "pipeline_folder.hpp"
#include "rank_collectives.hpp"
#include "run_inputs.hpp"
#include "synthetic.hpp"

namespace pulse_train {

/// The captioned pictures of a model, if it reads any.
template <class Model>
using captioned = std::conditional_t<pulse::frozen::networks_of<Model>::known, pulse::pictures<Model>, std::monostate>;

/// Opens the pictures of --data; rank 0 reports what is read. Throws input_error naming the option or the file.
template <class Model, class Side>
void open_captioned(run_inputs& in, std::optional<captioned<Model>>& to) {
    const arguments& a = in.args;
    if constexpr (pulse::frozen::networks_of<Model>::known) {
        if (a.from.empty()) {
            throw pulse::input_error{
                "--data: pictures and captions are encoded by networks of --from, which is not given; '" +
                std::string{synthetic_data} + "' data need none"};
        }
        if (pulse::pictures<Model>::row.classes() != 0 && !a.said_of_captions.empty()) {
            throw pulse::input_error{a.said_of_captions + ": only for captions, which " + a.model +
                                     " does not read: folders are its classes"};
        }
        to.emplace(a.pictures);
        in.extents.clear();
        for (const pulse::frozen::picture_extents& one : to->sizes()) { in.extents.push_back({one.latents}); }
        if (a.encode != encode_when::once) {
            using task = pulse::pictures_task<Model, typename Side::math>;
            in.kept.beside_first_stage = task::first_stage_bytes(to->sizes());
            in.kept.beside_last_stage = task::last_stage_bytes(to->sizes());
        }
        tell_unread(a, to->unread());
        in.pictures = &to->source();
        if (a.processes == nullptr || a.processes->rank() == 0) {
            for (const std::string& line : in.pictures->report()) { std::puts(line.c_str()); }
            if (const std::string lengths = to->caption_lengths(); !lengths.empty()) {
                std::printf("captions: %s\n", lengths.c_str());
            }
            std::fflush(stdout);
            if (!a.plan_only) { std::printf("pictures: %s\n", in.pictures->check().c_str()); }
        }
        if (!a.cache.empty()) { to->open_cache(); }
    } else {
        throw pulse::input_error{"--data: " + a.model + " reads text or classes, which here only '" + synthetic_data +
                                 "' data have"};
    }
}

/// Opens the pictures of --validate, in the layouts of --data, which are encoded once, into the run's folder; rank 0
/// reports what is read. Throws input_error naming the option or the file.
template <class Model>
void open_validation(const run_inputs& in, const pulse::pictures<Model>& trained,
                     std::optional<pulse::pictures<Model>>& to) {
    const arguments& a = in.args;
    pulse::pictures_options o = a.pictures;
    if (!a.validation_data.empty()) {
        o.data = a.validation_data;
        o.held_out = 0;
        o.conditioning.clear(); // images with the names of its pictures may belong to others
        o.words.conditioning.clear();
    }
    o.part = pulse::data::picture_part::held_out;
    o.cache = in.file(validation_name);
    o.seed = 0;
    o.random_crop = false;
    o.horizontal_flip = false;
    o.caption_dropout = 0;
    o.shuffle_tags_behind.reset();
    o.words.data = o.words.cache = "--validate";
    to.emplace(o);
    const auto& classes = trained.source().pictures().index().classes;
    if (pulse::pictures<Model>::row.classes() != 0 && to->source().pictures().index().classes != classes) {
        throw pulse::input_error{"--validate: '" + o.data.string() +
                                 "' must have the same folders of classes as --data"};
    }
    if ((a.processes != nullptr && a.processes->rank() != 0) || a.plan_only) { return; }
    std::printf("validation: %s\n", to->source().check().c_str());
    std::fflush(stdout);
}

/// Encodes into a cache what it lacks; rank 0 reports how long that took. Collective. Throws input_error if ranks do
/// not see the files of others.
template <class Model, class Side>
void fill_cache(const Side& side, const run_inputs& in, pulse::pictures<Model>& pictures) {
    side.run_ranks(in, [&](const pulse::any_transport& among) {
        using clock = std::chrono::steady_clock;
        const auto begin = clock::now();
        using task = pulse::pictures_task<Model, typename Side::math>;
        const auto took = pictures.template fill_cache<typename task::frozen_backend>(among);
        if (!among.leads()) { return; }
        if (took.bytes == 0) {
            const pulse::pictures_options& o = pictures.options();
            std::printf("%s %s has all pictures and captions\n", o.words.cache.c_str(), o.cache.c_str());
            return;
        }
        const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
        std::printf("encoded %.0f pictures and %.0f captions, %.1f MiB, in %.1f s", static_cast<double>(took.pictures),
                    static_cast<double>(took.captions), static_cast<double>(took.bytes) / (1 << 20), seconds);
        if (!in.evaluated) {
            const auto samples = static_cast<std::uint64_t>(in.args.steps) *
                                 static_cast<std::uint64_t>(in.plan.microbatch_size) *
                                 static_cast<std::uint64_t>(in.plan.microbatches);
            std::printf("; before each step it would take %.1f s of this run", took.each_step_seconds(samples));
        }
        std::puts("");
        std::fflush(stdout);
    });
}

} // namespace pulse_train
