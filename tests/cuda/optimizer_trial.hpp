#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include <device_array.hpp>

namespace pulse::test::optimizer_trial {

/// Device parameters of some layers, with the interface that an optimizer expects.
template <class T>
class some_parameters {
public:
    struct block {
        int layer{};
        std::size_t first{};
        std::size_t size{};
        std::ptrdiff_t shift{};

        [[nodiscard]] std::size_t first_gradient() const { return first; }
    };
    some_parameters(const std::vector<int>& layers, std::size_t elements) :
        size_(layers.size() * elements), values_(size_), gradients_(size_) {
        for (std::size_t i = 0; i < layers.size(); ++i) { blocks_.push_back({layers[i], i * elements, elements, 0}); }
    }
    [[nodiscard]] std::span<const block> blocks() const { return blocks_; }
    [[nodiscard]] std::span<T> values() const { return {values_.data(), size_}; }
    [[nodiscard]] std::span<float> gradients() const { return {gradients_.data(), size_}; }
    [[nodiscard]] std::vector<double> read_values(cudaStream_t after) const { return values_.download(after); }
    void set_gradients(const std::vector<float>& values) { gradients_.upload(values); }
    struct tensor {
        std::size_t first{};
        std::size_t size{};
        std::size_t rows{};
    };
    [[nodiscard]] static std::span<const tensor> tensors() { return {}; }
    // No tensor is a convolution weight.
    static void to_space(const block&, std::span<float>, bool = false) {}
    static void to_checkpoint(const block&, std::span<float>, bool = false) {}

private:
    std::size_t size_;
    std::vector<block> blocks_;
    device_array<T> values_;
    device_array<float> gradients_;
};

inline std::vector<float> read(std::span<const float> there, cudaStream_t after) {
    std::vector<float> values(there.size());
    cuda::check(cudaStreamSynchronize(after), "cudaStreamSynchronize");
    cuda::download<float>(there.data(), values.data(), values.size());
    return values;
}

inline float value(int layer, std::size_t i, std::int64_t step) {
    return static_cast<float>(
        std::sin(1.0 + 3.0 * layer + 0.7 * static_cast<double>(i) + 0.3 * static_cast<double>(step)));
}

/// One layer's state after some steps.
struct layer_arrays {
    std::vector<float> weights, m, v, average;
    std::vector<double> compute;
    double norm{};
    double loss{};
};

inline constexpr int layer_count = 5;
inline constexpr std::size_t elements = 13;
inline constexpr std::int64_t steps = 3;
inline const train::optimizer_options options{
    .constants = {.weight_decay = 0.1}, .clip_norm = 0.5, .average_decay = 0.99};

/// Steps on the device with layers spread over ranks by `owned`. Gradients arrive multiplied by the loss scale.
template <class Precision>
std::array<layer_arrays, layer_count + 1> device_run(const std::vector<std::vector<int>>& owned) {
    using scalar = typename Precision::scalar;
    std::array<layer_arrays, layer_count + 1> all;
    pulse::threads::run_ranks(static_cast<int>(owned.size()), {}, [&](pulse::threads::transport& transport) {
        const std::vector<int>& mine = owned[static_cast<std::size_t>(transport.rank())];
        const cuda::stream stream;
        some_parameters<scalar> parameters(mine, elements);
        cuda::rank_optimizer<Precision> optimizer(layer_count, 2, parameters, options, stream.get());
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
        const bool has_losses = !mine.empty() && mine.back() == layer_count - 1;
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

inline std::array<layer_arrays, layer_count + 1> host_run() {
    std::array<layer_arrays, layer_count + 1> all;
    pulse::threads::run_ranks(1, {}, [&](pulse::threads::transport& transport) {
        const std::vector<int> mine{-1, 0, 1, 2, 3, 4};
        const std::vector<std::int64_t> sizes(mine.size(), elements);
        pulse::rank_parameters<float> parameters(mine, sizes);
        train::rank_optimizer optimizer(layer_count, 2, parameters, options);
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

/// A layer's state on replicas after some steps: the compute copies, equal on all, and the optimizer state of its
/// owners.
struct replicated_layer {
    std::vector<double> compute;
    std::vector<float> m, average;
    [[nodiscard]] bool operator==(const replicated_layer&) const = default;
};
struct replicated_steps {
    std::array<replicated_layer, layer_count + 1> all;
    double norm{}, loss{};
    std::int64_t gradient_bytes{};
};

/// Steps of `replicas` replicas on device 0 with already summed gradients. With sharded state, everything outside the
/// replica's own shares is NaN.
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
        cuda::rank_optimizer<Precision> optimizer(layer_count, 2, parameters, how, among.stream());
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
                                     mine.back() == layer_count - 1 ? std::span<const double>{losses.data(), 2}
                                                                    : std::span<const double>{},
                                     false);
        }
        const auto average = read(optimizer.average(), among.stream());
        const auto moment = read(optimizer.first_moment(), among.stream());
        const auto compute = parameters.read_values(among.stream());
        const std::lock_guard lock{mutex};
        made.norm = outcome.gradient_norm;
        made.loss = outcome.loss;
        made.gradient_bytes += among.sent().gradient;
        std::size_t at = 0;
        for (const train::update_piece& piece : optimizer.pieces()) {
            const element_range& r = piece.range;
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

/// Runs `body(transport)` on one rank and returns the message of the thrown Error.
template <class Error, class Body>
std::string message_on_one_rank(Body body) {
    try {
        pulse::threads::run_ranks(1, {}, body);
    } catch (const Error& e) { return e.what(); }
    return "nothing of this type was thrown";
}

} // namespace pulse::test::optimizer_trial
