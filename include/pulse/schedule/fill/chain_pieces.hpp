#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <pulse/profile/frozen_component.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/frozen_work.hpp>

namespace pulse::detail {

/// Layers of a component that one device runs on one chunk of samples.
struct chain_piece {
    int component{};
    int first_sample{};
    int samples{};
    int first_layer{};
    int last_layer{};
    int device{};
    /// The piece that provides this one's input, and the one that reads its output; -1 at the ends of a chain.
    int before{-1};
    int after{-1};
};

/// Splits the samples of a component into as few chunks of at most `most` as possible, of nearly equal sizes.
[[nodiscard]] constexpr std::vector<int> chunks_of(int samples, int most) {
    const int count = (samples + most - 1) / most;
    std::vector<int> sizes{};
    for (int i = 0; i != count; ++i) { sizes.push_back(samples / count + (i < samples % count ? 1 : 0)); }
    return sizes;
}

/// The order in which the parts are cut; those of one component stay in order. Later parts level out what rounding to
/// whole layers leaves, so parts with few hosts come first, then those of components with long layers.
[[nodiscard]] constexpr std::vector<std::size_t> cutting_order(const frozen_work& work,
                                                               const std::vector<frozen_part>& parts,
                                                               const std::vector<int>& chunk) {
    std::vector<std::size_t> order{};
    std::vector<std::pair<int, double>> key{};
    for (const frozen_part& p : parts) {
        const auto c = static_cast<std::size_t>(p.component);
        order.push_back(order.size());
        key.emplace_back(static_cast<int>(p.hosts.size()), 0.0);
        for (const frozen_layer& l : work.components[c].layers) {
            key.back().second = std::min(key.back().second, -l.duration_us(chunk[c]));
        }
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (key[a] != key[b]) { return key[a] < key[b]; }
        return a < b;
    });
    return order;
}

/// The shares of a part laid end to end, in the order of `line`: the end of each, and its device. When there is nothing
/// to share, the first host gets everything.
[[nodiscard]] constexpr std::vector<std::pair<double, int>> share_ends(const frozen_part& part,
                                                                       const std::vector<double>& share_us,
                                                                       const std::vector<int>& line) {
    std::vector<std::pair<double, int>> ends{};
    double end = 0;
    for (const int d : line) {
        const double share = share_us[static_cast<std::size_t>(d)];
        if (share > 0) { ends.emplace_back(end += share, d); }
    }
    if (ends.empty()) { ends.emplace_back(0.0, part.hosts.front()); }
    return ends;
}

/// Cuts the chains of all components over the devices so that the devices reach the fairest levels above `level_us`.
///
/// McNaughton's wrap-around: the chunks of a part form one line, cut where a device's share ends, at the nearest layer
/// boundary; so fewer chains of a part are cut than the part has devices. `line` gives the order of the devices along
/// the line. Without `cut`, chains of a part are assigned whole.
[[nodiscard]] constexpr std::vector<chain_piece> cut_chains(const frozen_work& work, std::vector<double> level_us,
                                                            const std::vector<int>& chunk, const std::vector<int>& line,
                                                            bool cut) {
    const auto parts = parts_of(work, static_cast<int>(level_us.size()));
    std::vector<double> amount{}; // [part] microseconds not cut yet
    for (const frozen_part& p : parts) {
        const auto c = static_cast<std::size_t>(p.component);
        amount.push_back(0.0);
        for (const int k : chunks_of(work.samples, chunk[c])) {
            amount.back() += work.components[c].duration_us(p.first_layer, p.last_layer, k);
        }
    }
    std::vector<chain_piece> out{};
    std::vector<int> ends_with{}; // [chunk] its last piece so far
    for (const std::size_t p : cutting_order(work, parts, chunk)) {
        const frozen_part& part = parts[p];
        const frozen_component& of = work.components[static_cast<std::size_t>(part.component)];
        const auto chunks = chunks_of(work.samples, chunk[static_cast<std::size_t>(part.component)]);
        const auto ends = share_ends(part, share_frozen(parts, level_us, amount).share_us[p], line);
        const auto device_at = [&](double at) {
            for (const auto& [end, device] : ends) {
                if (end > at) { return device; }
            }
            return ends.back().second;
        };
        amount[p] = 0;
        if (part.first_layer == 0) { ends_with.assign(chunks.size(), -1); }
        double at = 0;
        int sample = 0;
        for (std::size_t i = 0; i != chunks.size(); ++i) {
            const int k = chunks[i];
            int device = device_at(at + of.duration_us(part.first_layer, part.last_layer, k) / 2);
            for (int l = part.first_layer; l <= part.last_layer; ++l) {
                const double length = of.layers[static_cast<std::size_t>(l)].duration_us(k);
                if (cut) { device = device_at(at + length / 2); } // a layer belongs to the device of its midpoint
                if (l == part.first_layer || device != out.back().device) {
                    const int before = ends_with[i];
                    ends_with[i] = static_cast<int>(out.size());
                    if (before >= 0) { out[static_cast<std::size_t>(before)].after = ends_with[i]; }
                    out.push_back({part.component, sample, k, l, l, device, before});
                }
                out.back().last_layer = l;
                level_us[static_cast<std::size_t>(device)] += length;
                at += length;
            }
            sample += k;
        }
    }
    return out;
}

} // namespace pulse::detail
