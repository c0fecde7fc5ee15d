#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <support/unpipelined.hpp>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/host/reference.hpp>
#include <pulse/nn/resnet.hpp>

#include <compare.hpp>

namespace cuda = pulse::cuda;
using namespace pulse::test;
using doubles = std::vector<double>;

namespace backend_tests {

/// Memory of the host that a device may work on: whole layers run on it as they run on the host.
template <class T>
struct pinned_allocator {
    using value_type = T;

    pinned_allocator() = default;
    template <class U>
    explicit pinned_allocator(const pinned_allocator<U>&) {}
    [[nodiscard]] T* allocate(std::size_t n) {
        return reinterpret_cast<T*>(cuda::allocate(cuda::memory_place::pinned_host, n * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t) {
        cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); // the device may still work on it
        cuda::check(cudaFreeHost(memory), "cudaFreeHost");
    }
    [[nodiscard]] bool operator==(const pinned_allocator&) const { return true; }
};
template <class T>
using pinned_vector = std::vector<T, pinned_allocator<T>>;

template <class T>
[[nodiscard]] double as_double(T value) {
    if constexpr (std::is_same_v<T, double>) {
        return value;
    } else {
        return static_cast<double>(cuda::to_float(value));
    }
}
template <class T, class From>
[[nodiscard]] auto rounded_to(const From& values) {
    pinned_vector<T> made;
    for (const double v : values) { made.push_back(cuda::from_float<T>(static_cast<float>(v))); }
    return made;
}
/// The values as T holds them, in place.
template <class T>
void round_all(doubles& values) {
    for (double& v : values) { v = as_double(cuda::from_float<T>(static_cast<float>(v))); }
}

/// |got - wanted| / |wanted| in the Euclidean norm; a value that is not a number makes it infinite.
template <class Got>
[[nodiscard]] double distance(const Got& got, const doubles& wanted) {
    if (got.size() != wanted.size()) { return std::numeric_limits<double>::infinity(); }
    double off = 0.0;
    double all = 0.0;
    for (std::size_t i = 0; i != wanted.size(); ++i) {
        const double d = as_double(got[i]) - wanted[i];
        off += d * d;
        all += wanted[i] * wanted[i];
    }
    const double ratio = std::sqrt(off / (all + 1e-300));
    return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

/// A whole UNet, forward and both backward passes over two microbatches, against the reference in double that starts from
/// the same rounded numbers. Each layer rounds about three tensors on the way there and three on the way back, and its
/// functions are off by `step`; errors that know nothing of one another add as their squares.
template <class M, class P>
void check_whole(double step) {
    const double error = 4.0 * step * std::sqrt(6.0 * M::layer_count);
    using T = typename P::scalar;
    using reference = pulse::host::reference_backend<double>;
    constexpr int batch = 2;
    constexpr auto graph = pulse::graph_of<M>();
    source draw{51};
    reference oracle;
    unpipelined<M, reference> there{oracle, 3};
    cuda::plan_options options;
    options.store = cuda::plan_store{};
    cuda::backend<P> device{options};
    unpipelined<M, cuda::backend<P>, pinned_vector> here{device};
    const auto share = [&](doubles& from, pinned_vector<T>& to) {
        const doubles noise = draw.normal<float>(static_cast<std::int64_t>(from.size()), 0.1);
        for (std::size_t i = 0; i != from.size(); ++i) { from[i] += noise[i]; }
        round_all<T>(from);
        to = rounded_to<T>(from);
    };
    for (std::size_t l = 0; l != M::layer_count; ++l) { share(there.parameters[l], here.parameters[l]); }
    share(there.conditioning_parameters, here.conditioning_parameters);
    device.weights_changed();
    for (int microbatch = 0; microbatch != 2; ++microbatch) {
        CAPTURE(microbatch);
        const doubles input = draw.normal<T>(batch * graph.layers.front().input_elements);
        const doubles gradient = draw.normal<T>(batch * graph.layers.back().output_elements);
        const doubles timesteps{3.0, 20.0 * (microbatch + 1)};
        auto wanted = there.forward(batch, input, timesteps);
        auto got = here.forward(batch, rounded_to<T>(input), rounded_to<float>(timesteps));
        device.synchronize();
        CHECK(distance(here.output(got), there.output(wanted)) < error);
        there.backward_input(wanted, gradient, true);
        here.backward_input(got, rounded_to<T>(gradient), true);
        there.backward_weight(wanted);
        here.backward_weight(got);
        device.synchronize();
        CHECK(distance(got.input_gradient, wanted.input_gradient) < error);
    }
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        INFO("layer " << l);
        CHECK(distance(here.gradients[l], there.gradients[l]) < error);
    }
    CHECK(distance(here.conditioning_gradients, there.conditioning_gradients) < error);
    const std::int64_t bytes = device.scratch_bytes();
    static_cast<void>(here.forward(batch, rounded_to<T>(draw.normal<T>(batch * graph.layers.front().input_elements)),
                                   rounded_to<float>(doubles{1.0, 2.0})));
    device.synchronize();
    CHECK(device.scratch_bytes() == bytes);
}

} // namespace backend_tests

using namespace backend_tests;

TEST_CASE("backend: a UNet of every kind of layer is what the reference makes of it") {
#ifndef __CUDACC__ // nvcc takes minutes for each type of every kernel; the kernels have tests of their own
    check_whole<crooked_unet, cuda::fp32>(8.0 * float_epsilon);
#endif
    check_whole<crooked_unet, cuda::bf16>(rounding_error<__nv_bfloat16>);
}
