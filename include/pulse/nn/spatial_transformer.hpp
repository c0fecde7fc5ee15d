#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/residual_sums.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// First part of a transformer: norm and proj_in.
struct transformer_in {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }

    struct pieces {
        weight_piece norm, projection;
        saved_piece normal;
        statistics_piece statistics;
        workspace_piece normal_gradient;
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("norm", core.channels);
        p.projection = core.describe_projection(d, "proj_in", linear_projection);
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
    /// The input's gradient is the residual's plus the one through norm and proj_in.
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.linear_backward_input(core.projection().matrix(), f.batch * core.tokens(), f.output_gradient,
                                 f[p.projection], f[p.normal_gradient], into::write);
        const bool wanted = f.input_gradient != nullptr;
        auto* const target = wanted ? f.input_gradient : f[p.nobody];
        norm_backward_onto(on, f.batch * core.image(), wanted ? f.residual_gradient : nullptr, target,
                           [&](auto... how) {
                               on.group_norm_backward(core.norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm),
                                                      f[p.statistics], f[p.normal_gradient], target, nullptr,
                                                      f.gradient(p.norm), f.bias_gradient(p.norm), how...);
                           });
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        core.projection().apply_backward_weight(on, f.batch * core.tokens(), f[p.normal], f.output_gradient,
                                                f.gradient(p.projection));
    }
};

/// Last part of a transformer: proj_out plus the residual from its start.
struct transformer_out {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }
    constexpr weight_piece describe(description& d) const {
        return core.describe_projection(d, "proj_out", linear_projection);
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, weight_piece p) const {
        core.projection().apply_onto(on, f.batch * core.tokens(), f.input, f[p], f.residual, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, weight_piece p) const {
        on.linear_backward_input(core.projection().matrix(), f.batch * core.tokens(), f.output_gradient, f[p],
                                 f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, weight_piece p) const {
        core.projection().apply_backward_weight(on, f.batch * core.tokens(), f.input, f.output_gradient, f.gradient(p));
    }
};

/// A whole transformer: norm (GroupNorm), proj_in, `depth` blocks, proj_out, and the residual around all of them.
struct spatial_transformer {
    static constexpr bool writes_gradients = true;

    text_attention core{};
    int depth{1};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return depth <= 0 ? flaw::size : core.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }

    using whole = spatial_transformer;
    [[nodiscard]] constexpr int parts() const noexcept { return 3 * depth + 2; }
    [[nodiscard]] constexpr sample_dims open() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr bool makes_residual() const noexcept { return false; }
    template <class Use>
    constexpr void use_part(int k, const Use& use) const {
        if (k == 0) { return use("", transformer_in{core, linear_projection}); }
        if (k + 1 == parts()) { return use("", transformer_out{core, linear_projection}); }
        const label block = label{"transformer_blocks."} + static_cast<unsigned>((k - 1) / 3);
        switch ((k - 1) % 3) {
        case 0: return use(block.view(), core.self_attention());
        case 1: return use(block.view(), core.cross_attention());
        default: return use(block.view(), core.feed_forward());
        }
    }
};

} // namespace pulse::nn
