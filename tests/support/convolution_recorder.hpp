#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::test {

/// A convolution that a layer requested.
struct recorded_convolution {
    enum class pass : std::uint8_t { forward, backward_input, backward_weight };

    conv2d_shape shape{};
    pass kind{};
    bool adds{};
    bool has_bias{};
    bool has_vectors{};

    [[nodiscard]] bool operator==(const recorded_convolution&) const = default;
};

/// A backend that computes nothing and records every distinct convolution; a pair counts as its two parts. It supports
/// residuals, as cuda::backend does.
struct convolution_recorder {
    using scalar = float;
    using accumulator = float;
    std::vector<recorded_convolution> seen{};

    void conv2d(const conv2d_shape& s, int, auto*, auto*, const auto* bias, auto*, into how, const float* = nullptr) {
        note({s, recorded_convolution::pass::forward, how == into::add, bias != nullptr});
    }
    void conv2d_per_sample(const conv2d_shape& s, int, auto*, auto*, const auto* bias, auto*, auto*) {
        note({s, recorded_convolution::pass::forward, false, bias != nullptr, true});
    }
    void conv2d_backward_input(const conv2d_shape& s, int, auto*, auto*, auto*, into how) {
        note({s, recorded_convolution::pass::backward_input, how == into::add, false});
    }
    void conv2d_backward_weight(const conv2d_shape& s, int, auto*, auto*, auto, auto) {
        note({s, recorded_convolution::pass::backward_weight, true, false});
    }
    void conv2d_pair(const conv2d_shape& s, int second, int, auto*, auto*, auto*, const auto* bias, auto*, into how) {
        note({part(s, s.in_channels - second), recorded_convolution::pass::forward, how == into::add, bias != nullptr});
        note({part(s, second), recorded_convolution::pass::forward, true, false});
    }
    void conv2d_pair_backward_input(const conv2d_shape& s, int second, int, auto*, auto*, auto*, auto*, into how) {
        for (const int c : {s.in_channels - second, second}) {
            note({part(s, c), recorded_convolution::pass::backward_input, how == into::add, false});
        }
    }
    void conv2d_pair_backward_weight(const conv2d_shape& s, int second, int, auto*, auto*, auto*, auto, auto) {
        for (const int c : {s.in_channels - second, second}) {
            note({part(s, c), recorded_convolution::pass::backward_weight, true, false});
        }
    }

    void linear(auto...) {}
    void linear_backward_input(auto...) {}
    void linear_backward_weight(auto...) {}
    void group_norm(auto...) {}
    void group_norm_backward(auto...) {}
    void attention(auto...) {}
    void attention_backward(auto...) {}
    void layer_norm(auto...) {}
    void layer_norm_backward(auto...) {}
    void gelu(auto...) {}
    void gelu_backward(auto...) {}
    void geglu(auto...) {}
    void geglu_backward(auto...) {}
    void silu(auto...) {}
    void silu_backward(auto...) {}
    void add(auto...) {}
    void copy(auto...) {}
    void fill(auto...) {}
    void copy_rows(auto...) {}
    void patches_to_image(auto...) {}
    void image_to_patches(auto...) {}
    void add_resampled(auto...) {}
    void resampled_sums(auto...) {}
    void add_per_sample(auto...) {}
    void sum_pixels(auto...) {}
    void upsample_nearest(auto...) {}
    void upsample_nearest_backward(auto...) {}
    void sinusoid(auto...) {}
    void gelu_tanh(auto...) {}
    void gelu_tanh_backward(auto...) {}
    void adaptive_norm(auto...) {}
    void adaptive_norm_backward(auto...) {}
    void rotary(auto...) {}
    void rotary_backward(auto...) {}
    void embedding(auto...) {}
    void embedding_backward_weight(auto...) {}
    void replace_padding(auto...) {}
    void replace_padding_backward(auto...) {}
    void scale(auto...) {}
    void sum_rows(auto...) {}
    void weights_changed() {}
    [[nodiscard]] std::int64_t scratch_bytes() const { return 0; }

private:
    static conv2d_shape part(conv2d_shape s, int channels) {
        s.in_channels = channels;
        return s;
    }
    void note(const recorded_convolution& one) {
        if (std::find(seen.begin(), seen.end(), one) == seen.end()) { seen.push_back(one); }
    }
};

/// A frame without null pointers, for passes on the recorder, which reads and writes nothing.
[[nodiscard]] inline layer_frame<float> recorder_frame() {
    static std::array<float, 1> somewhere{};
    float* const p = somewhere.data();
    layer_frame<float> frame{};
    frame.batch = 1;
    frame.input = frame.skip = frame.conditioning = frame.parameters = frame.output_gradient = frame.timesteps = p;
    frame.output = frame.saved = frame.input_gradient = frame.skip_gradient = frame.conditioning_gradient = p;
    frame.deferred = frame.parameter_gradients = frame.workspace = p;
    return frame;
}

/// Runs every pass of a layer's mathematics on the recorder.
void record(convolution_recorder& recorder, const auto& math) {
    nn::detail::use_parts(math, recorder_frame(), false, [&](const auto& part, const layer_frame<float>& frame) {
        const auto pieces = nn::layout_of(part).pieces;
        part.forward(recorder, frame, pieces);
        part.backward_input(recorder, frame, pieces);
        part.backward_weight(recorder, frame, pieces);
    });
}

/// Records every UNet layer that has a convolution wider than one pixel; transformers hold matrix products only.
template <class M>
void record_unet(convolution_recorder& recorder) {
    constexpr unet_config c = M::config;
    for (const unet_layer& l : unet_parts<c>::layout.layers) {
        using enum unet_part;
        const auto record_part = [&](auto part) { record(recorder, math_of(part, c, l)); };
        switch (l.part) {
        case conv_in: record_part(unet_part_is<conv_in>{}); break;
        case resnet: record_part(unet_part_is<resnet>{}); break;
        case downsample: record_part(unet_part_is<downsample>{}); break;
        case upsample: record_part(unet_part_is<upsample>{}); break;
        case conv_out: record_part(unet_part_is<conv_out>{}); break;
        case attention:
        case transformer: break;
        }
    }
}

/// Records the first and the last layer of a U-ViT: the ones with convolutions.
template <class M>
void record_uvit(convolution_recorder& recorder) {
    record(recorder, M::template layer_at<0>::math);
    record(recorder, M::template layer_at<M::layer_count - 1>::math);
}

} // namespace pulse::test
