#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/text_chunks.hpp>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/frozen/carried.hpp>
#include <pulse/frozen/chain.hpp>
#include <pulse/frozen/folder.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/space.hpp>

namespace pulse::frozen {

/// A text encoder of a folder with its tokenizer, one text at a time: what a text gives depends on no other.
///
/// Its results are the states [tokens][features], the pooled text where there is one, the mask [tokens] and whether the
/// text was cut, as floats one behind the other. A chain that pauses leaves what the next piece reads (text_pieces),
/// and behind it what is known of the text: its facts, its mask and whether it was cut, as accumulators.
template <class Component, class Math>
class folder_text {
    using scalar = typename Math::scalar;
    using accumulator = typename Math::accumulator;

public:
    using network = typename Component::network;
    static constexpr encode::text_chunks chunks = Component::chunks;
    static constexpr int tokens = chunks.length(); ///< of all chunks
    static constexpr int features = static_cast<int>(network::states::elements) / network::tokens;
    static constexpr int pooled_features = [] {
        if constexpr (network::pools) { return static_cast<int>(network::pooled::elements); }
        return 0;
    }();
    static constexpr auto state_elements = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(features);
    static constexpr std::size_t result_elements =
        state_elements + static_cast<std::size_t>(pooled_features) + static_cast<std::size_t>(tokens) + 1;
    static constexpr std::size_t layer_count = network::states_layer + 1;

private:
    using encoder = encode::text_encoder<network, Math>;
    /// Pipelines give CLIP no mask: padding is a part of the text there.
    static constexpr bool is_clip =
        std::is_same_v<std::remove_cvref_t<decltype(network::config)>, encode::clip_text_config>;
    static_assert(is_clip || chunks.chunks == 1, "pulse: texts of CLIP alone are encoded in chunks");
    static constexpr std::int64_t count = chunks.chunks; ///< that are encoded at once
    static constexpr auto fact_elements =
        static_cast<std::size_t>(encode::text_facts{network::tokens}.elements(chunks.chunks));
    static constexpr std::size_t known_elements = fact_elements + static_cast<std::size_t>(tokens) + 1;
    /// Of what is known.
    static constexpr auto known_bytes = static_cast<std::int64_t>(known_elements * sizeof(accumulator));

public:
    static constexpr std::int64_t bytes =
        encoder::bytes(chunks.chunks) +
        static_cast<std::int64_t>(sizeof(scalar)) * count * (network::states::elements + pooled_features) + known_bytes;

    /// The frozen component that it is, without times.
    [[nodiscard]] static frozen_component component() {
        frozen_component made{.name = Component::component,
                              .feeds = frozen_use::context,
                              .input_bytes = known_bytes,
                              .result_bytes = static_cast<std::int64_t>(result_elements * sizeof(float)),
                              .max_chunk = 1,
                              .layers = {}};
        constexpr auto size = static_cast<std::int64_t>(sizeof(scalar));
        constexpr std::int64_t always =
            bytes - size * (network::live_parameter_elements + count * encoder::working_elements);
        for (const encode::text_piece& one : encode::text_pieces<network>) {
            made.layers.push_back({.name = one.name,
                                   .parameter_bytes = size * one.parameters,
                                   .output_bytes = known_at(made.layers.size()) + known_bytes,
                                   .live_bytes = always + size * count * one.working});
        }
        return made;
    }

    /// With some layers alone, or with all where `layers` is empty.
    folder_text(const diffusers::model_files& from, Math& math, const std::vector<bool>& layers = {}) :
        math_{math}, encoder_{math, chunks.chunks, layers} {
        if (layers.empty() || layers.front()) {
            ids_of_ = text_files<Component>::tokenizer(from.folder);
            if constexpr (network::pools) {
                end_token_ = diffusers::read_end_token(from.folder / Component::component.view());
            }
        }
        const diffusers::weights values_of = text_files<Component>::weights(from);
        encoder_.load([&](const parameter& p, std::span<float> values) { values_of.read(p, 0, values); });
    }

    /// The result of a text; messages call it `what`.
    void run(std::string_view text, std::string_view what, std::span<float> result) {
        run_layers({0, layer_count - 1}, text, what, result);
    }
    /// Some layers: the text is read where the network begins, `result` is written where it ends.
    void run_layers(const layers_of_chain& which, std::string_view text, std::string_view what,
                    std::span<float> result) {
        const std::byte* known = reinterpret_cast<const std::byte*>(known_.data());
        if (which.first == 0) {
            const std::vector<accumulator> values = known_of(text, what);
            put_values<accumulator>(math_, values, reinterpret_cast<std::byte*>(known_.data()));
        } else {
            known = which.from + known_at(which.first - 1);
        }
        const bool ends = which.last + 1 == layer_count;
        encoder_.run_pieces(which.first, which.last, {chunks.chunks, reinterpret_cast<const accumulator*>(known)},
                            which.first == 0 ? nullptr : reinterpret_cast<const scalar*>(which.from),
                            ends ? states_.there() : reinterpret_cast<scalar*>(which.to), pooled_.there());
        if (ends) {
            take(known, result);
        } else {
            space::copy(math_, known, which.to + known_at(which.last), known_bytes);
        }
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return encoder_.used_bytes() + states_.bytes() + pooled_.bytes() +
               static_cast<std::int64_t>(known_.size() * sizeof(accumulator));
    }

private:
    using space = space_of<Math>;

    /// Where in what a layer leaves lies what is known of the text.
    [[nodiscard]] static constexpr std::int64_t known_at(std::size_t layer) noexcept {
        return static_cast<std::int64_t>(sizeof(scalar)) *
               encode::chain_link::aligned(count * encode::text_pieces<network>[layer].output);
    }
    [[nodiscard]] std::vector<accumulator> known_of(std::string_view text, std::string_view what) const {
        const encode::encoded_text ids = (*ids_of_)(text, what);
        std::vector<accumulator> all = encode::text_facts_of<network, accumulator>(
            chunks.chunks, chunks.split(ids.ids, ids.mask, ids_of_->frame().end),
            is_clip ? std::span<const std::int32_t>{} : std::span<const std::int32_t>{ids.mask}, end_token_);
        for (const std::int32_t one : ids.mask) { all.push_back(static_cast<accumulator>(one)); }
        all.push_back(ids.cut > 0 ? accumulator{1} : accumulator{0});
        return all;
    }
    void take(const std::byte* known, std::span<float> result) {
        if constexpr (count == 1) {
            states_.get(math_, result.first(state_elements));
        } else {
            std::vector<float> of_chunks(count * network::states::elements);
            states_.get(math_, of_chunks);
            chunks.join(of_chunks, result.first(state_elements));
        }
        // the first chunk's stands for the text
        pooled_.get(math_, result.subspan(state_elements, static_cast<std::size_t>(pooled_features)));
        std::array<accumulator, known_elements - fact_elements> rest{};
        get_values<accumulator>(math_, known + fact_elements * sizeof(accumulator), rest);
        std::ranges::transform(rest, result.last(rest.size()).begin(),
                               [](accumulator value) { return static_cast<float>(value); });
    }

    Math& math_;
    std::unique_ptr<const encode::tokenizer> ids_of_{}; ///< where the first layer is
    std::int32_t end_token_{network::end_token};
    encoder encoder_;
    typename space::template array<accumulator> known_ = typename space::template array<accumulator>(known_elements);
    carried<Math> states_{static_cast<std::size_t>(count * network::states::elements)};
    carried<Math> pooled_{static_cast<std::size_t>(count * pooled_features)};
};

} // namespace pulse::frozen
