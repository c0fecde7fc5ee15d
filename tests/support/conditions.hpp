#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <pulse/runtime/layer_frame.hpp>

namespace pulse::test {

/// Scalars of text, and facts, per sample of model M.
template <class M>
[[nodiscard]] constexpr std::int64_t text_elements_of() noexcept {
    if constexpr (reads_text<typename M::conditioning>) {
        return M::conditioning::text_elements;
    } else {
        return 0;
    }
}
template <class M>
[[nodiscard]] constexpr std::int64_t fact_elements_of() noexcept {
    if constexpr (reads_facts<typename M::conditioning>) {
        return M::conditioning::fact_elements;
    } else if constexpr (reads_facts<typename M::template layer_at<0>>) {
        return M::template layer_at<0>::fact_elements;
    } else {
        return 0;
    }
}

/// Draws valid facts for the model, tensor by tensor: classes of a U-ViT; sizes of a UNet; for a Hunyuan-DiT the
/// padding mask (at least one token of each kind), sizes, and the only style.
template <class M, class A>
[[nodiscard]] std::vector<A> draw_facts(std::uint64_t seed, int batch) {
    std::mt19937_64 random{seed};
    std::vector<A> facts;
    const auto draw = [&](std::int64_t per_sample, int least, int most) {
        std::uniform_int_distribution<int> any{least, most};
        for (std::int64_t i = 0; i != per_sample * batch; ++i) { facts.push_back(static_cast<A>(any(random))); }
    };
    if constexpr (requires { M::config.num_classes; }) {
        if constexpr (M::config.num_classes != 0) { draw(1, 0, M::config.num_classes - 1); }
    } else if constexpr (requires { M::config.context_tokens(); }) {
        draw(M::config.context_tokens(), 0, 1);
        facts[0] = A{0};
        facts[1] = A{1};
        if constexpr (M::config.use_style_cond_and_image_meta_size) {
            draw(6, 1, 20);
            draw(1, 0, 0);
        }
    } else if constexpr (fact_elements_of<M>() != 0) {
        draw(fact_elements_of<M>(), 1, 20);
    }
    return facts;
}

} // namespace pulse::test
