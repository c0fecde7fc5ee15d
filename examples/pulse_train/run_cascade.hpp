#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/model/cascade.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/image.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/same_run.hpp>
#include <pulse/train/cascade_trainer.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/train/scheduler_settings.hpp>
#include <pulse/zoo/frozen_networks.hpp>

#include "arguments.hpp"
#include "artifacts.hpp"
#include "backbone_run.hpp"
#include "drawn_images.hpp"
#include "measuring.hpp"
#include "new_folder.hpp"
#include "run_config.hpp"
#include "run_model.hpp"
#include "setup.hpp"
#include "trained.hpp"
#include "training.hpp"

namespace pulse_train {

/// What one rank trains, with its data: a cascade of two backbones (see trained_backbone). A step's loss is the sum of
/// both losses.
template <class First, class Second, class Side, class MakeFirst, class MakeSecond>
class trained_cascade {
public:
    static constexpr bool may_fault = rank_data<MakeFirst>::may_fault || rank_data<MakeSecond>::may_fault;

    /// `first` and `second`: the runs of the backbones, which must outlive it.
    trained_cascade(const run_inputs& both, const pulse::any_transport& among, const run_inputs& first,
                    const run_inputs& second, const MakeFirst& make_first, const MakeSecond& make_second) :
        first_{first},
        second_{second}, trainer_{among, both.planned(), both.training()}, first_data_{first, among, make_first},
        second_data_{second, among, make_second} {}

    [[nodiscard]] auto& trainer() noexcept { return trainer_; }
    [[nodiscard]] const auto& trainer() const noexcept { return trainer_; }
    void begin() {
        begin_with<First>(trainer_.first(), first_);
        begin_with<Second>(trainer_.second(), second_);
    }
    [[nodiscard]] std::string fault(purpose use, std::uint64_t position) {
        const std::string of_first = first_data_.fault(use, position);
        const std::string of_second = second_data_.fault(use, position);
        return of_first.empty() ? of_second : of_first;
    }
    [[nodiscard]] trained_step step(bool stop) {
        const auto done = trainer_.step(first_data_.of(purpose::training), second_data_.of(purpose::training), stop);
        return {{.gradient_norm = std::hypot(done.first.gradient_norm, done.second.gradient_norm),
                 .loss = done.first.loss + done.second.loss,
                 .stop = done.stop,
                 .skipped = done.first.skipped || done.second.skipped,
                 .loss_scale = std::min(done.first.loss_scale, done.second.loss_scale)},
                {done.first.loss, done.second.loss}};
    }
    [[nodiscard]] double validate(const pulse::train::evaluation& what, std::uint64_t first) {
        auto& one = first_data_.of(purpose::validation);
        auto& two = second_data_.of(purpose::validation);
        one.evaluate_at(what);
        two.evaluate_at(what);
        const auto losses = trainer_.evaluate(one, two, first);
        return losses.first + losses.second;
    }
    void report(rank_results& to) const {
        second_data_.report(to);
        to.captions_cut = 0; // the first counts the same captions
        first_data_.report(to);
    }
    [[nodiscard]] std::vector<drawing_weights> averages() {
        const auto& runner = trainer_.runner();
        return {drawing_weights_of(trainer_.first(), runner.parameters().first, runner.place()),
                drawing_weights_of(trainer_.second(), runner.parameters().second, runner.place())};
    }
    void export_from(const std::filesystem::path& checkpoint) const {
        export_backbone<First>(first_.args, checkpoint, "first.");
        export_backbone<Second>(second_.args, checkpoint, "second.");
    }

private:
    const run_inputs& first_;
    const run_inputs& second_;
    pulse::cascade_trainer<First, Second, typename Side::math> trainer_;
    rank_data<MakeFirst> first_data_;
    rank_data<MakeSecond> second_data_;
};

/// Throws input_error unless two folders train with the same noise; their drawing steps may differ.
inline void require_same_noise(const arguments& a, const arguments& other) {
    pulse::train::scheduler_settings noise = other.scheduler;
    noise.spacing = a.scheduler.spacing;
    noise.steps_offset = a.scheduler.steps_offset;
    noise.set_alpha_to_one = a.scheduler.set_alpha_to_one;
    noise.clip_sample = a.scheduler.clip_sample;
    noise.clip_sample_range = a.scheduler.clip_sample_range;
    if (noise != a.scheduler) {
        throw pulse::input_error{"--cascade-from: the scheduler of '" + other.from +
                                 "' differs in noise or prediction type from that of '" + a.from + "'"};
    }
}

/// The second backbone's arguments.
[[nodiscard]] inline arguments second_of(const arguments& a) {
    arguments other = a;
    other.model = a.cascade_with;
    other.from = a.cascade_from;
    other.from_file.clear();
    other.export_to = a.cascade_export;
    other.from_option = "--cascade-from";
    other.export_option = "--cascade-export";
    other.pictures.networks = other.source();
    other.pictures.words.networks = other.from_option;
    if (!a.cache.empty()) { other.pictures.cache = other.cache = (std::filesystem::path{a.cache} / "second").string(); }
    if (!other.from.empty()) {
        other.scheduler = within(other.from_option, [&] {
            return pulse::diffusers::read_scheduler(std::filesystem::path{other.from} / "scheduler");
        });
        if (other.scheduler.flow) { other.scheduler.flow->times = a.flow_times; }
        require_same_noise(a, other);
    }
    return other;
}

/// The scale of the second's images to the first's, in rows and columns. Throws input_error unless an enlarged image of
/// the first has the size of the second's.
template <class First, class Second>
[[nodiscard]] int enlargement_of(const arguments& a) {
    constexpr pulse::extent small = pulse::extent_of<First>();
    constexpr pulse::extent large = pulse::extent_of<Second>();
    const int times = large.height / small.height;
    if (times < 2 || large.height != times * small.height || large.width != times * small.width) {
        const auto text = [](const pulse::extent& of) {
            return std::to_string(of.height) + " x " + std::to_string(of.width);
        };
        throw pulse::input_error{"--cascade-with: " + a.cascade_with + " reads " + text(large) +
                                 ", but must read a whole multiple, at least 2, of the " + text(small) + " that " +
                                 a.model + " draws"};
    }
    return times;
}

/// Throws input_error unless two opened backbones have images of their types' sizes, the same number of channels and
/// the same kind of data.
template <class First, class Second, class Side>
void require_alike(const backbone_run<First, Side>& one, const backbone_run<Second, Side>& two) {
    const bool first_fits = one.in.sizes.latents == pulse::extent_of<First>();
    if (!first_fits || two.in.sizes.latents != pulse::extent_of<Second>()) {
        const arguments& of = (first_fits ? two.in : one.in).args;
        throw pulse::input_error{of.from_option + ": sample_size: in a cascade, " + of.model +
                                 " must have the size of its type"};
    }
    const auto text = [](const run_inputs& in) {
        return in.args.model + " has " + std::to_string(in.shape.channels) + " channels";
    };
    if (one.in.shape.channels != two.in.shape.channels) {
        throw pulse::input_error{"--cascade-with: an image of " + text(one.in) + ", but one of " + text(two.in)};
    }
    if (one.reads_pictures() != two.reads_pictures()) {
        throw pulse::input_error{"--data: one of " + one.in.args.model + " and " + two.in.args.model +
                                 " reads text or classes, and one reads none; only '" + std::string{synthetic_data} +
                                 "' data suit both"};
    }
}

/// The whole job for a cascade of two backbones on one side (see host_side): each trains on images of its own size, and
/// they draw in sequence.
template <class First, class Second, class Side>
void run_cascade_on(const Side& side, arguments said, const std::atomic<bool>& stop) {
    using math = typename Side::math;
    static_assert(!pulse::frozen::has_autoencoder<pulse::frozen::networks_of<First>> &&
                      !pulse::frozen::has_autoencoder<pulse::frozen::networks_of<Second>>,
                  "pulse_train: both backbones of a cascade must draw pixels, not latents");
    static_assert(!pulse::reads_hint<First> && !pulse::reads_hint<Second>,
                  "pulse_train: no backbone of a cascade may be a ControlNet");
    const int times = enlargement_of<First, Second>(said);
    const arguments other = second_of(said);
    if (said.makes_folder()) {
        if (said.processes == nullptr || said.processes->rank() == 0) {
            new_folder<First> small{said};
            new_folder<Second> large{other};
            small.finish();
            large.finish();
        }
        if (said.processes != nullptr) { said.processes->leave(); }
        return;
    }
    backbone_run<First, Side> one{side, std::move(said), stop};
    backbone_run<Second, Side> two{side, other, stop, times};
    const arguments& a = one.in.args;
    require_alike(one, two);
    const auto draw = [&](const std::vector<drawing_weights>& weights, const std::filesystem::path& folder) {
        if (!tell_drawing(one.in)) { return false; }
        drawn_images small = draw_images_of<First>(side, one.in, weights[0]);
        if (small.values.empty()) { return false; }
        for (float& value : small.values) { value = std::clamp(value, -1.0F, 1.0F); }
        if (!write_drawn(folder, other, draw_images_of<Second>(side, two.in, weights[1], small.values))) {
            return false;
        }
        write_samples(folder / first_samples_name, a, small.values, small.shape);
        return true;
    };
    if (a.uses_untrained()) {
        if (one.leads()) {
            make_folder(one.in);
            one.in.plan.pipeline_degree = two.in.plan.pipeline_degree = a.ranks;
            static_cast<void>(draw({use_untrained<First>(one.in), use_untrained<Second>(two.in)}, a.out));
        }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    one.in.kept = two.in.kept = pulse::kept_by<pulse::cascade<First, Second>, math>(false, a.optimizer);
    two.open_data();
    one.reads_pictures() ? one.open_data() : one.shrink_data(two, times);
    one.agree_on_data();
    two.agree_on_data();

    run_inputs both = one.in;
    both.extents = {{}};
    if (!a.resume.empty()) { both.resume_from = pulse::train::find_checkpoint(a.resume); }
    measurements known;
    if (one.leads()) {
        read_plan(both);
        known = read_known(a);
    }
    // In a folded placement, a backbone's first and last stages are on one device.
    both.kept.beside_last_stage = two.in.kept.beside_first_stage;
    const int ranks = a.processes == nullptr && !a.plan_file.empty() ? both.plan.pipeline_degree : a.ranks;
    if (ranks == 1) { both.kept.beside_first_stage += both.kept.beside_last_stage; }
    complete_batch(both);
    for (run_inputs* const in : {&one.in, &two.in}) {
        in->plan = both.plan;
        in->args.planning = both.args.planning;
    }
    measure_unknown<First>(side, one.in, known);
    measurements known_of_second;
    known_of_second.machine = known.machine;
    measure_unknown<Second>(side, two.in, known_of_second, true);
    if (one.leads()) { make_cascade_plan(both, known, one.estimated, known_of_second, two.estimated); }
    if (a.processes != nullptr) { share_plan(both, *a.processes); }
    take_part(one.in, both, false);
    take_part(two.in, both, true);
    if (a.plan_only) {
        if (one.leads()) { open_folder(both); }
        if (a.processes != nullptr) { a.processes->leave(); }
        return;
    }
    both.config = cascade_config_of(both, two.in);
    if (a.processes != nullptr) {
        pulse::require_same_run<pulse::cascade<First, Second>, math>(*a.processes, both.planned());
    }
    if (!a.resume.empty()) { require_same_config(both); }
    side.template time_engines<First, Second>(both, one.in, two.in);
    one.fill_caches();
    two.fill_caches();
    both.validation = one.in.validation;
    run_and_report(
        both,
        [&](const run_results& so_far, const std::filesystem::path& folder) { return draw(so_far.averages, folder); },
        [&](const run_moments& during) {
            const auto train_on = [&](const auto& first_tasks, const auto& second_tasks) {
                using trained = trained_cascade<First, Second, Side, std::remove_cvref_t<decltype(first_tasks)>,
                                                std::remove_cvref_t<decltype(second_tasks)>>;
                const run_results all = train<trained>(side, both, during, one.in, two.in, first_tasks, second_tasks);
                // Both read the same pictures separately, so each damaged one may be reported only once.
                const auto damaged = [](const run_inputs& in) {
                    return in.pictures != nullptr ? in.pictures->damaged() : std::string{};
                };
                if (!damaged(two.in).empty() && damaged(one.in).empty()) { a.pictures.warn(damaged(two.in)); }
                return all;
            };
            if constexpr (pulse::frozen::networks_of<First>::known && pulse::frozen::networks_of<Second>::known) {
                if (one.reads_pictures()) { return train_on(one.tasks_of_pictures(), two.tasks_of_pictures()); }
            }
            return train_on(one.tasks_of_images(), two.tasks_of_images());
        });
}

} // namespace pulse_train
