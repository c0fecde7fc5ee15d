#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/cudnn/choose_engine.cuh>
#include <pulse/cuda/cudnn/convolution_request.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/ready_engine.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/kernels/add_gradient.cuh>
#include <pulse/cuda/kernels/movement.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/scratch.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// Input channels of a weight [out][ky][kx][all] that a convolution reads.
struct channel_block {
    int first{};
    int all{};
};

/// Convolutions of channels-last images by cuDNN, in scalar type T with sums and weight gradients in float.
///
/// An engine is chosen once per shape and batch, as `engine_options` says, for pointers aligned to 16 bytes. Unaligned
/// tensors, images in gradients with uneven padding (evenly_padded) and blocks of a weight's channels are copied
/// through scratch. Weights and their gradients are in weight_order::channels_last, which is cuDNN's. A weight gradient
/// is computed in T and added in float, which moves 2 e + 8 bytes per weight and call, or 2 e + 4 when overwriting;
/// where T is float, engines add in place, to zeros when overwriting. All of cuDNN's engines that write float weight
/// gradients of 16-bit images are compiled at run time, and several of 9.19's were wrong on an H200.
template <class T>
class convolutions {
public:
    /// Throws input_error on bad options, cudnn_error if cuDNN does not start.
    convolutions(const engine_options& options, bool tensor_float, cudaStream_t stream) :
        options_{options}, rules_{tensor_float || sizeof(T) < 4, true, options.deterministic}, device_{device_key()} {
        options_.require_valid();
        dnn_.use(stream);
    }

    /// y = (or +=) the convolution of x, plus the bias and t[b][c] where these are not null; y = residual + all that if
    /// `residual` is not null and `how` is add. `s.in_channels` counts the block's channels.
    void forward(const queue& on, scratch_arena& scratch, const conv2d_shape& s, const channel_block& block, int batch,
                 const T* x, const T* weight, const T* bias, T* y, into how, const T* residual = nullptr,
                 const T* t = nullptr) {
        using id = cudnn::convolution_graph::id;
        using form = cudnn::convolution_form;
        const prepared& p = find(on.stream, {s, batch, cudnn::convolution_pass::forward, cudnn::data_type<T>(),
                                             how == into::add, bias != nullptr, t != nullptr});
        if (residual != nullptr && (p.form != form::bias_add || !is_pack_aligned(residual))) {
            copy(on, batch * s.out_elements(), residual, y);
            residual = nullptr;
        }
        const moved_rows<T> w = weight_of(weight, s, block);
        const moved_rows<T> b{bias, 1, s.out_channels, s.out_channels};
        const moved_rows<T> vectors{t, 1, batch * s.out_channels, batch * s.out_channels};
        const moved_image in = image_of(x, batch, s.in_height, s.in_width, s.in_channels);
        const moved_image out = image_of_outputs(y, s, batch);
        const auto [in_at, out_at, room, weight_at, bias_at, vectors_at] =
            lay_pieces(scratch, [&](scratch_pieces& pieces) {
                return std::tuple{in.at(pieces), out.at(pieces), p.room(pieces),
                                  w.at(pieces),  b.at(pieces),   vectors.at(pieces)};
            });
        w.bring(weight_at, on.stream);
        b.bring(bias_at, on.stream);
        vectors.bring(vectors_at, on.stream);
        in.bring(in_at, on.stream);
        if (how == into::add && residual == nullptr) { out.bring(out_at, on.stream); }
        const T* const target = p.form == form::bias_sample ? vectors_at : residual != nullptr ? residual : out_at;
        const std::array<cudnn::ready_engine::binding, 5> bindings{
            {{id::x, in_at}, {id::weight, weight_at}, {id::y, out_at}, {id::bias, bias_at}, {id::target, target}}};
        start(p, std::span{bindings}.first(bound(p.form)), room);
        // As many samples at once as a kernel's indices can address.
        const std::int64_t each = std::clamp<std::int64_t>((std::int64_t{1} << 30) / s.out_elements(), 1, batch);
        for (std::int64_t at = 0; at < batch; at += each) {
            const auto samples = static_cast<int>(std::min<std::int64_t>(each, batch - at));
            const int pixels = s.out_height() * s.out_width();
            T* const to = out_at + at * s.out_elements();
            if (bias != nullptr && !adds_bias(p.form)) {
                add_per_sample(on, 1, samples * pixels, s.out_channels, bias_at, to);
            }
            if (t != nullptr && p.form != form::bias_sample) {
                add_per_sample(on, samples, pixels, s.out_channels, vectors_at + at * s.out_channels, to);
            }
        }
        out.take_back(out_at, y, on.stream);
    }

    /// dx = (or +=) the gradient of the input.
    void backward_input(const queue& on, scratch_arena& scratch, const conv2d_shape& s, const channel_block& block,
                        int batch, const T* dy, const T* weight, T* dx, into how) {
        using id = cudnn::convolution_graph::id;
        const prepared& p = find(on.stream, {cudnn::evenly_padded(s), batch, cudnn::convolution_pass::backward_input,
                                             cudnn::data_type<T>(), how == into::add, false});
        const moved_rows<T> w = weight_of(weight, s, block);
        const moved_image in = evenly_padded_image(dx, s, batch);
        const moved_image out = image_of_outputs(dy, s, batch);
        const auto [in_at, out_at, room, weight_at] = lay_pieces(scratch, [&](scratch_pieces& pieces) {
            return std::tuple{in.at(pieces), out.at(pieces), p.room(pieces), w.at(pieces)};
        });
        w.bring(weight_at, on.stream);
        out.bring(out_at, on.stream);
        if (how == into::add) { in.bring(in_at, on.stream); }
        const std::array<cudnn::ready_engine::binding, 3> bindings{
            {{id::x, in_at}, {id::weight, weight_at}, {id::y, out_at}}};
        start(p, bindings, room);
        in.take_back(in_at, dx, on.stream);
    }

    /// dweight [out][ky][kx][all] = (or +=) the gradient of the block's weights, rounded to T.
    void backward_weight(const queue& on, scratch_arena& scratch, const conv2d_shape& s, const channel_block& block,
                         int batch, const T* x, const T* dy, gradient_place<float> dweight) {
        using id = cudnn::convolution_graph::id;
        const moved_rows<float> to = weight_of<float>(dweight.to, s, block);
        const prepared& p = find(on.stream, {cudnn::evenly_padded(s), batch, cudnn::convolution_pass::backward_weight,
                                             cudnn::data_type<T>(), std::is_same_v<T, float> && !to.moves(), false});
        const bool adds = p.form == cudnn::convolution_form::scaled_add;
        const moved_image in = evenly_padded_image(x, s, batch);
        const moved_image out = image_of_outputs(dy, s, batch);
        const auto [in_at, out_at, room, gradient] = lay_pieces(scratch, [&](scratch_pieces& pieces) {
            return std::tuple{in.at(pieces), out.at(pieces), p.room(pieces), pieces.take<T>(adds ? 0 : to.elements())};
        });
        in.bring(in_at, on.stream);
        out.bring(out_at, on.stream);
        const void* const result = adds ? static_cast<void*>(dweight.to) : gradient;
        const std::array<cudnn::ready_engine::binding, 3> bindings{
            {{id::x, in_at}, {id::y, out_at}, {id::weight, result}}};
        // An engine that overwrites would be a different one, with different bits.
        if (adds && !dweight.adds()) {
            fill_bytes_async(dweight.to, 0, static_cast<std::size_t>(to.elements()), on.stream);
        }
        start(p, bindings, room);
        if (!adds) { add_gradient(on, to.rows, to.row, gradient, dweight + block.first, to.step); }
    }

    /// Number of shapes with a chosen engine.
    [[nodiscard]] std::size_t count() const noexcept { return plans_.size(); }

private:
    struct prepared {
        cudnn::ready_engine engine{};
        cudnn::convolution_form form{};
        engine_choice* counted{};

        /// The engine's workspace.
        [[nodiscard]] std::byte* room(scratch_pieces& pieces) const noexcept {
            return pieces.take<std::byte>(engine.workspace_bytes());
        }
    };
    /// Images used in place, or copied to scratch if they are unaligned or need zeros around them.
    struct moved_image {
        const T* data;
        int batch;
        int height;
        int width;
        int channels;
        int before{}; ///< rows of zeros above and columns to the left, in scratch
        int zeros{};  ///< rows and columns of zeros in total

        [[nodiscard]] bool moves() const noexcept { return zeros != 0 || !is_pack_aligned(data); }
        [[nodiscard]] std::int64_t row() const noexcept { return std::int64_t{width} * channels; }
        [[nodiscard]] std::int64_t wide_row() const noexcept { return std::int64_t{width + zeros} * channels; }
        [[nodiscard]] std::int64_t wide_elements() const noexcept { return (height + zeros) * wide_row(); }
        /// Offset of an image's first scalar in scratch.
        [[nodiscard]] std::int64_t inset(int image) const noexcept {
            return image * wide_elements() + before * wide_row() + std::int64_t{before} * channels;
        }
        [[nodiscard]] T* at(scratch_pieces& pieces) const noexcept {
            T* const piece = pieces.take<T>(moves() ? batch * wide_elements() : 0);
            return moves() ? piece : const_cast<T*>(data);
        }
        void bring(T* to, cudaStream_t stream) const {
            if (to == data) { return; }
            if (zeros != 0) { fill_bytes_async(to, 0, static_cast<std::size_t>(batch * wide_elements()), stream); }
            for (int b = 0; b != batch; ++b) {
                copy_rows_async(to + inset(b), wide_row(), data + b * height * row(), row(), row(), height, stream);
            }
        }
        void take_back(const T* from, T* to, cudaStream_t stream) const {
            if (from == to) { return; }
            for (int b = 0; b != batch; ++b) {
                copy_rows_async(to + b * height * row(), row(), from + inset(b), wide_row(), row(), height, stream);
            }
        }
    };
    /// A batch that needs no zeros is treated as one tall image.
    [[nodiscard]] static moved_image image_of(const T* x, int batch, int height, int width, int channels,
                                              int before = 0, int zeros = 0) noexcept {
        if (zeros == 0) { return {x, 1, batch * height, width, channels}; }
        return {x, batch, height, width, channels, before, zeros};
    }
    [[nodiscard]] static moved_image image_of_outputs(const T* y, const conv2d_shape& s, int batch) noexcept {
        return image_of(y, batch, s.out_height(), s.out_width(), s.out_channels);
    }
    [[nodiscard]] static moved_image evenly_padded_image(const T* x, const conv2d_shape& s, int batch) noexcept {
        const conv2d_shape even = cudnn::evenly_padded(s);
        return image_of(x, batch, s.in_height, s.in_width, s.in_channels, s.pad_before - even.pad_before,
                        even.in_height - s.in_height);
    }
    /// A weight or a bias used in place, or copied to scratch if it is unaligned or part of a wider one.
    template <class Each>
    struct moved_rows {
        const Each* data;
        std::int64_t rows;
        std::int64_t row; ///< elements per row
        std::int64_t step;

        [[nodiscard]] std::int64_t elements() const noexcept { return rows * row; }
        [[nodiscard]] bool moves() const noexcept { return step != row || !is_pack_aligned(data); }
        [[nodiscard]] const Each* at(scratch_pieces& pieces) const noexcept {
            const Each* const piece = pieces.take<Each>(moves() ? elements() : 0);
            return moves() ? piece : data;
        }
        void bring(const Each* to, cudaStream_t stream) const {
            if (to == data) { return; }
            copy_rows_async(const_cast<Each*>(to), row, data, step, row, static_cast<int>(rows), stream);
        }
    };
    /// A single row if the block is the whole weight.
    template <class Each>
    [[nodiscard]] static moved_rows<Each> weight_of(const Each* weight, const conv2d_shape& s,
                                                    const channel_block& block) noexcept {
        if (block.all == s.in_channels) { return {weight, 1, s.weight_elements(), s.weight_elements()}; }
        return {weight + block.first, std::int64_t{s.out_channels} * s.kernel * s.kernel, s.in_channels, block.all};
    }
    [[nodiscard]] static bool adds_bias(cudnn::convolution_form form) noexcept {
        return form != cudnn::convolution_form::plain && form != cudnn::convolution_form::scaled_add;
    }
    /// How many of x, weight, y, bias and target, in this order, a form binds.
    [[nodiscard]] static std::size_t bound(cudnn::convolution_form form) noexcept {
        return form == cudnn::convolution_form::bias ? 4 : adds_bias(form) ? 5 : 3;
    }

    [[nodiscard]] static auto key_of(const cudnn::convolution_request& r) {
        const conv2d_shape& s = r.shape;
        return std::tuple{s.in_channels, s.out_channels, s.in_height,  s.in_width, s.kernel,
                          s.stride,      s.pad_before,   s.pad_after,  r.batch,    r.pass,
                          r.adds,        r.has_bias,     r.has_vectors};
    }
    using key = decltype(key_of({}));

    void start(const prepared& p, std::span<const cudnn::ready_engine::binding> bindings, void* workspace) {
        options_.count(p.counted);
        p.engine.run(dnn_.get(), bindings, workspace);
    }
    /// Chooses an engine the first time a request is seen. Throws pulse::error if cuDNN has none for it.
    const prepared& find(cudaStream_t stream, const cudnn::convolution_request& r) {
        const key wanted = key_of(r);
        if (const auto found = plans_.find(wanted); found != plans_.end()) { return found->second; }
        require_not_captured(stream, "a convolution needs a new engine");
        cudnn::choice chosen;
        for (const cudnn::convolution_form form : cudnn::forms_for(r)) {
            const cudnn::convolution_graph g = cudnn::graph_of_request(r, form);
            cudnn::choice next = cudnn::choose_engine(
                dnn_, stream, cudnn::make_graph(g, dnn_.get()), rules_, options_, device_, trial_tensors(g),
                text_of(r) + (r.adds ? ", added" : "") + (r.has_bias ? ", with bias" : "") +
                    (r.has_vectors ? ", with vectors" : ""));
            if (next.made) {
                return plans_.emplace(wanted, prepared{std::move(next.made), form, next.counted}).first->second;
            }
            if (chosen.refusal.empty()) { chosen = std::move(next); }
        }
        throw pulse::error("cuDNN has no engine for " + text_of(r) + ": " + cudnn::why_none(dnn_, chosen));
    }
    [[nodiscard]] static std::string text_of(const cudnn::convolution_request& r) {
        const conv2d_shape& s = r.shape;
        using pass = cudnn::convolution_pass;
        const char* const of = r.pass == pass::forward          ? "a convolution from "
                               : r.pass == pass::backward_input ? "the input gradient of a convolution from "
                                                                : "the weight gradient of a convolution from ";
        return of + std::to_string(s.in_channels) + " to " + std::to_string(s.out_channels) + " channels of " +
               std::to_string(s.in_height) + "x" + std::to_string(s.in_width) + ", window " + std::to_string(s.kernel) +
               ", stride " + std::to_string(s.stride) + ", batch " + std::to_string(r.batch);
    }
    [[nodiscard]] static std::vector<cudnn::trial_tensor> trial_tensors(const cudnn::convolution_graph& g) {
        using id = cudnn::convolution_graph::id;
        using form = cudnn::convolution_form;
        const std::int64_t out = std::int64_t{sizeof(T)} * g.batch * g.shape.out_elements();
        std::vector<cudnn::trial_tensor> made{{id::x, std::int64_t{sizeof(T)} * g.batch * g.shape.in_elements()},
                                              {id::weight, std::int64_t{sizeof(T)} * g.shape.weight_elements()},
                                              {id::y, out}};
        if (adds_bias(g.form)) { made.push_back({id::bias, 4 * std::int64_t{g.shape.out_channels}}); }
        if (g.form == form::bias_add) { made.push_back({id::target, out}); }
        if (g.form == form::bias_sample) {
            made.push_back({id::target, std::int64_t{sizeof(T)} * g.batch * g.shape.out_channels});
        }
        return made;
    }

    engine_options options_;
    cudnn::engine_rules rules_;
    std::string device_;
    cudnn::library dnn_{};
    std::map<key, prepared> plans_{};
};

} // namespace pulse::cuda
