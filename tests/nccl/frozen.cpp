#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <emulated/runtime.hpp>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/nccl/transport.cuh>
#include <pulse/runtime/executor.hpp>
#include <pulse/threads/transport.hpp>

#include <support/encoded_steps.hpp>
#include <support/random_frozen.hpp>

#include <device_pipelined.hpp>
#include <reference_backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using math = emulated_reference_backend<float>;
using space = cuda::device_space;

/// encoding_task on a device: all its work goes to the rank's stream.
class device_encoding_task {
public:
    device_encoding_task(std::uint64_t seed, const plan& planned, int steps, cudaStream_t stream) :
        seed_{seed}, batch_{planned.microbatch_size}, stream_{stream},
        losses_(static_cast<std::size_t>(steps * planned.microbatches)) {
        const drawn_data<encoded_model, float> data{seed, batch_, planned.microbatches};
        for (int m = 0; m != planned.microbatches; ++m) {
            const std::vector<float> times = data.timesteps(m);
            space::upload(std::span<const float>{times}, times_.emplace_back(times.size()).data());
        }
    }

    [[nodiscard]] const float* timesteps(int m) const { return times_[static_cast<std::size_t>(m)].data(); }
    void encode(const encoding& call) {
        // The call's spans end with it, but the kernel runs later.
        const auto run = [what = call.what, of_step = step + (call.for_next_step ? 1 : 0), seed = seed_,
                          from = std::vector(call.from.begin(), call.from.end()),
                          to = std::vector(call.to.begin(), call.to.end())] {
            encode_samples(seed, of_step, {what, false, from, to}, [](int, int) {});
        };
        static const char kernel{}; // its address identifies the kernel
        cuda::check(emulated_cuda::enqueue_kernel(dim3{1, 1, 1}, dim3{1, 1, 1}, 0, stream_, run, {.kernel = &kernel}),
                    "a task");
    }
    void encoded(const encoded_results& now) { results_ = now; }
    void input(int m, float* x) { cuda::copy_async(x, result(0, m), elements(0), stream_); }
    void loss(int m, const float* y, float* dy) {
        cuda::launch(squared_error_kernel<float>, 1, 1, 0, stream_, static_cast<std::int64_t>(elements(1)), y,
                     result(1, m), dy, losses_.data() + lost_++);
    }
    void optimize() {}
    [[nodiscard]] std::vector<double> losses() const {
        std::vector<double> found(lost_);
        space::download(losses_.data(), std::span{found});
        return found;
    }

    int step{};

private:
    [[nodiscard]] const float* result(int component, int m) const {
        return reinterpret_cast<const float*>(results_.of(component, m * batch_));
    }
    [[nodiscard]] std::size_t elements(std::size_t component) const {
        return static_cast<std::size_t>(result_widths[component] * batch_);
    }

    std::uint64_t seed_;
    int batch_;
    cudaStream_t stream_;
    std::vector<space::array<float>> times_{};
    space::array<double> losses_;
    std::size_t lost_{};
    encoded_results results_{frozen_flow{}, 0, nullptr};
};

/// run_encoded_rank on a device.
template <class Transport>
encoded_steps run_on_device(Transport& transport, const plan& planned, const cost_table& costs, std::uint64_t seed,
                            int steps, int forgets) {
    math backend{transport.stream()};
    executor<encoded_model, math> rank{backend, transport, planned, costs};
    device_encoding_task task{seed + static_cast<std::uint64_t>(rank.place().replica), planned, steps,
                              transport.stream()};
    for (const auto& block : rank.parameters().blocks()) {
        const auto drawn = draw_values<float>(seed, static_cast<std::uint64_t>(block.layer + 10), block.size);
        rank.parameters().upload(block.layer, drawn);
    }
    const auto gradients = rank.parameters().gradients();
    const auto poison_area = [&](std::span<std::byte> area) {
        cuda::fill_bytes_async(area.data(), 0xff, area.size(), transport.stream());
    };
    for (task.step = 0; task.step != steps; ++task.step) {
        cuda::fill_bytes_async(gradients.data(), 0xff, gradients.size(), transport.stream()); // NaN
        poison_area(rank.memory().block_bytes());
        poison_area(rank.memory().workspace_bytes());
        for (std::size_t s = 0; s != rank.memory().slot_count(); ++s) { poison_area(rank.memory().slot_bytes(s)); }
        if (task.step == forgets) { rank.forget_results(); }
        rank.step(task); // nobody waits for the stream between steps
    }
    cuda::check(cudaStreamSynchronize(transport.stream()), "cudaStreamSynchronize");
    std::vector<float> now(gradients.size());
    space::download(static_cast<const float*>(gradients.data()), std::span{now});
    encoded_steps made;
    made.losses = task.losses();
    for (const auto& block : rank.parameters().blocks()) {
        const auto first = now.begin() + static_cast<std::ptrdiff_t>(block.first);
        made.gradients[block.layer] = {first, first + static_cast<std::ptrdiff_t>(block.size)};
    }
    made.memory_as_planned = rank.memory().used_bytes() == rank.layout().total_bytes() &&
                             rank.memory().most_live_bytes() == rank.layout().live_peak_bytes;
    return made;
}

/// Steps of random plans on a device must give what the same steps give on the host; `run(plan, body)` runs
/// body(transport) on each rank.
template <class Run>
void check_plans(unsigned seed, int plans, const Run& run) {
    std::mt19937 random{seed};
    constexpr int steps = 4; // from the third on, passes replay as graphs
    for (int i = 0; i != plans; ++i) {
        plan p = draw_encoded_plan(random, 1 + i % 4);
        if (p.cut.stages.empty()) { continue; }
        CAPTURE(i);
        const cost_table costs = costs_with_frozen(p.microbatch_size);
        const std::uint64_t data = random();
        draw_frozen_tasks(p, costs, random);
        encode_tally seen;
        const int forgets = i % 3 == 0 ? 2 : -1;
        const auto want = run_encoded(p, costs, data, steps, seen, 0, forgets);
        std::map<int, encoded_steps> made;
        std::mutex mutex;
        run(p, [&](auto& transport) {
            encoded_steps mine = run_on_device(transport, p, costs, data, steps, forgets);
            const std::lock_guard lock{mutex};
            made[transport.rank()] = std::move(mine);
        });
        REQUIRE(made.size() == want.size());
        for (const auto& [r, of_rank] : made) {
            CHECK(of_rank.memory_as_planned);
            CHECK(of_rank.losses == want.at(r).losses);
            CHECK(of_rank.gradients == want.at(r).gradients);
        }
    }
}

} // namespace

TEST_CASE("frozen tasks in memory of a device give the bits of the host's, where buffers are copied or change hands") {
    for (const bool exchange : {false, true}) {
        check_plans(81, 16, [&](const plan& p, const auto& body) {
            const auto ranks = static_cast<std::size_t>(p.pipeline_degree * p.data_degree);
            cuda::run_ranks(std::vector<int>(ranks, 0), {exchange}, body);
        });
    }
}

TEST_CASE("frozen tasks on NCCL ranks give the bits of the host's") {
    check_plans(82, 24, [](const plan& p, const auto& body) {
        const rank_grid grid{rank_layout::pipeline_inside, p.pipeline_degree, p.data_degree};
        threads::run_ranks(grid.size(), {}, [&](threads::transport& control) {
            nccl::transport<threads::transport> transport{control, grid, {.timeout = std::chrono::seconds{20}}};
            body(transport);
        });
    });
}
