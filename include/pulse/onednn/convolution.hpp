#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include <pulse/onednn/buffer.hpp>
#include <pulse/onednn/library.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// A convolution over a block of input channels of a weight [out][weight_channels][ky][kx].
struct convolution_key {
    conv2d_shape shape{};  ///< in_channels are the block's
    int weight_channels{}; ///< input channels of the whole weight
    int batch{};
    convolution_pass pass{};
    bool adds{};
    bool has_bias{};

    [[nodiscard]] bool operator==(const convolution_key&) const = default;
};

/// One oneDNN convolution pass on channels-last tensors, and the weights that were reordered for it.
class convolution {
public:
    convolution(const onednn_engine& engine, const convolution_key& key) : key_{key} {
        const conv2d_shape& s = key.shape;
        const onednn_tensor x =
            describe(std::array<dnnl_dim_t, 4>{key.batch, s.in_channels, s.in_height, s.in_width}, dnnl_nhwc);
        const onednn_tensor y =
            describe(std::array<dnnl_dim_t, 4>{key.batch, s.out_channels, s.out_height(), s.out_width()}, dnnl_nhwc);
        const std::array<dnnl_dim_t, 4> weight_dims{s.out_channels, s.in_channels, s.kernel, s.kernel};
        const onednn_tensor any = describe(weight_dims, dnnl_format_tag_any);
        const dnnl_dim_t taps = dnnl_dim_t{s.kernel} * s.kernel;
        const std::array<dnnl_dim_t, 4> weight_strides{key.weight_channels * taps, taps, s.kernel, 1};
        const onednn_tensor plain = describe(weight_dims, weight_strides.data());
        const onednn_tensor b =
            key.has_bias ? describe(std::array<dnnl_dim_t, 1>{s.out_channels}, dnnl_a) : onednn_tensor{};
        const std::array<dnnl_dim_t, 2> stride{s.stride, s.stride};
        const std::array<dnnl_dim_t, 2> before{s.pad_before, s.pad_before};
        const std::array<dnnl_dim_t, 2> after{s.pad_after, s.pad_after};
        const convolution_tensors tensors{.x = x.get(),
                                          .weight = any.get(),
                                          .bias = b.get(),
                                          .y = y.get(),
                                          .stride = stride.data(),
                                          .pad_before = before.data(),
                                          .pad_after = after.data()};

        const bool is_forward = key.pass == convolution_pass::forward;
        const bool is_weight = key.pass == convolution_pass::backward_weight;
        const char* const call = is_forward  ? "convolution"
                                 : is_weight ? "convolution_backward_weight"
                                             : "convolution_backward_input";
        const onednn_attributes attributes = make_attributes(is_forward && key.adds);
        const auto described = [&](convolution_pass pass, const onednn_description& hint) {
            onednn_description made;
            check(create_convolution(made.place(), engine.get(), pass, tensors, attributes.get(), hint.get()), call);
            return made;
        };
        onednn_description chosen = described(convolution_pass::forward, {});
        if (!is_forward) { chosen = described(key.pass, chosen); }
        const onednn_tensor_view blocked =
            onednn_program::queried(chosen, is_weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
        blocked_floats_ = floats_of(blocked);
        program_ = onednn_program{engine,
                                  chosen,
                                  {{is_forward || is_weight ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, x.get()},
                                   {is_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, blocked},
                                   {is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y.get()},
                                   {is_weight ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, b.get()}},
                                  call};
        const onednn_tensor_view from = is_weight ? blocked : plain.get();
        const onednn_tensor_view to = is_weight ? plain.get() : blocked;
        onednn_description reorder;
        check(dnnl_reorder_primitive_desc_create(reorder.place(), from, engine.get(), to, engine.get(),
                                                 make_attributes(is_weight && key.adds).get()),
              "weight reorder");
        reorder_ = onednn_program{engine, reorder, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, "weight reorder"};
    }

    /// Floats of scratch that a pass needs.
    [[nodiscard]] std::int64_t scratch() const noexcept {
        return aligned(gradient_floats()) + bias_floats() + std::max(program_.scratch(), reorder_.scratch());
    }

    /// y = (or +=) the convolution of x; `weight` points at the block's first channel, `epoch` numbers its values.
    void forward(const onednn_engine& engine, const float* x, const float* weight, const float* bias, float* y,
                 std::int64_t epoch, float* scratch) {
        program_.run(engine, {x, reordered(engine, weight, epoch, scratch), y, bias}, scratch);
    }
    void backward_input(const onednn_engine& engine, const float* dy, const float* weight, float* dx,
                        std::int64_t epoch, float* scratch) {
        program_.run(engine, {dx, reordered(engine, weight, epoch, scratch), dy}, scratch);
    }
    /// Writes or adds to the block of dweight, as the key states; returns the place in `scratch` of the bias gradient,
    /// which it writes only if the key has a bias.
    const float* backward_weight(const onednn_engine& engine, const float* x, const float* dy, float* dweight,
                                 float* scratch) {
        float* const gradient = scratch;
        float* const bias = gradient + aligned(gradient_floats());
        float* const rest = bias + bias_floats();
        program_.run(engine, {x, gradient, dy, key_.has_bias ? bias : nullptr}, rest);
        reorder_.run(engine, {gradient, dweight}, rest);
        return bias;
    }

    [[nodiscard]] std::int64_t bytes() const noexcept {
        std::int64_t sum = 0;
        for (const auto& w : weights_) { sum += w.values.bytes(); }
        return sum;
    }

private:
    static constexpr std::int64_t no_epoch = -1;
    struct reordered_weight {
        const float* source;
        std::int64_t epoch;
        buffer values;
    };

    [[nodiscard]] static std::int64_t aligned(std::int64_t floats) noexcept { return (floats + 15) / 16 * 16; }
    [[nodiscard]] std::int64_t gradient_floats() const noexcept {
        return key_.pass == convolution_pass::backward_weight ? blocked_floats_ : 0;
    }
    [[nodiscard]] std::int64_t bias_floats() const noexcept {
        return key_.pass == convolution_pass::backward_weight ? aligned(key_.shape.out_channels) : 0;
    }

    const float* reordered(const onednn_engine& engine, const float* weight, std::int64_t epoch, float* scratch) {
        for (auto& w : weights_) {
            if (w.source != weight) { continue; }
            if (w.epoch != epoch) {
                reorder_.run(engine, {weight, w.values.data()}, scratch);
                w.epoch = epoch;
            }
            return w.values.data();
        }
        // Places of older epochs are reused, so there are never more than one epoch needs; a weight that comes later in
        // an epoch may lose its place and get another. The place counts as invalid until the reorder has run.
        auto place = std::find_if(weights_.begin(), weights_.end(), [&](const auto& w) { return w.epoch != epoch; });
        if (place == weights_.end()) {
            weights_.push_back({weight, no_epoch, buffer{blocked_floats_}});
            place = std::prev(weights_.end());
        }
        place->source = weight;
        place->epoch = no_epoch;
        reorder_.run(engine, {weight, place->values.data()}, scratch);
        place->epoch = epoch;
        return place->values.data();
    }

    convolution_key key_;
    std::int64_t blocked_floats_{}; ///< floats of a weight, or of its gradient, in the primitive's layout
    onednn_program program_{};
    onednn_program reorder_{};
    std::vector<reordered_weight> weights_{};
};

} // namespace pulse::onednn
