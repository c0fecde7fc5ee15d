#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include <pulse/partition/closed_regions.hpp>

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
/// load of device d is load(R(d)) - load(R(d+1)), the bytes are a sum over regions, and a dynamic program over (d, region)
/// is exact for any W. Inside R(P-1), and around R(1), the last cuts are free and only serve balance.
class folded_search {
public:
    constexpr folded_search(const layer_sums& sums, int devices, int waves, std::int64_t memory_limit,
                            std::size_t region_limit)
        : sums_(sums), devices_(devices), waves_(waves), memory_limit_(memory_limit),
          regions_(list_closed_regions(sums, waves, region_limit)) {
        rooms_.reserve(regions_.size);
        for (std::size_t r = 0; r != regions_.size; ++r) { rooms_.push_back(room_of(regions_.cut(r))); }
    }

private:
    /// How many levels fit outside and inside a region.
    struct room {
        int outside{};
        int inside{};
    };
    template <class Cost>
    struct outcome {
        Cost cost{};
        std::vector<std::size_t> chain{}; ///< R(1), R(2), ..., R(P-1)
    };
    template <class Cost>
    struct level {
        std::vector<std::size_t> region{};
        std::vector<Cost> cost{};
        std::vector<std::size_t> inner{}; ///< position in the level inside, unused at the innermost
    };

    [[nodiscard]] constexpr double total_load() const noexcept { return sums_.load.back(); }
    [[nodiscard]] constexpr double load_between(int first, int last) const noexcept {
        return sums_.load[static_cast<std::size_t>(last)] - sums_.load[static_cast<std::size_t>(first)];
    }
    [[nodiscard]] constexpr bool fits(std::int64_t bytes) const noexcept {
        return memory_limit_ == 0 || bytes <= memory_limit_;
    }

    [[nodiscard]] constexpr room room_of(const int* cut) const noexcept {
        const int ends = 2 * waves_;
        room free{std::min(cut[0], sums_.layers - cut[ends - 1]), sums_.layers};
        for (int w = 0; w != waves_; ++w) {
            free.inside = std::min(free.inside, (cut[2 * w + 1] - cut[2 * w]) / 2);
            if (w != 0) { free.outside = std::min(free.outside, (cut[2 * w] - cut[2 * w - 1]) / 2); }
        }
        return free;
    }

    [[nodiscard]] constexpr bool strictly_inside(const int* inner, const int* outer) const noexcept {
        for (int w = 0; w != waves_; ++w) {
            if (inner[2 * w] <= outer[2 * w] || inner[2 * w + 1] >= outer[2 * w + 1]) { return false; }
        }
        return true;
    }

    /// The dynamic program: from R(P-1) outwards, keeping for each region of a level the best chain inside it.
    /// `limit_us` bounds every device's load, and through it how much load a region of each level can have.
    template <class Cost, class Innermost, class Step, class Outermost>
    [[nodiscard]] constexpr outcome<Cost> sweep(double limit_us, const Innermost& innermost, const Step& step,
                                                const Outermost& outermost) const {
        const double total = total_load();
        const double rounding = 1e-9 * total;
        std::vector<level<Cost>> levels(static_cast<std::size_t>(devices_));
        for (int d = devices_ - 1; d >= 1; --d) {
            level<Cost>& here = levels[static_cast<std::size_t>(d)];
            const bool last = d == devices_ - 1;
            const double least = total - d * limit_us - rounding;
            const double most = (devices_ - d) * limit_us + rounding;
            std::size_t window = 0;
            for (std::size_t r = 0; r != regions_.size; ++r) {
                const double load = regions_.load[r];
                if (load > most) { break; }
                if (load < least || rooms_[r].outside < d || rooms_[r].inside < devices_ - d) { continue; }
                if (last) {
                    if (load > limit_us || !fits(regions_.memory[r])) { continue; }
                    here.region.push_back(r);
                    here.cost.push_back(innermost(r));
                    continue;
                }
                const level<Cost>& next = levels[static_cast<std::size_t>(d) + 1];
                const std::size_t count = next.region.size();
                const std::size_t* candidates = next.region.data();
                while (window != count && regions_.load[candidates[window]] < load - limit_us - rounding) { ++window; }
                bool any = false;
                Cost best{};
                std::size_t best_inner = 0;
                for (std::size_t i = window; i != count; ++i) {
                    const std::size_t inner = candidates[i];
                    const double diff = load - regions_.load[inner];
                    if (diff < -rounding) { break; }
                    if (diff > limit_us || !strictly_inside(regions_.cut(inner), regions_.cut(r)) ||
                        !fits(regions_.memory[r] - regions_.memory[inner])) {
                        continue;
                    }
                    const Cost cost = step(r, inner, diff, next.cost[i]);
                    if (!any || cost < best) {
                        any = true;
                        best = cost;
                        best_inner = i;
                    }
                }
                if (any) {
                    here.region.push_back(r);
                    here.cost.push_back(best);
                    here.inner.push_back(best_inner);
                }
            }
        }
        return close(levels, limit_us, outermost);
    }

    template <class Cost, class Outermost>
    [[nodiscard]] constexpr outcome<Cost> close(const std::vector<level<Cost>>& levels, double limit_us,
                                                const Outermost& outermost) const {
        const level<Cost>& first = levels[1];
        outcome<Cost> out{};
        bool any = false;
        std::size_t at = 0;
        for (std::size_t i = 0; i != first.region.size(); ++i) {
            const std::size_t r = first.region[i];
            if (total_load() - regions_.load[r] > limit_us || !fits(sums_.memory.back() - regions_.memory[r])) {
                continue;
            }
            const Cost cost = outermost(r, first.cost[i]);
            if (!any || cost < out.cost) {
                any = true;
                out.cost = cost;
                at = i;
            }
        }
        if (!any) { return out; }
        for (std::size_t d = 1; d != static_cast<std::size_t>(devices_); ++d) {
            out.chain.push_back(levels[d].region[at]);
            if (d + 1 != static_cast<std::size_t>(devices_)) { at = levels[d].inner[at]; }
        }
        return out;
    }

    static constexpr double distance(double a, double b) noexcept { return a < b ? b - a : a - b; }

    /// Sum over the W pairs of a device between R(d) and R(d+1) of the difference of their two loads.
    [[nodiscard]] constexpr double imbalance(const int* outer, const int* inner) const noexcept {
        double sum = 0.0;
        for (int w = 0; w != waves_; ++w) {
            const int mirror = 2 * (waves_ - 1 - w) + 1;
            sum += distance(load_between(outer[2 * w], inner[2 * w]), load_between(inner[mirror], outer[mirror]));
        }
        return sum;
    }

    /// Cuts ranges a and b (mirrors of each other, perhaps the same) so that outer parts and inner parts match best.
    [[nodiscard]] constexpr double split(int a0, int a1, int b0, int b1, int* a_cut, int* b_cut) const noexcept {
        double best = std::numeric_limits<double>::infinity();
        const bool same = a0 == b0;
        for (int m = a0 + 1; m < a1; ++m) {
            const double head = load_between(a0, m);
            const double tail = load_between(m, a1);
            for (int k = same ? m : b0 + 1; k < b1; ++k) {
                const double off = same ? distance(head, tail)
                                        : distance(head, load_between(k, b1)) + distance(tail, load_between(b0, k));
                if (off < best) {
                    best = off;
                    if (a_cut != nullptr) {
                        *a_cut = m;
                        *b_cut = k;
                    }
                }
                if (same) { break; }
            }
        }
        return best;
    }

    /// The best free cuts inside R(P-1), one per interval; `middles` may be null.
    [[nodiscard]] constexpr double split_inside(const int* cut, int* middles) const noexcept {
        double sum = 0.0;
        for (int w = 0; 2 * w < waves_; ++w) {
            const int v = waves_ - 1 - w;
            sum += split(cut[2 * w], cut[2 * w + 1], cut[2 * v], cut[2 * v + 1],
                         middles == nullptr ? nullptr : middles + w, middles == nullptr ? nullptr : middles + v);
        }
        return sum;
    }

    /// The best free cuts around R(1), one per gap between intervals, and the outermost pair's imbalance.
    [[nodiscard]] constexpr double split_outside(const int* cut, int* gaps) const noexcept {
        double sum = distance(load_between(0, cut[0]), load_between(cut[2 * waves_ - 1], sums_.layers));
        for (int w = 1; 2 * w <= waves_; ++w) {
            const int v = waves_ - w;
            sum += split(cut[2 * w - 1], cut[2 * w], cut[2 * v - 1], cut[2 * v],
                         gaps == nullptr ? nullptr : gaps + w, gaps == nullptr ? nullptr : gaps + v);
        }
        return sum;
    }

    [[nodiscard]] constexpr std::vector<int> first_layers(const std::vector<std::size_t>& chain) const {
        std::vector<int> gaps(static_cast<std::size_t>(waves_), 0);
        std::vector<int> middles(static_cast<std::size_t>(waves_), 0);
        static_cast<void>(split_outside(regions_.cut(chain.front()), gaps.data()));
        static_cast<void>(split_inside(regions_.cut(chain.back()), middles.data()));
        std::vector<int> first{};
        for (std::size_t w = 0; w != static_cast<std::size_t>(waves_); ++w) {
            first.push_back(gaps[w]);
            for (std::size_t d = 0; d != chain.size(); ++d) { first.push_back(regions_.cut(chain[d])[2 * w]); }
            first.push_back(middles[w]);
            for (std::size_t d = chain.size(); d-- != 0;) { first.push_back(regions_.cut(chain[d])[2 * w + 1]); }
        }
        return first;
    }

public:
    /// The least greatest device load of any cut, at most `limit_us`; nothing when there is none.
    [[nodiscard]] constexpr std::optional<double> least_load(double limit_us) const {
        const double total = total_load();
        const auto found = sweep<double>(
            limit_us, [this](std::size_t inner) { return regions_.load[inner]; },
            [](std::size_t, std::size_t, double diff, double rest) { return std::max(diff, rest); },
            [this, total](std::size_t outer, double rest) { return std::max(total - regions_.load[outer], rest); });
        if (found.chain.empty()) { return std::nullopt; }
        return found.cost;
    }

    /// The least greatest memory of a device over all cuts, whatever their loads; nothing when there is no cut.
    [[nodiscard]] constexpr std::optional<std::int64_t> least_memory() const {
        const std::int64_t total = sums_.memory.back();
        const auto found = sweep<std::int64_t>(
            2.0 * total_load(), [this](std::size_t inner) { return regions_.memory[inner]; },
            [this](std::size_t outer, std::size_t inner, double, std::int64_t rest) {
                return std::max(regions_.memory[outer] - regions_.memory[inner], rest);
            },
            [this, total](std::size_t outer, std::int64_t rest) {
                return std::max(total - regions_.memory[outer], rest);
            });
        if (found.chain.empty()) { return std::nullopt; }
        return found.cost;
    }

    /// First layers of the 2PW stages of the cut with the least fold_cost among those with no device load above
    /// `limit_us`; empty when there is none.
    [[nodiscard]] constexpr std::vector<int> best_cut(double limit_us) const {
        const double total = total_load();
        const auto found = sweep<fold_cost>(
            limit_us,
            [this](std::size_t inner) {
                return fold_cost{regions_.sent[inner], split_inside(regions_.cut(inner), nullptr),
                                 regions_.load[inner]};
            },
            [this](std::size_t outer, std::size_t inner, double diff, const fold_cost& rest) {
                return fold_cost{rest.bytes + regions_.sent[outer],
                                 rest.imbalance_us + imbalance(regions_.cut(outer), regions_.cut(inner)),
                                 std::max(diff, rest.load_us)};
            },
            [this, total](std::size_t outer, const fold_cost& rest) {
                return fold_cost{rest.bytes, rest.imbalance_us + split_outside(regions_.cut(outer), nullptr),
                                 std::max(total - regions_.load[outer], rest.load_us)};
            });
        if (found.chain.empty()) { return {}; }
        return first_layers(found.chain);
    }

private:
    const layer_sums& sums_;
    int devices_;
    int waves_;
    std::int64_t memory_limit_;
    closed_regions regions_;
    std::vector<room> rooms_{};
};

} // namespace pulse
