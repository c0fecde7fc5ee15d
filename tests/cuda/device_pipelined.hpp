#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/executor.hpp>

#include <support/pipelined.hpp>

namespace pulse::test {

template <class T>
__global__ void squared_error_kernel(std::int64_t n, const T* y, const T* want, T* dy, double* loss) {
    double sum = 0;
    for (std::int64_t i = 0; i != n; ++i) {
        const float difference = cuda::to_float(y[i]) - cuda::to_float(want[i]);
        dy[i] = cuda::from_float<T>(difference);
        sum += 0.5 * static_cast<double>(difference) * static_cast<double>(difference);
    }
    *loss = sum;
}

/// drawn_task on a device: its data are on the device, and all its work goes to the rank's stream.
template <class Model, class T>
class device_task {
public:
    using space = cuda::device_space;

    device_task(const drawn_data<Model, T, float>& from, cudaStream_t stream) :
        stream_{stream}, losses_(static_cast<std::size_t>(from.microbatches)) {
        for (int m = 0; m != from.microbatches; ++m) {
            inputs_.push_back(uploaded(from.input(m)));
            times_.push_back(uploaded(from.timesteps(m)));
            targets_.push_back(uploaded(from.target(m)));
        }
    }
    [[nodiscard]] const float* timesteps(int m) const { return times_[static_cast<std::size_t>(m)].data(); }
    void input(int m, T* x) {
        const auto& from = inputs_[static_cast<std::size_t>(m)];
        cuda::copy_async(x, from.data(), from.size(), stream_);
    }
    void loss(int m, const T* y, T* dy) {
        const auto& want = targets_[static_cast<std::size_t>(m)];
        cuda::launch(squared_error_kernel<T>, 1, 1, 0, stream_, static_cast<std::int64_t>(want.size()), y, want.data(),
                     dy, losses_.data() + m);
    }
    void optimize() { ++optimized; }
    [[nodiscard]] std::vector<double> losses() const {
        std::vector<double> found(losses_.size());
        space::download(losses_.data(), std::span{found});
        return found;
    }

    int optimized{};

private:
    template <class V>
    [[nodiscard]] static space::array<V> uploaded(const std::vector<V>& values) {
        space::array<V> made(values.size());
        space::upload(std::span<const V>{values}, made.data());
        return made;
    }

    cudaStream_t stream_;
    std::vector<space::array<T>> inputs_{}, targets_{};
    std::vector<space::array<float>> times_{};
    space::array<double> losses_;
};

/// written_bytes for device memory; waits for everything enqueued so far.
inline std::int64_t written_bytes_on_device(std::span<const std::byte> area) {
    std::vector<std::byte> copy(area.size());
    cuda::device_space::download(area.data(), std::span{copy});
    return written_bytes(copy);
}

struct device_run_options {
    int steps{1};
    cuda::thread_options link{};
    /// Called by each rank between steps, with the executor and the transport.
    bool traced{};
    extent to{};
};

/// What a run on devices adds to run_result.
struct device_run : run_result<float> {
    /// One per rank: whether the last step has the first step's gradients, as parameters never change.
    std::vector<bool> steps_equal{};
    std::vector<std::vector<trace_event>> traces{};
};

/// Results of a plan with several replicas on thread ranks, all on device 0: each replica's gradients by layer after
/// the last step, and the bytes that replicas sent each other. Replica r has the data of seed + r.
struct replicated_run {
    std::vector<std::map<int, std::vector<float>>> gradients{};
    std::int64_t gradient_bytes{};
    std::size_t sums_traced{};
};
template <class Model, class Make>
replicated_run run_replicated_on_device(const plan& planned, std::uint64_t seed, int steps, const executor_options& how,
                                        Make make) {
    using Backend = decltype(make(std::declval<cuda::thread_transport&>()));
    using T = typename Backend::scalar;
    using space = cuda::device_space;
    const cost_table costs = blank_costs(graph_of<Model>().view(), planned.microbatch_size, sizeof(T));
    replicated_run result;
    result.gradients.resize(static_cast<std::size_t>(planned.data_degree));
    std::mutex mutex;
    const auto ranks = static_cast<std::size_t>(planned.pipeline_degree * planned.data_degree);
    cuda::run_ranks(std::vector<int>(ranks, 0), {}, [&](cuda::thread_transport& transport) {
        Backend math = make(transport);
        executor<Model, Backend> rank{math, transport, planned, costs, how};
        const auto replica = static_cast<std::size_t>(rank.place().replica);
        const drawn_data<Model, T, float> data{seed + replica, planned.microbatch_size, planned.microbatches};
        device_task<Model, T> task{data, transport.stream()};
        for (const auto& block : rank.parameters().blocks()) {
            const std::vector<T> drawn = data.parameters(block.layer, block.size);
            rank.parameters().upload(block.layer, drawn);
        }
        rank.record(static_cast<std::size_t>(steps) * rank.instructions().instructions.size());
        const auto gradients = rank.parameters().gradients();
        for (int s = 0; s != steps; ++s) {
            cuda::fill_bytes_async(gradients.data(), 0xff, gradients.size(), transport.stream()); // NaN
            rank.step(task);
        }
        // Sums of another stream are complete once the backend's stream is.
        cuda::check(cudaStreamSynchronize(transport.stream()), "cudaStreamSynchronize");
        std::vector<float> now(gradients.size());
        space::download(static_cast<const float*>(gradients.data()), std::span{now});
        rank.parameters().to_checkpoint(std::span{now});
        const std::lock_guard lock{mutex};
        for (const auto& block : rank.parameters().blocks()) {
            const auto first = now.begin() + static_cast<std::ptrdiff_t>(block.first);
            result.gradients[replica][block.layer] = {first, first + static_cast<std::ptrdiff_t>(block.size)};
        }
        result.gradient_bytes += transport.sent().gradient;
        for (const reduction_event& sum : rank.recorded().reductions()) {
            result.sums_traced += sum.end_ns >= sum.start_ns ? 1U : 0U;
        }
    });
    return result;
}

/// Runs `steps` steps of a plan on thread ranks, all on device 0; `make(transport)` makes each rank's backend.
/// Gradients are those of the last step.
template <class Model, class Make>
device_run run_on_device(const plan& planned, std::uint64_t seed, const device_run_options& options, Make make) {
    using Backend = decltype(make(std::declval<cuda::thread_transport&>()));
    using T = typename Backend::scalar;
    using space = cuda::device_space;
    const auto graph = graph_of<Model>(resize<Model>(options.to));
    const cost_table costs = blank_costs(graph.view(), planned.microbatch_size, sizeof(T));
    device_run result;
    const auto ranks = static_cast<std::size_t>(planned.pipeline_degree);
    for (auto* of_ranks : {&result.planned_bytes, &result.measured_bytes, &result.planned_live, &result.measured_live,
                           &result.planned_block, &result.written_block}) {
        of_ranks->resize(ranks);
    }
    result.traces.resize(ranks);
    std::mutex mutex;
    cuda::run_ranks(std::vector<int>(ranks, 0), options.link, [&](cuda::thread_transport& transport) {
        Backend math = make(transport);
        executor<Model, Backend> rank{math, transport, planned, costs, {.extent = options.to}};
        const drawn_data<Model, T, float> data{seed, planned.microbatch_size, planned.microbatches, options.to};
        device_task<Model, T> task{data, transport.stream()};
        for (const auto& block : rank.parameters().blocks()) {
            const std::vector<T> drawn = data.parameters(block.layer, block.size);
            rank.parameters().upload(block.layer, drawn);
        }
        if (options.traced) {
            rank.record(static_cast<std::size_t>(options.steps) * rank.instructions().instructions.size());
        }
        const auto gradients = rank.parameters().gradients();
        std::vector<float> before(gradients.size());
        std::vector<float> now(gradients.size());
        bool equal = true;
        for (int s = 0; s != options.steps; ++s) {
            const auto poison_area = [&](std::span<std::byte> area) {
                cuda::fill_bytes_async(area.data(), 0xff, area.size(), transport.stream());
            };
            cuda::fill_bytes_async(gradients.data(), 0xff, gradients.size(), transport.stream()); // NaN
            poison_area(rank.memory().block_bytes());
            poison_area(rank.memory().workspace_bytes());
            for (std::size_t slot = 0; slot != rank.memory().slot_count(); ++slot) {
                poison_area(rank.memory().slot_bytes(slot));
            }
            rank.step(task);
            // Between steps only a look at the gradients waits for the stream.
            if (s != 0 && s + 1 != options.steps) { continue; }
            cuda::check(cudaStreamSynchronize(transport.stream()), "cudaStreamSynchronize");
            space::download(static_cast<const float*>(gradients.data()), std::span{now});
            if (s == 0) { before = now; }
            equal = equal && before == now;
        }
        rank.parameters().to_checkpoint(std::span{now});
        const std::lock_guard lock{mutex};
        for (const auto& block : rank.parameters().blocks()) {
            const auto first = now.begin() + static_cast<std::ptrdiff_t>(block.first);
            result.gradients[block.layer] = {first, first + static_cast<std::ptrdiff_t>(block.size)};
        }
        const auto losses = task.losses();
        if (result.losses.empty() || losses[0] != 0) { result.losses = losses; }
        result.sent += transport.sent();
        const auto r = static_cast<std::size_t>(transport.rank());
        result.planned_bytes[r] = rank.layout().total_bytes();
        result.planned_block[r] = rank.layout().block_bytes;
        result.written_block[r] = aligned(written_bytes_on_device(rank.memory().block_bytes()));
        result.measured_bytes[r] = rank.memory().used_bytes() - result.planned_block[r] + result.written_block[r];
        result.planned_live[r] = rank.layout().live_peak_bytes;
        result.measured_live[r] = rank.memory().most_live_bytes();
        result.most_skips_held = std::max(result.most_skips_held, rank.skips().most_held());
        result.steps_equal.push_back(equal);
        if (options.traced) { result.traces[r] = rank.recorded().events(); }
        if (rank.memory().live_bytes() != 0) { throw error{"a step left buffers alive"}; }
        if (task.optimized != options.steps) { throw error{"optimize was not called once a step"}; }
    });
    return result;
}

} // namespace pulse::test
