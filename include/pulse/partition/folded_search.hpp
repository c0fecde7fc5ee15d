#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/closed_regions.hpp>
#include <pulse/partition/fold_objectives.hpp>
#include <pulse/partition/fold_terms.hpp>
#include <pulse/partition/layer_sums.hpp>
#include <pulse/partition/outside_bounds.hpp>
#include <pulse/partition/region_tree.hpp>

namespace pulse::detail {

/// Exact search for folded cuts of a table over P >= 2 devices with W waves.
///
/// Let R(d) be the layers of devices d to P-1. Folding makes R(d) a union of W intervals whose 2W ends are exactly the
/// boundaries between devices d-1 and d; every skip is local to a device if and only if every R(d) is closed. So a cut
/// is a chain R(1) > R(2) > ... > R(P-1) of closed regions, each strictly inside the one before at all of its ends. The
/// load of device d is load(R(d)) - load(R(d+1)) over its speed, the bytes are a sum over regions, and a dynamic
/// program over (d, region) is exact for any W. Inside R(P-1), and around R(1), the last cuts are free and only serve
/// balance.
///
/// A limit on device loads bounds the load of R(d) from both sides; a tight limit leaves few regions for each d, and
/// few regions of d+1 inside a region of d.
class folded_search {
public:
    /// `speed` and `memory_limit` have one value per device; a memory limit of 0 means none.
    constexpr folded_search(const layer_sums& sums, int waves, std::vector<double> speed,
                            std::vector<std::int64_t> memory_limit, std::size_t region_limit, std::int64_t work_limit) :
        sums_(&sums),
        devices_(static_cast<int>(speed.size())), waves_(waves), speed_(std::move(speed)),
        memory_limit_(std::move(memory_limit)), region_limit_(region_limit), work_limit_(work_limit),
        terms_(sums, waves) {}

private:
    template <class Cost>
    struct outcome {
        Cost cost{};
        std::vector<int> chain{}; ///< the ends of R(1), R(2), ..., R(P-1); empty if there is no chain
    };
    struct level {
        std::vector<std::uint32_t> region{};
        std::vector<std::uint32_t> inner{}; ///< position in the level inside, unused at the innermost
    };
    template <class Cost>
    using level_costs = std::vector<std::vector<Cost>>; ///< [d]: costs of the regions that level d lists

    const layer_sums* sums_;
    int devices_;
    int waves_;
    std::vector<double> speed_;
    std::vector<std::int64_t> memory_limit_;
    std::size_t region_limit_;
    std::int64_t work_limit_;
    std::int64_t work_{0};
    fold_terms terms_;
    closed_regions regions_{}; // listed for a limit of listed_for_, with those of any lower limit
    double listed_for_{0.0};
    std::vector<int> least_level_{}; // of each region, under the limit of the current search
    std::vector<int> most_level_{};
    std::vector<int> known_{};                        // a chain within the limit, once one was found
    std::vector<std::vector<std::uint32_t>> tight_{}; // [d]: the regions to examine, ascending; empty: all

    [[nodiscard]] static constexpr std::size_t at(int i) noexcept { return static_cast<std::size_t>(i); }
    [[nodiscard]] constexpr bool fits(int device, std::int64_t bytes) const noexcept {
        return memory_limit_[at(device)] == 0 || bytes <= memory_limit_[at(device)];
    }

    /// Lists the regions, and the levels of each, under a limit.
    constexpr void prepare(double limit_us) {
        const load_windows windows{sums_->load.back(), speed_, limit_us};
        if (regions_.size == 0 || limit_us > listed_for_) {
            regions_ = in_z_order(list_closed_regions(*sums_, waves_, windows, region_limit_));
            listed_for_ = limit_us;
        }
        least_level_ = regions_.least_level;
        most_level_ = regions_.most_level;
        // Both ends of the windows fall with the level.
        for (std::size_t r = 0; r != regions_.size; ++r) {
            int& least = least_level_[r];
            int& most = most_level_[r];
            while (least <= most && regions_.load[r] < windows.least[at(least)]) { ++least; }
            while (least <= most && regions_.load[r] > windows.most[at(most)]) { --most; }
        }
    }

    /// Time of device d, us, with the layers of region r outside an inner region; for a box, its minimum.
    [[nodiscard]] constexpr double time_around(int d, std::size_t r, const region_box& inner) const noexcept {
        return (regions_.load[r] - inner.load) / speed_[at(d)];
    }
    /// Whether region r on level d may surround a region of a box on the next inner level: the latter is strictly
    /// inside at all ends, and device d stays within its limits.
    [[nodiscard]] constexpr bool may_surround(int d, std::size_t r, const region_box& inner,
                                              double limit_us) const noexcept {
        const int* outer = regions_.cut(r);
        for (std::size_t k = 0; k != 2 * at(waves_); k += 2) {
            if (inner.high[k] <= outer[k] || inner.low[k + 1] >= outer[k + 1]) { return false; }
        }
        return time_around(d, r, inner) <= limit_us && fits(d, regions_.memory[r] - inner.memory);
    }
    [[nodiscard]] constexpr region_box box_of(std::size_t r) const noexcept {
        return {regions_.cut(r), regions_.cut(r), regions_.load[r], regions_.memory[r]};
    }
    /// Time of device 0 around region r, microseconds.
    [[nodiscard]] constexpr double time_of_first(std::size_t r) const noexcept {
        return (sums_->load.back() - regions_.load[r]) / speed_.front();
    }
    [[nodiscard]] constexpr bool may_be_outermost(std::size_t r, double limit_us) const noexcept {
        return time_of_first(r) <= limit_us && fits(0, sums_->memory.back() - regions_.memory[r]);
    }

    /// Calls `visit(r)` for the regions that level d may have, ascending.
    template <class Visit>
    constexpr void for_each_region(int d, const Visit& visit) const {
        if (!tight_.empty()) {
            for (const std::uint32_t r : tight_[at(d)]) { visit(std::size_t{r}); }
            return;
        }
        for (std::size_t r = 0; r != regions_.size; ++r) {
            if (d >= least_level_[r] && d <= most_level_[r]) { visit(r); }
        }
    }

    /// The dynamic program, from R(P-1) outwards; keeps, for each region of a level, the best chain inside it.
    template <class Objective>
    [[nodiscard]] constexpr outcome<typename Objective::cost_type> sweep(double limit_us, const Objective& objective) {
        using cost_type = typename Objective::cost_type;
        std::vector<level> levels(at(devices_));
        std::vector<cost_type> costs{};
        level_costs<cost_type> kept{};
        if constexpr (Objective::marks_ties) { kept.resize(at(devices_)); }
        for (int d = devices_ - 1; d >= 1; --d) {
            std::vector<cost_type> outer_costs{};
            if (d == devices_ - 1) {
                innermost(limit_us, objective, levels[at(d)], outer_costs);
            } else {
                join(limit_us, objective, d, levels[at(d) + 1], costs, levels[at(d)], outer_costs);
            }
            if constexpr (Objective::marks_ties) { kept[at(d)] = outer_costs; }
            costs = std::move(outer_costs);
            if (costs.empty()) { return {}; }
        }
        auto found = close(levels, costs, limit_us, objective);
        if constexpr (Objective::marks_ties) {
            if (!found.chain.empty()) { mark_ties(levels, kept, limit_us, found.cost); }
        }
        return found;
    }

    template <class Objective>
    constexpr void innermost(double limit_us, const Objective& objective, level& here,
                             std::vector<typename Objective::cost_type>& costs) const {
        const int d = devices_ - 1;
        for_each_region(d, [&](std::size_t r) {
            const double time = regions_.load[r] / speed_.back();
            if (time > limit_us || !fits(d, regions_.memory[r]) || !objective.admits(regions_, d, r)) { return; }
            const auto cost = objective.innermost(regions_, r, time);
            if (!objective.keeps(regions_, d, r, cost)) { return; }
            here.region.push_back(static_cast<std::uint32_t>(r));
            costs.push_back(cost);
        });
    }

    template <class Objective>
    constexpr void join(double limit_us, const Objective& objective, int d, const level& next,
                        const std::vector<typename Objective::cost_type>& inner_costs, level& here,
                        std::vector<typename Objective::cost_type>& costs) {
        using cost_type = typename Objective::cost_type;
        const region_tree<Objective> tree{regions_, next.region, inner_costs};
        for_each_region(d, [&](std::size_t r) {
            if (!objective.admits(regions_, d, r)) { return; }
            bool any = false;
            cost_type best{};
            std::size_t best_inner = 0;
            const auto enter = [&](const region_box& box, const cost_type& least) {
                count_work();
                if (!may_surround(d, r, box, limit_us)) { return false; }
                const cost_type bound = objective.bound(regions_, d, r, box, time_around(d, r, box), least);
                return objective.keeps(regions_, d, r, bound) && (!any || bound < best);
            };
            const auto visit = [&](std::size_t i) {
                count_work();
                const region_box inner = box_of(next.region[i]);
                if (!may_surround(d, r, inner, limit_us)) { return; }
                const cost_type cost =
                    objective.join(regions_, d, r, next.region[i], time_around(d, r, inner), inner_costs[i]);
                if (any && !(cost < best)) { return; }
                any = true;
                best = cost;
                best_inner = i;
            };
            // The best inner region of a nearby region is a good start.
            if (!here.inner.empty()) { visit(here.inner.back()); }
            tree.search(enter, visit);
            if (any && objective.keeps(regions_, d, r, best)) {
                here.region.push_back(static_cast<std::uint32_t>(r));
                here.inner.push_back(static_cast<std::uint32_t>(best_inner));
                costs.push_back(best);
            }
        });
    }

    /// Keeps in `tight_` the regions of every chain with the fewest bytes, `fewest`.
    constexpr void mark_ties(const std::vector<level>& levels, const level_costs<std::int64_t>& costs, double limit_us,
                             std::int64_t fewest) {
        tight_.assign(at(devices_), {});
        std::vector<std::size_t> marked{}; // positions in a level
        for (std::size_t i = 0; i != costs[1].size(); ++i) {
            if (costs[1][i] == fewest && may_be_outermost(levels[1].region[i], limit_us)) { marked.push_back(i); }
        }
        for (int d = 1;; ++d) {
            for (const std::size_t i : marked) { tight_[at(d)].push_back(levels[at(d)].region[i]); }
            if (d + 1 == devices_) { return; }
            const level& next = levels[at(d) + 1];
            const std::vector<std::int64_t>& inner_costs = costs[at(d) + 1];
            const region_tree<bytes_objective> tree{regions_, next.region, inner_costs};
            std::vector<char> is_marked(inner_costs.size(), 0);
            for (const std::size_t i : marked) {
                const std::size_t r = levels[at(d)].region[i];
                const std::int64_t rest = costs[at(d)][i] - regions_.sent[r];
                const auto enter = [&](const region_box& box, std::int64_t least) {
                    count_work();
                    return least <= rest && may_surround(d, r, box, limit_us);
                };
                const auto visit = [&](std::size_t k) {
                    if (inner_costs[k] == rest && may_surround(d, r, box_of(next.region[k]), limit_us)) {
                        is_marked[k] = 1;
                    }
                };
                tree.search(enter, visit);
            }
            marked.clear();
            for (std::size_t k = 0; k != is_marked.size(); ++k) {
                if (is_marked[k] != 0) { marked.push_back(k); }
            }
        }
    }

    constexpr void count_work() {
        if (work_++ == work_limit_) {
            throw error("partition: the search has looked at " + std::to_string(work_limit_) +
                        " regions (work_limit); use a smaller slack, fewer waves or a larger work_limit");
        }
    }

    template <class Objective>
    [[nodiscard]] constexpr outcome<typename Objective::cost_type> close(
        const std::vector<level>& levels, const std::vector<typename Objective::cost_type>& costs, double limit_us,
        const Objective& objective) const {
        outcome<typename Objective::cost_type> out{};
        bool any = false;
        std::size_t best = 0;
        for (std::size_t i = 0; i != costs.size(); ++i) {
            const std::size_t r = levels[1].region[i];
            if (!may_be_outermost(r, limit_us)) { continue; }
            const auto cost = objective.outermost(regions_, r, time_of_first(r), costs[i]);
            if (!any || cost < out.cost) {
                any = true;
                out.cost = cost;
                best = i;
            }
        }
        if (!any) { return out; }
        for (std::size_t d = 1; d != at(devices_); ++d) {
            const int* cut = regions_.cut(levels[d].region[best]);
            out.chain.insert(out.chain.end(), cut, cut + 2 * waves_);
            if (d + 1 != at(devices_)) { best = levels[d].inner[best]; }
        }
        return out;
    }

    [[nodiscard]] constexpr std::int64_t bytes_of(const std::vector<int>& chain) const {
        std::int64_t sum = 0;
        for (const int c : chain) { sum += sums_->sent[at(c)]; }
        return sum;
    }

    /// Replaces the known chain by one with the fewest bytes: a low limit leaves few regions, so limits are tried from
    /// a lower bound upwards.
    constexpr void take_fewest_bytes(double limit_us, const outside_bounds& outside) {
        constexpr std::int64_t parts = 256;
        const std::int64_t most = bytes_of(known_);
        std::int64_t least = most;
        for (std::size_t r = 0; r != regions_.size; ++r) {
            if (most_level_[r] != devices_ - 1 || least_level_[r] > devices_ - 1) { continue; }
            least = std::min(least, outside.bytes(devices_ - 1, regions_.cut(r)) + regions_.sent[r]);
        }
        for (std::int64_t part = 0; least != most; part = std::min(parts, 2 * part + 1)) {
            const std::int64_t limit = part == parts ? most : least + (most - least) / parts * part;
            outcome<std::int64_t> found = sweep(limit_us, bytes_objective{&outside, limit});
            if (!found.chain.empty()) {
                known_ = std::move(found.chain);
                return;
            }
            if (part == parts) { return; }
        }
    }

    [[nodiscard]] constexpr double imbalance_of(const std::vector<int>& chain) const {
        const std::size_t ends = 2 * at(waves_);
        const int* last = chain.data() + (chain.size() - ends);
        double sum = terms_.split_inside(last, nullptr) / speed_.back();
        for (std::size_t d = at(devices_) - 2; d != 0; --d) {
            sum += terms_.imbalance(chain.data() + (d - 1) * ends, chain.data() + d * ends) / speed_[d];
        }
        return sum + terms_.split_outside(chain.data(), nullptr) / speed_.front();
    }

    /// A lower bound on the imbalance of every cut that `objective` admits.
    [[nodiscard]] constexpr double least_imbalance(double limit_us, const cut_objective& objective) const {
        level innermost_level{};
        std::vector<fold_cost> costs{};
        innermost(limit_us, objective, innermost_level, costs);
        double least = objective.most_imbalance_us;
        for (std::size_t i = 0; i != costs.size(); ++i) {
            const int* cut = regions_.cut(innermost_level.region[i]);
            least = std::min(least, costs[i].imbalance_us + objective.outside->imbalance_us(devices_ - 1, cut));
        }
        return least;
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
    /// The least greatest device load of any cut, if at most `limit_us`; otherwise nothing. `floor_us` is a lower bound
    /// for all cuts.
    [[nodiscard]] constexpr std::optional<double> least_load(double limit_us, double floor_us) {
        prepare(limit_us);
        tight_.clear();
        auto found = sweep(limit_us, load_objective{floor_us});
        if (found.chain.empty()) { return std::nullopt; }
        known_ = std::move(found.chain);
        return found.cost;
    }

    /// First layers of the 2PW stages of the cut with the least fold_cost among those with no device load above
    /// `limit_us`; empty if there is none. `floor_us` is a lower bound on the load of all cuts; a result that
    /// `least_load` found before must not be above the limit.
    [[nodiscard]] constexpr std::vector<int> best_cut(double limit_us, double floor_us) {
        if (known_.empty() && !least_load(limit_us, floor_us)) { return {}; }
        prepare(limit_us);
        tight_.clear();
        cut_objective objective{&terms_, &speed_, floor_us, nullptr, 0, 0.0};
        const outside_bounds outside{*sums_, regions_, least_level_, most_level_, speed_, limit_us};
        take_fewest_bytes(limit_us, outside);
        objective.outside = &outside;
        objective.most_bytes = bytes_of(known_);
        // Every part of the best chain has the fewest bytes inside its outer region, so the search reaches it, and at
        // most the imbalance of the whole: a limit that some cut keeps yields the best one. `known_` keeps `most`.
        const double most = imbalance_of(known_);
        objective.most_imbalance_us = most;
        const double least = least_imbalance(limit_us, objective);
        for (double part = 1.0 / 16384.0;; part *= 2.0) {
            objective.most_imbalance_us = part < 1.0 ? least + (most - least) * part : most;
            const auto found = sweep(limit_us, objective);
            if (!found.chain.empty() && (part >= 1.0 || found.cost.imbalance_us <= objective.most_imbalance_us)) {
                return first_layers(found.chain);
            }
            if (part >= 1.0) { throw error("partition: internal error: the search lost a cut that it had found"); }
        }
    }
};

} // namespace pulse::detail
