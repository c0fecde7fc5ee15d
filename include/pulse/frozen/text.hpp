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

/// A text of a call, and the layers of the network to run on it.
struct text_of_call {
    layers_of_chain layers{};  ///< the same for all texts of a call, except for their memory
    std::string_view text{};   ///< read at the start of the network
    std::string_view what{};   ///< what messages call it
    std::span<float> result{}; ///< written at the end of the network
};

/// A folder's text encoder with its tokenizer. The result for a text depends on no other text, in the same call or not.
///
/// Results are the states [tokens][features], the pooled text if there is one, the mask [tokens] and whether the text
/// was cut, concatenated as floats. A chain that pauses leaves what the next piece reads (text_pieces), followed by
/// what is known of the text: its facts, its mask and whether it was cut, as accumulators.
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
    /// Pipelines give CLIP no mask: its padding counts as text.
    static constexpr bool is_clip =
        std::is_same_v<std::remove_cvref_t<decltype(network::config)>, encode::clip_text_config>;
    static_assert(is_clip || chunks.chunks == 1, "pulse: only texts for CLIP can be encoded in chunks");
    static constexpr std::int64_t count = chunks.chunks; ///< chunks encoded at once
    static constexpr auto fact_elements =
        static_cast<std::size_t>(encode::text_facts{network::tokens}.elements(chunks.chunks));
    static constexpr std::size_t said_elements = static_cast<std::size_t>(tokens) + 1; ///< mask, and whether it was cut
    /// Padded, so that what follows is aligned: a library may choose its kernels by alignment.
    static constexpr auto known_elements =
        static_cast<std::size_t>(encode::chain_link::aligned(static_cast<std::int64_t>(fact_elements + said_elements)));
    static constexpr std::int64_t state_stride = encode::chain_link::aligned(count * network::states::elements);
    static constexpr std::int64_t pooled_stride = encode::chain_link::aligned(count * pooled_features);
    /// Bytes of what is known of a text.
    static constexpr auto known_bytes = static_cast<std::int64_t>(known_elements * sizeof(accumulator));

public:
    /// For calls of one text.
    static constexpr std::int64_t bytes = encoder::bytes(chunks.chunks) +
                                          static_cast<std::int64_t>(sizeof(scalar)) * (state_stride + pooled_stride) +
                                          known_bytes;

    /// Its frozen component, without times.
    [[nodiscard]] static frozen_component component() {
        frozen_component made{.name = Component::component,
                              .feeds = frozen_use::context,
                              .input_bytes = known_bytes,
                              .result_bytes = static_cast<std::int64_t>(result_elements * sizeof(float)),
                              .max_chunk = encode::most_texts,
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

    /// With only some layers, or all where `layers` is empty, for calls of up to `texts` texts.
    folder_text(const diffusers::model_files& from, Math& math, const std::vector<bool>& layers = {}, int texts = 1) :
        math_{math}, encoder_{math, chunks.chunks, layers, texts},
        known_(static_cast<std::size_t>(texts) * known_elements),
        states_{static_cast<std::size_t>(texts * state_stride)}, pooled_{
                                                                     static_cast<std::size_t>(texts * pooled_stride)} {
        if (layers.empty() || layers.front()) {
            ids_of_ = text_files<Component>::tokenizer(from.folder);
            if constexpr (network::pools) {
                end_token_ = diffusers::read_end_token(from.folder / Component::component.view());
            }
        }
        const diffusers::weights values_of = text_files<Component>::weights(from);
        encoder_.load([&](const parameter& p, std::span<float> values) { values_of.read(p, 0, values); });
    }

    /// Computes the result of a text, which messages call `what`.
    void run(std::string_view text, std::string_view what, std::span<float> result) {
        const text_of_call alone{{0, layer_count - 1}, text, what, result};
        run_layers({&alone, 1});
    }
    /// Runs some layers in one call, on at most as many texts as it was made for. Throws input_error naming a text that
    /// it cannot read, before anything is written.
    void run_layers(std::span<const text_of_call> all) {
        const layers_of_chain& which = all.front().layers;
        const bool ends = which.last + 1 == layer_count;
        if (which.first == 0) {
            std::vector<accumulator> values;
            for (const text_of_call& one : all) {
                const std::vector<accumulator> of_text = known_of(one.text, one.what);
                values.insert(values.end(), of_text.begin(), of_text.end());
            }
            put_values<accumulator>(math_, values, reinterpret_cast<std::byte*>(known_.data()));
        }
        std::vector<typename encoder::batch_of_texts> texts;
        for (const text_of_call& one : all) {
            const auto t = static_cast<std::int64_t>(texts.size());
            texts.push_back({chunks.chunks, reinterpret_cast<const accumulator*>(known_in(one, t)),
                             which.first == 0 ? nullptr : reinterpret_cast<const scalar*>(one.layers.from),
                             ends ? states_.there() + t * state_stride : reinterpret_cast<scalar*>(one.layers.to),
                             pooled_.there() + t * pooled_stride});
        }
        encoder_.run_pieces(which.first, which.last, texts);
        if (ends) { return take(all); }
        for (std::size_t t = 0; t != all.size(); ++t) {
            space::copy(math_, known_in(all[t], static_cast<std::int64_t>(t)), all[t].layers.to + known_at(which.last),
                        known_bytes);
        }
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return encoder_.used_bytes() + states_.bytes() + pooled_.bytes() +
               static_cast<std::int64_t>(known_.size() * sizeof(accumulator));
    }

private:
    using space = space_of<Math>;

    /// Offset, in a layer's output, of what is known of the text.
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
        all.resize(known_elements);
        return all;
    }
    /// What is known of text t of a call.
    [[nodiscard]] const std::byte* known_in(const text_of_call& one, std::int64_t t) const noexcept {
        return one.layers.first == 0 ? reinterpret_cast<const std::byte*>(known_.data()) + t * known_bytes
                                     : one.layers.from + known_at(one.layers.first - 1);
    }
    void take(std::span<const text_of_call> all) {
        std::vector<float> states(all.size() * static_cast<std::size_t>(state_stride));
        std::vector<float> pooled(all.size() * static_cast<std::size_t>(pooled_stride));
        states_.get(math_, states);
        pooled_.get(math_, pooled);
        for (std::size_t t = 0; t != all.size(); ++t) {
            const std::span<float> result = all[t].result;
            chunks.join(std::span<const float>{states}.subspan(t * static_cast<std::size_t>(state_stride),
                                                               count * network::states::elements),
                        result.first(state_elements));
            // the pooled state of the first chunk stands for the text
            std::copy_n(pooled.begin() + static_cast<std::int64_t>(t) * pooled_stride, pooled_features,
                        result.begin() + state_elements);
            std::array<accumulator, said_elements> said{};
            get_values<accumulator>(
                math_, known_in(all[t], static_cast<std::int64_t>(t)) + fact_elements * sizeof(accumulator), said);
            std::ranges::transform(said, result.last(said.size()).begin(),
                                   [](accumulator value) { return static_cast<float>(value); });
        }
    }

    Math& math_;
    std::unique_ptr<const encode::tokenizer> ids_of_{}; ///< only with the first layer
    std::int32_t end_token_{network::end_token};
    encoder encoder_;
    typename space::template array<accumulator> known_; ///< of the texts of a call that begins the network
    carried<Math> states_;
    carried<Math> pooled_;
};

} // namespace pulse::frozen
