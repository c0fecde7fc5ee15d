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
#include <pulse/nn/resnet.hpp>

#include <channels_last_reference.hpp>
#include <compare.hpp>
#ifndef __CUDACC__
#include <emulated/cudnn.hpp>
#endif

namespace cuda = pulse::cuda;
using namespace pulse::test;
using doubles = std::vector<double>;

namespace backend_tests {

/// Values on the device, filled from the host: in the memory that training uses and that engines of cuDNN are made for.
template <class T>
class device_vector {
public:
    device_vector() = default;
    device_vector(std::size_t n, T value) { assign(n, value); }
    explicit device_vector(const std::vector<T>& values) : memory_{values.size()} {
        cuda::upload<T>(values.data(), memory_.data(), values.size());
    }

    void assign(std::size_t n, T value) { *this = device_vector{std::vector<T>(n, value)}; }
    /// Sets all values to 0.
    void resize(std::size_t n) { assign(n, T{}); }
    [[nodiscard]] T* data() const { return memory_.data(); }
    [[nodiscard]] std::size_t size() const { return memory_.size(); }
    [[nodiscard]] bool empty() const { return size() == 0; }
    /// The work that writes them must be done.
    [[nodiscard]] std::vector<T> download() const {
        std::vector<T> values(size());
        cuda::download<T>(memory_.data(), values.data(), values.size());
        return values;
    }

private:
    cuda::device_memory<T> memory_{};
};

template <class T>
[[nodiscard]] double as_double(T value) {
    if constexpr (std::is_same_v<T, double>) {
        return value;
    } else {
        return static_cast<double>(cuda::to_float(value));
    }
}
template <class T>
[[nodiscard]] device_vector<T> rounded_to(const doubles& values) {
    std::vector<T> made;
    for (const double v : values) { made.push_back(cuda::from_float<T>(static_cast<float>(v))); }
    return device_vector<T>{made};
}
/// Rounds the values to T in place.
template <class T>
void round_all(doubles& values) {
    for (double& v : values) { v = as_double(cuda::from_float<T>(static_cast<float>(v))); }
}

/// |got - wanted| / |wanted| in the Euclidean norm; a NaN makes it infinite.
template <class T>
[[nodiscard]] double distance(const device_vector<T>& there, const doubles& wanted) {
    const std::vector<T> got = there.download();
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

/// Runs a whole UNet, forward and both backward passes over two microbatches, and compares with the reference in double
/// on the same rounded values. Each layer rounds about three tensors forward and three backward, and its functions are
/// off by `step`; independent errors add as squares.
template <class M, class P>
void check_whole(double step) {
    const double error = 4.0 * step * std::sqrt(6.0 * M::layer_count);
    using T = typename P::scalar;
    using reference = channels_last_reference<double>;
    constexpr int batch = 2;
    constexpr auto graph = pulse::graph_of<M>();
    source draw{51};
    reference oracle;
    unpipelined<M, reference> there{oracle, 3};
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    cuda::backend<P> device{options};
    unpipelined<M, cuda::backend<P>, device_vector> here{device};
    const auto share = [&](doubles& from, device_vector<T>& to) {
        const doubles noise = draw.normal<float>(static_cast<std::int64_t>(from.size()), 0.1);
        for (std::size_t i = 0; i != from.size(); ++i) { from[i] += noise[i]; }
        round_all<T>(from);
        to = rounded_to<T>(from);
    };
    for (std::size_t l = 0; l != M::layer_count; ++l) { share(there.parameters[l], here.parameters[l]); }
    share(there.conditioning_parameters, here.conditioning_parameters);
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

#ifndef __CUDACC__
TEST_CASE("backend: without NVRTC a UNet in 16 bits is what the reference makes of it") {
    emulated_cuda::cudnn::set_compiler(emulated_cuda::cudnn::compiler::none);
    check_whole<crooked_unet, cuda::bf16>(rounding_error<__nv_bfloat16>);
    emulated_cuda::cudnn::set_compiler(emulated_cuda::cudnn::compiler::whole);
}
#endif
