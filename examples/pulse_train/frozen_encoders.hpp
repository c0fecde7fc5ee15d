#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/space.hpp>

#include "arguments.hpp"
#include "carried.hpp"
#include "frozen.hpp"
#include "frozen_chain.hpp"
#include "pictures.hpp"
#include "pipeline_folder.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// A text encoder of a folder with its tokenizer, one text at a time: what a text gives depends on no other.
///
/// Its results are the states [tokens][features], the pooled text where there is one, the mask [tokens] and whether the
/// text was cut, as floats one behind the other. A chain that pauses leaves what the next piece reads (text_pieces),
/// and behind it what is known of the text: its facts, its mask and whether it was cut, as accumulators.
template <class Component, class Math>
class frozen_text {
    using scalar = typename Math::scalar;
    using accumulator = typename Math::accumulator;

public:
    using network = typename Component::network;
    static constexpr int tokens = network::tokens;
    static constexpr int features = static_cast<int>(network::states::elements) / tokens;
    static constexpr int pooled_features = [] {
        if constexpr (network::pools) { return static_cast<int>(network::pooled::elements); }
        return 0;
    }();
    static constexpr std::size_t state_elements = network::states::elements;
    static constexpr std::size_t result_elements =
        state_elements + static_cast<std::size_t>(pooled_features) + static_cast<std::size_t>(tokens) + 1;
    static constexpr std::size_t layer_count = network::states_layer + 1;

private:
    using encoder = pulse::encode::text_encoder<network, Math>;
    static constexpr auto fact_elements =
        static_cast<std::size_t>(pulse::encode::text_facts{network::tokens}.elements(1));
    static constexpr std::size_t known_elements = fact_elements + static_cast<std::size_t>(tokens) + 1;
    /// Of what is known.
    static constexpr auto known_bytes = static_cast<std::int64_t>(known_elements * sizeof(accumulator));

public:
    static constexpr std::int64_t bytes =
        encoder::bytes(1) + static_cast<std::int64_t>(sizeof(scalar)) * (network::states::elements + pooled_features) +
        known_bytes;

    /// Throws input_error unless the folder has all that is needed.
    static void require(const arguments& a) {
        static_cast<void>(tokenizer_of(a.from));
        tell_unread(a, weights_of(a.from));
    }
    /// How long captions are to it, in words.
    [[nodiscard]] static std::string lengths(const std::filesystem::path& folder, const picture_source& pictures) {
        const caption_lengths found = pictures.lengths(tokenizer_of(folder));
        std::array<char, 160> words{};
        std::snprintf(words.data(), words.size(), "%s: %.1f tokens on average, %llu at most, %llu cut at %d",
                      Component::tokenizer.str().c_str(), found.mean, static_cast<unsigned long long>(found.longest),
                      static_cast<unsigned long long>(found.cut), tokens);
        return words.data() +
               (found.unread == 0 ? "" : ", " + std::to_string(found.unread) + " cannot be read and are skipped");
    }
    /// The frozen component that it is, without times.
    [[nodiscard]] static pulse::frozen_component component() {
        pulse::frozen_component made{.name = Component::component,
                                     .feeds = pulse::frozen_use::context,
                                     .input_bytes = known_bytes,
                                     .result_bytes = static_cast<std::int64_t>(result_elements * sizeof(float)),
                                     .max_chunk = 1,
                                     .layers = {}};
        constexpr auto size = static_cast<std::int64_t>(sizeof(scalar));
        constexpr std::int64_t always = bytes - size * (network::live_parameter_elements + encoder::working_elements);
        for (const pulse::encode::text_piece& one : pulse::encode::text_pieces<network>) {
            made.layers.push_back({.name = one.name,
                                   .parameter_bytes = size * one.parameters,
                                   .output_bytes = known_at(made.layers.size()) + known_bytes,
                                   .live_bytes = always + size * one.working});
        }
        return made;
    }

    /// With some layers alone, or with all where `layers` is empty.
    frozen_text(const std::filesystem::path& folder, Math& math, const std::vector<bool>& layers = {}) :
        math_{math}, encoder_{math, 1, layers} {
        if (layers.empty() || layers.front()) {
            ids_of_.emplace(folder / Component::tokenizer.view(), tokens, network::vocabulary);
            if constexpr (network::pools) {
                end_token_ = pulse::diffusers::read_end_token(folder / Component::component.view());
            }
        }
        const pulse::diffusers::weights values_of = weights_of(folder);
        encoder_.load([&](const pulse::parameter& p, std::span<float> values) { values_of.read(p, 0, values); });
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
        encoder_.run_pieces(which.first, which.last, {1, reinterpret_cast<const accumulator*>(known)},
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
    using space = pulse::space_of<Math>;

    [[nodiscard]] static caption_ids tokenizer_of(const std::filesystem::path& folder) {
        return {folder / Component::tokenizer.view(), tokens, network::vocabulary};
    }
    [[nodiscard]] static pulse::diffusers::weights weights_of(const std::filesystem::path& folder) {
        return pulse::diffusers::open_text_encoder<network>(folder, Component::component.view());
    }
    /// Where in what a layer leaves lies what is known of the text.
    [[nodiscard]] static constexpr std::int64_t known_at(std::size_t layer) noexcept {
        return static_cast<std::int64_t>(sizeof(scalar)) *
               pulse::encode::chain_link::aligned(pulse::encode::text_pieces<network>[layer].output);
    }
    [[nodiscard]] std::vector<accumulator> known_of(std::string_view text, std::string_view what) const {
        const text_ids ids = (*ids_of_)(text, what);
        // Pipelines give CLIP no mask: padding is a part of the text there.
        constexpr bool masked =
            !std::is_same_v<std::remove_cvref_t<decltype(network::config)>, pulse::encode::clip_text_config>;
        std::vector<accumulator> all = pulse::encode::text_facts_of<network, accumulator>(
            1, ids.ids, masked ? std::span<const std::int32_t>{ids.mask} : std::span<const std::int32_t>{}, end_token_);
        for (const std::int32_t one : ids.mask) { all.push_back(static_cast<accumulator>(one)); }
        all.push_back(ids.cut > 0 ? accumulator{1} : accumulator{0});
        return all;
    }
    void take(const std::byte* known, std::span<float> result) {
        states_.get(math_, result.first(state_elements));
        pooled_.get(math_, result.subspan(state_elements, static_cast<std::size_t>(pooled_features)));
        std::array<accumulator, known_elements - fact_elements> rest{};
        get_values<accumulator>(math_, known + fact_elements * sizeof(accumulator), rest);
        std::ranges::transform(rest, result.last(rest.size()).begin(),
                               [](accumulator value) { return static_cast<float>(value); });
    }

    Math& math_;
    std::optional<caption_ids> ids_of_{}; ///< where the first layer is
    std::int32_t end_token_{network::end_token};
    encoder encoder_;
    typename space::template array<accumulator> known_ = typename space::template array<accumulator>(known_elements);
    carried<Math> states_{state_elements};
    carried<Math> pooled_{static_cast<std::size_t>(pooled_features)};
};

/// The text encoders of a folder, which make of a caption all that the model reads of it.
template <class Model, class Math, class Texts = typename frozen_networks<Model>::texts>
class caption_encoder;

template <class Model, class Math, class... Texts>
class caption_encoder<Model, Math, std::tuple<Texts...>> {
    static constexpr sample_row row{pulse::conditions_read_by<Model>()};
    static constexpr std::size_t state_tensors = row.count(pulse::condition_kind::text_states);

    /// The condition to which the states of a text encoder belong, and the first of its features there.
    struct states_place {
        std::size_t which{};
        int column{};
    };
    [[nodiscard]] static constexpr auto places() {
        std::array<states_place, sizeof...(Texts)> all{};
        std::array<int, sizeof...(Texts)> features{frozen_text<Texts, Math>::features...};
        int column = 0;
        for (std::size_t i = 0; i != all.size(); ++i) {
            const bool apart = std::cmp_less(i, state_tensors); // nvcc refuses a plain comparison with 0
            if (apart) { column = 0; }
            all[i] = {row.find(pulse::condition_kind::text_states, apart ? i : state_tensors - 1), column};
            column += features[i];
        }
        return all;
    }
    /// Whether every number that a caption decides is one that the encoders give.
    [[nodiscard]] static constexpr bool fits() {
        std::int64_t wanted = 0;
        for (const pulse::condition& one : row.wanted.all()) {
            if (one.kind == pulse::condition_kind::text_mask) {
                if (one.features != 1 || one.tokens != (0 + ... + frozen_text<Texts, Math>::tokens)) { return false; }
            } else if (is_of_caption(one.kind)) {
                wanted += one.elements();
            }
        }
        [[maybe_unused]] const bool pools = row.count(pulse::condition_kind::pooled_text) == 1;
        std::int64_t given = 0;
        ((given += frozen_text<Texts, Math>::network::states::elements +
                   (pools ? frozen_text<Texts, Math>::pooled_features : 0)),
         ...);
        return wanted == given;
    }
    static_assert(fits(), "the text encoders give what the backbone reads");

public:
    static constexpr std::int64_t bytes = (std::int64_t{0} + ... + frozen_text<Texts, Math>::bytes);
    static constexpr std::size_t count = sizeof...(Texts);
    using networks = std::tuple<frozen_text<Texts, Math>...>;

    /// The components that all depends on.
    static std::vector<std::string> components() {
        std::vector<std::string> all;
        ((all.push_back(Texts::component.str()), all.push_back(Texts::tokenizer.str())), ...);
        return all;
    }
    /// Throws input_error unless the folder has all that is needed.
    static void require([[maybe_unused]] const arguments& a) { (frozen_text<Texts, Math>::require(a), ...); }

    /// How long captions are to each tokenizer, in words.
    [[nodiscard]] static std::string lengths([[maybe_unused]] const std::filesystem::path& folder,
                                             [[maybe_unused]] const picture_source& pictures) {
        std::string all;
        ((all += (all.empty() ? "" : "; ") + frozen_text<Texts, Math>::lengths(folder, pictures)), ...);
        return all;
    }

    /// Without networks.
    caption_encoder() = default;
    caption_encoder(const std::filesystem::path& folder, Math& math) {
        for (std::size_t which = 0; which != count; ++which) { host(which, folder, math); }
    }
    /// Loads network `which`, or some of its layers (frozen_text).
    void host(std::size_t which, const std::filesystem::path& folder, Math& math,
              const std::vector<bool>& layers = {}) {
        visit(which, [&](auto& network) { network.emplace(folder, math, layers); });
    }

    /// Writes what a text decides of a sample's row; messages call it `what`. Whether a network takes less of it.
    bool run(std::string_view text, std::string_view what, std::span<float> of_sample) {
        bool cut = false;
        for (std::size_t which = 0; which != count; ++which) {
            visit(which, [&](auto& network) {
                result_.resize(network->result_elements);
                network->run(text, what, result_);
            });
            cut |= write(which, result_, of_sample);
        }
        return cut;
    }
    /// Layers of network `which` (frozen_text).
    void run_layers(std::size_t which, const layers_of_chain& layers, std::string_view text, std::string_view what,
                    std::span<float> result) {
        visit(which, [&](auto& network) { network->run_layers(layers, text, what, result); });
    }
    /// Writes what the result of network `which` decides of a sample's row. Whether it takes less of the text.
    static bool write(std::size_t which, std::span<const float> result, [[maybe_unused]] std::span<float> of_sample) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            static_cast<void>(((I == which && (write_of<I>(result, of_sample), true)) || ...));
        }
        (std::index_sequence_for<Texts...>{});
        return result.back() != 0.0F;
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return std::apply([](const auto&... each) { return (std::int64_t{0} + ... + (each ? each->used_bytes() : 0)); },
                          networks_);
    }

private:
    template <class Take>
    void visit(std::size_t which, const Take& take) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            static_cast<void>(((I == which && (take(std::get<I>(networks_)), true)) || ...));
        }
        (std::index_sequence_for<Texts...>{});
    }
    template <std::size_t I>
    static void write_of(std::span<const float> result, std::span<float> of_sample) {
        using network = std::tuple_element_t<I, networks>;
        constexpr states_place to = places()[I];
        put(result.first(network::state_elements), static_cast<std::size_t>(network::features),
            row.of(of_sample, to.which).subspan(static_cast<std::size_t>(to.column)),
            static_cast<std::size_t>(row.wanted.all()[to.which].features));
        if constexpr (row.count(pulse::condition_kind::pooled_text) != 0) {
            constexpr auto pooled = static_cast<std::size_t>(network::pooled_features);
            std::ranges::copy(result.subspan(network::state_elements, pooled),
                              row.of(of_sample, row.find(pulse::condition_kind::pooled_text)).begin());
        }
        if constexpr (row.count(pulse::condition_kind::text_mask) != 0) {
            constexpr auto tokens = static_cast<std::size_t>(network::tokens);
            std::ranges::copy(result.last(tokens + 1).first(tokens),
                              row.of(of_sample, row.find(pulse::condition_kind::text_mask)).begin() + tokens_before(I));
        }
    }
    /// Of the networks before one.
    [[nodiscard]] static constexpr int tokens_before(std::size_t which) noexcept {
        const std::array<int, count> tokens{frozen_text<Texts, Math>::tokens...};
        int sum = 0;
        for (std::size_t i = 0; i != which; ++i) { sum += tokens[i]; }
        return sum;
    }
    /// Rows of `width` numbers into rows of `pitch`.
    static void put(std::span<const float> from, std::size_t width, std::span<float> to, std::size_t pitch) {
        for (std::size_t i = 0; i * width != from.size(); ++i) {
            std::ranges::copy(from.subspan(i * width, width), to.begin() + static_cast<std::ptrdiff_t>(i * pitch));
        }
    }

    std::tuple<std::optional<frozen_text<Texts, Math>>...> networks_{};
    std::vector<float> result_{}; ///< of one network
};

} // namespace pulse_train
