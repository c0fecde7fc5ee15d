#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <pulse/data/bucket_order.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/enlargement.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/trainer_options.hpp>

#include "arguments.hpp"

namespace pulse_train {

class made_up_conditions;

/// The shape of one sample of a model.
struct sample_shape {
    int channels{};
    int height{};
    int width{};

    [[nodiscard]] std::size_t elements() const noexcept {
        return static_cast<std::size_t>(channels) * static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
    }
};

/// Everything a run needs besides the model's type.
struct run_inputs {
    arguments args{};
    sample_shape shape{};
    pulse::frozen::picture_extents
        sizes{}; ///< that are drawn, and without buckets trained on; latents: what the model reads
    /// Extents of the model's input, with the share of steps that each has: one, or those of buckets.
    std::vector<pulse::extent_share> extents{};
    /// The plan and costs of the first extent.
    pulse::plan plan{};
    pulse::cost_table costs{};
    std::vector<pulse::planned_extent> others{}; ///< of the extents after the first
    pulse::parameter_memory kept{};              ///< by each rank
    const pulse::train::image_dataset* images{};
    const made_up_conditions* conditions{};          ///< of images; null if the model reads none
    const pulse::frozen::picture_source* pictures{}; ///< captioned ones, instead of images
    /// The same run on its validation data, with `evaluated` set; null: no validation.
    const run_inputs* validation{};
    std::optional<pulse::train::evaluation> evaluated{};
    const pulse::train::noise_process* noise{};
    std::optional<pulse::train::enlargement> enlarged{}; ///< of the second backbone of a cascade
    /// The backbone's weights: initial, or fixed if a ControlNet is trained; null: random weights from the seed.
    const pulse::diffusers::weights* start{};
    const pulse::diffusers::weights* branch{}; ///< initial weights of a ControlNet; null: the backbone's
    pulse::extent hint{};                      ///< of hints, where the model reads any
    /// Settings that must be equal in a run that continues this one.
    std::map<std::string, std::string> config{};
    /// The run's engines, as in engines.json; empty: the heuristics' first choices. Then a report of their timings.
    std::string engines{};
    std::string engines_report{};
    const std::atomic<bool>* stop{};
    /// The checkpoint to resume from, if the arguments name one.
    std::filesystem::path resume_from{};

    /// Whether the model reads as many more channels after those of an image.
    [[nodiscard]] bool reads_beside() const noexcept { return args.planning.self_conditioning || enlarged; }
    /// Images of a cascade's second backbone start from other noise than the images it reads.
    [[nodiscard]] std::uint64_t drawing_seed() const noexcept { return args.seed + (enlarged ? 1 : 0); }
    /// Ranks over all replicas.
    [[nodiscard]] int ranks() const noexcept { return plan.pipeline_degree * plan.data_degree; }
    [[nodiscard]] pulse::replica_place place_of(int rank) const {
        return pulse::place_of({pulse::rank_layout::pipeline_inside, plan.pipeline_degree, plan.data_degree}, rank);
    }
    [[nodiscard]] pulse::trainer_options training() const {
        return {.seed = args.seed,
                .learning_rate = {.peak = args.learning_rate,
                                  .warmup_steps = args.warmup,
                                  .shape = args.learning_rate_shape,
                                  .total_steps = args.steps + 1},
                .adamw = {.weight_decay = 0.0},
                .clip_norm = args.clip_norm,
                .clip_by_last_norm = args.clip_by_last_norm,
                .average_decay = args.average_decay,
                .threads = args.threads,
                .config = config,
                .same_config = false}; // require_same_config compares them
    }
    /// Validation uses the same noise in runs of all seeds.
    [[nodiscard]] pulse::train::diffusion_options task_options(int rank) const {
        return {.seed = evaluated ? 0 : args.seed,
                .prediction = args.scheduler.prediction,
                .min_snr_gamma = args.min_snr_gamma,
                .noise_offset = evaluated ? 0 : args.noise_offset,
                .microbatch_size = plan.microbatch_size,
                .microbatches = plan.microbatches,
                .replicas = plan.data_degree,
                .replica = place_of(rank).replica,
                .self_conditioned = args.planning.self_conditioning,
                .enlarged = enlarged,
                .evaluated = evaluated};
    }
    /// The middle of each of `validate_times` equal parts of the noise schedule.
    [[nodiscard]] std::vector<int> validation_times() const {
        std::vector<int> times;
        for (int k = 0; k != args.validate_times; ++k) {
            times.push_back((2 * k + 1) * noise->steps() / (2 * args.validate_times));
        }
        return times;
    }
    /// Whether the rank runs the first stage, which reads the samples' conditions.
    [[nodiscard]] bool runs_first_stage(int rank) const {
        return plan.cut.stages.front().device == place_of(rank).device;
    }
    /// Samples of all steps.
    [[nodiscard]] std::uint64_t samples_of_run() const {
        return static_cast<std::uint64_t>(args.steps) * samples_of_step();
    }
    /// The plan with its inputs.
    [[nodiscard]] pulse::planned planned() const {
        return {plan,
                costs,
                kept,
                pulse::rank_layout::pipeline_inside,
                extents.front().extent,
                others,
                others.empty() ? 1.0 : extents.front().share};
    }
    /// Samples of a step, over all replicas.
    [[nodiscard]] std::uint64_t samples_of_step() const {
        return static_cast<std::uint64_t>(plan.microbatch_size) * static_cast<std::uint64_t>(plan.microbatches) *
               static_cast<std::uint64_t>(plan.data_degree);
    }
    /// The index of a step's extent, from 0; with buckets, only after a rank has begun to train.
    [[nodiscard]] std::size_t extent_of(std::int64_t step) const {
        const pulse::data::bucket_order* const order = pictures == nullptr ? nullptr : pictures->pictures().order();
        return order == nullptr ? 0 : order->bucket_at(static_cast<std::uint64_t>(step) * samples_of_step());
    }
    [[nodiscard]] const pulse::plan& plan_of(std::size_t extent) const {
        return extent == 0 ? plan : others.at(extent - 1).plan;
    }
    [[nodiscard]] const pulse::cost_table& costs_of(std::size_t extent) const {
        return extent == 0 ? costs : others.at(extent - 1).costs;
    }
    [[nodiscard]] std::size_t hint_elements() const noexcept {
        return 3 * static_cast<std::size_t>(hint.height) * static_cast<std::size_t>(hint.width);
    }
    /// The conditions that the rank's task reads for images: none unless the rank runs the first stage.
    [[nodiscard]] pulse::train::condition_source conditions_of(int rank) const;
    /// The conditions for drawing: sample i has those of image i of the data.
    [[nodiscard]] pulse::train::condition_source conditions_of_images() const;

    /// A file in the run's folder.
    [[nodiscard]] std::filesystem::path file(const char* name) const { return std::filesystem::path{args.out} / name; }
};

} // namespace pulse_train
