#pragma once

#include <vector>

#include "block_kernels.cuh"
#include "block_products.cuh"

namespace pulse_bench {

/// A place in a backbone: side of the map, channels, channels of the skip.
struct block_place {
    int side;
    int channels;
    int skip;
};

/// Places of the layers of Stable Diffusion 2.1 (at 64x64) and SDXL (at 128x128).
[[nodiscard]] inline std::vector<block_place> places_of(bool quick) {
    if (quick) { return {{8, 64, 32}, {8, 64, 0}}; }
    return {{64, 320, 0}, {64, 320, 320}, {32, 640, 0},    {32, 640, 640}, {16, 1280, 0}, {16, 1280, 1280},
            {8, 1280, 0}, {128, 320, 0},  {128, 320, 320}, {64, 640, 0},   {32, 1280, 0}, {32, 1280, 640}};
}

/// Memory-bound operations at one place.
template <class B>
void add_memory_cases(const block_place& p, int batch, std::vector<block_case<B>>& to) {
    using T = typename B::scalar;
    for (const bool backward : {false, true}) {
        to.push_back(group_norm_case<B>(batch, p.side, p.channels, p.skip, backward));
    }
    if (p.skip != 0) { return; }
    const int tokens = p.side * p.side;
    for (const bool backward : {false, true}) {
        to.push_back(layer_norm_case<B>(batch, tokens, p.channels, backward));
        to.push_back(geglu_case<B>(batch, tokens, 4 * p.channels, backward));
        to.push_back(upsample_case<B>(batch, p.side, p.channels, backward));
    }
    to.push_back(sum_case<B>(batch, p.side, p.channels));
    const auto silu = [](double x) { return x / (1.0 + std::exp(-x)); };
    to.push_back(scalar_case<B>(
        "silu", batch, p.side, p.channels, 1,
        [](B& b, std::int64_t n, const block_tensors<T>& t) { b.silu(n, t.in[0].data(), t.out[0].data()); },
        [silu](double x, double) { return silu(x); }));
    to.push_back(scalar_case<B>(
        "silu_backward", batch, p.side, p.channels, 2,
        [](B& b, std::int64_t n, const block_tensors<T>& t) {
            b.silu_backward(n, t.in[0].data(), t.in[1].data(), t.out[0].data(), pulse::into::write);
        },
        [](double x, double dy) {
            const double s = 1.0 / (1.0 + std::exp(-x));
            return dy * s * (1.0 + x * (1.0 - s));
        }));
    to.push_back(scalar_case<B>(
        "copy", batch, p.side, p.channels, 1,
        [](B& b, std::int64_t n, const block_tensors<T>& t) { b.copy(n, t.in[0].data(), t.out[0].data()); },
        [](double x, double) { return x; }));
}

/// Products at one place; attention has heads of 64 features.
template <class B>
void add_product_cases(const block_place& p, int batch, std::vector<block_case<B>>& to) {
    if (p.skip != 0) { return; }
    const int tokens = p.side * p.side;
    for (const layer_pass pass : {layer_pass::forward, layer_pass::backward_input, layer_pass::backward_weight}) {
        to.push_back(convolution_case<B>(batch, p.side, p.channels, p.channels, pass));
        to.push_back(linear_case<B>(tokens, batch, p.channels, p.channels, pass));
        to.push_back(linear_case<B>(tokens, batch, p.channels, 8 * p.channels, pass));
    }
    if (p.side > 64) { return; } // SDXL has no attention there
    for (const bool backward : {false, true}) {
        to.push_back(attention_case<B>(batch, tokens, p.channels / 64, 64, 0, backward));
        to.push_back(attention_case<B>(batch, tokens, p.channels / 64, 64, 77, backward));
    }
}

} // namespace pulse_bench
