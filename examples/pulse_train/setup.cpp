#include "setup.hpp"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include <pulse/checkpoint/reader.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/io/idx.hpp>
#include <pulse/launch/agree.hpp>
#include <pulse/launch/build.hpp>
#include <pulse/partition/validate.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/runtime/checked_transport.hpp>
#include <pulse/tune/candidate_plan.hpp>

#include "artifacts.hpp"
#include "synthetic.hpp"

namespace pulse_train {

namespace {

/// Throws input_error naming where the plan is from unless it fits the model and cannot deadlock.
void require_runnable(const run_inputs& in) {
    try {
        pulse::check_partition(in.plan.cut, in.costs);
        const pulse::step_model model{in.plan, in.costs};
        const pulse::check_report checked = pulse::check(in.plan, model, pulse::lower(in.plan, model));
        if (!checked.ok()) { throw pulse::input_error{checked.violation}; }
    } catch (const pulse::input_error& e) {
        const std::string source = in.args.plan_file.empty() ? "plan" : in.args.plan_file;
        throw pulse::input_error{source + ": " + e.what()};
    }
}

} // namespace

std::string exact(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

pulse::train::image_dataset load_images(const arguments& a, const sample_shape& wanted, bool reads_text) {
    if (a.data == synthetic_data) { return synthetic_images(wanted, a.seed); }
    if (reads_text) {
        throw pulse::input_error{"--data: " + a.model + " reads text, which only '" + synthetic_data + "' data have"};
    }
    pulse::io::idx_images images = pulse::io::read_idx_images(pulse::io::find_idx(a.data, "train-images-idx3-ubyte"));
    if (wanted.channels != 1 || images.rows != wanted.height || images.columns != wanted.width) {
        const auto text = [](auto height, auto width, auto channels) {
            return std::to_string(height) + "x" + std::to_string(width) + "x" + std::to_string(channels);
        };
        throw pulse::input_error{"--data: images of " + text(images.rows, images.columns, 1) + " do not fit " +
                                 a.model + ", which takes " + text(wanted.height, wanted.width, wanted.channels)};
    }
    return {images.rows, images.columns, 1, std::move(images.pixels), {.seed = a.seed}};
}

std::string text_of(const pulse::train::image_dataset& images) {
    const std::uint64_t sum = pulse::checksum_of(std::as_bytes(images.pixels()));
    return std::to_string(images.size()) + " (" + pulse::fingerprint{}.add(sum).text() + ")";
}

int read_plan(run_inputs& in) {
    if (in.args.plan_file.empty()) { return in.args.microbatch_size; }
    in.plan = pulse::load_plan(in.args.plan_file);
    return in.plan.microbatch_size;
}

void make_plan(run_inputs& in, const pulse::parameter_memory& kept) {
    const arguments& a = in.args;
    in.kept = kept;
    if (a.plan_file.empty()) {
        in.plan = pulse::plan_candidate(in.costs,
                                        {.pipeline_degree = a.ranks / a.replicas,
                                         .data_degree = a.replicas,
                                         .waves = a.waves,
                                         .microbatches = a.microbatches,
                                         .kind = a.placement,
                                         .routing = a.routing,
                                         .split_backward = a.split_backward,
                                         .recompute = a.recompute,
                                         .method = a.method,
                                         .slack = a.slack,
                                         .sharded_optimizer = kept.sharded},
                                        pulse::link{}, {.kept = kept})
                      .plan;
    } else if (in.plan.model != in.costs.model) {
        throw pulse::input_error{a.plan_file + ": model: the plan is for " + in.plan.model.str() + ", not " +
                                 in.costs.model.str()};
    }
    if (a.shard_optimizer && in.plan.data_degree < 2) {
        throw pulse::input_error{"--shard-optimizer: there is one replica, which keeps all of it"};
    }
    require_runnable(in);
    in.plan.predicted.peak_memory_bytes = pulse::peak_bytes(in.plan, in.costs, kept);
}

void require_same_start(const arguments& a, rank_collectives& among) {
    std::vector<pulse::launch::common_value> mine{{"build", pulse::launch::build_text()}};
    for (const auto& [name, value] : a.common) { mine.push_back({name, value}); }
    pulse::launch::agree(among, mine);
}

void share_plan(run_inputs& in, rank_collectives& among) {
    const auto text_of_first = [&](std::string text) {
        const auto* const from = reinterpret_cast<const std::byte*>(text.data());
        std::vector<std::byte> bytes(from, from + text.size());
        among.broadcast(bytes);
        text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return text;
    };
    const bool leads = among.rank() == 0;
    const std::string costs = text_of_first(leads ? pulse::print_profile(in.costs) : std::string{});
    const std::string planned = text_of_first(leads ? pulse::print_plan(in.plan) : std::string{});
    if (leads) { return; }
    in.costs = pulse::parse_profile(costs, "the costs of rank 0");
    in.plan = pulse::parse_plan(planned, "the plan of rank 0");
}

std::map<std::string, std::string> config_of(const run_inputs& in) {
    const arguments& a = in.args;
    return {{"model", a.model},
            {"images", (a.data == synthetic_data ? a.data + " " : "") + std::to_string(in.images->size())},
            {"prediction", a.prediction == pulse::train::prediction_type::epsilon ? "epsilon" : "v"},
            {"noise", a.cosine_noise ? "cosine" : "linear"},
            {"learning_rate", exact(a.learning_rate)},
            {"warmup", std::to_string(a.warmup)},
            {"clip", exact(a.clip_norm)},
            {"ema", exact(a.average_decay)},
            {"seed", std::to_string(a.seed)},
            {"microbatch_size", std::to_string(in.plan.microbatch_size)},
            {"microbatches", std::to_string(in.plan.microbatches)},
            {"replicas", std::to_string(in.plan.data_degree)}};
}

pulse::train::checkpoint_place checkpoints_of(const run_inputs& in) {
    // The checksum of plan.json stands for the plan.
    const std::string text = pulse::print_plan(in.plan);
    char sum[9];
    std::snprintf(sum, sizeof sum, "%08lx", ::crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
    return {.folder = in.file(checkpoints_name), .keep = in.args.keep, .plan = sum};
}

void require_same_config(const run_inputs& in) {
    auto before = pulse::train::checkpoint_reader{in.resume_from}.state().config;
    before.try_emplace("replicas", "1"); // who does not say it had one
    for (const auto& [key, value] : in.config) {
        const auto found = before.find(key);
        if (found == before.end() || found->second != value) {
            const std::string had = found == before.end() ? "unset" : found->second;
            throw pulse::input_error{"--resume: '" + in.args.resume + "': its run had " + key + " " + had +
                                     ", this one has " + value};
        }
    }
}

} // namespace pulse_train
