#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>

namespace pulse::nn {

/// The numbers of a transformer over the pixels of an image that also attends to a text (diffusers' Transformer2DModel of
/// BasicTransformerBlocks).
struct text_attention {
    int channels{};
    int height{};
    int width{};
    int heads{};
    int context_tokens{};
    int context_features{};

    [[nodiscard]] constexpr std::int64_t tokens() const noexcept { return std::int64_t{height} * width; }
    [[nodiscard]] constexpr std::int64_t image() const noexcept { return channels * tokens(); }
    [[nodiscard]] constexpr extent shape() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {context_tokens, context_features, 0}; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || heads <= 0 || context_tokens <= 0 || context_features <= 0) {
            return flaw::size;
        }
        return channels % heads != 0 ? flaw::heads : flaw::none;
    }

    /// One block: x += attn1(norm1(x)); x += attn2(norm2(x), text); x += ff(norm3(x)), with a gated GELU (GEGLU) of
    /// 4 x channels. Only the queries, keys and values have no bias.
    template <class Description>
    constexpr void describe_block(Description& d) const {
        const int c = channels;
        d.norm("norm1", c);
        d.linear("attn1.to_q", tokens(), c, c, false);
        d.linear("attn1.to_k", tokens(), c, c, false);
        d.linear("attn1.to_v", tokens(), c, c, false);
        d.linear("attn1.to_out.0", tokens(), c, c);
        d.attention(tokens(), tokens(), c);
        d.linear("attn2.to_q", tokens(), c, c, false);
        d.linear("attn2.to_k", context_tokens, context_features, c, false);
        d.linear("attn2.to_v", context_tokens, context_features, c, false);
        d.linear("attn2.to_out.0", tokens(), c, c);
        d.attention(tokens(), context_tokens, c);
        d.norm("norm2", c);
        d.norm("norm3", c);
        d.linear("ff.net.0.proj", tokens(), c, 8 * c);
        d.linear("ff.net.2", tokens(), 4 * c, c);
        // inputs of three norms and of what follows them; q, k, v and the output of attn1; q and the output of attn2
        d.keep(12 * image());
        d.keep(2 * std::int64_t{context_tokens} * c);
        // value and gate; gelu(gate); their product
        d.keep(8 * image());
        d.keep(4 * image());
        d.keep(4 * image());
    }
    template <class Description>
    constexpr void describe_in(Description& d, bool linear_projection) const {
        d.norm("norm", channels);
        describe_projection(d, "proj_in", linear_projection);
        d.keep(image()); // input of the norm
        d.keep(image()); // input of the projection
    }
    template <class Description>
    constexpr void describe_out(Description& d, bool linear_projection) const {
        describe_projection(d, "proj_out", linear_projection);
        d.keep(image());
    }

private:
    template <class Description>
    constexpr void describe_projection(Description& d, std::string_view name, bool linear) const {
        if (linear) {
            d.linear(name, tokens(), channels, channels);
        } else {
            d.conv(name, tokens(), channels, channels, 1);
        }
    }
};

/// A whole transformer: norm (GroupNorm), proj_in, `depth` blocks, proj_out, and the identity path around all of them.
struct spatial_transformer {
    text_attention core{};
    int depth{1};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return depth <= 0 ? flaw::size : core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return core.context(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        core.describe_in(d, linear_projection);
        for (int i = 0; i != depth; ++i) {
            d.within(name + ".transformer_blocks." + static_cast<unsigned>(i));
            core.describe_block(d);
        }
        d.within(name);
        core.describe_out(d, linear_projection);
    }
};

/// The beginning of a transformer that is cut into layers: norm and proj_in. Its layer is named <transformer>.proj_in.
struct transformer_in {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(parent_of(name));
        core.describe_in(d, linear_projection);
    }
    /// `name` without its last part.
    [[nodiscard]] static constexpr label parent_of(const label& name) {
        return label{name.view().substr(0, name.empty() ? 0 : name.view().rfind('.'))};
    }
};

/// One block of a transformer that is cut into layers, named <transformer>.transformer_blocks.<i>.
struct transformer_block {
    text_attention core{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return core.context(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        core.describe_block(d);
    }
};

/// The end of a transformer that is cut into layers: proj_out, and what came into its beginning is added. Its layer is
/// named <transformer>.proj_out.
struct transformer_out {
    text_attention core{};
    bool linear_projection{true};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(transformer_in::parent_of(name));
        core.describe_out(d, linear_projection);
    }
};

} // namespace pulse::nn
