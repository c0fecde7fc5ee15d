#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse::detail {

/// Sums of a table over ranges of layers, and its edges in forms that are fast to search.
struct layer_sums {
    int layers{};
    std::vector<double> load{};         ///< load of layers [0, c), microseconds at speed 1
    std::vector<std::int64_t> memory{}; ///< bytes of layers [0, c)
    std::vector<std::int64_t> sent{};   ///< bytes sent by a cut before layer c
    std::vector<int> sources{};         ///< of the skips, ordered by target
    std::vector<int> targets{};
    std::vector<int> first_source{}; ///< the skips into layer l are at [first_source[l], first_source[l+1])
    /// [c]: exclusive or, over all ends of skips before layer c, of a random number per skip. Only if code[a] ==
    /// code[b] do layers [a, b) hold both ends or no end of every skip.
    std::vector<std::uint64_t> code{};
    std::vector<int> by_code{}; ///< 0 to n, ascending by code, then by value

    constexpr layer_sums(const cost_table& costs, const memory_model& memory_of) :
        layers(static_cast<int>(costs.layers.size())) {
        const std::size_t n = costs.layers.size();
        load.assign(n + 1, 0.0);
        memory.assign(n + 1, 0);
        sent.assign(n + 1, 0);
        code.assign(n + 1, 0);
        first_source.assign(n + 1, 0);
        for (std::size_t l = 0; l != n; ++l) {
            load[l + 1] = load[l] + costs.layers[l].load_us();
            memory[l + 1] = memory[l] + memory_of.bytes_of(costs.layers[l]);
            sent[l + 1] = costs.layers[l].sent_bytes() + costs.conditioning_bytes;
        }
        std::size_t skips = 0;
        for (const skip_cost& edge : costs.skips) {
            const std::uint64_t number = random_number(++skips);
            code[static_cast<std::size_t>(edge.from) + 1] ^= number;
            code[static_cast<std::size_t>(edge.to) + 1] ^= number;
            ++first_source[static_cast<std::size_t>(edge.to) + 1];
        }
        for (std::size_t l = 0; l != n; ++l) {
            first_source[l + 1] += first_source[l];
            code[l + 1] ^= code[l];
        }
        std::vector<int> next = first_source;
        sources.assign(skips, 0);
        targets.assign(skips, 0);
        for (const skip_cost& edge : costs.skips) {
            const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(edge.to)]++);
            sources[at] = edge.from;
            targets[at] = edge.to;
        }
        sort_codes();
    }

    /// Removes all edges, and the bytes that cuts send.
    constexpr void forget_edges() {
        sources.clear();
        targets.clear();
        std::fill(first_source.begin(), first_source.end(), 0);
        std::fill(sent.begin(), sent.end(), std::int64_t{0});
        std::fill(code.begin(), code.end(), std::uint64_t{0});
        sort_codes();
    }

private:
    /// The i-th number of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    [[nodiscard]] static constexpr std::uint64_t random_number(std::uint64_t i) noexcept {
        std::uint64_t z = i * 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    constexpr void sort_codes() {
        by_code.assign(code.size(), 0);
        for (std::size_t c = 0; c != code.size(); ++c) { by_code[c] = static_cast<int>(c); }
        std::sort(by_code.begin(), by_code.end(), [this](int a, int b) {
            const std::uint64_t of_a = code[static_cast<std::size_t>(a)];
            const std::uint64_t of_b = code[static_cast<std::size_t>(b)];
            return of_a < of_b || (of_a == of_b && a < b);
        });
    }
};

} // namespace pulse::detail
