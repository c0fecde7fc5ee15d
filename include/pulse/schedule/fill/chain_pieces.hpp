#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <pulse/profile/frozen_component.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/frozen_work.hpp>

namespace pulse::detail {

/// Layers of a component on one chunk of samples that one device runs.
struct chain_piece {
    int component{};
    int first_sample{};
    int samples{};
    int first_layer{};
    int last_layer{};
    int device{};
    /// The piece that gives this one its input, and the one that reads its output: -1 at the ends of a chain.
    int before{-1};
    int after{-1};
};

/// The samples of a component in as few chunks of at most `most` as there can be, of nearly equal sizes.
[[nodiscard]] constexpr std::vector<int> chunks_of(int samples, int most) {
    const int count = (samples + most - 1) / most;
    std::vector<int> sizes{};
    for (int i = 0; i != count; ++i) { sizes.push_back(samples / count + (i < samples % count ? 1 : 0)); }
    return sizes;
}

/// The components in the order in which they are cut: what rounding to whole layers leaves, the next ones level out, so
/// those with few hosts come first, then those with long layers.
[[nodiscard]] constexpr std::vector<std::size_t> cutting_order(const frozen_work& work, int devices,
                                                               const std::vector<int>& chunk) {
    std::vector<std::size_t> order{};
    std::vector<std::pair<int, double>> key(work.components.size());
    for (std::size_t c = 0; c != key.size(); ++c) {
        order.push_back(c);
        for (int d = 0; d != devices; ++d) { key[c].first += work.may_host(static_cast<int>(c), d) ? 1 : 0; }
        for (const frozen_layer& l : work.components[c].layers) {
            key[c].second = std::min(key[c].second, -l.duration_us(chunk[c]));
        }
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return key[a] < key[b] || (key[a] == key[b] && a < b); });
    return order;
}

/// The shares of a component end to end, in the order of `line`: where each ends, and whose it is. Where there is
/// nothing to share the first host has it.
[[nodiscard]] constexpr std::vector<std::pair<double, int>> share_ends(const frozen_work& work, int component,
                                                                       const std::vector<double>& share_us,
                                                                       const std::vector<int>& line) {
    std::vector<std::pair<double, int>> ends{};
    double end = 0;
    for (const int d : line) {
        const double share = share_us[static_cast<std::size_t>(d)];
        if (share > 0) { ends.emplace_back(end += share, d); }
    }
    for (int d = 0; ends.empty(); ++d) {
        if (work.may_host(component, d)) { ends.emplace_back(0.0, d); }
    }
    return ends;
}

/// Cuts the chains of all components over the devices so that they come up to the fairest levels above `level_us`.
///
/// McNaughton's wrap-around: the chunks of a component in one line, cut where one device's share ends, at the boundary
/// of layers that is nearest; so of each component at most one chain fewer than it has devices is cut. The line meets
/// the devices as `line` lists them. Without `cut`, whole chains are dealt.
[[nodiscard]] constexpr std::vector<chain_piece> cut_chains(const frozen_work& work, std::vector<double> level_us,
                                                            const std::vector<int>& chunk, const std::vector<int>& line,
                                                            bool cut) {
    std::vector<std::vector<int>> chunks{};
    std::vector<double> amount{}; // of what is not cut yet
    for (std::size_t c = 0; c != work.components.size(); ++c) {
        chunks.push_back(chunks_of(work.samples, chunk[c]));
        amount.push_back(0.0);
        for (const int k : chunks[c]) { amount[c] += work.components[c].duration_us(k); }
    }
    std::vector<chain_piece> out{};
    for (const std::size_t c : cutting_order(work, static_cast<int>(level_us.size()), chunk)) {
        const frozen_component& of = work.components[c];
        const auto ends = share_ends(work, static_cast<int>(c), share_frozen(work, level_us, amount).share_us[c], line);
        const auto device_at = [&](double at) {
            for (const auto& [end, device] : ends) {
                if (end > at) { return device; }
            }
            return ends.back().second;
        };
        amount[c] = 0;
        double at = 0;
        int sample = 0;
        for (const int k : chunks[c]) {
            chain_piece piece{static_cast<int>(c), sample, k, 0, 0, 0};
            sample += k;
            int device = device_at(at + of.duration_us(k) / 2);
            for (int l = 0; l != static_cast<int>(of.layers.size()); ++l) {
                const double length = of.layers[static_cast<std::size_t>(l)].duration_us(k);
                if (cut) { device = device_at(at + length / 2); } // what is half done belongs to whom it began
                if (l != 0 && device != piece.device) {
                    piece.last_layer = l - 1;
                    piece.after = static_cast<int>(out.size()) + 1;
                    out.push_back(piece);
                    piece.before = static_cast<int>(out.size()) - 1;
                    piece.first_layer = l;
                    piece.after = -1;
                }
                piece.device = device;
                level_us[static_cast<std::size_t>(device)] += length;
                at += length;
            }
            piece.last_layer = static_cast<int>(of.layers.size()) - 1;
            out.push_back(piece);
        }
    }
    return out;
}

} // namespace pulse::detail
