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

/// What the ranks are: threads of one process, or processes started together.
enum class transport_kind : std::uint8_t { threads, mpi, nccl };

/// Where training runs.
enum class backend_kind : std::uint8_t { host, cuda };

/// When frozen networks encode captioned pictures: before each step, all before the first step, or one step ahead, in
/// the pipeline's bubbles.
enum class encode_when : std::uint8_t { each_step, once, bubbles };

/// See pulse/cuda/precision.cuh; the host computes in fp32.
enum class precision_kind : std::uint8_t { bf16, fp16, tf32, fp32 };
[[nodiscard]] const char* name_of(precision_kind precision);

/// The value of --data for made-up samples.
inline constexpr const char* synthetic_data = "synthetic";

/// What the network predicts, and so how noise is added: by betas, except for flow and EDM.
enum class objective_kind : std::uint8_t { epsilon, velocity, sample, flow, edm };
/// The objective of a scheduler.
[[nodiscard]] objective_kind objective_of(const pulse::train::scheduler_settings& scheduler);

/// Per step, over all replicas.
inline constexpr int most_samples = 1 << 20;

/// The validated command line.
struct arguments {
    std::string model{"ddpm_fmnist"};
    std::string data{"/usr/share/datasets/fashion-mnist"};
    /// Height and width in pixels of pictures in training and drawing, as extent_in reads them; empty: those of the
    /// model or the folder of --from.
    std::string size{};
    /// Sizes of training steps, as buckets_in reads them; empty: one size. With buckets, `size` is only the drawn size.
    std::string buckets{};
    pulse::pictures_options pictures{};  ///< captioned ones; their size also applies to other data
    std::string said_of_captions{};      ///< a given option for captions; empty: none
    bool data_changed{};                 ///< a resumed run may find other pictures, captions or images
    std::optional<encode_when> encode{}; ///< absent: in the bubbles where the plan allows it
    std::string cache{};                 ///< folder for results that are encoded once
    std::string said_of_pictures{};      ///< a given option for pictures; empty: none
    std::string out{"pulse_run"};
    std::string resume{};
    /// The diffusers folder to start from; empty: none. With `init`, its backbone's weights are not read.
    std::string from{};
    std::string config_of{}; ///< the folder of --config-of, as given
    /// The one-file checkpoint with the weights; empty: they are in the folder.
    std::string from_file{};
    /// The ControlNet folder from which the branch starts; empty: it starts as the UNet of `from`.
    std::string control_from{};
    std::string said_of_control{};               ///< a given option for ControlNets; empty: none
    std::vector<std::string> control_pictures{}; ///< hint files for the drawn pictures, one after another
    [[nodiscard]] pulse::diffusers::model_files source() const { return {from, from_file}; }
    bool init{};
    /// Folder of the tokenizer files for a new folder: with `init` and without `from`.
    std::string tokenizer{};
    [[nodiscard]] bool makes_folder() const noexcept { return init && from.empty(); }
    /// The second backbone of a cascade, whose first is `model`; empty: only one backbone. `cascade_from` and
    /// `cascade_export` are its `from` and `export_to`.
    std::string cascade_with{};
    std::string cascade_from{};
    std::string cascade_export{};
    double cascade_noise{0.1}; ///< standard deviation, in the first's images as the second reads them
    /// The options by which the user gave `from` and `export_to`.
    std::string from_option{"--from"};
    std::string export_option{"--export"};
    /// Whether the run has no steps: weights are exported, and draw, unchanged.
    [[nodiscard]] bool uses_untrained() const noexcept {
        return steps == 0 && !from.empty() && resume.empty() && !plan_only;
    }
    /// Output diffusers folder or one-file checkpoint; empty: none. Then which values of the backbone it has, and their
    /// type.
    std::string export_to{};
    pulse::train::tensor_part export_part{pulse::train::tensor_part::average};
    pulse::io::element_type export_type{pulse::io::f32};
    std::int64_t export_shard_bytes{};
    /// A plan to run unchanged; else one is made from `planning`, with this program's devices and option names.
    std::string plan_file{};
    pulse::plan_request planning{};
    bool plan_only{};
    /// Input of planning instead of measurements, and output of the measurements; empty: none.
    std::string profile{};
    std::string cluster{};
    std::string profile_out{};
    std::string cluster_out{};
    /// Whether layers are measured: not with --profile, and with --plan only for --profile-out.
    [[nodiscard]] bool measures_layers() const noexcept {
        return profile.empty() && (plan_file.empty() || !profile_out.empty());
    }
    int ranks{2}; ///< over all replicas
    transport_kind transport{transport_kind::threads};
    double timeout_s{300};
    /// What the command line says about this process in an NCCL run, and where the processes meet; their launcher
    /// provides the rest.
    pulse::launch::identity_arguments identity{};
    std::string store{};
    /// This process among the ranks, if ranks are processes; null: they are threads of this process.
    rank_collectives* processes{};
    backend_kind backend{backend_kind::host};
    precision_kind precision{precision_kind::fp32};
    /// Devices to spread thread ranks over; a process rank takes the one at its position on its machine. Empty: all.
    std::vector<int> gpus{};
    double time_engines_s{};  ///< a budget; 0: no timing
    bool deterministic{true}; ///< results of cuDNN
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
    objective_kind objective{objective_kind::velocity}; ///< the objective of `scheduler`, in one word
    std::string flow_shift{"1"};
    double sigma_data{0.5};
    pulse::train::time_density flow_times{pulse::train::time_density::logit_normal};
    double min_snr_gamma{};
    double noise_offset{};
    /// Validation pictures: a folder, or the share held out of --data, which `pictures` has too; neither: no
    /// validation.
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
    /// Prompts of the drawn pictures, one after another; empty: pictures are not drawn by text.
    std::vector<std::string> prompts{};
    /// Classes of the drawn pictures, likewise; empty if there are prompts.
    std::vector<int> classes{};
    [[nodiscard]] bool draws_pictures() const noexcept { return !prompts.empty() || !classes.empty(); }
    std::string negative{};
    double guidance{7.5};
    pulse::train::sampler_kind sampler{pulse::train::sampler_kind::ddim};
    /// Arguments that must be the same on every rank: their names, and given or default values.
    std::vector<std::pair<std::string, std::string>> common{};
};

/// Parses the command line. Empty when the program must exit at once with `exit_code`: after --help, or after one line
/// on stderr that names the wrong argument.
[[nodiscard]] std::optional<arguments> parse(int argc, char** argv, int& exit_code);

} // namespace pulse_train
