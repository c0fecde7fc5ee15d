#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/device_images.cuh>
#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/json.hpp>
#include <pulse/cuda/latent_task.cuh>
#include <pulse/cuda/layer_timer.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/cuda/time_engines.cuh>
#include <pulse/io/atomic_file.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/measure_links.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/task.hpp>

#include "artifacts.hpp"
#include "rank_collectives.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// Training on CUDA devices in a precision, on ranks that are threads or processes, each with a stream on its device: a
/// side (see host_side). Several ranks may share a device.
template <class Precision>
class cuda_side {
public:
    using math = pulse::cuda::backend<Precision>;
    using scalar = typename math::scalar;

    /// Throws input_error if a device does not exist.
    explicit cuda_side(const arguments& a) : devices_{a.gpus}, processes_{a.processes} {
        pulse::cuda::process_deterministic() = a.deterministic;
        if (processes_ != nullptr) {
            devices_ = {processes_->device()};
            return;
        }
        pulse::cuda::widen_queues();
        const int count = pulse::cuda::device_count();
        if (count == 0) { throw pulse::input_error{"--backend cuda: there is no CUDA device"}; }
        if (devices_.empty()) {
            for (int d = 0; d != count; ++d) { devices_.push_back(d); }
        }
        for (const int d : devices_) {
            if (d >= count) {
                throw pulse::input_error{"--gpus: there is no CUDA device " + std::to_string(d) + ", there are " +
                                         std::to_string(count)};
            }
        }
    }

    static void wait(const math& of_rank) { of_rank.synchronize(); }
    [[nodiscard]] static scalar to_scalar(float value) { return pulse::cuda::from_float<scalar>(value); }
    [[nodiscard]] static float to_float(scalar value) { return pulse::cuda::to_float(value); }

    template <class Body>
    void run_ranks(const run_inputs& in, const Body& body) const {
        if (processes_ != nullptr) {
            processes_->run(in, body);
        } else {
            run_workers(in.ranks(), body);
        }
    }
    /// If there are more workers than devices, consecutive ones share a device.
    template <class Body>
    void run_workers(int ranks, const Body& body) const {
        const auto count = static_cast<int>(devices_.size());
        std::vector<int> of_ranks;
        for (int r = 0; r != ranks; ++r) {
            of_ranks.push_back(devices_[static_cast<std::size_t>(ranks < count ? r : r * count / ranks)]);
        }
        pulse::cuda::run_ranks(std::move(of_ranks), {},
                               [&](pulse::cuda::thread_transport& among) { body(pulse::any_transport{among}); });
    }

    /// The memory of the thread's device.
    [[nodiscard]] static pulse::link_measurement memory_of_rank() {
        const pulse::cuda::device_properties here = pulse::cuda::properties_of(pulse::cuda::current_device());
        return {.memory_bytes = static_cast<std::int64_t>(here.memory_bytes), .device = here.bus_id, .kind = here.name};
    }
    template <class Model>
    [[nodiscard]] static pulse::cost_table measured_costs(math& backend, int batch, const pulse::extent& to) {
        pulse::cuda::layer_timer<Model, math> timer{backend, batch, to};
        const auto graph = pulse::graph_of<Model>(pulse::resize<Model>(to));
        const std::string name = pulse::cuda::properties_of(pulse::cuda::current_device()).name;
        return pulse::measure_costs(graph.view(), batch, sizeof(scalar),
                                    pulse::label{std::string_view{name}.substr(0, pulse::label::capacity - 1)}, timer,
                                    {.warm_up_sweeps = 2, .sweeps = 3});
    }

    /// Sets the engines of this process's backends and of `in`: those kept in the run's folder, and new timings by the
    /// first rank of each kind of device on the layers of models, each from its run in `of`. A resumed run uses only
    /// the engines of the run that it continues, if there are any. Collective.
    template <class... Models, class... Runs>
    void time_engines(run_inputs& in, const Runs&... of) const {
        const bool resumes = !in.resume_from.empty();
        const std::filesystem::path file = engines_of(in);
        const bool leads = processes_ == nullptr || processes_->rank() == 0;
        if (in.args.time_engines_s == 0 && !resumes) { return; }
        std::vector<std::byte> text;
        pulse::cuda::engine_choice_groups known;
        if (leads && std::filesystem::exists(file)) {
            text = bytes_of(pulse::io::read_file(file));
            known = engines_in(text, file);
        }
        if (processes_ != nullptr) {
            processes_->broadcast(text);
            if (!text.empty()) { known = engines_in(text, file); }
        }
        const bool kept = !known.empty();
        if (!kept && in.args.time_engines_s == 0) { return; }
        const bool times = !(resumes && kept);
        if (!times && leads && in.args.time_engines_s > 0) {
            std::fprintf(stderr, "pulse_train: --time-engines: ignored, because the resumed run has engines\n");
        }
        if (times) {
            for (auto& [made_for, group] : known) {
                std::erase_if(group, [](const auto& one) { return one.second.seconds == 0; }); // never timed
                for (auto& [what, one] : group) { one.uses = 0; }
            }
            pulse::cuda::engine_choice_groups timed;
            run_ranks(in, [&](const pulse::any_transport& among) {
                auto mine = std::make_shared<pulse::cuda::engine_choices>(in.args.time_engines_s, known, file.string());
                if (is_first_of_kind(among)) {
                    (time_engines_of<Models>(pulse::cuda::stream_of(among), mine, of), ...);
                }
                pulse::cuda::engine_choice_groups all;
                for (const auto& bytes : among.gather(bytes_of(pulse::cuda::print_engines(mine->all())))) {
                    for (auto& [made_for, group] : engines_in(bytes, "engines of a rank")) {
                        for (auto& [what, one] : group) {
                            pulse::cuda::engine_choice& to = all[made_for][what];
                            if (to.uses <= one.uses) { to = one; }
                        }
                    }
                }
                std::vector<std::byte> merged = bytes_of(pulse::cuda::print_engines(all));
                among.broadcast(merged);
                if (processes_ != nullptr || among.rank() == 0) { timed = engines_in(merged, "engines of all ranks"); }
            });
            known = std::move(timed);
        }
        auto all = std::make_shared<pulse::cuda::engine_choices>(0, std::move(known), file.string());
        in.engines = pulse::cuda::print_engines(all->all());
        if (times) { in.engines_report = all->report(); }
        pulse::cuda::process_engine_choices() = std::move(all);
    }

    /// The data and the loss of a rank, on its device.
    class task {
    public:
        task(const run_inputs& in, const pulse::any_transport& of_rank) :
            images_{*in.images}, steps_{images_, *in.noise, in.task_options(of_rank.rank()),
                                        pulse::cuda::stream_of(of_rank), in.conditions_of(of_rank.rank())} {}

        void begin(std::uint64_t position, double loss_scale) { steps_.begin(position, loss_scale); }
        void evaluate_at(const pulse::train::evaluation& what) { steps_.evaluate_at(what); }

        [[nodiscard]] const float* timesteps(const pulse::work<math>& at) const noexcept {
            return steps_.timesteps(at);
        }
        [[nodiscard]] const scalar* text(const pulse::work<math>& at) const noexcept { return steps_.text(at); }
        [[nodiscard]] const float* facts(const pulse::work<math>& at) const noexcept { return steps_.facts(at); }
        void input(const pulse::work<math>& at, std::span<scalar> x) { steps_.input(at, x); }
        void input(const pulse::work<math>& at, std::span<scalar> x, std::span<const scalar> prediction) {
            steps_.input(at, x, prediction);
        }
        void loss(const pulse::work<math>& at, std::span<const scalar> y, std::span<scalar> dy) {
            steps_.loss(at, y, dy);
        }

    private:
        pulse::cuda::device_images images_;
        pulse::cuda::diffusion_task<Precision> steps_;
    };

private:
    /// File of a run's engines: beside the checkpoint that it resumes from, or beside the folder of checkpoints.
    [[nodiscard]] static std::filesystem::path engines_of(const run_inputs& in) {
        if (in.resume_from.empty()) { return in.file(engines_name); }
        const auto [beside, above] = folders_of_resumed(in);
        return (std::filesystem::exists(beside / engines_name) ? beside : above) / engines_name;
    }
    [[nodiscard]] static std::vector<std::byte> bytes_of(const std::string& text) {
        const auto bytes = std::as_bytes(std::span{text.data(), text.size()});
        return {bytes.begin(), bytes.end()};
    }
    [[nodiscard]] static pulse::cuda::engine_choice_groups engines_in(std::span<const std::byte> text,
                                                                      const std::filesystem::path& source) {
        return pulse::cuda::parse_engines({reinterpret_cast<const char*>(text.data()), text.size()}, source.string());
    }
    /// Whether no lower rank has a device of this kind. Collective.
    [[nodiscard]] static bool is_first_of_kind(const pulse::any_transport& among) {
        std::vector<double> kinds(static_cast<std::size_t>(among.size()));
        const auto rank = static_cast<std::ptrdiff_t>(among.rank());
        kinds[static_cast<std::size_t>(rank)] =
            static_cast<double>(std::hash<std::string>{}(pulse::cuda::device_key()) >> 12U);
        among.sum(kinds);
        return std::find(kinds.begin(), kinds.end(), kinds[static_cast<std::size_t>(rank)]) == kinds.begin() + rank;
    }
    template <class Model>
    static void time_engines_of(cudaStream_t stream, const std::shared_ptr<pulse::cuda::engine_choices>& choices,
                                const run_inputs& in) {
        for (std::size_t e = 0; e != in.extents.size(); ++e) {
            const pulse::plan& planned = in.plan_of(e);
            pulse::cuda::time_engines<Model, Precision>(stream, choices, planned.microbatch_size, in.extents[e].extent,
                                                        (in.others.empty() ? 1.0 : in.extents[e].share) *
                                                            planned.microbatches);
        }
    }

    std::vector<int> devices_;
    rank_collectives* processes_;
};

} // namespace pulse_train
