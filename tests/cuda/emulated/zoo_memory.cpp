// Whether a step takes no more device memory than its plan says, for every model of the zoo: on a device that counts
// allocations and does no work, as no host has the memory or the time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>

#include <emulated/runtime.hpp>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/hardware/device.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/known_models.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

namespace {

namespace cuda = pulse::cuda;
using scalar = cuda::bf16::scalar;

/// Close to what the emulated libraries take, so that everything else counts.
constexpr std::int64_t library_bytes = 4096;

/// A backend with that limit.
struct backend : cuda::backend<cuda::bf16> {
    explicit backend(cudaStream_t stream) : cuda::backend<cuda::bf16>{stream, options()} {}
    static constexpr pulse::backend_scratch most_scratch = [] {
        pulse::backend_scratch most = cuda::backend<cuda::bf16>::most_scratch;
        most.library_bytes = library_bytes;
        return most;
    }();

private:
    [[nodiscard]] static cuda::engine_options options() {
        cuda::engine_options made;
        made.store = {};
        made.workspace_limit = library_bytes;
        return made;
    }
};

/// Gives a step data that nobody reads.
class no_task {
public:
    explicit no_task(std::int64_t numbers) : numbers_{static_cast<std::size_t>(numbers)}, loss_{1} {}

    [[nodiscard]] const float* timesteps(int) const { return numbers_.data(); }
    [[nodiscard]] const float* facts(int) const { return numbers_.data(); }
    [[nodiscard]] const scalar* text(int) const { return reinterpret_cast<const scalar*>(numbers_.data()); }
    void input(int, scalar*) const {}
    void loss(int, const scalar*, scalar*) const {}
    void optimize() const {}
    [[nodiscard]] std::span<const double> losses() const { return {loss_.data(), 1}; }
    [[nodiscard]] std::size_t bytes() const { return numbers_.bytes() + loss_.bytes(); }

private:
    cuda::device_memory<float> numbers_;
    cuda::device_memory<double> loss_;
};

int failed = 0;

template <class Model>
void check(int batch) {
    static constexpr auto graph = pulse::graph_of<Model>();
    const emulated_cuda::counting counted{
        {.multiprocessors = 132,
         .memory_bytes = std::size_t{1} << 44U,
         .note = [](const emulated_cuda::work&) -> std::function<void()> { return [] {}; }}};
    cuda::run_ranks({cuda::current_device()}, {}, [&](cuda::thread_transport& transport) {
        const auto costs = pulse::analytic_costs(graph.view(), pulse::h200, batch, sizeof(scalar));
        const auto plan =
            pulse::plan_candidate(costs, {.kind = pulse::placement::sequential, .split_backward = true}).plan;
        const pulse::parameter_memory kept = pulse::kept_by<Model, backend>();
        backend math{transport.stream()};
        pulse::executor<Model, backend> rank{math, transport, plan, costs};
        cuda::rank_optimizer<cuda::bf16> optimizer{Model::part_count, 1, rank.parameters(), {}, transport.stream()};
        no_task task{graph.conditioning_elements * batch + 4096 * batch};
        for (int step = 1; step <= 2; ++step) {
            rank.step(task);
            optimizer.step(rank.parameters(), transport, step, 1e-4, task.losses(), false);
        }
        math.synchronize();
        const pulse::step_model model{plan, costs};
        const auto scratch = pulse::scratch_bytes_on(model, 0, kept);
        const auto planned = pulse::peak_bytes(plan, costs, kept).front();
        const auto taken = static_cast<std::int64_t>(emulated_cuda::device_bytes() - task.bytes());
        std::printf("%s, batch %d: %lld bytes taken, %lld planned; of those %lld of %lld are scratch\n",
                    Model::name.str().c_str(), batch, static_cast<long long>(taken), static_cast<long long>(planned),
                    static_cast<long long>(math.scratch_bytes()), static_cast<long long>(scratch));
        std::fflush(stdout);
        failed += taken <= planned && math.scratch_bytes() <= scratch ? 0 : 1;
    });
}

/// Whether partial sums of an operation on one tensor fit in the tensor copies that a plan reserves: beside the
/// weights, the zoo's are too small to show it.
void check_sums() {
    const auto check = [](const char* what, std::size_t bytes, std::int64_t elements) {
        const auto room = pulse::cuda_scratch.copies_of_tensors * elements * static_cast<std::int64_t>(sizeof(scalar)) +
                          pulse::scratch_rounding_bytes;
        if (static_cast<std::int64_t>(bytes) <= room) { return; }
        std::printf("%s: %zu bytes of %lld\n", what, bytes, static_cast<long long>(room));
        ++failed;
    };
    for (const int batch : {1, 3, 16}) {
        for (const int pixels : {16, 17, 64, 77, 1024, 9216}) {
            for (const int channels : {32, 320, 1280}) {
                const std::int64_t rows = std::int64_t{batch} * pixels;
                const std::int64_t all = rows * channels;
                const pulse::group_norm_shape groups{.channels = channels, .groups = 16, .pixels = pixels};
                check("group_norm", cuda::group_norm_scratch_bytes(groups, batch), all);
                check("group_norm_backward", cuda::group_norm_backward_scratch_bytes(groups, batch), all);
                check("layer_norm_backward", cuda::layer_norm_backward_scratch_bytes({channels}, rows), all);
                check("adaptive_norm_backward",
                      cuda::adaptive_norm_backward_scratch_bytes({.features = channels, .tokens = pixels}, batch), all);
                check("sum_pixels", cuda::sum_pixels_scratch_bytes(batch, pixels, channels), all);
                // The hidden layer of a gated MLP has eight times the features of its input.
                check("add_bias_gradient", cuda::add_bias_gradient_scratch_bytes(rows, 8 * channels), all);
            }
        }
    }
}

template <class... Models>
void check_all() {
    static_assert(sizeof...(Models) == pulse::known_models.size(), "of every model");
    for (const int batch : {1, 4, 16}) { (check<Models>(batch), ...); }
}

} // namespace

int main() {
    check_sums();
    check_all<pulse::sd15, pulse::sd21, pulse::controlnet_sd15, pulse::sdxl, pulse::uvit_s2, pulse::uvit_m4,
              pulse::uvit_l2, pulse::uvit_h2, pulse::hunyuan_dit_v11, pulse::hunyuan_dit_v12, pulse::ddpm_cifar10,
              pulse::ddpm_fmnist>();
    if (failed != 0) { std::printf("%d times more is taken than a plan says\n", failed); }
    return failed == 0 ? 0 : 1;
}
