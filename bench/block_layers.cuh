#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/weight_order.hpp>

#include "block_trial.cuh"
#include "signature.hpp"

namespace pulse_bench {

/// A tensor of the sequence `name`.
template <class T>
[[nodiscard]] std::vector<T> drawn_tensor(const std::string& name, std::int64_t n) {
    const std::uint64_t sequence = pulse::nn::sequence_of(1, name);
    std::vector<T> made(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i != n; ++i) { made[static_cast<std::size_t>(i)] = static_cast<T>(drawn(sequence, i)); }
    return made;
}

/// Indices of a layer's tensors in its case.
struct layer_tensor {
    enum in : std::size_t { input, skip, conditioning, context, parameters, output_gradient };
    enum out : std::size_t { output, input_gradient, skip_gradient, conditioning_gradient, saved, deferred, workspace };
    enum sum : std::size_t { parameter_gradients, statistics };
};

/// What the case of a layer needs besides its mathematics.
struct layer_facts {
    std::string operation{};
    std::string shape{};
    int batch{};
    int conditioning{};     ///< features
    std::int64_t context{}; ///< elements of the text states of a sample
};

/// Forward and backward pass of one layer, called as the executor calls it; every number must be finite, and signatures
/// of its output and its gradients are kept for a comparison.
template <class B, class Math>
[[nodiscard]] block_case<B> layer_case(const Math& math, const layer_facts& facts) {
    using T = typename B::scalar;
    using at = layer_tensor;
    const int batch = facts.batch;
    const pulse::nn::layer_sizes sizes = pulse::nn::layout_of(math).sizes;
    std::vector<pulse::parameter> parameters(sizes.parameter_count);
    const pulse::label root{"block"};
    pulse::nn::description listed{root, parameters.data()};
    static_cast<void>(pulse::nn::describe(listed, math));
    const std::int64_t weights = sizes.kept.parameters;
    const std::int64_t input = batch * pulse::nn::elements(math.input());
    const std::int64_t skip = batch * pulse::nn::elements(sizes.skip);
    const std::int64_t output = batch * pulse::nn::elements(math.output());
    const std::int64_t conditioning = std::int64_t{batch} * facts.conditioning;
    const std::int64_t saved = batch * sizes.kept.saved;
    const std::int64_t deferred = batch * sizes.kept.deferred;
    block_case<B> made;
    made.row = {facts.operation, facts.shape, batch};
    made.in = {input, skip, conditioning, batch * facts.context, weights, output};
    made.out = {output, input, skip, conditioning, saved, deferred, batch * sizes.workspace};
    made.sums = {weights, batch * sizes.kept.statistics};
    made.row.flops = 3.0 * batch * sizes.forward_flops;
    // Given or kept tensors move twice; weights are read three times, and their float gradients are read and written;
    // the layer's other tensors move once.
    made.row.bytes = 2.0 * static_cast<double>(2 * (input + skip + saved + deferred) +
                                               2 * (output + batch * facts.context) + input + skip + 3 * weights) +
                     8.0 * static_cast<double>(weights);

    const auto given = std::make_shared<std::vector<std::vector<T>>>();
    for (const auto& [name, n] : {std::pair{"input", input},
                                  {"skip", skip},
                                  {"conditioning", conditioning},
                                  {"context", batch * facts.context}}) {
        given->push_back(drawn_tensor<T>(name, n));
    }
    std::vector<float> initial(static_cast<std::size_t>(weights));
    pulse::nn::initialise<float>(parameters, 1, initial);
    constexpr pulse::weight_order order = pulse::space_of<B>::weights;
    std::vector<pulse::window_weight> windows;
    if (order != pulse::weight_order::checkpoint) { pulse::append_windows(parameters, 0, windows); }
    pulse::turn_weights(windows, pulse::weight_order::checkpoint, std::span{initial});
    given->emplace_back();
    for (const float w : initial) { given->back().push_back(static_cast<T>(w)); }
    given->push_back(drawn_tensor<T>("output_gradient", output));

    made.prepare = [given](B& b, const block_tensors<T>& t) {
        b.synchronize(); // the tensors have to be filled first
        for (std::size_t i = 0; i != given->size(); ++i) {
            pulse::cuda::upload((*given)[i].data(), t.in[i].data(), t.in[i].size());
        }
        const auto& sum = t.out[at::conditioning_gradient];
        pulse::cuda::fill_bytes_async(sum.data(), 0, sum.size(), b.stream());
    };
    made.run = [math, batch](B& b, const block_tensors<T>& t) {
        pulse::backend_frame<B> f;
        f.batch = batch;
        f.input = t.in[at::input].data();
        f.skip = t.in[at::skip].data();
        f.conditioning = t.in[at::conditioning].data();
        f.context = t.in[at::context].data();
        f.parameters = t.in[at::parameters].data();
        f.output = t.out[at::output].data();
        f.saved = t.out[at::saved].data();
        f.statistics = t.sums[at::statistics].data();
        f.output_gradient = t.in[at::output_gradient].data();
        f.input_gradient = t.out[at::input_gradient].data();
        f.skip_gradient = t.out[at::skip_gradient].data();
        f.conditioning_gradient = t.out[at::conditioning_gradient].data();
        f.deferred = t.out[at::deferred].data();
        f.parameter_gradients = t.sums[at::parameter_gradients].data();
        f.workspace = t.out[at::workspace].data();
        pulse::nn::run_forward(math, b, f);
        pulse::nn::run_backward_input(math, b, f);
        pulse::nn::run_backward_weight(math, b, f);
    };
    made.check = [input, skip, output, weights, windows](const block_results<T>& r, tally& found) {
        signature of_output;
        signature of_inputs;
        signature of_weights;
        for (std::int64_t i = 0; i != output; ++i) { of_output.add(r.got(at::output, i)); }
        for (std::int64_t i = 0; i != input; ++i) { of_inputs.add(r.got(at::input_gradient, i)); }
        for (std::int64_t i = 0; i != skip; ++i) { of_inputs.add(r.got(at::skip_gradient, i)); }
        std::vector<double> gradients;
        for (std::int64_t i = 0; i != weights; ++i) { gradients.push_back(r.sum(at::parameter_gradients, i)); }
        pulse::turn_weights(windows, order, std::span{gradients});
        for (const double g : gradients) { of_weights.add(g); }
        for (const signature* each : {&of_output, &of_inputs, &of_weights}) {
            append_signature(found.agreed, *each, 0.05);
            const double length = each->values().front();
            ++found.checked;
            found.wrong += std::isfinite(length) && length > 0 ? 0 : 1;
        }
    };
    return made;
}

/// A ResNet block of a UNet.
template <class B>
[[nodiscard]] block_case<B> resnet_case(const block_layer& l, int batch) {
    const pulse::nn::resnet math{.in_channels = l.channels,
                                 .skip_channels = l.skip,
                                 .out_channels = l.channels,
                                 .height = l.side,
                                 .width = l.side,
                                 .groups = 32,
                                 .conditioning = l.conditioning};
    return layer_case<B>(math,
                         {.operation = l.operation, .shape = l.text(), .batch = batch, .conditioning = l.conditioning});
}

/// A transformer of one block, as in Stable Diffusion 2.1: norm, proj_in, self-attention, attention to the text states,
/// gated feed-forward, proj_out, and the identity path.
template <class B>
[[nodiscard]] block_case<B> transformer_case(const block_layer& l, int batch) {
    const pulse::nn::spatial_transformer math{.core = {.channels = l.channels,
                                                       .height = l.side,
                                                       .width = l.side,
                                                       .heads = l.channels / l.head_size,
                                                       .context_tokens = l.tokens,
                                                       .context_features = l.text_features,
                                                       .groups = 32}};
    return layer_case<B>(math, {.operation = l.operation,
                                .shape = l.text(),
                                .batch = batch,
                                .context = std::int64_t{l.tokens} * l.text_features});
}

} // namespace pulse_bench
