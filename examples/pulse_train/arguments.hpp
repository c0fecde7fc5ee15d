#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/checkpoint/shares.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/train/draw_images.hpp>
#include <pulse/train/flow.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/scheduler_settings.hpp>
#include <pulse/tune/plan_request.hpp>

namespace pulse_train {

class rank_collectives;

/// What the ranks are: threads of one process, or processes that were started together.
enum class transport_kind : std::uint8_t { threads, mpi, nccl };

/// Where training runs.
enum class backend_kind : std::uint8_t { host, cuda };

/// When frozen networks encode captioned pictures: before each step, all of them before the first, or a step ahead, in
/// the gaps that a pipeline has.
enum class encode_when : std::uint8_t { each_step, once, bubbles };

/// See pulse/cuda/precision.cuh; the host computes in fp32.
enum class precision_kind : std::uint8_t { bf16, fp16, tf32, fp32 };
[[nodiscard]] const char* name_of(precision_kind precision);

/// Says for --data that the samples are made up.
inline constexpr const char* synthetic_data = "synthetic";

/// What the network answers, and with that how noise is added: by betas, but for flow and EDM.
enum class objective_kind : std::uint8_t { epsilon, velocity, sample, flow, edm };
/// That of a scheduler.
[[nodiscard]] objective_kind objective_of(const pulse::train::scheduler_settings& scheduler);

/// In a step of all replicas.
inline constexpr int most_samples = 1 << 20;

/// What the command line says, validated.
struct arguments {
    std::string model{"ddpm_fmnist"};
    std::string data{"/usr/share/datasets/fashion-mnist"};
    /// Height and width in pixels of what is trained on and drawn, as extent_in reads it; empty: what the model or the
    /// folder of --from says.
    std::string size{};
    /// Sizes that steps are trained in, as buckets_in reads them; empty: one. Then `size` is what is drawn alone.
    std::string buckets{};
    pulse::pictures_options pictures{};  ///< captioned ones; their size is also that of other data
    std::string said_of_captions{};      ///< an option of captions that was given; empty: none
    bool data_changed{};                 ///< a run that is resumed may find other pictures, captions or images
    std::optional<encode_when> encode{}; ///< absent: in the bubbles where the plan allows it
    std::string cache{};                 ///< where what is encoded once goes
    std::string said_of_pictures{};      ///< an option of these that was given; empty: none
    std::string out{"pulse_run"};
    std::string resume{};
    /// A diffusers folder to begin from; empty: none. With `init`, the weights of its backbone are not read.
    std::string from{};
    std::string config_of{}; ///< that of a checkpoint of one file, as it is said
    /// The checkpoint of one file that has its weights; empty: they are in the folder.
    std::string from_file{};
    /// A ControlNet's folder with which the branch begins; empty: it begins as the UNet of `from`.
    std::string control_from{};
    std::string said_of_control{};               ///< an option of ControlNets that was given; empty: none
    std::vector<std::string> control_pictures{}; ///< files of the hints by which pictures are drawn, one after another
    [[nodiscard]] pulse::diffusers::model_files source() const { return {from, from_file}; }
    bool init{};
    /// Where the files of tokenizers are for a folder that is new: with `init` and without `from`.
    std::string tokenizer{};
    [[nodiscard]] bool makes_folder() const noexcept { return init && from.empty(); }
    /// The second backbone of a cascade, whose first is `model`; empty: there is one backbone. What `from` and
    /// `export_to` are to the first, the others are to the second.
    std::string cascade_with{};
    std::string cascade_from{};
    std::string cascade_export{};
    double cascade_noise{0.1}; ///< standard deviation, of what the second reads of images of the first
    /// What the user said `from` and `export_to` by.
    std::string from_option{"--from"};
    std::string export_option{"--export"};
    /// Whether the run has no steps: weights are exported, and draw, as they are.
    [[nodiscard]] bool uses_untrained() const noexcept {
        return steps == 0 && !from.empty() && resume.empty() && !plan_only;
    }
    /// Where a diffusers folder or a checkpoint of one file goes at the end; empty: nowhere. What it has of the
    /// backbone, and how.
    std::string export_to{};
    pulse::train::tensor_part export_part{pulse::train::tensor_part::average};
    pulse::io::element_type export_type{pulse::io::f32};
    std::int64_t export_shard_bytes{};
    /// A plan to run as it is; else one is made as `planning` says, whose devices and words are those of this program.
    std::string plan_file{};
    pulse::plan_request planning{};
    bool plan_only{};
    /// What planning goes by instead of measuring, and where what was measured goes; empty: none.
    std::string profile{};
    std::string cluster{};
    std::string profile_out{};
    std::string cluster_out{};
    /// Whether layers are measured: not with --profile, and with --plan for --profile-out alone.
    [[nodiscard]] bool measures_layers() const noexcept {
        return profile.empty() && (plan_file.empty() || !profile_out.empty());
    }
    int ranks{2}; ///< of all replicas together
    transport_kind transport{transport_kind::threads};
    double timeout_s{300};
    /// What it says of this process among those of an NCCL run, and where they meet; the rest is known from their
    /// launcher.
    pulse::launch::identity_arguments identity{};
    std::string store{};
    /// Among the ranks, where each is a process and this one of them; null: they are threads of this process.
    rank_collectives* processes{};
    backend_kind backend{backend_kind::host};
    precision_kind precision{precision_kind::fp32};
    /// Devices to deal thread ranks over; of process ranks on one machine each has the one of its place. Empty: all.
    std::vector<int> gpus{};
    double time_engines_s{};  ///< a budget; 0: none is timed
    bool deterministic{true}; ///< what cuDNN computes
    int threads{1};
    std::int64_t steps{1000};
    double time_limit_s{};
    double learning_rate{1e-3};
    int warmup{100};
    pulse::train::learning_rate_shape learning_rate_shape{pulse::train::learning_rate_shape::constant};
    double clip_norm{1.0};
    bool clip_by_last_norm{};
    double average_decay{0.999};
    /// Averages are kept unless their decay is 0.
    pulse::optimizer_form optimizer{};
    std::uint64_t seed{1};
    pulse::train::scheduler_settings scheduler{.betas = pulse::train::beta_shape::squared_cosine,
                                               .prediction = pulse::train::prediction_type::velocity,
                                               .spacing = pulse::train::timestep_spacing::trailing};
    objective_kind objective{objective_kind::velocity}; ///< that of `scheduler`, in one word
    std::string flow_shift{"1"};
    double sigma_data{0.5};
    pulse::train::time_density flow_times{pulse::train::time_density::logit_normal};
    double min_snr_gamma{};
    double noise_offset{};
    /// A folder of pictures that are not trained on but judge the weights, or the share of --data that is held out for
    /// that, which `pictures` has too; neither: nothing does.
    std::string validation_data{};
    std::int64_t validate_every{};
    int validate_times{4};
    bool keep_best{};
    [[nodiscard]] bool validates() const noexcept { return !validation_data.empty() || pictures.held_out > 0; }
    std::int64_t checkpoint_every{};
    int keep{2};
    int sample{64};
    std::int64_t sample_every{};
    std::int64_t log_every{1};
    int sample_steps{50};
    /// Texts by which pictures are drawn, one after another; none: not by text.
    std::vector<std::string> prompts{};
    /// Classes by which they are drawn, likewise; with prompts there are none.
    std::vector<int> classes{};
    [[nodiscard]] bool draws_pictures() const noexcept { return !prompts.empty() || !classes.empty(); }
    std::string negative{};
    double guidance{7.5};
    pulse::train::sampler_kind sampler{pulse::train::sampler_kind::ddim};
    /// Arguments that must be the same on every rank: their names, and what was said or is usual.
    std::vector<std::pair<std::string, std::string>> common{};
};

/// Parses the command line. Empty when the program is to exit at once with `exit_code`: after --help, or after one line
/// on stderr that says which argument is wrong.
[[nodiscard]] std::optional<arguments> parse(int argc, char** argv, int& exit_code);

} // namespace pulse_train
