#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/launch/agree.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/pictures.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/enlargement.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/sampler.hpp>
#include <pulse/tune/extent_plans.hpp>

#include "arguments.hpp"
#include "captioned.hpp"
#include "drawn_images.hpp"
#include "images.hpp"
#include "pipeline_folder.hpp"
#include "run_inputs.hpp"
#include "synthetic.hpp"

namespace pulse_train {

/// Height and width of a run's pictures and of the model's input; sets the pictures' size in `a` if the folder of
/// --from has another size than the model's type. Throws input_error naming the option.
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
        if (!a.buckets.empty()) { a.pictures.size = {}; } // no picture has this size
        return of_pixels(drawn);
    } catch (const pulse::input_error& e) {
        throw pulse::input_error{(a.size.empty() ? a.from_option : "--size") + ": " + e.what()};
    }
}

/// Channels of a model's training images: all that it reads, or half if it also reads its own prediction or, as the
/// second of a cascade, an enlarged image. Throws input_error if it reads anything else.
template <class Model>
[[nodiscard]] int image_channels(const arguments& a, bool is_second) {
    constexpr int read = pulse::image_of<Model>::dims[0];
    constexpr int answered = Model::template layer_at<Model::layer_count - 1>::output::dims[0];
    const std::string counted =
        a.model + " reads " + std::to_string(read) + " channels and outputs " + std::to_string(answered);
    if (a.planning.self_conditioning || is_second) {
        if (read == 2 * answered) { return answered; }
        throw pulse::input_error{(is_second ? "--cascade-with: " : "--self-conditioning: ") + counted +
                                 ", but must read exactly twice as many as it outputs"};
    }
    if (answered < read && !a.plan_only) {
        throw pulse::input_error{"--model: " + counted + "; " +
                                 (read == 2 * answered ? "fill the others by --self-conditioning or --cascade-with"
                                                       : "this program cannot fill the others; write your own task")};
    }
    return read;
}

/// One backbone of a run on a side (see host_side): holds what its arguments name, opened, and its `in` points there.
template <class Model, class Side>
class backbone_run {
    using math = typename Side::math;
    using networks = pulse::frozen::networks_of<Model>;
    static constexpr pulse::condition_set wanted = pulse::conditions_read_by<Model>();

public:
    /// `enlarges`: scale of a cascade's second backbone relative to the first's images; 0: it is not a second backbone.
    /// Throws input_error naming the option, the file and the key or the tensors.
    backbone_run(const Side& side, arguments a, const std::atomic<bool>& stop, int enlarges = 0) :
        side_{side}, noise_{pulse::train::process_of(a.scheduler)} {
        const int channels = image_channels<Model>(a, enlarges != 0);
        branch_ = open_branch<Model>(a);
        start_ = open_start<Model>(a);
        const pulse::frozen::picture_extents sizes = sizes_of<Model>(a);
        const sample_shape shape{channels, sizes.latents.height, sizes.latents.width};
        in.args = std::move(a);
        if (leads()) { require_drawable<Model>(side, in.args, sizes); }
        if (!wanted.empty()) { conditions_.emplace(wanted, shape, in.args.seed); }
        if (in.args.validates() && in.args.validate_times > noise_.steps()) {
            throw pulse::input_error{"--validate-times: must be at most " + std::to_string(noise_.steps()) +
                                     ", the timesteps of the noise schedule"};
        }
        in.shape = shape;
        in.sizes = sizes;
        in.extents = {{sizes.latents}};
        in.conditions = conditions_ ? &*conditions_ : nullptr;
        in.noise = &noise_;
        in.start = start_.get();
        in.branch = branch_.get();
        in.hint = pulse::hint_extent<Model>();
        in.stop = &stop;
        if (enlarges != 0) { in.enlarged = {{enlarges, shape.width, in.args.cascade_noise}}; }
    }
    backbone_run(const backbone_run&) = delete;
    backbone_run& operator=(const backbone_run&) = delete;

    run_inputs in{};

    /// Whether this process runs rank 0.
    [[nodiscard]] bool leads() const { return in.args.processes == nullptr || in.args.processes->rank() == 0; }
    /// Whether it trains on captioned pictures instead of images.
    [[nodiscard]] bool reads_pictures() const { return !wanted.empty() && in.args.data != synthetic_data; }

    /// Opens --data and --validate. Throws input_error naming the option or the file.
    void open_data() {
        if (reads_pictures()) {
            open_captioned<Model, Side>(in, pictures_);
            if constexpr (networks::known) {
                if (in.args.validates()) { open_validation<Model>(in, *pictures_, validation_pictures_); }
            }
            return;
        }
        images_.emplace(load_images(in.args, in.shape));
        if (in.args.validates()) { validation_images_.emplace(load_validation(in.args, in.shape, *images_)); }
        in.images = &*images_;
    }
    /// Instead of open_data(): uses the images of another backbone, `times` times smaller.
    template <class Other>
    void shrink_data(const Other& of, int times) {
        images_.emplace(pulse::train::shrunk(*of.images_, times));
        if (of.validation_images_) { validation_images_.emplace(pulse::train::shrunk(*of.validation_images_, times)); }
        in.images = &*images_;
    }
    /// Throws input_error on every rank unless all processes read the same data.
    void agree_on_data() {
        if (in.args.processes == nullptr) { return; }
        pulse::launch::agree(*in.args.processes,
                             {{"images", text_of_data(in)},
                              {"images of --validate", in.args.validates() ? text_of_data(of_validation()) : ""}});
    }
    /// The model's costs for a microbatch size and an extent: times come from the rates of an H200, so only their
    /// ratios mean anything here.
    [[nodiscard]] static pulse::cost_table estimated(int size, const pulse::extent& to) {
        const auto graph = pulse::graph_of<Model>(pulse::resize<Model>(to));
        return pulse::analytic_costs(graph.view(), pulse::h200, size, static_cast<int>(sizeof(typename Side::scalar)));
    }
    /// Encodes the data of --encode once and --validate, once there is a plan; `in` then has the validation run.
    void fill_caches() {
        if constexpr (networks::known) {
            if (pictures_ && !in.args.cache.empty()) { fill_cache<Model>(side_, in, *pictures_); }
        }
        if (in.args.validates()) { in.validation = &validation_.emplace(of_validation()); }
        if constexpr (networks::known) {
            if (validation_pictures_) { fill_cache<Model>(side_, *validation_, *validation_pictures_); }
        }
    }
    [[nodiscard]] const captioned<Model>* pictures() const { return pictures_ ? &*pictures_ : nullptr; }

    /// Makers of a rank's tasks (see rank_data), for images or for captioned pictures.
    [[nodiscard]] auto tasks_of_images() const {
        return [](const pulse::any_transport& among, const run_inputs& of) { return typename Side::task{of, among}; };
    }
    [[nodiscard]] auto tasks_of_pictures() {
        return [this, made = in.planned()](const pulse::any_transport& among, const run_inputs& of) {
            return pulse::pictures_task<Model, math>{of.evaluated ? *validation_pictures_ : *pictures_,
                                                     among,
                                                     made,
                                                     noise_,
                                                     of.task_options(among.rank()),
                                                     in.samples_of_run()};
        };
    }

private:
    [[nodiscard]] run_inputs of_validation() const {
        run_inputs of = in;
        if (validation_images_) { of.images = &*validation_images_; }
        if constexpr (networks::known) {
            if (validation_pictures_) { of.pictures = &validation_pictures_->source(); }
        }
        of.evaluated = pulse::train::evaluation{.samples = of.pictures != nullptr ? of.pictures->pictures().epoch()
                                                                                  : of.images->size()};
        return of;
    }

    template <class, class>
    friend class backbone_run;

    const Side& side_;
    pulse::train::noise_process noise_;
    std::unique_ptr<const pulse::diffusers::weights> branch_{};
    std::unique_ptr<const pulse::diffusers::weights> start_{};
    std::optional<made_up_conditions> conditions_{};
    std::optional<pulse::train::image_dataset> images_{};
    std::optional<pulse::train::image_dataset> validation_images_{};
    std::optional<captioned<Model>> pictures_{};
    std::optional<captioned<Model>> validation_pictures_{};
    std::optional<run_inputs> validation_{};
};

} // namespace pulse_train
