#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Sums of a table over ranges of layers, and its skips listed by target: what the search reads again and again.
struct layer_sums {
    int layers{};
    std::vector<double> load{};          ///< load of layers [0, c), microseconds
    std::vector<std::int64_t> memory{};  ///< bytes of layers [0, c)
    std::vector<std::int64_t> sent{};    ///< bytes sent by a cut before layer c
    std::vector<int> starts{};           ///< per source: how many skips leave it
    std::vector<int> sources{};          ///< sources of the skips into layer l are at [first_source[l], first_source[l+1])
    std::vector<int> first_source{};

    constexpr layer_sums(const cost_table& costs, const memory_model& memory_of)
        : layers(static_cast<int>(costs.layers.size())) {
        const std::size_t n = costs.layers.size();
        load.assign(n + 1, 0.0);
        memory.assign(n + 1, 0);
        sent.assign(n + 1, 0);
        starts.assign(n, 0);
        first_source.assign(n + 1, 0);
        for (std::size_t l = 0; l != n; ++l) {
            load[l + 1] = load[l] + costs.layers[l].load_us();
            memory[l + 1] = memory[l] + memory_of.bytes_of(costs.layers[l]);
            sent[l + 1] = costs.layers[l].output_bytes + costs.conditioning_bytes;
        }
        for (const skip_cost& edge : costs.skips) {
            ++starts[static_cast<std::size_t>(edge.from)];
            ++first_source[static_cast<std::size_t>(edge.to) + 1];
        }
        for (std::size_t l = 0; l != n; ++l) { first_source[l + 1] += first_source[l]; }
        std::vector<int> next = first_source;
        sources.assign(costs.skips.size(), 0);
        for (const skip_cost& edge : costs.skips) {
            sources[static_cast<std::size_t>(next[static_cast<std::size_t>(edge.to)]++)] = edge.from;
        }
    }
};

/// The layers that devices d to P-1 may hold together: W intervals [cut[0], cut[1]), [cut[2], cut[3]), ..., one per wave,
/// closed (no skip has one end inside and one outside). Regions are sorted by load.
struct closed_regions {
    int waves{1};
    std::size_t size{0};
    std::vector<int> cuts{}; ///< 2W per region
    std::vector<double> load{};
    std::vector<std::int64_t> memory{};
    std::vector<std::int64_t> sent{}; ///< bytes that its 2W ends send, one direction

    [[nodiscard]] constexpr const int* cut(std::size_t region) const noexcept {
        return cuts.data() + region * static_cast<std::size_t>(2 * waves);
    }
};

namespace detail {

/// Lists closed regions by labelling layers inside or outside from the first to the last, and giving up on a prefix as
/// soon as a skip inside it has unlike ends.
struct region_search {
    const layer_sums& sums;
    int waves;
    std::size_t limit;
    std::vector<char> inside{};
    std::vector<int> chosen{};
    std::vector<int> found{};

    // Segments 0, 2, ... before cut k are outside, 1, 3, ... inside. Each device has a stage in every segment that it
    // touches, so an interval and a gap hold at least two layers and the two ends at least one.
    [[nodiscard]] constexpr int least_length(int segment) const noexcept {
        return segment == 0 || segment == 2 * waves ? 1 : 2;
    }

    // `open`: skips with a source inside that have not met their target yet.
    constexpr void extend(int segment, int begin, int open) {
        const bool in = segment % 2 == 1;
        if (segment == 2 * waves) {
            if (open == 0) {
                if (found.size() >= limit) {
                    throw error("partition: more closed regions than the search may hold; use fewer waves");
                }
                found.insert(found.end(), chosen.begin(), chosen.end());
            }
            return;
        }
        const int shortest = least_length(segment);
        int after = 0;
        for (int later = segment + 1; later <= 2 * waves; ++later) { after += least_length(later); }
        const int last = sums.layers - after;
        for (int l = begin;; ++l) {
            if (l - begin >= shortest) {
                chosen[static_cast<std::size_t>(segment)] = l;
                extend(segment + 1, l, open);
            }
            if (l >= last) { return; }
            const auto at = static_cast<std::size_t>(l);
            inside[at] = in ? 1 : 0;
            for (int e = sums.first_source[at]; e != sums.first_source[at + 1]; ++e) {
                const int source = sums.sources[static_cast<std::size_t>(e)];
                if ((inside[static_cast<std::size_t>(source)] != 0) != in) { return; }
                if (in) { --open; }
            }
            if (in) { open += sums.starts[at]; }
        }
    }
};

} // namespace detail

/// All closed regions of W intervals whose intervals and gaps are long enough for two devices. Throws error when there
/// are more than `limit`.
[[nodiscard]] constexpr closed_regions list_closed_regions(const layer_sums& sums, int waves, std::size_t limit) {
    const auto width = static_cast<std::size_t>(2 * waves);
    detail::region_search search{sums, waves, limit * width, {}, {}, {}};
    search.inside.assign(static_cast<std::size_t>(sums.layers), 0);
    search.chosen.assign(width, 0);
    search.extend(0, 0, 0);

    closed_regions out{};
    out.waves = waves;
    out.size = search.found.size() / width;
    std::vector<double> load(out.size, 0.0);
    std::vector<int> order(out.size, 0);
    for (std::size_t r = 0; r != out.size; ++r) {
        order[r] = static_cast<int>(r);
        for (std::size_t w = 0; w != width; w += 2) {
            const auto first = static_cast<std::size_t>(search.found[r * width + w]);
            const auto last = static_cast<std::size_t>(search.found[r * width + w + 1]);
            load[r] += sums.load[last] - sums.load[first];
        }
    }
    std::sort(order.begin(), order.end(), [&load](int a, int b) {
        const double la = load[static_cast<std::size_t>(a)];
        const double lb = load[static_cast<std::size_t>(b)];
        return la < lb || (la == lb && a < b);
    });
    out.cuts.reserve(out.size * width);
    out.load.reserve(out.size);
    out.memory.reserve(out.size);
    out.sent.reserve(out.size);
    for (const int from : order) {
        const auto r = static_cast<std::size_t>(from);
        std::int64_t memory = 0;
        std::int64_t sent = 0;
        for (std::size_t w = 0; w != width; ++w) {
            const auto at = static_cast<std::size_t>(search.found[r * width + w]);
            memory += w % 2 == 1 ? sums.memory[at] : -sums.memory[at];
            sent += sums.sent[at];
            out.cuts.push_back(search.found[r * width + w]);
        }
        out.load.push_back(load[r]);
        out.memory.push_back(memory);
        out.sent.push_back(sent);
    }
    return out;
}

} // namespace pulse
