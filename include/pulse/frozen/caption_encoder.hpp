#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/diffusers/model_files.hpp>
#include <pulse/frozen/chain.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/frozen/text.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// The text encoders of a pipeline, which compute everything that the model reads of a caption.
template <class Model, class Math, class Texts = typename networks_of<Model>::texts>
class caption_encoder;

template <class Model, class Math, class... Texts>
class caption_encoder<Model, Math, std::tuple<Texts...>> {
    static constexpr sample_row row{conditions_read_by<Model>()};
    static constexpr std::size_t state_tensors = row.count(condition_kind::text_states);

    /// The condition that receives a text encoder's states, and the column of their first feature there.
    struct states_place {
        std::size_t which{};
        int column{};
    };
    [[nodiscard]] static constexpr auto places() {
        std::array<states_place, sizeof...(Texts)> all{};
        std::array<int, sizeof...(Texts)> features{folder_text<Texts, Math>::features...};
        int column = 0;
        for (std::size_t i = 0; i != all.size(); ++i) {
            const bool apart = std::cmp_less(i, state_tensors); // nvcc refuses a plain comparison with 0
            if (apart) { column = 0; }
            all[i] = {row.find(condition_kind::text_states, apart ? i : state_tensors - 1), column};
            column += features[i];
        }
        return all;
    }
    /// Whether the encoders produce exactly the values that depend on a caption.
    [[nodiscard]] static constexpr bool fits() {
        std::int64_t wanted = 0;
        for (const condition& one : row.wanted.all()) {
            if (one.kind == condition_kind::text_mask) {
                if (one.features != 1 || one.tokens != (0 + ... + folder_text<Texts, Math>::tokens)) { return false; }
            } else if (is_of_caption(one.kind)) {
                wanted += one.elements();
            }
        }
        [[maybe_unused]] const bool pools = row.count(condition_kind::pooled_text) == 1;
        std::int64_t given = 0;
        ((given += std::int64_t{folder_text<Texts, Math>::state_elements} +
                   (pools ? folder_text<Texts, Math>::pooled_features : 0)),
         ...);
        return wanted == given;
    }
    static_assert(fits(), "the text encoders must give what the backbone reads");

public:
    static constexpr std::int64_t bytes = (std::int64_t{0} + ... + folder_text<Texts, Math>::bytes);
    static constexpr std::size_t count = sizeof...(Texts);

    /// Without networks.
    caption_encoder() = default;
    caption_encoder(const diffusers::model_files& from, Math& math) {
        for (std::size_t which = 0; which != count; ++which) { host(which, from, math); }
    }
    /// Loads network `which`, or only some of its layers, for calls of up to `texts` texts (folder_text).
    void host(std::size_t which, const diffusers::model_files& from, Math& math, const std::vector<bool>& layers = {},
              int texts = 1) {
        visit(which, [&](auto& network) { network.emplace(from, math, layers, texts); });
    }

    /// Writes the part of a sample's row that its text decides; messages call it `what`. Returns whether it was cut.
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
    /// Runs one call of network `which` (folder_text).
    void run_layers(std::size_t which, std::span<const text_of_call> all) {
        visit(which, [&](auto& network) { network->run_layers(all); });
    }
    /// Writes the part of a sample's row that network `which` computes. Returns whether the text was cut.
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
        using network = folder_text<std::tuple_element_t<I, std::tuple<Texts...>>, Math>;
        constexpr states_place to = places()[I];
        put(result.first(network::state_elements), static_cast<std::size_t>(network::features),
            row.of(of_sample, to.which).subspan(static_cast<std::size_t>(to.column)),
            static_cast<std::size_t>(row.wanted.all()[to.which].features));
        if constexpr (row.count(condition_kind::pooled_text) != 0) {
            constexpr auto pooled = static_cast<std::size_t>(network::pooled_features);
            std::ranges::copy(result.subspan(network::state_elements, pooled),
                              row.of(of_sample, row.find(condition_kind::pooled_text)).begin());
        }
        if constexpr (row.count(condition_kind::text_mask) != 0) {
            constexpr auto tokens = static_cast<std::size_t>(network::tokens);
            std::ranges::copy(result.last(tokens + 1).first(tokens),
                              row.of(of_sample, row.find(condition_kind::text_mask)).begin() + tokens_before(I));
        }
    }
    /// Tokens of the networks before `which`.
    [[nodiscard]] static constexpr int tokens_before(std::size_t which) noexcept {
        const std::array<int, count> tokens{folder_text<Texts, Math>::tokens...};
        int sum = 0;
        for (std::size_t i = 0; i != which; ++i) { sum += tokens[i]; }
        return sum;
    }
    /// Copies rows of `width` numbers into rows of `pitch`.
    static void put(std::span<const float> from, std::size_t width, std::span<float> to, std::size_t pitch) {
        for (std::size_t i = 0; i * width != from.size(); ++i) {
            std::ranges::copy(from.subspan(i * width, width), to.begin() + static_cast<std::ptrdiff_t>(i * pitch));
        }
    }

    std::tuple<std::optional<folder_text<Texts, Math>>...> networks_{};
    std::vector<float> result_{}; ///< of one network
};

} // namespace pulse::frozen
