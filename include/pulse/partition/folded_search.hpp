#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <pulse/partition/closed_regions.hpp>
#include <pulse/partition/fold_terms.hpp>
#include <pulse/partition/layer_sums.hpp>

namespace pulse {

/// What a chain of regions costs, compared in this order: bytes across boundaries in one direction, imbalance between
/// the two stages of a pair summed over all pairs (microseconds), greatest device load.
struct fold_cost {
    std::int64_t bytes{};
    double imbalance_us{};
    double load_us{};

    [[nodiscard]] constexpr bool operator<(const fold_cost& other) const noexcept {
        if (bytes != other.bytes) { return bytes < other.bytes; }
        if (imbalance_us != other.imbalance_us) { return imbalance_us < other.imbalance_us; }
        return load_us < other.load_us;
    }
};

/// Exact search for folded cuts of a table over P >= 2 devices with W waves.
///
/// Let R(d) be the layers of devices d to P-1. Folding makes R(d) a union of W intervals whose 2W ends are exactly the
/// boundaries between devices d-1 and d; every skip is local to a device if and only if every R(d) is closed. So a cut
/// is a chain R(1) > R(2) > ... > R(P-1) of closed regions, each strictly inside the one before at all of its ends; the
/// load of device d is load(R(d)) - load(R(d+1)) over its speed, the bytes are a sum over regions (less what residual
/// edges within a device save, which two neighbouring regions say), and a dynamic program over (d, region) is exact for
/// any W. Inside R(P-1), and around R(1), the last cuts are free and only serve balance.
///
/// A limit on device loads bounds the load of R(d) from both sides; a tight one leaves few regions to each d, and few
/// regions of d+1 inside a region of d.
class folded_search {
public:
    /// `speed` and `memory_limit` have one value per device; a limit of 0 is none.
    constexpr folded_search(const layer_sums& sums, int waves, std::vector<double> speed,
                            std::vector<std::int64_t> memory_limit, std::size_t region_limit) :
        sums_(&sums),
        devices_(static_cast<int>(speed.size())), waves_(waves), speed_(std::move(speed)),
        memory_limit_(std::move(memory_limit)), region_limit_(region_limit), terms_(sums, devices_, waves) {}

private:
    template <class Cost>
    struct outcome {
        Cost cost{};
        std::vector<int> chain{}; ///< the ends of R(1), R(2), ..., R(P-1)
    };
    template <class Cost>
    struct level {
        std::vector<std::size_t> region{};
        std::vector<Cost> cost{};
        std::vector<std::size_t> inner{}; ///< position in the level inside, unused at the innermost
        std::vector<std::size_t> from{};  ///< [c]: position of the first region whose first end is at least c
    };

    const layer_sums* sums_;
    int devices_;
    int waves_;
    std::vector<double> speed_;
    std::vector<std::int64_t> memory_limit_;
    std::size_t region_limit_;
    fold_terms terms_;
    closed_regions regions_{}; // those of a limit of listed_for_, which are those of any lower limit too
    double listed_for_{0.0};

    [[nodiscard]] static constexpr std::size_t at(int i) noexcept { return static_cast<std::size_t>(i); }
    [[nodiscard]] constexpr double load_between(int first, int last) const noexcept {
        return sums_->load[at(last)] - sums_->load[at(first)];
    }
    [[nodiscard]] constexpr bool fits(int device, std::int64_t bytes) const noexcept {
        return memory_limit_[at(device)] == 0 || bytes <= memory_limit_[at(device)];
    }

    /// Calls `visit(position)` for the regions at positions [low, high) of a level that are strictly inside `outer` at
    /// end k and all later ones and leave at most `room` load between. They agree before k, so that k is ascending
    /// there.
    template <class Visit>
    constexpr void visit_inside(const closed_regions& regions, const std::vector<std::size_t>& listed, const int* outer,
                                double room, int k, std::size_t low, std::size_t high, const Visit& visit) const {
        const bool first = k % 2 == 0;
        const auto end_of = [&](std::size_t i) { return regions.cut(listed[i])[k]; };
        const auto bisect = [&](std::size_t from, std::size_t to, const auto& before) {
            while (from != to) {
                const std::size_t middle = from + (to - from) / 2;
                if (before(end_of(middle))) {
                    from = middle + 1;
                } else {
                    to = middle;
                }
            }
            return from;
        };
        std::size_t i =
            bisect(low, high, [&](int end) { return first ? end <= outer[k] : load_between(end, outer[k]) > room; });
        while (i != high) {
            const int end = end_of(i);
            const double used = first ? load_between(outer[k], end) : load_between(end, outer[k]);
            if (first ? used > room : end >= outer[k]) { return; }
            if (k + 1 == 2 * waves_) {
                visit(i);
                ++i;
                continue;
            }
            const std::size_t next = bisect(i, high, [end](int other) { return other <= end; });
            visit_inside(regions, listed, outer, room - used, k + 1, i, next, visit);
            i = next;
        }
    }

    /// The dynamic program: from R(P-1) outwards, keeping for each region of a level the best chain inside it.
    template <class Cost, class Innermost, class Step, class Outermost>
    [[nodiscard]] constexpr outcome<Cost> sweep(double limit_us, const Innermost& innermost, const Step& step,
                                                const Outermost& outermost) {
        const double rounding = 1e-9 * sums_->load.back();
        const load_windows windows{sums_->load.back(), speed_, limit_us};
        if (regions_.size == 0 || limit_us > listed_for_) {
            regions_ = list_closed_regions(*sums_, waves_, windows, region_limit_);
            listed_for_ = limit_us;
        }
        const closed_regions& regions = regions_;
        std::vector<level<Cost>> levels(at(devices_));
        for (int d = devices_ - 1; d >= 1; --d) {
            level<Cost>& here = levels[at(d)];
            const bool last = d == devices_ - 1;
            for (std::size_t r = 0; r != regions.size; ++r) {
                const double load = regions.load[r];
                if (load < windows.least[at(d)] || load > windows.most[at(d)] || d < regions.least_level[r] ||
                    d > regions.most_level[r]) {
                    continue;
                }
                if (last) {
                    const double time = load / speed_.back();
                    if (time > limit_us || !fits(d, regions.memory[r])) { continue; }
                    here.region.push_back(r);
                    here.cost.push_back(innermost(regions, r, time));
                    continue;
                }
                const level<Cost>& next = levels[at(d) + 1];
                bool any = false;
                Cost best{};
                std::size_t best_inner = 0;
                const auto visit = [&](std::size_t i) {
                    const std::size_t inner = next.region[i];
                    const double time = (load - regions.load[inner]) / speed_[at(d)];
                    if (time > limit_us || !fits(d, regions.memory[r] - regions.memory[inner])) { return; }
                    if (!step(regions, d, r, inner, time, next.cost[i], any, best)) { return; }
                    any = true;
                    best_inner = i;
                };
                const int* cut = regions.cut(r);
                const double room = limit_us * speed_[at(d)] + rounding;
                for (int end = cut[0] + 1; end < cut[1] && load_between(cut[0], end) <= room; ++end) {
                    visit_inside(regions, next.region, cut, room - load_between(cut[0], end), 1, next.from[at(end)],
                                 next.from[at(end) + 1], visit);
                }
                if (any) {
                    here.region.push_back(r);
                    here.cost.push_back(best);
                    here.inner.push_back(best_inner);
                }
            }
            if (here.region.empty()) { return {}; }
            here.from.assign(at(sums_->layers) + 2, 0);
            for (const std::size_t r : here.region) { ++here.from[at(regions.cut(r)[0]) + 1]; }
            for (std::size_t c = 1; c != here.from.size(); ++c) { here.from[c] += here.from[c - 1]; }
        }
        return close(regions, levels, limit_us, outermost);
    }

    template <class Cost, class Outermost>
    [[nodiscard]] constexpr outcome<Cost> close(const closed_regions& regions, const std::vector<level<Cost>>& levels,
                                                double limit_us, const Outermost& outermost) const {
        const level<Cost>& first = levels[1];
        outcome<Cost> out{};
        bool any = false;
        std::size_t best = 0;
        for (std::size_t i = 0; i != first.region.size(); ++i) {
            const std::size_t r = first.region[i];
            const double time = (sums_->load.back() - regions.load[r]) / speed_.front();
            if (time > limit_us || !fits(0, sums_->memory.back() - regions.memory[r])) { continue; }
            const Cost cost = outermost(regions, r, time, first.cost[i]);
            if (!any || cost < out.cost) {
                any = true;
                out.cost = cost;
                best = i;
            }
        }
        if (!any) { return out; }
        for (std::size_t d = 1; d != at(devices_); ++d) {
            const int* cut = regions.cut(levels[d].region[best]);
            out.chain.insert(out.chain.end(), cut, cut + 2 * waves_);
            if (d + 1 != at(devices_)) { best = levels[d].inner[best]; }
        }
        return out;
    }

    [[nodiscard]] constexpr std::vector<int> first_layers(const std::vector<int>& chain) const {
        const std::size_t ends = 2 * at(waves_);
        std::vector<int> gaps(at(waves_), 0);
        std::vector<int> middles(at(waves_), 0);
        static_cast<void>(terms_.split_outside(chain.data(), gaps.data()));
        static_cast<void>(terms_.split_inside(chain.data() + (chain.size() - ends), middles.data()));
        std::vector<int> first{};
        for (std::size_t w = 0; w != at(waves_); ++w) {
            first.push_back(gaps[w]);
            for (std::size_t i = 0; i != chain.size(); i += ends) { first.push_back(chain[i + 2 * w]); }
            first.push_back(middles[w]);
            for (std::size_t i = chain.size(); i != 0; i -= ends) { first.push_back(chain[i - ends + 2 * w + 1]); }
        }
        return first;
    }

public:
    /// The least greatest device load of any cut, at most `limit_us`; nothing when there is none.
    [[nodiscard]] constexpr std::optional<double> least_load(double limit_us) {
        const auto found = sweep<double>(
            limit_us, [](const closed_regions&, std::size_t, double time) { return time; },
            [](const closed_regions&, int, std::size_t, std::size_t, double time, double rest, bool any, double& best) {
                const double cost = std::max(time, rest);
                if (any && !(cost < best)) { return false; }
                best = cost;
                return true;
            },
            [](const closed_regions&, std::size_t, double time, double rest) { return std::max(time, rest); });
        if (found.chain.empty()) { return std::nullopt; }
        return found.cost;
    }

    /// First layers of the 2PW stages of the cut with the least fold_cost among those with no device load above
    /// `limit_us`; empty when there is none.
    [[nodiscard]] constexpr std::vector<int> best_cut(double limit_us) {
        const bool residual = terms_.any_residual();
        const auto found = sweep<fold_cost>(
            limit_us,
            [this, residual](const closed_regions& regions, std::size_t r, double time) {
                const int* cut = regions.cut(r);
                const std::int64_t saved = residual ? terms_.residual_saving(devices_ - 1, cut, nullptr) : 0;
                return fold_cost{regions.sent[r] - saved, terms_.split_inside(cut, nullptr) / speed_.back(), time};
            },
            [this, residual](const closed_regions& regions, int d, std::size_t outer, std::size_t inner, double time,
                             const fold_cost& rest, bool any, fold_cost& best) {
                fold_cost cost{rest.bytes + regions.sent[outer], rest.imbalance_us, std::max(time, rest.load_us)};
                if (residual) { cost.bytes -= terms_.residual_saving(d, regions.cut(outer), regions.cut(inner)); }
                if (any && cost.bytes > best.bytes) { return false; }
                cost.imbalance_us += terms_.imbalance(regions.cut(outer), regions.cut(inner)) / speed_[at(d)];
                if (any && !(cost < best)) { return false; }
                best = cost;
                return true;
            },
            [this, residual](const closed_regions& regions, std::size_t r, double time, const fold_cost& rest) {
                const int* cut = regions.cut(r);
                const std::int64_t saved = residual ? terms_.residual_saving(0, nullptr, cut) : 0;
                return fold_cost{rest.bytes - saved + terms_.residual_base(),
                                 rest.imbalance_us + terms_.split_outside(cut, nullptr) / speed_.front(),
                                 std::max(time, rest.load_us)};
            });
        if (found.chain.empty()) { return {}; }
        return first_layers(found.chain);
    }
};

} // namespace pulse
