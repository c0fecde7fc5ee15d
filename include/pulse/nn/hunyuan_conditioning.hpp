#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/conditioning_modules.hpp>

namespace pulse::nn {

/// The embedding of time and more that every block of Hunyuan-DiT reads (diffusers'
/// HunyuanCombinedTimestepTextSizeStyleEmbedding): an MLP of the timestep, plus an MLP of the T5 text states, pooled by one
/// query of an attention, and in version 1.1 also of the image's sizes and of a style.
///
/// What it keeps for its backward pass is left out, as in the tables that the model is compared with: all of it together
/// is about a hundredth of what one block keeps.
struct hunyuan_time_embedding {
    static constexpr int sinusoid = 256;
    static constexpr int image_sizes = 6; ///< numbers about the image, each as a sinusoid

    int width{};
    int text_tokens{};
    int text_features{};
    int pooled_features{};
    bool style_and_sizes{};

    [[nodiscard]] constexpr flaw defect() const noexcept {
        return width <= 0 || text_tokens <= 0 || text_features <= 0 || pooled_features <= 0 ? flaw::size : flaw::none;
    }
    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        mlp_embedding{1, sinusoid, width, width}.describe_into(d, "timestep_embedder.linear_1",
                                                               "timestep_embedder.linear_2");
        const int positions = text_tokens + 1; // the mean of the text goes before it and is the query
        d.parameter("pooler.positional_embedding", {positions, text_features});
        d.linear("pooler.k_proj", positions, text_features, text_features);
        d.linear("pooler.q_proj", 1, text_features, text_features);
        d.linear("pooler.v_proj", positions, text_features, text_features);
        d.linear("pooler.c_proj", 1, text_features, pooled_features);
        d.attention(1, positions, text_features);
        int features = pooled_features;
        if (style_and_sizes) {
            d.parameter("style_embedder.weight", {1, width});
            features += image_sizes * sinusoid + width;
        }
        mlp_embedding{1, features, 4 * width, width}.describe_into(d, "extra_embedder.linear_1",
                                                                   "extra_embedder.linear_2");
    }
};

/// The text states that every block of Hunyuan-DiT attends to: those of T5 through an MLP (text_embedder) to the width of
/// CLIP's, behind CLIP's; where a text ends early there are learned vectors (text_embedding_padding).
struct hunyuan_text_embedding {
    int tokens{};
    int features{};
    int width{};
    int all_tokens{};

    [[nodiscard]] constexpr mlp_embedding core() const noexcept { return {tokens, features, 4 * features, width}; }
    [[nodiscard]] constexpr flaw defect() const noexcept { return all_tokens <= 0 ? flaw::size : core().defect(); }
    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        core().describe(d, name);
        d.within({});
        d.parameter("text_embedding_padding", {all_tokens, width});
    }
};

} // namespace pulse::nn
