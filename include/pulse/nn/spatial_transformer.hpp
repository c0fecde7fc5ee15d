#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The beginning of a transformer that is cut into layers: norm and proj_in. Its layer is named <transformer>.proj_in.
struct transformer_in {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }

    struct pieces {
        weight_piece norm, projection;
        saved_piece normal;
        statistics_piece statistics;
        workspace_piece normal_gradient;
        workspace_piece nobody; ///< the input's gradient where nobody reads it
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("../norm", core.channels);
        p.projection = core.describe_projection(d, "../proj_in", linear_projection);
        d.save(core.image(), p.normal);
        d.statistics(2 * std::int64_t{core.groups}, p.statistics);
        d.work(core.image(), p.normal_gradient, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.group_norm(core.norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        core.projection().apply(on, f.batch * core.tokens(), f[p.normal], f[p.projection], f.output);
    }
    /// Adds to the input's gradient where `how` says so.
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p, into how) const {
        on.linear_backward_input(core.projection().matrix(), f.batch * core.tokens(), f.output_gradient,
                                 f[p.projection], f[p.normal_gradient], into::write);
        const bool wanted = f.input_gradient != nullptr;
        on.group_norm_backward(core.norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.statistics],
                               f[p.normal_gradient], wanted ? f.input_gradient : f[p.nobody], nullptr,
                               f.gradient(p.norm), f.bias_gradient(p.norm), wanted ? how : into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        backward_input(on, f, p, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        core.projection().apply_backward_weight(on, f.batch * core.tokens(), f[p.normal], f.output_gradient,
                                                f.gradient(p.projection));
    }
};

/// Last layer of a transformer that is cut into layers: proj_out, plus the residual from the transformer's start. Its
/// name is <transformer>.proj_out.
struct transformer_out {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }
    constexpr weight_piece describe(description& d) const {
        d.reads_residual(core.shape());
        return core.describe_projection(d, "../proj_out", linear_projection);
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, weight_piece p) const {
        core.projection().apply(on, f.batch * core.tokens(), f.input, f[p], f.output);
        on.add(f.batch * core.image(), f.skip, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, weight_piece p) const {
        on.copy(f.batch * core.image(), f.output_gradient, f.skip_gradient);
        if (f.input_gradient == nullptr) { return; }
        on.linear_backward_input(core.projection().matrix(), f.batch * core.tokens(), f.output_gradient, f[p],
                                 f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, weight_piece p) const {
        core.projection().apply_backward_weight(on, f.batch * core.tokens(), f.input, f.output_gradient, f.gradient(p));
    }
};

/// A whole transformer: norm (GroupNorm), proj_in, `depth` blocks, proj_out, and the identity path around all of them.
struct spatial_transformer {
    text_attention core{};
    int depth{1};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return depth <= 0 ? flaw::size : core.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }

    [[nodiscard]] constexpr transformer_in beginning() const noexcept { return {core, linear_projection}; }
    [[nodiscard]] constexpr transformer_block block() const noexcept { return {core}; }
    [[nodiscard]] constexpr transformer_out end() const noexcept { return {core, linear_projection}; }

    struct pieces {
        transformer_in::pieces beginning;
        transformer_block::pieces block; ///< the first of them
        layer_extents each;              ///< of a block
        weight_piece end;
        saved_piece images; ///< between the parts: depth + 1
        deferred_piece gradients;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.beginning = d.part("proj_in", beginning());
        d.save((depth + 1) * core.image(), p.images);
        d.defer((depth + 1) * core.image(), p.gradients);
        for (int i = 0; i != depth; ++i) {
            const label name = label{"transformer_blocks."} + static_cast<unsigned>(i);
            const layer_extents before = d.sizes().kept;
            const transformer_block::pieces one = d.part(name.view(), block());
            if (i == 0) {
                p.block = one;
                p.each = d.sizes().kept - before;
            }
        }
        p.end = d.part("proj_out", end());
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        beginning().forward(on, beginning_of<B>(f, p), p.beginning);
        for (int i = 0; i != depth; ++i) { block().forward(on, block_of<B>(f, p, i), p.block); }
        end().forward(on, end_of<B>(f, p), p.end);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        end().backward_input(on, end_of<B>(f, p), p.end);
        for (int i = depth; i-- != 0;) { block().backward_input(on, block_of<B>(f, p, i), p.block); }
        beginning().backward_input(on, beginning_of<B>(f, p), p.beginning, into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        end().backward_weight(on, end_of<B>(f, p), p.end);
        for (int i = depth; i-- != 0;) { block().backward_weight(on, block_of<B>(f, p, i), p.block); }
        beginning().backward_weight(on, beginning_of<B>(f, p), p.beginning);
    }

private:
    template <class B>
    [[nodiscard]] constexpr auto* image_of(const backend_frame<B>& f, const pieces& p, int i) const noexcept {
        return f[p.images] + f.batch * (i * core.image());
    }
    /// Null in a forward pass.
    template <class B>
    [[nodiscard]] constexpr auto* gradient_of(const backend_frame<B>& f, const pieces& p, int i) const noexcept {
        return f.deferred != nullptr ? f[p.gradients] + f.batch * (i * core.image()) : nullptr;
    }
    template <class B>
    [[nodiscard]] constexpr backend_frame<B> beginning_of(const backend_frame<B>& f, const pieces& p) const noexcept {
        backend_frame<B> part = f;
        part.output = image_of<B>(f, p, 0);
        part.output_gradient = gradient_of<B>(f, p, 0);
        return part;
    }
    template <class B>
    [[nodiscard]] constexpr backend_frame<B> block_of(const backend_frame<B>& f, const pieces& p,
                                                      int i) const noexcept {
        backend_frame<B> part = f.behind(p.each, i);
        part.input = image_of<B>(f, p, i);
        part.output = image_of<B>(f, p, i + 1);
        part.output_gradient = gradient_of<B>(f, p, i + 1);
        part.input_gradient = gradient_of<B>(f, p, i);
        return part;
    }
    /// The identity path is the residual of the end, and its gradient the beginning of the input's.
    template <class B>
    [[nodiscard]] constexpr backend_frame<B> end_of(const backend_frame<B>& f, const pieces& p) const noexcept {
        backend_frame<B> part = f;
        part.input = image_of<B>(f, p, depth);
        part.skip = f.input;
        part.input_gradient = gradient_of<B>(f, p, depth);
        part.skip_gradient = f.input_gradient != nullptr ? f.input_gradient : f.workspace;
        return part;
    }
};

} // namespace pulse::nn
