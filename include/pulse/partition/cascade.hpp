#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/layer_sums.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Two backbones on one set of devices, each folded in one wave; the second is placed in reverse, so that device d has
/// what device P-1-d would have of it alone. For cascades, in which neither backbone reads what the other makes.
struct cascade_cut {
    partition first{};
    partition second{};
    double greatest_load_us{};
    /// Bytes that both send between devices, forward, for one microbatch of each.
    std::int64_t bytes{};

    [[nodiscard]] constexpr bool found() const noexcept { return !first.stages.empty(); }
};

namespace detail {

/// The layers [begin, end) of one backbone that devices d to P-1 hold, a closed region, for any d.
struct folded_region {
    int begin{};
    int end{};
};

/// One backbone with its closed regions; a chain of them from device to device is a folded cut.
class cascade_side {
public:
    constexpr cascade_side(const cost_table& costs, const memory_model& memory) : sums_{costs, memory} {
        for (int b = 0; b != sums_.layers; ++b) {
            for (int e = b + 2; e <= sums_.layers; ++e) {
                if (is_closed(costs, b, e)) { regions_.push_back({b, e}); }
            }
        }
    }

    [[nodiscard]] constexpr const std::vector<folded_region>& regions() const noexcept { return regions_; }
    [[nodiscard]] constexpr int layers() const noexcept { return sums_.layers; }
    [[nodiscard]] constexpr double load(folded_region r) const noexcept { return between(sums_.load, r); }
    [[nodiscard]] constexpr std::int64_t memory(folded_region r) const noexcept { return between(sums_.memory, r); }
    /// Bytes that the two cuts around a region send.
    [[nodiscard]] constexpr std::int64_t sent(folded_region r) const noexcept {
        return r.begin == 0 ? 0 : sums_.sent[at(r.begin)] + sums_.sent[at(r.end)];
    }
    /// Whether r has two layers for each of its `devices`, and leaves one on either side for each device `outside`.
    [[nodiscard]] constexpr bool has_room(folded_region r, int devices, int outside) const noexcept {
        if (outside == 0) { return r.begin == 0 && r.end == sums_.layers; }
        return r.end - r.begin >= 2 * devices && r.begin >= outside && sums_.layers - r.end >= outside;
    }
    /// The stages of a chain of regions, outermost first; the innermost region is cut into two halves as equal as
    /// possible.
    [[nodiscard]] constexpr partition cut(const std::vector<folded_region>& chain, bool reversed) const {
        const int devices = static_cast<int>(chain.size());
        partition made{placement::folded, devices, 1, {}};
        std::vector<int> begins{};
        for (const folded_region r : chain) { begins.push_back(r.begin); }
        begins.push_back(middle_of(chain.back()));
        for (std::size_t d = chain.size(); d-- > 1;) { begins.push_back(chain[d].end); }
        begins.push_back(sums_.layers);
        for (int s = 0; s != 2 * devices; ++s) {
            const int device = device_of(placement::folded, s, devices);
            made.stages.push_back({s, reversed ? devices - 1 - device : device, begins[at(s)], begins[at(s + 1)] - 1});
        }
        return made;
    }

private:
    layer_sums sums_;
    std::vector<folded_region> regions_{};

    [[nodiscard]] static constexpr std::size_t at(int i) noexcept { return static_cast<std::size_t>(i); }
    template <class Sum>
    [[nodiscard]] static constexpr Sum between(const std::vector<Sum>& sums, folded_region r) noexcept {
        return sums[at(r.end)] - sums[at(r.begin)];
    }
    [[nodiscard]] static constexpr bool is_closed(const cost_table& costs, int begin, int end) noexcept {
        const auto inside = [&](int l) { return begin <= l && l < end; };
        return std::all_of(costs.skips.begin(), costs.skips.end(),
                           [&](const skip_cost& e) { return inside(e.from) == inside(e.to); });
    }
    [[nodiscard]] constexpr int middle_of(folded_region r) const noexcept {
        int best = r.begin + 1;
        double least = std::numeric_limits<double>::infinity();
        for (int c = r.begin + 1; c != r.end; ++c) {
            const double off = load({r.begin, c}) - load({c, r.end});
            if (const double size = off < 0 ? -off : off; size < least) {
                least = size;
                best = c;
            }
        }
        return best;
    }
};

/// The dynamic program over devices: a state is what devices d to P-1 hold of the first backbone, and devices 0 to d-1
/// of the second, whose innermost region is on device 0.
class cascade_search {
public:
    constexpr cascade_search(const cost_table& first, const cost_table& second, int devices, const memory_model& memory,
                             std::int64_t work_limit) :
        first_{first, memory},
        second_{second, memory}, memory_{memory}, devices_{devices}, work_{work_limit} {}

    [[nodiscard]] constexpr cascade_cut find() {
        if (first_.layers() < 2 * devices_ || second_.layers() < 2 * devices_) { return {}; }
        const std::vector<state> lightest = sweep(std::numeric_limits<double>::infinity());
        if (lightest.empty()) { return {}; }
        // Among the cuts with that load, the one that sends least.
        const std::vector<state> chain = sweep(lightest.front().load * (1.0 + load_tolerance));
        std::vector<folded_region> outwards{};
        std::vector<folded_region> inwards{};
        double most = 0.0;
        for (std::size_t d = 0; d + 1 != chain.size(); ++d) {
            outwards.push_back(chain[d].first);
            inwards.insert(inwards.begin(), chain[d + 1].second);
            most = std::max(most, load_between(chain[d], chain[d + 1]));
        }
        return {first_.cut(outwards, false), second_.cut(inwards, true), most, chain.front().bytes};
    }

private:
    struct state {
        folded_region first{};
        folded_region second{};
        double load{};        ///< greatest load of devices d to P-1
        std::int64_t bytes{}; ///< sent by the cuts between and around their regions
        std::size_t next{};
    };

    cascade_side first_;
    cascade_side second_;
    memory_model memory_;
    int devices_;
    std::int64_t work_;

    /// Time of the device between two states, us.
    [[nodiscard]] constexpr double load_between(const state& here, const state& next) const noexcept {
        return first_.load(here.first) - first_.load(next.first) + second_.load(next.second) -
               second_.load(here.second);
    }
    [[nodiscard]] constexpr bool fits(int d, const state& here, const state& next) const noexcept {
        const std::int64_t bytes = first_.memory(here.first) - first_.memory(next.first) + second_.memory(next.second) -
                                   second_.memory(here.second);
        return memory_.limit_of(d) == 0 || bytes <= memory_.limit_of(d);
    }
    /// Whether `inner` lies strictly inside `outer` at both ends, or is empty.
    [[nodiscard]] static constexpr bool surrounds(folded_region outer, folded_region inner) noexcept {
        return inner.begin == inner.end || (outer.begin < inner.begin && inner.end < outer.end);
    }

    /// The states with which devices d to P-1 may begin.
    [[nodiscard]] constexpr std::vector<state> states_of(int d) const {
        const std::vector<folded_region> none{{}};
        std::vector<state> all{};
        for (const folded_region a : d == devices_ ? none : first_.regions()) {
            if (d != devices_ && !first_.has_room(a, devices_ - d, d)) { continue; }
            for (const folded_region b : d == 0 ? none : second_.regions()) {
                if (d == 0 || second_.has_room(b, d, devices_ - d)) { all.push_back({a, b, 0.0, 0, 0}); }
            }
        }
        return all;
    }

    /// The best chain of states from device 0 on: the one with the least greatest load or, under a limit on the load,
    /// with the fewest bytes.
    [[nodiscard]] constexpr std::vector<state> sweep(double limit) {
        const bool by_load = limit == std::numeric_limits<double>::infinity();
        std::vector<std::vector<state>> levels(static_cast<std::size_t>(devices_) + 1);
        levels.back() = states_of(devices_);
        for (int d = devices_ - 1; d >= 0; --d) {
            const std::vector<state>& inner = levels[static_cast<std::size_t>(d) + 1];
            for (state here : states_of(d)) {
                bool any = false;
                state best{};
                work_ -= static_cast<std::int64_t>(inner.size());
                if (work_ < 0) {
                    throw error("cascade: the search would visit more pairs of regions than work_limit allows");
                }
                for (std::size_t i = 0; i != inner.size(); ++i) {
                    if (!surrounds(here.first, inner[i].first) || !surrounds(inner[i].second, here.second)) {
                        continue;
                    }
                    const double own = load_between(here, inner[i]);
                    if (own > limit || !fits(d, here, inner[i])) { continue; }
                    here.load = std::max(own, inner[i].load);
                    here.bytes = inner[i].bytes + first_.sent(here.first) + second_.sent(inner[i].second);
                    here.next = i;
                    if (!any || (by_load ? here.load < best.load : here.bytes < best.bytes)) { best = here; }
                    any = true;
                }
                if (any) { levels[static_cast<std::size_t>(d)].push_back(best); }
            }
        }
        std::vector<state> chain{};
        if (levels.front().empty()) { return chain; }
        chain.push_back(levels.front().front());
        for (std::size_t d = 1; d != levels.size(); ++d) { chain.push_back(levels[d][chain.back().next]); }
        return chain;
    }
};

} // namespace detail

/// The best cut of two backbones over P devices, or one that is not found(). Among the cuts without empty stages, with
/// both ends of every skip on one device and within the memory limits, it has the least greatest device load F+B+W of
/// both together and, among those, the fewest bytes between devices.
///
/// Exact. With N1 and N2 closed regions it examines at most P (N1 N2)^2 pairs: few if nearly every layer has a skip,
/// many if layers are divided into parts (merge_layers helps). Throws input_error for a bad table, error if it would
/// examine more than work_limit pairs.
[[nodiscard]] constexpr cascade_cut find_cascade_cut(const cost_table& first, const cost_table& second, int devices,
                                                     const memory_model& memory = {},
                                                     std::int64_t work_limit = 2'000'000'000) {
    if (devices < 1) { throw input_error("devices: it must be at least 1"); }
    for (const cost_table* costs : {&first, &second}) { check_costs(*costs); }
    return detail::cascade_search{first, second, devices, memory, work_limit}.find();
}

} // namespace pulse
