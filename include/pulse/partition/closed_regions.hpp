#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/layer_sums.hpp>

namespace pulse::detail {

/// Bounds on the total load of devices d to P-1, for d = 1 to P-1, if no device may work longer than a limit.
struct load_windows {
    std::vector<double> least{}; ///< [d]; microseconds at speed 1
    std::vector<double> most{};

    constexpr load_windows(double total_us, const std::vector<double>& speed, double limit_us) {
        const double rounding = 1e-9 * total_us;
        least.assign(speed.size(), 0.0);
        most.assign(speed.size(), 0.0);
        double outside = 0.0;
        double all = 0.0;
        for (const double s : speed) { all += s; }
        for (std::size_t d = 0; d != speed.size(); ++d) {
            least[d] = total_us - outside * limit_us - rounding;
            most[d] = (all - outside) * limit_us + rounding;
            outside += speed[d];
        }
    }
};

/// The layers that devices d to P-1 may hold together: W intervals [cut[0], cut[1]), [cut[2], cut[3]), ..., one per
/// wave, closed (no skip has one end inside and one outside). Regions are in ascending order of their cuts.
struct closed_regions {
    int waves{1};
    std::size_t size{0};
    std::vector<int> cuts{}; ///< 2W per region
    std::vector<double> load{};
    std::vector<std::int64_t> memory{};
    std::vector<std::int64_t> sent{}; ///< bytes that its 2W ends send, one direction
    std::vector<int> least_level{};   ///< lowest d for which it may belong to devices d to P-1
    std::vector<int> most_level{};    ///< highest such d; both by the layers that the stages inside and outside need

    [[nodiscard]] constexpr const int* cut(std::size_t region) const noexcept {
        return cuts.data() + region * static_cast<std::size_t>(2 * waves);
    }
};

/// Lists closed regions by labelling layers inside or outside, from the first layer to the beginning of the last
/// interval, whose possible ends follow from the code there. It drops a prefix as soon as a skip within it has one end
/// inside and one outside, or no level allows its load or its few layers inside or outside.
struct region_search {
    const layer_sums& sums;
    const load_windows& windows;
    int waves;
    int devices;
    std::size_t limit;
    std::vector<char> inside{};
    std::vector<int> chosen{};
    closed_regions out{};

    // Before cut k, segments 0, 2, ... are outside, 1, 3, ... inside. The devices of level d need `devices - d` layers
    // at both ends of every interval, the others d layers at both ends of every gap and at the model's ends.
    struct prefix {
        int least_level{}; // levels for which the segments have enough layers
        int most_level{};
        double load_inside{};
        double load_outside{};
        std::uint64_t code{}; // of all layers inside
    };

    [[nodiscard]] constexpr int ends_of(int segment) const noexcept {
        return segment == 0 || segment == 2 * waves ? 1 : 2;
    }
    [[nodiscard]] constexpr int least_length(int segment, const prefix& at) const noexcept {
        return ends_of(segment) * (segment % 2 == 1 ? devices - at.most_level : at.least_level);
    }
    [[nodiscard]] constexpr double load_of(int first, int last) const noexcept {
        return sums.load[static_cast<std::size_t>(last)] - sums.load[static_cast<std::size_t>(first)];
    }
    [[nodiscard]] constexpr std::uint64_t code_at(int c) const noexcept {
        return sums.code[static_cast<std::size_t>(c)];
    }
    [[nodiscard]] constexpr bool too_heavy(const prefix& at) const noexcept {
        return at.load_inside > windows.most[static_cast<std::size_t>(at.least_level)] ||
               at.load_outside > sums.load.back() - windows.least[static_cast<std::size_t>(at.most_level)];
    }

    constexpr void extend(int segment, int begin, const prefix& before) {
        if (segment + 1 == 2 * waves) {
            end_last_interval(begin, before);
            return;
        }
        const bool in = segment % 2 == 1;
        const int shortest = least_length(segment, before);
        int after = 0;
        for (int later = segment + 1; later <= 2 * waves; ++later) { after += least_length(later, before); }
        const int last = sums.layers - after;
        prefix at = before;
        for (int l = begin;; ++l) {
            (in ? at.load_inside : at.load_outside) =
                (in ? before.load_inside : before.load_outside) + load_of(begin, l);
            if (too_heavy(at)) { return; }
            if (l - begin >= shortest) {
                prefix next = at;
                const int room = (l - begin) / ends_of(segment);
                if (in) {
                    next.least_level = std::max(next.least_level, devices - room);
                    next.code ^= code_at(begin) ^ code_at(l);
                } else {
                    next.most_level = std::min(next.most_level, room);
                }
                chosen[static_cast<std::size_t>(segment)] = l;
                if (next.least_level <= next.most_level && !too_heavy(next)) { extend(segment + 1, l, next); }
            }
            if (l >= last) { return; }
            const auto here = static_cast<std::size_t>(l);
            inside[here] = in ? 1 : 0;
            for (int e = sums.first_source[here]; e != sums.first_source[here + 1]; ++e) {
                const int source = sums.sources[static_cast<std::size_t>(e)];
                if ((inside[static_cast<std::size_t>(source)] != 0) != in) { return; }
            }
        }
    }

    // Positions with one code are ascending, and so are their loads: the levels whose windows hold a load only descend.
    constexpr void end_last_interval(int begin, const prefix& at) {
        const std::uint64_t wanted = at.code ^ code_at(begin);
        const int shortest = begin + least_length(2 * waves - 1, at);
        auto c = std::lower_bound(sums.by_code.begin(), sums.by_code.end(), shortest, [&](int position, int least) {
            const std::uint64_t code = code_at(position);
            return code < wanted || (code == wanted && position < least);
        });
        int lowest = devices; // lowest level whose window begins at or below the load
        int highest = devices - 1;
        for (; c != sums.by_code.end() && *c < sums.layers && code_at(*c) == wanted; ++c) {
            const int end = *c;
            const double load = at.load_inside + load_of(begin, end);
            while (lowest > 1 && windows.least[static_cast<std::size_t>(lowest) - 1] <= load) { --lowest; }
            while (highest > 0 && windows.most[static_cast<std::size_t>(highest)] < load) { --highest; }
            if (highest < at.least_level) { return; }
            const int least_level = std::max(at.least_level, devices - (end - begin) / 2);
            const int most_level = std::min(at.most_level, sums.layers - end);
            if (std::max(least_level, lowest) > std::min(most_level, highest)) { continue; }
            chosen.back() = end;
            if (is_closed()) { keep(least_level, most_level, load); }
        }
    }

    [[nodiscard]] constexpr bool contains(int layer) const noexcept {
        bool in = false;
        for (const int c : chosen) { in = in != (c <= layer); }
        return in;
    }
    // Codes may be equal by accident.
    [[nodiscard]] constexpr bool is_closed() const noexcept {
        for (std::size_t e = 0; e != sums.sources.size(); ++e) {
            if (contains(sums.sources[e]) != contains(sums.targets[e])) { return false; }
        }
        return true;
    }

    constexpr void keep(int least_level, int most_level, double load) {
        if (out.size == limit) {
            throw error("partition: more than " + std::to_string(limit) +
                        " closed regions (region_limit); use fewer waves or a larger region_limit");
        }
        ++out.size;
        std::int64_t memory = 0;
        std::int64_t sent = 0;
        for (std::size_t k = 0; k != chosen.size(); ++k) {
            const auto c = static_cast<std::size_t>(chosen[k]);
            memory += k % 2 == 1 ? sums.memory[c] : -sums.memory[c];
            sent += sums.sent[c];
            out.cuts.push_back(chosen[k]);
        }
        out.load.push_back(load);
        out.memory.push_back(memory);
        out.sent.push_back(sent);
        out.least_level.push_back(least_level);
        out.most_level.push_back(most_level);
    }
};

/// All closed regions of W intervals that devices d to P-1 may hold for some d from 1 to P-1: with a layer for every
/// stage inside and outside, and a load within the window of that d. Throws error if there are more than `limit`.
[[nodiscard]] constexpr closed_regions list_closed_regions(const layer_sums& sums, int waves,
                                                           const load_windows& windows, std::size_t limit) {
    const auto devices = static_cast<int>(windows.least.size());
    region_search search{sums, windows, waves, devices, limit, {}, {}, {}};
    search.inside.assign(static_cast<std::size_t>(sums.layers), 0);
    search.chosen.assign(static_cast<std::size_t>(2 * waves), 0);
    search.out.waves = waves;
    search.extend(0, 0, {1, devices - 1, 0.0, 0.0, 0});
    return std::move(search.out);
}

} // namespace pulse::detail
