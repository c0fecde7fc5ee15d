#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse::encode {

/// Where the layers of a text encoder find the facts about a batch of texts, as accumulators: ids [batch][tokens], mask
/// [batch][tokens], rows [batch] and buckets [2 tokens - 1], one after the other.
///
/// mask is 0 at padding. rows are the rows of [batch][tokens] whose features are pooled: each text's end. buckets hold
/// the bucket of each distance between two tokens, from 1 - tokens on (T5).
struct text_facts {
    int tokens{};

    [[nodiscard]] constexpr std::int64_t elements(int batch) const noexcept {
        return std::int64_t{batch} * (2 * tokens + 1) + 2 * tokens - 1;
    }
    template <class Frame>
    [[nodiscard]] constexpr auto* ids(const Frame& f) const noexcept {
        return f.facts;
    }
    template <class Frame>
    [[nodiscard]] constexpr auto* mask(const Frame& f) const noexcept {
        return f.facts + std::int64_t{f.batch} * tokens;
    }
    template <class Frame>
    [[nodiscard]] constexpr auto* rows(const Frame& f) const noexcept {
        return f.facts + std::int64_t{f.batch} * 2 * tokens;
    }
    template <class Frame>
    [[nodiscard]] constexpr auto* buckets(const Frame& f) const noexcept {
        return f.facts + std::int64_t{f.batch} * (2 * tokens + 1);
    }
};

/// The facts about `samples` texts for Network, from ids and masks [samples][tokens]; an empty mask has no zeros. A
/// network that pools finds the end of a text by `end_token`.
///
/// Throws input_error for other sizes, and for an id that the network's vocabulary lacks.
template <class Network, class A>
[[nodiscard]] std::vector<A> text_facts_of(int samples, std::span<const std::int32_t> ids,
                                           std::span<const std::int32_t> mask = {},
                                           std::int32_t end_token = Network::end_token) {
    constexpr text_facts facts{Network::tokens};
    const auto tokens = static_cast<std::size_t>(Network::tokens);
    const std::size_t count = samples < 1 ? 0 : static_cast<std::size_t>(samples) * tokens;
    if (count == 0 || ids.size() != count || (!mask.empty() && mask.size() != count)) {
        throw input_error{"pulse: " + Network::name.str() + ": " + std::to_string(ids.size()) + " ids and " +
                          std::to_string(mask.size()) + " mask values do not fit " + std::to_string(samples) +
                          " texts of " + std::to_string(tokens) + " tokens"};
    }
    std::vector<A> all;
    all.reserve(static_cast<std::size_t>(facts.elements(samples)));
    for (const std::int32_t id : ids) {
        if (id < 0 || id >= Network::vocabulary) {
            throw input_error{"pulse: " + Network::name.str() + ": id must be 0 to " +
                              std::to_string(Network::vocabulary - 1) + ", not " + std::to_string(id)};
        }
        all.push_back(static_cast<A>(id));
    }
    for (std::size_t i = 0; i != count; ++i) { all.push_back(static_cast<A>(mask.empty() ? 1 : mask[i])); }
    for (std::size_t first = 0; first != count; first += tokens) {
        all.push_back(static_cast<A>(first + Network::end_of(ids.subspan(first, tokens), end_token)));
    }
    for (int distance = 1 - Network::tokens; distance != Network::tokens; ++distance) {
        all.push_back(static_cast<A>(Network::bucket_of(distance)));
    }
    return all;
}

} // namespace pulse::encode
