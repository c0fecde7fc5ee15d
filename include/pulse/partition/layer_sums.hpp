#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse::detail {

/// Sums of a table over ranges of layers, and its edges in the forms that the search reads again and again.
struct layer_sums {
    int layers{};
    skip_routing routing{skip_routing::relayed};
    std::vector<double> load{};         ///< load of layers [0, c), microseconds at speed 1
    std::vector<std::int64_t> memory{}; ///< bytes of layers [0, c)
    std::vector<std::int64_t> sent{};   ///< bytes sent by a cut before layer c, relayed residual edges included
    std::vector<int> sources{};         ///< of the skips, ascending by target; residual edges are none of them
    std::vector<int> targets{};
    std::vector<int> first_source{}; ///< the skips into layer l are at [first_source[l], first_source[l+1])
    /// [c]: exclusive or of a random number per skip over all ends of skips before layer c. Layers [a, b) hold both
    /// ends of a skip or none, of every skip, only if code[a] == code[b].
    std::vector<std::uint64_t> code{};
    std::vector<int> by_code{}; ///< 0 to n, ascending by code, then by value
    /// [x * (n + 1) + y]: bytes of the residual edges from before layer x to before layer y; empty without such edges.
    std::vector<std::int64_t> residual{};

    constexpr layer_sums(const cost_table& costs, const memory_model& memory_of,
                         skip_routing residual_routing = skip_routing::relayed) :
        layers(static_cast<int>(costs.layers.size())),
        routing(residual_routing) {
        const std::size_t n = costs.layers.size();
        load.assign(n + 1, 0.0);
        memory.assign(n + 1, 0);
        sent.assign(n + 1, 0);
        code.assign(n + 1, 0);
        first_source.assign(n + 1, 0);
        for (std::size_t l = 0; l != n; ++l) {
            load[l + 1] = load[l] + costs.layers[l].load_us();
            memory[l + 1] = memory[l] + memory_of.bytes_of(costs.layers[l]);
            sent[l + 1] = costs.layers[l].output_bytes + costs.conditioning_bytes;
        }
        std::size_t skips = 0;
        for (const skip_cost& edge : costs.skips) {
            if (edge.residual) {
                add_residual(edge);
                continue;
            }
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
            if (edge.residual) { continue; }
            const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(edge.to)]++);
            sources[at] = edge.from;
            targets[at] = edge.to;
        }
        sort_codes();
        if (residual.empty()) { return; }
        const std::size_t width = n + 1;
        for (std::size_t x = 1; x <= n; ++x) {
            for (std::size_t y = 1; y <= n; ++y) {
                residual[x * width + y] +=
                    residual[(x - 1) * width + y] + residual[x * width + y - 1] - residual[(x - 1) * width + y - 1];
            }
        }
    }

    /// Bytes of the residual edges from layers [a, b) to layers [c, d).
    [[nodiscard]] constexpr std::int64_t residual_between(int a, int b, int c, int d) const noexcept {
        const auto before = [this](int x, int y) {
            return residual[static_cast<std::size_t>(x) * static_cast<std::size_t>(layers + 1) +
                            static_cast<std::size_t>(y)];
        };
        return before(b, d) - before(a, d) - before(b, c) + before(a, c);
    }

    /// Takes all edges away, and what cuts send.
    constexpr void forget_edges() {
        sources.clear();
        targets.clear();
        residual.clear();
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
    constexpr void add_residual(const skip_cost& edge) {
        const auto width = static_cast<std::size_t>(layers) + 1;
        if (residual.empty()) { residual.assign(width * width, 0); }
        residual[static_cast<std::size_t>(edge.from + 1) * width + static_cast<std::size_t>(edge.to) + 1] += edge.bytes;
        if (routing == skip_routing::direct) { return; }
        for (int c = edge.from + 1; c <= edge.to; ++c) { sent[static_cast<std::size_t>(c)] += edge.bytes; }
    }
};

} // namespace pulse::detail
