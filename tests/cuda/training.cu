#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/cuda/device_latents.cuh>
#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/latent_task.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::conditioning_block;
using pulse::test::device_array;
using pulse::test::rounded;
using pulse::test::rounding_error;

namespace {

/// Half a unit of the smallest normal half, what rounding to a subnormal half may cost.
constexpr double half_step = 0x1p-25;

train::image_dataset images(int side, int channels, int padding) {
    std::mt19937 random(23);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(7 * side * side * channels));
    for (std::uint8_t& pixel : pixels) { pixel = static_cast<std::uint8_t>(random() % 256); }
    return {side, side, channels, std::move(pixels), {.seed = 3, .horizontal_flip = true, .padding = padding}};
}

/// What of a work a task reads.
struct microbatch_of {
    int microbatch{};
    double* loss{};
};

/// One step of a task: what it gave for an answer of `answer` everywhere.
struct task_step {
    std::vector<double> x, times, gradient, losses;
};

template <class Precision>
task_step device_step(const train::image_dataset& data, const train::noise_process& schedule,
                      const train::diffusion_options& options, std::uint64_t position, double answer,
                      double loss_scale = 1, const train::mask_source& masks = {}) {
    using scalar = typename Precision::scalar;
    const cuda::device_images there(data);
    const cuda::stream stream;
    cuda::diffusion_task<Precision> task(there, schedule, options, stream.get(), {}, masks);
    const device_array<double> losses(static_cast<std::size_t>(options.microbatches));
    const auto batch = static_cast<std::size_t>(options.microbatch_size);
    const std::size_t n = batch * data.elements();
    task_step result;
    for (const std::uint64_t at : {position + 5000, position}) { // the table of the step before is gone
        result = {};
        task.begin(at, loss_scale);
        for (int m = 0; m < options.microbatches; ++m) {
            const device_array<scalar> x(n);
            const device_array<scalar> y(std::vector<double>(n, answer));
            const device_array<scalar> dy(n);
            const microbatch_of work{m, losses.data() + m};
            task.input(work, std::span{x.data(), n});
            task.loss(work, std::span<const scalar>{y.data(), n}, std::span{dy.data(), n});
            const auto append = [&](std::vector<double>& to, const std::vector<double>& from) {
                to.insert(to.end(), from.begin(), from.end());
            };
            append(result.x, x.download(stream.get()));
            append(result.gradient, dy.download(stream.get()));
            std::vector<float> times(batch);
            cuda::download<float>(task.timesteps(work), times.data(), batch);
            result.times.insert(result.times.end(), times.begin(), times.end());
        }
        result.losses.resize(static_cast<std::size_t>(options.microbatches));
        cuda::download<double>(losses.data(), result.losses.data(), result.losses.size());
    }
    return result;
}

task_step host_step(const train::image_dataset& data, const train::noise_process& schedule,
                    const train::diffusion_options& options, std::uint64_t position, double answer,
                    const train::mask_source& masks = {}) {
    train::diffusion_task task(data, schedule, options, {}, masks);
    std::vector<double> losses(static_cast<std::size_t>(options.microbatches));
    task.begin(position);
    const auto batch = static_cast<std::size_t>(options.microbatch_size);
    task_step result;
    for (int m = 0; m < options.microbatches; ++m) {
        std::vector<float> x(batch * data.elements());
        std::vector<float> gradient(x.size());
        const microbatch_of work{m, losses.data() + m};
        task.input(work, std::span{x});
        task.loss(work, std::vector<float>(x.size(), static_cast<float>(answer)), std::span{gradient});
        result.x.insert(result.x.end(), x.begin(), x.end());
        result.gradient.insert(result.gradient.end(), gradient.begin(), gradient.end());
        result.times.insert(result.times.end(), task.timesteps(work), task.timesteps(work) + batch);
    }
    result.losses = losses;
    return result;
}

/// Parameters of some layers on the device, in the form that an optimizer takes.
template <class T>
class some_parameters {
public:
    struct block {
        int layer{};
        std::size_t first{};
        std::size_t size{};
    };
    some_parameters(const std::vector<int>& layers, std::size_t elements) :
        size_(layers.size() * elements), values_(size_), gradients_(size_) {
        for (std::size_t i = 0; i < layers.size(); ++i) { blocks_.push_back({layers[i], i * elements, elements}); }
    }
    [[nodiscard]] std::span<const block> blocks() const { return blocks_; }
    [[nodiscard]] std::span<T> values() const { return {values_.data(), size_}; }
    [[nodiscard]] std::span<float> gradients() const { return {gradients_.data(), size_}; }
    [[nodiscard]] std::vector<double> read_values(cudaStream_t after) const { return values_.download(after); }
    [[nodiscard]] std::vector<double> read_gradients(cudaStream_t after) const { return gradients_.download(after); }
    void set_gradients(const std::vector<float>& values) { gradients_.upload(values); }
    struct tensor {
        std::size_t first{};
        std::size_t size{};
        std::size_t rows{};
    };
    [[nodiscard]] static std::span<const tensor> tensors() { return {}; }
    // No tensor is a convolution's weight.
    [[nodiscard]] static std::span<const float> to_space(std::span<const float> all, std::vector<float>&,
                                                         bool = false) {
        return all;
    }
    static void to_checkpoint(std::span<float>, bool = false) {}

private:
    std::size_t size_;
    std::vector<block> blocks_;
    device_array<T> values_;
    device_array<float> gradients_;
};

std::vector<float> read(std::span<const float> there, cudaStream_t after) {
    std::vector<float> values(there.size());
    cuda::check(cudaStreamSynchronize(after), "cudaStreamSynchronize");
    cuda::download<float>(there.data(), values.data(), values.size());
    return values;
}

float value(int layer, std::size_t i, std::int64_t step) {
    return static_cast<float>(
        std::sin(1.0 + 3.0 * layer + 0.7 * static_cast<double>(i) + 0.3 * static_cast<double>(step)));
}

/// One layer's arrays after some steps.
struct layer_arrays {
    std::vector<float> weights, m, v, average;
    std::vector<double> compute;
    double norm{};
    double loss{};
};

constexpr int layers = 5;
constexpr std::size_t elements = 13;
constexpr std::int64_t steps = 3;
const train::optimizer_options options{.constants = {.weight_decay = 0.1}, .clip_norm = 0.5, .average_decay = 0.99};

/// Steps on the device, layers spread over ranks as `owned` says. Gradients arrive multiplied by the loss scale.
template <class Precision>
std::array<layer_arrays, layers + 1> device_run(const std::vector<std::vector<int>>& owned) {
    using scalar = typename Precision::scalar;
    std::array<layer_arrays, layers + 1> all;
    pulse::threads::run_ranks(static_cast<int>(owned.size()), {}, [&](pulse::threads::transport& transport) {
        const std::vector<int>& mine = owned[static_cast<std::size_t>(transport.rank())];
        const cuda::stream stream;
        some_parameters<scalar> parameters(mine, elements);
        cuda::rank_optimizer<Precision> optimizer(layers, 2, parameters, options, stream.get());
        const auto values_at = [&](std::int64_t step, double factor) {
            std::vector<float> values;
            for (const int layer : mine) {
                for (std::size_t i = 0; i < elements; ++i) {
                    values.push_back(static_cast<float>(factor) * value(layer, i, step));
                }
            }
            return values;
        };
        optimizer.start(values_at(0, 1), parameters);
        train::step_outcome outcome;
        const bool has_losses = !mine.empty() && mine.back() == layers - 1;
        for (std::int64_t step = 1; step <= steps; ++step) {
            stream.synchronize();
            parameters.set_gradients(values_at(step, optimizer.loss_scale()));
            const device_array<double> losses(std::vector<double>(2, 0.1 * static_cast<double>(step)));
            outcome = optimizer.step(parameters, transport, step, 1e-2,
                                     has_losses ? std::span<const double>{losses.data(), 2} : std::span<const double>{},
                                     step == steps && transport.rank() == 0);
        }
        CHECK(outcome.stop);
        CHECK_FALSE(outcome.skipped);
        for (const double g : parameters.read_gradients(stream.get())) { CHECK(g == 0); }
        for (const auto& b : parameters.blocks()) {
            layer_arrays& to = all[static_cast<std::size_t>(b.layer + 1)];
            const auto part = [&]<class Each>(const std::vector<Each>& from) {
                const auto first = from.begin() + static_cast<std::ptrdiff_t>(b.first);
                return std::vector<Each>(first, first + static_cast<std::ptrdiff_t>(b.size));
            };
            to = {part(read(optimizer.weights(parameters), stream.get())),
                  part(read(optimizer.first_moment(), stream.get())),
                  part(read(optimizer.second_moment(), stream.get())),
                  part(read(optimizer.average(), stream.get())),
                  part(parameters.read_values(stream.get())),
                  outcome.gradient_norm,
                  outcome.loss};
        }
    });
    return all;
}

std::array<layer_arrays, layers + 1> host_run() {
    std::array<layer_arrays, layers + 1> all;
    pulse::threads::run_ranks(1, {}, [&](pulse::threads::transport& transport) {
        const std::vector<int> mine{-1, 0, 1, 2, 3, 4};
        const std::vector<std::int64_t> sizes(mine.size(), elements);
        pulse::rank_parameters<float> parameters(mine, sizes);
        train::rank_optimizer optimizer(layers, 2, parameters, options);
        const auto fill = [&](std::span<float> to, std::int64_t step) {
            for (const auto& b : parameters.blocks()) {
                for (std::size_t i = 0; i != b.size; ++i) { to[b.first + i] = value(b.layer, i, step); }
            }
        };
        std::vector<float> initial(parameters.values().size());
        fill(initial, 0);
        optimizer.start(initial, parameters);
        train::step_outcome outcome;
        for (std::int64_t step = 1; step <= steps; ++step) {
            fill(parameters.gradients(), step);
            const std::vector<double> losses(2, 0.1 * static_cast<double>(step));
            outcome = optimizer.step(parameters, transport, step, 1e-2, losses, false);
        }
        for (const auto& b : parameters.blocks()) {
            const auto part = [&](std::span<float> from) {
                const auto of_block = from.subspan(b.first, b.size);
                return std::vector<float>(of_block.begin(), of_block.end());
            };
            all[static_cast<std::size_t>(b.layer + 1)] = {part(parameters.values()),
                                                          part(optimizer.first_moment()),
                                                          part(optimizer.second_moment()),
                                                          part(optimizer.average()),
                                                          {},
                                                          outcome.gradient_norm,
                                                          outcome.loss};
        }
    });
    return all;
}

/// What replicas have of a layer after some steps: compute copies, which all have, and the state of whoever owns it.
struct replicated_layer {
    std::vector<double> compute;
    std::vector<float> m, average;
    [[nodiscard]] bool operator==(const replicated_layer&) const = default;
};
struct replicated_steps {
    std::array<replicated_layer, layers + 1> all;
    double norm{}, loss{};
    std::int64_t gradient_bytes{};
};

/// Steps of `replicas` replicas on device 0, gradients as they are after they were summed: of sharded state, nothing
/// but the replica's own shares are numbers.
template <class Precision>
replicated_steps replicated_run(const std::vector<std::vector<int>>& owned, int replicas, bool sharded) {
    using scalar = typename Precision::scalar;
    replicated_steps made;
    std::mutex mutex;
    const pulse::rank_grid grid{pulse::rank_layout::pipeline_inside, static_cast<int>(owned.size()), replicas};
    cuda::run_ranks(std::vector<int>(static_cast<std::size_t>(grid.size()), 0), {}, [&](cuda::thread_transport& among) {
        const pulse::replica_place place = pulse::place_of(grid, among.rank());
        const std::vector<int>& mine = owned[static_cast<std::size_t>(place.device)];
        some_parameters<scalar> parameters(mine, elements);
        train::optimizer_options how = options;
        how.replicas = {place, sharded};
        cuda::rank_optimizer<Precision> optimizer(layers, 2, parameters, how, among.stream());
        const auto values_at = [&](std::int64_t step, double factor, bool shares_only) {
            std::vector<float> values;
            for (const int layer : mine) {
                const pulse::element_range own = pulse::share_of({0, elements}, replicas, place.replica);
                for (std::size_t i = 0; i < elements; ++i) {
                    const bool known = !shares_only || (i >= own.first && i < own.first + own.size);
                    values.push_back(known ? static_cast<float>(factor) * value(layer, i, step) : std::nanf(""));
                }
            }
            return values;
        };
        optimizer.start(values_at(0, 1, false), parameters);
        train::step_outcome outcome;
        for (std::int64_t step = 1; step <= steps; ++step) {
            cuda::check(cudaStreamSynchronize(among.stream()), "cudaStreamSynchronize");
            parameters.set_gradients(values_at(step, optimizer.loss_scale(), sharded));
            const device_array<double> losses(std::vector<double>{0.25 + place.replica, 0.5});
            outcome = optimizer.step(parameters, among, step, 1e-2,
                                     mine.back() == layers - 1 ? std::span<const double>{losses.data(), 2}
                                                               : std::span<const double>{},
                                     false);
        }
        const auto average = read(optimizer.average(), among.stream());
        const auto moment = read(optimizer.first_moment(), among.stream());
        const auto compute = parameters.read_values(among.stream());
        for (const double g : parameters.read_gradients(among.stream())) { REQUIRE(g == 0); }
        const std::lock_guard lock{mutex};
        made.norm = outcome.gradient_norm;
        made.loss = outcome.loss;
        made.gradient_bytes += among.sent().gradient;
        std::size_t at = 0;
        for (const auto& [r, number, rows] : optimizer.pieces()) {
            for (std::size_t i = r.first; i != r.first + r.size; ++i, ++at) {
                const auto& b = parameters.blocks()[i / elements];
                replicated_layer& to = made.all[static_cast<std::size_t>(b.layer + 1)];
                to.m.resize(elements);
                to.average.resize(elements);
                to.m[i - b.first] = moment[at];
                to.average[i - b.first] = average[at];
            }
        }
        REQUIRE(at == average.size());
        for (const auto& b : parameters.blocks()) {
            replicated_layer& to = made.all[static_cast<std::size_t>(b.layer + 1)];
            const auto first = compute.begin() + static_cast<std::ptrdiff_t>(b.first);
            const std::vector<double> now(first, first + static_cast<std::ptrdiff_t>(b.size));
            REQUIRE((to.compute.empty() || to.compute == now));
            to.compute = now;
        }
    });
    return made;
}

/// Runs `body(transport)` on one rank and gives back the text of the error of type Error.
template <class Error, class Body>
std::string message_on_one_rank(Body body) {
    try {
        pulse::threads::run_ranks(1, {}, body);
    } catch (const Error& e) { return e.what(); }
    return "nothing of this type was thrown";
}

} // namespace

TEST_CASE_TEMPLATE("replicas on devices take one step, whether they share their state or not", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    const std::vector<std::vector<int>> whole{{-1, 0, 1, 2, 3, 4}};
    const std::vector<std::vector<int>> cut{{-1, 0, 4}, {1, 2, 3}};
    for (const int replicas : {2, 3}) {
        const replicated_steps want = replicated_run<Precision>(whole, replicas, false);
        CHECK(want.gradient_bytes == 0);
        CHECK(want.norm > options.clip_norm);
        CHECK(want.loss == doctest::Approx(replicas * 0.75 + replicas * (replicas - 1) / 2));
        for (const auto& owned : {whole, cut}) {
            const replicated_steps found = replicated_run<Precision>(owned, replicas, true);
            for (std::size_t l = 0; l != want.all.size(); ++l) {
                CAPTURE(l);
                CHECK(found.all[l] == want.all[l]);
            }
            CHECK(found.norm == want.norm);
            CHECK(found.loss == want.loss);
            CHECK(found.gradient_bytes == steps * (replicas - 1) * (layers + 1) * static_cast<std::int64_t>(elements) *
                                              static_cast<std::int64_t>(sizeof(typename Precision::scalar)));
        }
        // Gradients that are the same have the same norm, but for the order in which squares are added.
        const replicated_steps one = replicated_run<Precision>(whole, 1, false);
        CHECK(one.norm == doctest::Approx(want.norm).epsilon(1e-12));
    }
}

TEST_CASE_TEMPLATE("a device's step has the host's samples, times, losses and gradients", Precision, cuda::bf16,
                   cuda::fp16, cuda::tf32, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const double scale = Precision::scales_loss ? 4096 : 1;
    struct objective {
        train::noise_process schedule;
        train::prediction_type type;
    };
    const auto linear = train::noise_schedule::linear();
    const objective objectives[] = {{linear, train::prediction_type::epsilon},
                                    {linear, train::prediction_type::velocity},
                                    {linear.with_zero_terminal_snr(), train::prediction_type::velocity},
                                    {linear, train::prediction_type::sample},
                                    {train::rectified_flow{.shift = 3}, train::prediction_type::velocity},
                                    {train::edm_noise{}, train::prediction_type::velocity}};
    for (const auto& [schedule, type] : objectives) {
        // EDM's factors are up to 1 / sigma_data.
        const double stretch = schedule.betas() != nullptr ? 1 : 2;
        for (const double gamma : {0.0, 5.0}) {
            if (gamma > 0 && schedule.betas() == nullptr) { continue; }
            const train::image_dataset data = images(6, 4, 1);
            const train::diffusion_options step{.seed = 5,
                                                .prediction = type,
                                                .min_snr_gamma = gamma,
                                                .noise_offset = gamma / 50,
                                                .microbatch_size = 3,
                                                .microbatches = 2,
                                                .model_elements = 8 * 8 * 4};
            const double answer = 0.25;
            const task_step want = host_step(data, schedule, step, 1000, answer);
            const task_step found = device_step<Precision>(data, schedule, step, 1000, answer, scale);
            CHECK(found.times == want.times);
            REQUIRE(found.x.size() == want.x.size());
            // the noise by its transform, the mixture of both sides by three roundings of floats
            const double slack = stretch * (6.8 * 0x1p-20 + 6 * 0x1p-23 * 8);
            for (std::size_t i = 0; i < want.x.size(); ++i) {
                CHECK(std::abs(found.x[i] - want.x[i]) <=
                      slack + rounding_error<scalar> * std::abs(want.x[i]) + half_step);
                const double slope = scale * want.gradient[i];
                const double factor = std::abs(want.gradient[i]) * scale / 1.0;
                // the gradient is 2 weight / elements times the difference, whose error is `slack`; min-SNR weights are
                // at most 1, those of the sample gamma
                const double weight = type == train::prediction_type::sample ? std::max(1.0, gamma) : 1.0;
                const double per_unit = 2.0 * weight * scale / static_cast<double>(want.x.size());
                CHECK(std::abs(found.gradient[i] - slope) <=
                      per_unit * slack + (rounding_error<scalar> + 0x1p-22) * factor + half_step);
            }
            for (std::size_t m = 0; m < want.losses.size(); ++m) {
                CHECK(found.losses[m] == doctest::Approx(want.losses[m]).epsilon(4 * slack));
            }
        }
    }
}

TEST_CASE_TEMPLATE("errors count on a device as on the host, by the mask of their pixel", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(6, 4, 1);
    const train::noise_schedule schedule = train::noise_schedule::cosine();
    const train::diffusion_options step{.seed = 5, .microbatch_size = 3, .microbatches = 2};
    const auto device = [&](const train::mask_source& masks) {
        return device_step<Precision>(data, schedule, step, 1000, 0.25, 64, masks);
    };
    const train::mask_source some = [](std::uint64_t position, std::span<float> to) {
        REQUIRE(to.size() == 8 * 8);
        for (std::size_t i = 0; i != to.size(); ++i) { to[i] = static_cast<float>((position * 5 + i * 3) % 8) / 7; }
    };
    const task_step want = host_step(data, schedule, step, 1000, 0.25, some);
    const task_step found = device(some);
    const double slack = 6.8 * 0x1p-20 + 6 * 0x1p-23 * 8; // as without masks, which are at most 1
    const double per_unit = 2.0 * 64 / static_cast<double>(want.gradient.size());
    for (std::size_t i = 0; i != want.gradient.size(); ++i) {
        const double slope = 64 * want.gradient[i];
        CHECK(std::abs(found.gradient[i] - slope) <=
              per_unit * slack + (rounding_error<scalar> + 0x1p-22) * std::abs(slope) + half_step);
    }
    for (std::size_t m = 0; m != want.losses.size(); ++m) {
        CHECK(found.losses[m] == doctest::Approx(want.losses[m]).epsilon(4 * slack));
    }
    const auto everywhere = [](float value) {
        return [value](std::uint64_t, std::span<float> to) { std::ranges::fill(to, value); };
    };
    const task_step whole = device(everywhere(1));
    const task_step without = device({});
    CHECK(whole.losses == without.losses);
    CHECK(whole.gradient == without.gradient);
    CHECK(whole.losses != found.losses);
    const task_step nothing = device(everywhere(0));
    CHECK(nothing.losses == std::vector<double>(2));
    CHECK(nothing.gradient == std::vector<double>(found.gradient.size()));
}

TEST_CASE_TEMPLATE("what a self-conditioned model reads on a device is the host's", Precision, cuda::bf16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(6, 4, 1);
    const train::noise_process processes[]{train::noise_schedule::cosine(), train::rectified_flow{}};
    for (const train::noise_process& process : processes) {
        for (const std::size_t answered : {4, 5}) {
            const train::diffusion_options step{
                .seed = 5, .noise_offset = 0.1, .microbatch_size = 3, .self_conditioned = true};
            train::diffusion_task want(data, process, step);
            const cuda::device_images there(data);
            const cuda::stream stream;
            cuda::diffusion_task<Precision> found(there, process, step, stream.get());
            want.begin(70);
            found.begin(70);
            const std::size_t n = 3 * data.elements();
            std::vector<double> answer(n / 4 * answered);
            for (std::size_t i = 0; i != answer.size(); ++i) { answer[i] = 0.125 * static_cast<double>(i % 13) - 0.75; }
            const std::vector<float> answer_there(answer.begin(), answer.end());
            const device_array<scalar> y(answer);
            const microbatch_of at{0, nullptr};
            for (const bool previewed : {false, true}) {
                std::vector<float> x(2 * n);
                const device_array<scalar> x_there(2 * n);
                if (previewed) {
                    want.input(at, x, answer_there);
                    found.input(at, std::span{x_there.data(), 2 * n}, std::span<const scalar>{y.data(), answer.size()});
                } else {
                    want.input(at, x);
                    found.input(at, std::span{x_there.data(), 2 * n});
                }
                const std::vector<double> mine = x_there.download(stream.get());
                const double slack = 4 * (6.8 * 0x1p-20 + 6 * 0x1p-23 * 8);
                for (std::size_t i = 0; i != x.size(); ++i) {
                    const auto there_is = static_cast<double>(x[i]);
                    CHECK(std::abs(mine[i] - there_is) <= slack + rounding_error<scalar> * std::abs(there_is));
                }
            }
        }
    }
}

TEST_CASE_TEMPLATE("what the second backbone of a cascade reads on a device is the host's", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const auto same = [](auto& want, auto& found, cudaStream_t stream, std::size_t elements, double noise) {
        std::vector<float> x(elements);
        const device_array<scalar> x_there(elements);
        const microbatch_of at{1, nullptr};
        want.input(at, x);
        found.input(at, std::span{x_there.data(), elements});
        const std::vector<double> mine = x_there.download(stream);
        const double slack = (1 + noise) * (6.8 * 0x1p-20 + 6 * 0x1p-23 * 8);
        for (std::size_t i = 0; i != x.size(); ++i) {
            const auto there_is = static_cast<double>(x[i]);
            CHECK(std::abs(mine[i] - there_is) <= slack + rounding_error<scalar> * std::abs(there_is) + half_step);
        }
    };
    // bytes with padding, some of them mirrored; then floats of two sizes, as an autoencoder gives them
    const train::image_dataset data = images(10, 3, 1);
    const std::size_t n = data.elements();
    constexpr std::uint64_t far = 5'000'000'000;
    for (const int times : {2, 3}) {
        for (const double noise : {0.0, 0.5, 20.0}) {
            train::diffusion_options step{.seed = 5, .noise_offset = 0.1, .microbatch_size = 3, .microbatches = 2};
            step.model_elements = static_cast<std::int64_t>(2 * n);
            step.enlarged = train::enlargement{.times = times, .width = 12, .noise = noise};
            if (noise == 0.5) { step.evaluated = train::evaluation{.timestep = 300, .samples = 1000}; }
            const cuda::stream stream;
            const auto schedule = train::noise_schedule::cosine();
            train::diffusion_task want(data, schedule, step);
            const cuda::device_images there(data);
            cuda::diffusion_task<Precision> found(there, schedule, step, stream.get());
            want.begin(far);
            found.begin(far);
            same(want, found, stream.get(), 3 * 2 * n, noise);

            step.greatest_elements = static_cast<std::int64_t>(n) + 7;
            train::latents_of_step latents(6, n, 3);
            cuda::device_latents latents_there(6, n, 3);
            train::diffusion_task want_latents(latents, schedule, step);
            cuda::diffusion_task<Precision, cuda::device_latents> found_latents(latents_there, schedule, step,
                                                                                stream.get());
            for (const std::size_t size : {n, n / 2}) { // 12x12 and 6x12
                latents.resize(size);
                latents_there.resize(size);
                latents.begin(far);
                latents_there.begin(far);
                for (std::size_t k = 0; k != 6; ++k) {
                    train::random_source{k, 1}.fill_normal(0, latents.of(k));
                    std::ranges::copy(latents.of(k), latents_there.of(k).begin());
                }
                latents_there.upload(stream.get());
                want_latents.begin(far);
                found_latents.begin(far);
                same(want_latents, found_latents, stream.get(), 3 * 2 * size, noise);
            }
            latents_there.resize(n / 12); // one row
            CHECK_THROWS_AS(found_latents.begin(far), pulse::input_error);
        }
    }
}

TEST_CASE_TEMPLATE("a device's task knows of samples what the host's knows, in scalars", Precision, cuda::bf16,
                   cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(4, 2, 0);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    pulse::condition_set wanted;
    wanted.add({pulse::condition_kind::text_states, 3, 5});
    wanted.add({pulse::condition_kind::pooled_text, 1, 2});
    wanted.add({pulse::condition_kind::original_crop_target, 1, 6});
    constexpr std::size_t hint = 7;
    const train::condition_source source{wanted,
                                         [](std::uint64_t position, std::size_t which, std::span<float> to) {
                                             train::random_source{position, which}.fill_normal(0, to);
                                         },
                                         hint,
                                         [](std::uint64_t position, std::span<float> to) {
                                             train::random_source{position, 9}.fill_normal(0, to);
                                         }};
    const train::diffusion_options step{
        .seed = 5, .microbatch_size = 2, .microbatches = 2, .replicas = 2, .replica = 1};
    train::diffusion_task want(data, schedule, step, source);
    const cuda::device_images there(data);
    const cuda::stream stream;
    cuda::diffusion_task<Precision> found(there, schedule, step, stream.get(), source);
    for (const std::uint64_t position : {500, 10}) {
        want.begin(position);
        found.begin(position, 1);
        stream.synchronize();
        for (int m = 0; m != 2; ++m) {
            const microbatch_of at{m, nullptr};
            std::vector<scalar> text(2 * static_cast<std::size_t>(wanted.text_elements()));
            std::vector<float> facts(2 * static_cast<std::size_t>(wanted.fact_elements()));
            cuda::download<scalar>(found.text(at), text.data(), text.size());
            cuda::download<float>(found.facts(at), facts.data(), facts.size());
            for (std::size_t i = 0; i < text.size(); ++i) {
                CHECK(cuda::to_float(text[i]) == cuda::to_float(cuda::from_float<scalar>(want.text(at)[i])));
            }
            CHECK(facts == std::vector<float>(want.facts(at), want.facts(at) + facts.size()));
            const std::size_t n = 2 * data.elements();
            std::vector<float> x(n + 2 * hint);
            want.input(at, x);
            const device_array<scalar> x_there(x.size());
            found.input(at, std::span{x_there.data(), x.size()});
            const std::vector<double> mine = x_there.download(stream.get());
            for (std::size_t i = n; i != x.size(); ++i) {
                CHECK(mine[i] == static_cast<double>(cuda::to_float(cuda::from_float<scalar>(x[i]))));
            }
        }
    }
}

TEST_CASE("a device's step does not depend on how samples are grouped into microbatches") {
    const train::image_dataset data = images(5, 3, 0);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    const auto run = [&](int batch, int microbatches) {
        task_step all = device_step<cuda::fp32>(
            data, schedule, {.seed = 5, .microbatch_size = batch, .microbatches = microbatches}, 77, 0.5);
        all.losses = {std::accumulate(all.losses.begin(), all.losses.end(), 0.0)};
        return all;
    };
    const task_step want = run(12, 1);
    for (const auto& [batch, microbatches] : {std::pair{1, 12}, {4, 3}}) {
        const task_step found = run(batch, microbatches);
        CHECK(found.x == want.x);
        CHECK(found.times == want.times);
        CHECK(found.gradient == want.gradient);
        CHECK(found.losses[0] == doctest::Approx(want.losses[0]).epsilon(1e-14));
    }
}

TEST_CASE("a step may be begun while the device has still to start the step before") {
    const train::image_dataset data = images(4, 1, 0);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    const cuda::device_images there(data);
    const cuda::stream stream;
    cuda::diffusion_task<cuda::fp32> task(there, schedule, {}, stream.get());
    const device_array<float> first(data.elements());
    const device_array<float> second(data.elements());
    const device_array<float> alone(data.elements());
    const auto give = [&](const device_array<float>& to) {
        task.input(microbatch_of{}, std::span{to.data(), data.elements()});
    };
    task.begin(5);
    give(first);
    task.begin(6);
    give(second);
    stream.synchronize();
    task.begin(5);
    give(alone);
    const std::vector<double> expected = alone.download(stream.get());
    CHECK(first.download(stream.get()) == expected);
    CHECK(second.download(stream.get()) != expected);
}

TEST_CASE("a device's task for a model of another size, or without samples, is refused by name") {
    const train::image_dataset data = images(4, 1, 0);
    const cuda::device_images there(data);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    const auto make = [&](const train::diffusion_options& o) {
        const cuda::diffusion_task<> task(there, schedule, o, nullptr);
    };
    CHECK_NOTHROW(make({.model_elements = 16}));
    CHECK_THROWS_WITH_AS(make({.model_elements = 64}), "diffusion_task: an image has 16 elements, the model's input 64",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(make({.microbatch_size = 0}), "diffusion_task: microbatch_size must be 1 to 65535",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(make({.microbatches = -1}), "diffusion_task: microbatches must be at least 1",
                         pulse::input_error);
    CHECK_THROWS_AS(make({.min_snr_gamma = -1.0}), pulse::input_error);
    CHECK_THROWS_AS(make({.noise_offset = -1.0}), pulse::input_error);
    const auto zero = schedule.with_zero_terminal_snr();
    CHECK_THROWS_AS((cuda::diffusion_task<>{there, zero, {.prediction = train::prediction_type::epsilon}, nullptr}),
                    pulse::input_error);
}

TEST_CASE_TEMPLATE("the device's optimizer takes the host's steps, however layers are spread", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    const auto want = host_run();
    CHECK(want[0].norm > 1.0); // so clipping has something to do
    const auto alone = device_run<Precision>({{-1, 0, 1, 2, 3, 4}});
    for (std::size_t l = 0; l != want.size(); ++l) {
        CAPTURE(l);
        CHECK(alone[l].norm == doctest::Approx(want[l].norm).epsilon(1e-13));
        CHECK(alone[l].loss == doctest::Approx(want[l].loss).epsilon(1e-14));
        for (std::size_t i = 0; i < elements; ++i) {
            const auto near = [&](float found, float wanted, double unit) {
                CHECK(std::abs(static_cast<double>(found) - static_cast<double>(wanted)) <=
                      static_cast<double>(steps) * (0x1p-22 * std::abs(static_cast<double>(wanted)) + unit));
            };
            near(alone[l].weights[i], want[l].weights[i], 0x1p-20 * 1e-2);
            near(alone[l].m[i], want[l].m[i], 0x1p-24);
            near(alone[l].v[i], want[l].v[i], 0x1p-34);
            near(alone[l].average[i], want[l].average[i], 0x1p-22);
            const double copy =
                static_cast<double>(cuda::to_float(cuda::from_float<typename Precision::scalar>(alone[l].weights[i])));
            CHECK(alone[l].compute[i] == copy);
        }
    }
    for (const std::vector<std::vector<int>>& owned :
         {std::vector<std::vector<int>>{{-1, 0, 4}, {1, 2, 3}}, {{}, {-1, 0, 1, 2}, {3, 4}}}) {
        const auto found = device_run<Precision>(owned);
        for (std::size_t l = 0; l != want.size(); ++l) {
            CAPTURE(l);
            CHECK(found[l].weights == alone[l].weights);
            CHECK(found[l].m == alone[l].m);
            CHECK(found[l].v == alone[l].v);
            CHECK(found[l].average == alone[l].average);
            CHECK(found[l].norm == alone[l].norm);
            CHECK(found[l].loss == alone[l].loss);
        }
    }
}

TEST_CASE("without loss scaling, what is not finite is reported by name, and nothing changes") {
    for (const int bad : {conditioning_block, 0, 3}) {
        for (const float spoilt : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            std::vector<double> after;
            const std::string text = message_on_one_rank<pulse::error>([&](pulse::threads::transport& transport) {
                const cuda::stream stream;
                some_parameters<__nv_bfloat16> parameters({conditioning_block, 0, 3}, 2);
                cuda::rank_optimizer<> optimizer(4, 1, parameters, {}, stream.get());
                optimizer.start(std::vector<float>(6, 0.5F), parameters);
                std::vector<float> gradients(6, 1.0F);
                gradients[bad < 0 ? 1 : bad == 0 ? 2 : 5] = spoilt;
                parameters.set_gradients(gradients);
                try {
                    optimizer.step(parameters, transport, 1, 1e-3, {}, false);
                } catch (...) {
                    after = parameters.read_values(stream.get());
                    throw;
                }
            });
            CAPTURE(text);
            CHECK(text.find(bad < 0 ? "conditioning module" : "layer " + std::to_string(bad) + " ") !=
                  std::string::npos);
            CHECK(after == std::vector<double>(6, 0.5));
        }
    }
    const std::string text = message_on_one_rank<pulse::error>([&](pulse::threads::transport& transport) {
        const cuda::stream stream;
        some_parameters<float> parameters({0}, 2);
        cuda::rank_optimizer<cuda::fp32> optimizer(1, 2, parameters, {}, stream.get());
        optimizer.start(std::vector<float>(2, 0.5F), parameters);
        parameters.set_gradients({1, 1});
        const device_array<double> losses(std::vector<double>{0.5, std::nan("")});
        optimizer.step(parameters, transport, 1, 1e-3, {losses.data(), 2}, false);
    });
    CHECK(text.find("the loss of microbatch 1 is not finite") != std::string::npos);
}

TEST_CASE("with loss scaling, an overflow leaves a step out on every rank and halves the scale") {
    for (const int spoilt_rank : {0, 1}) {
        pulse::threads::run_ranks(2, {}, [&](pulse::threads::transport& transport) {
            const cuda::stream stream;
            some_parameters<__half> parameters({transport.rank()}, 3);
            train::optimizer_options scaled;
            scaled.scaling = {.initial = 1024, .growth = 4, .backoff = 0.5, .interval = 2};
            cuda::rank_optimizer<cuda::fp16> optimizer(2, 1, parameters, scaled, stream.get());
            optimizer.start(std::vector<float>(3, 0.5F), parameters);
            const auto step = [&](std::int64_t at, bool overflow) {
                std::vector<float> gradients(3, static_cast<float>(0.25 * optimizer.loss_scale()));
                if (overflow && transport.rank() == spoilt_rank) {
                    gradients[1] = std::numeric_limits<float>::infinity();
                }
                stream.synchronize();
                parameters.set_gradients(gradients);
                return optimizer.step(parameters, transport, at, 1e-2, {}, false);
            };
            CHECK(optimizer.loss_scale() == 1024);
            const train::step_outcome left_out = step(1, true);
            CHECK(left_out.skipped);
            CHECK(left_out.loss_scale == 512);
            CHECK(parameters.read_values(stream.get()) == std::vector<double>(3, 0.5));
            for (const double g : parameters.read_gradients(stream.get())) { CHECK(g == 0); }

            // the next step is Adam's first: every weight moves by the learning rate and its decay
            const train::step_outcome first = step(2, false);
            CHECK_FALSE(first.skipped);
            CHECK(first.gradient_norm == doctest::Approx(0.25 * std::sqrt(6.0)));
            for (const float w : read(optimizer.weights(parameters), stream.get())) {
                CHECK(w == doctest::Approx(0.5 * (1 - 1e-4) - 1e-2).epsilon(1e-6));
            }
            CHECK(first.loss_scale == 512);
            CHECK(step(3, false).loss_scale == 2048); // two good steps
            CHECK(optimizer.scaler().now() == train::loss_scaler::state{2048, 0, 1});
        });
    }
}

TEST_CASE("loss scales out of range are refused, and one that cannot help ends the training") {
    const auto refuses = [](const train::loss_scaling& o) {
        CHECK_THROWS_AS(train::loss_scaler{o}, pulse::input_error);
    };
    refuses({.initial = 0});
    refuses({.initial = std::numeric_limits<double>::infinity()});
    refuses({.growth = 0.5});
    refuses({.backoff = 1});
    refuses({.backoff = 0});
    refuses({.interval = 0});
    train::loss_scaler scaler(train::loss_scaling{.initial = 1});
    for (int i = 0; i < 24; ++i) { scaler.update(false); }
    CHECK(scaler.scale() == 0x1p-24);
    CHECK_THROWS_AS(scaler.update(false), pulse::error);
    train::loss_scaler resumed(train::loss_scaling{});
    resumed.resume({8, 1999, 5});
    resumed.update(true);
    CHECK(resumed.now() == train::loss_scaler::state{16, 0, 5});
    train::loss_scaler interrupted(train::loss_scaling{.initial = 8, .interval = 2});
    interrupted.update(true);
    interrupted.update(false); // the good steps are counted anew
    interrupted.update(true);
    CHECK(interrupted.now() == train::loss_scaler::state{4, 1, 1});
    train::loss_scaler off;
    off.update(false);
    CHECK(off.scale() == 1);
    off.resume({8, 3, 2}); // of a run that scaled: kept for one that goes on from here and scales again
    CHECK(off.scale() == 1);
    CHECK(off.now() == train::loss_scaler::state{8, 3, 2});
    train::loss_scaler again(train::loss_scaling{.initial = 64});
    again.resume({}); // of a run that never scaled
    CHECK(again.scale() == 64);
}

TEST_CASE("sizes that the device's optimizer was not made for are refused before anything is exchanged") {
    const cuda::stream stream;
    some_parameters<__nv_bfloat16> parameters({0, 3}, 4);
    some_parameters<__nv_bfloat16> fewer({0}, 4);
    CHECK_THROWS_WITH_AS(cuda::rank_optimizer<>(3, 1, parameters, {}, stream.get()),
                         "rank_optimizer: the parameters are of layer 3, it was made for 3 layers", pulse::input_error);
    CHECK_THROWS_AS(cuda::rank_optimizer<>(0, 1, parameters, {}, stream.get()), pulse::input_error);
    CHECK_THROWS_AS(cuda::rank_optimizer<>(4, 1, parameters, {.clip_norm = -1}, stream.get()), pulse::input_error);
    CHECK_THROWS_AS(cuda::rank_optimizer<>(4, 1, parameters, {.constants = {.beta1 = 1}}, stream.get()),
                    pulse::input_error);
    cuda::rank_optimizer<> optimizer(4, 1, parameters, {}, stream.get());
    CHECK_THROWS_WITH_AS(optimizer.start(std::vector<float>(9), parameters),
                         "rank_optimizer: 9 initial weights, it was made for 8", pulse::input_error);
    const auto step = [&](auto& given, std::int64_t at) {
        return message_on_one_rank<pulse::input_error>(
            [&](pulse::threads::transport& transport) { optimizer.step(given, transport, at, 1e-3, {}, false); });
    };
    CHECK(step(fewer, 1).find("4 parameters, it was made for 8") != std::string::npos);
    CHECK(step(parameters, 0).find("step is 0, it counts from 1") != std::string::npos);
}
