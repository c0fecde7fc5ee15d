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

/// Cuts the chains of all components over the devices so that they come up to the fairest levels above `level_us`.
///
/// McNaughton's wrap-around: the chunks of a component in one line, cut where one device's share ends, at the boundary
/// of layers that is nearest; so of each component at most one chain fewer than it has devices is cut. Components with
/// few hosts come first, then those with long layers: what rounding leaves, the next ones level out. The line meets the
/// devices as `line` lists them. Without `cut`, whole chains are dealt.
[[nodiscard]] constexpr std::vector<chain_piece> cut_chains(const frozen_work& work, std::vector<double> level_us,
                                                            const std::vector<int>& chunk, const std::vector<int>& line,
                                                            bool cut) {
    const int devices = static_cast<int>(level_us.size());
    std::vector<std::size_t> order(work.components.size(), 0);
    std::vector<std::pair<int, double>> key(order.size());
    for (std::size_t c = 0; c != order.size(); ++c) {
        order[c] = c;
        for (int d = 0; d != devices; ++d) { key[c].first += work.may_host(static_cast<int>(c), d) ? 1 : 0; }
        for (const frozen_layer& l : work.components[c].layers) {
            key[c].second = std::min(key[c].second, -l.duration_us(chunk[c]));
        }
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return key[a] < key[b] || (key[a] == key[b] && a < b); });
    std::vector<chain_piece> out{};
    frozen_work left = work; // in this order, so that sharing can begin at any of them
    for (std::size_t i = 0; i != order.size(); ++i) { left.components[i] = work.components[order[i]]; }
    for (auto& here : left.hosts) {
        for (int& c : here) {
            c = static_cast<int>(std::find(order.begin(), order.end(), static_cast<std::size_t>(c)) - order.begin());
        }
    }
    std::vector<double> amount(order.size(), 0.0);
    for (std::size_t i = 0; i != order.size(); ++i) {
        for (const int k : chunks_of(work.samples, chunk[order[i]])) { amount[i] += left.components[i].duration_us(k); }
    }
    for (std::size_t i = 0; i != order.size(); ++i) {
        const frozen_component& of = left.components[i];
        const auto share = share_frozen(left, level_us, amount, i).share_us[i];
        std::vector<int> hosts{}; // which have a share; one, where there is nothing to share
        for (const int d : line) {
            if (share[static_cast<std::size_t>(d)] > 0) { hosts.push_back(d); }
        }
        for (int d = 0; hosts.empty(); ++d) {
            if (left.may_host(static_cast<int>(i), d)) { hosts.push_back(d); }
        }
        std::size_t turn = 0;
        int device = hosts[0];
        double due = share[static_cast<std::size_t>(device)]; // where on the line the device's share ends
        const auto go_on = [&](double to) {                   // to the device whose share has room at `to`
            while (turn + 1 != hosts.size() && !(due > to)) {
                device = hosts[++turn];
                due += share[static_cast<std::size_t>(device)];
            }
        };
        double at = 0;
        int sample = 0;
        for (const int k : chunks_of(work.samples, chunk[order[i]])) {
            chain_piece piece{static_cast<int>(order[i]), sample, k, 0, 0, 0};
            sample += k;
            const double whole = of.duration_us(k);
            if (!cut) { go_on(at + whole / 2); }
            for (int l = 0; l != static_cast<int>(of.layers.size()); ++l) {
                const double length = of.layers[static_cast<std::size_t>(l)].duration_us(k);
                if (cut) { go_on(at + length / 2); } // what is half done belongs to whom it began
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
