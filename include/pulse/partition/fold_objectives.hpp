#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/closed_regions.hpp>
#include <pulse/partition/fold_terms.hpp>
#include <pulse/partition/outside_bounds.hpp>
#include <pulse/partition/region_tree.hpp>

namespace pulse::detail {

/// Cost of a chain of regions, compared in this order: bytes across boundaries in one direction, imbalance between the
/// two stages of a pair summed over all pairs (us), greatest device load (us).
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

// An objective is the cost of a chain R(d), ..., R(P-1): `innermost` for R(P-1) alone, `join` for R(d) around a chain
// from R(d+1), `outermost` with device 0. `bound` is at most `join` for every inner region of a box whose chains cost
// at least `rest`: rounding is monotone and `bound` takes the same steps as `join`, so it holds to the last bit.
// `lower` bounds two such costs by one. `keeps` says whether a region with that cost or bound may be part of an answer,
// `admits` whether it may with any cost. `time` is the load of device d, us (in a bound, its minimum). With
// `marks_ties`, later searches use only the regions of the best chains.

/// The greatest device load, but at least `floor`.
struct load_objective {
    using cost_type = double;
    static constexpr bool marks_ties = false;

    double floor{}; ///< a lower bound for every cut: chains that do not exceed it are equally good

    [[nodiscard]] constexpr double innermost(const closed_regions&, std::size_t, double time) const {
        return std::max(time, floor);
    }
    [[nodiscard]] constexpr double join(const closed_regions&, int, std::size_t, std::size_t, double time,
                                        double rest) const {
        return std::max(time, rest);
    }
    [[nodiscard]] constexpr double outermost(const closed_regions&, std::size_t, double time, double rest) const {
        return std::max(time, rest);
    }
    [[nodiscard]] constexpr double bound(const closed_regions&, int, std::size_t, const region_box&, double time,
                                         double rest) const {
        return std::max(time, rest);
    }
    static constexpr void lower(double& least, double other) { least = std::min(least, other); }
    [[nodiscard]] constexpr bool admits(const closed_regions&, int, std::size_t) const { return true; }
    [[nodiscard]] constexpr bool keeps(const closed_regions&, int, std::size_t, double) const { return true; }
};

/// The bytes across boundaries in one direction, at most `most`.
struct bytes_objective {
    using cost_type = std::int64_t;
    static constexpr bool marks_ties = true;

    const outside_bounds* outside;
    std::int64_t most{};

    [[nodiscard]] constexpr std::int64_t innermost(const closed_regions& regions, std::size_t r, double) const {
        return regions.sent[r];
    }
    [[nodiscard]] constexpr std::int64_t join(const closed_regions& regions, int, std::size_t outer, std::size_t,
                                              double, std::int64_t rest) const {
        return rest + regions.sent[outer];
    }
    [[nodiscard]] constexpr std::int64_t outermost(const closed_regions&, std::size_t, double,
                                                   std::int64_t rest) const {
        return rest;
    }
    [[nodiscard]] constexpr std::int64_t bound(const closed_regions& regions, int, std::size_t outer, const region_box&,
                                               double, std::int64_t rest) const {
        return rest + regions.sent[outer];
    }
    static constexpr void lower(std::int64_t& least, std::int64_t other) { least = std::min(least, other); }
    [[nodiscard]] constexpr bool admits(const closed_regions& regions, int d, std::size_t r) const {
        return keeps(regions, d, r, regions.sent[r]);
    }
    [[nodiscard]] constexpr bool keeps(const closed_regions& regions, int d, std::size_t r, std::int64_t cost) const {
        return cost + outside->bytes(d, regions.cut(r)) <= most;
    }
};

/// The full fold_cost, with loads raised to `floor`; with `outside`, chains above a limit are dropped.
struct cut_objective {
    using cost_type = fold_cost;
    static constexpr bool marks_ties = false;

    const fold_terms* terms;
    const std::vector<double>* speed;
    double floor{};                ///< as in load_objective
    const outside_bounds* outside; ///< null: no limits
    std::int64_t most_bytes{};
    double most_imbalance_us{};

    [[nodiscard]] constexpr fold_cost innermost(const closed_regions& regions, std::size_t r, double time) const {
        const int* cut = regions.cut(r);
        return {regions.sent[r], terms->split_inside(cut, nullptr) / speed->back(), std::max(time, floor)};
    }
    [[nodiscard]] constexpr fold_cost join(const closed_regions& regions, int d, std::size_t outer, std::size_t inner,
                                           double time, const fold_cost& rest) const {
        const int* out = regions.cut(outer);
        const int* in = regions.cut(inner);
        return {rest.bytes + regions.sent[outer],
                rest.imbalance_us + terms->imbalance(out, in) / (*speed)[static_cast<std::size_t>(d)],
                std::max(time, rest.load_us)};
    }
    [[nodiscard]] constexpr fold_cost outermost(const closed_regions& regions, std::size_t r, double time,
                                                const fold_cost& rest) const {
        const int* cut = regions.cut(r);
        return {rest.bytes, rest.imbalance_us + terms->split_outside(cut, nullptr) / speed->front(),
                std::max(time, rest.load_us)};
    }
    [[nodiscard]] constexpr fold_cost bound(const closed_regions& regions, int d, std::size_t outer,
                                            const region_box& box, double time, const fold_cost& rest) const {
        const int* out = regions.cut(outer);
        return {rest.bytes + regions.sent[outer],
                rest.imbalance_us +
                    terms->least_imbalance(out, box.low, box.high) / (*speed)[static_cast<std::size_t>(d)],
                std::max(time, rest.load_us)};
    }
    static constexpr void lower(fold_cost& least, const fold_cost& other) {
        least.bytes = std::min(least.bytes, other.bytes);
        least.imbalance_us = std::min(least.imbalance_us, other.imbalance_us);
        least.load_us = std::min(least.load_us, other.load_us);
    }
    [[nodiscard]] constexpr bool admits(const closed_regions& regions, int d, std::size_t r) const {
        return keeps(regions, d, r, {outside == nullptr ? 0 : regions.sent[r], 0.0, 0.0});
    }
    [[nodiscard]] constexpr bool keeps(const closed_regions& regions, int d, std::size_t r,
                                       const fold_cost& cost) const {
        return outside == nullptr ||
               (cost.bytes + outside->bytes(d, regions.cut(r)) <= most_bytes &&
                cost.imbalance_us + outside->imbalance_us(d, regions.cut(r)) <= most_imbalance_us);
    }
};

} // namespace pulse::detail
