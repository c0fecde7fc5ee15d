#pragma once

#include <map>
#include <string>

#include <pulse/checkpoint/sharded.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/train/dataset.hpp>

#include "arguments.hpp"
#include "rank_transport.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// What a model takes as one sample.
struct sample_shape {
    int channels{};
    int height{};
    int width{};
};

/// The images that the arguments name. Throws input_error when they are not there or not of that shape, or have no text
/// where the model reads_text.
[[nodiscard]] pulse::train::image_dataset load_images(const arguments& a, const sample_shape& wanted, bool reads_text);

/// How many images there are, and a checksum of them.
[[nodiscard]] std::string text_of(const pulse::train::image_dataset& images);

/// The shortest text that is read as the same number again.
[[nodiscard]] std::string exact(double value);

/// Reads the plan where the arguments name one. Gives the microbatch size of the run.
[[nodiscard]] int read_plan(run_inputs& in);

/// Makes the plan of the run from its costs where none was read. Throws input_error naming where the plan is from
/// unless it fits the model and cannot deadlock.
void make_plan(run_inputs& in, const pulse::parameter_memory& kept);

/// Throws input_error on every rank, naming what differs, unless all ranks have the same build and the same arguments
/// where that matters; to be called first, by every rank, where ranks are processes.
void require_same_start(const arguments& a, rank_collectives& among);

/// Costs and plan become those of rank 0; to be called by every rank, where ranks are processes.
void share_plan(run_inputs& in, rank_collectives& among);

/// What decides the course of training; how it is cut, placed and ordered does not.
[[nodiscard]] std::map<std::string, std::string> config_of(const run_inputs& in);

/// Where the run's checkpoints go.
[[nodiscard]] pulse::train::checkpoint_place checkpoints_of(const run_inputs& in);

/// Throws input_error when the run to be continued was another one.
void require_same_config(const run_inputs& in);

} // namespace pulse_train
