#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/fill/chain_pieces.hpp>
#include <pulse/schedule/fill/fill_problem.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

/// The rules of a walk over the gaps.
struct fill_rules {
    /// Passes start early enough for everything to end by this time.
    double end_us{};
    /// A task that would delay the next pass by more than this share of the task's duration has to wait.
    double delay{};
    /// Most chains that a device has open, not counting those that other devices wait for or began.
    int open{};
    /// A chain begins only after the last layer of the previous one has begun, on whichever device, so no chain waits
    /// for memory that another one holds.
    bool alone{};
    /// A ready pass overtakes those before it on its device when that delays the first of them by at most this share of
    /// its own duration; below 0 the orders stay.
    double overtake{-1};
    /// Per device: how long it may be idle before the walk is given up; empty: no limit.
    std::vector<double> spare_us{};
};

/// Places passes and tasks in one walk along time, passes first: a device whose next pass cannot run yet runs layers of
/// its pieces, as long as the pass can still start in time.
class fill_run {
public:
    constexpr fill_run(const fill_problem& frame, const schedule_problem& problem, const frozen_work& work,
                       const std::vector<chain_piece>& pieces, const fill_rules& rules) :
        frame_{frame},
        work_{work}, pieces_{pieces}, rules_{rules}, limit_{problem.memory_limit_bytes},
        timelines_(frame.sequence.size()), pending_(static_cast<std::size_t>(frame.instances()), 0),
        ready_us_(static_cast<std::size_t>(frame.instances()), 0.0), done_(ready_us_.size(), 0),
        progress_(pieces.size()) {
        for (int x = 0; x != frame.instances(); ++x) {
            const int k = x % frame.index.microbatches;
            const auto at = static_cast<std::size_t>(x);
            done_[at] = frame.index.runs_on(frame.op_of(x), k) ? 0 : 1; // a preview that does not exist counts as done
            for (const auto& link : frame.index.before[frame.op_of(x)]) {
                pending_[at] += frame.index.runs_on(static_cast<std::size_t>(link.op), k) ? 1 : 0;
            }
        }
        for (std::size_t p = 0; p != pieces.size(); ++p) {
            timeline& of = timelines_[static_cast<std::size_t>(pieces[p].device)];
            of.pieces.push_back(static_cast<int>(p));
            progress_[p].layer = pieces[p].first_layer;
            progress_[p].ready_us = pieces[p].before < 0 ? 0.0 : never;
        }
        for (timeline& l : timelines_) {
            // Pieces that other devices wait for come first.
            std::sort(l.pieces.begin(), l.pieces.end(), [&](int a, int b) {
                const bool first = piece(a).after >= 0;
                return first != (piece(b).after >= 0) ? first : a < b;
            });
        }
        passes_.devices.resize(timelines_.size());
        tasks_.resize(timelines_.size());
    }

    /// False when memory leaves no room for some task, or the walk was given up.
    [[nodiscard]] constexpr bool run() {
        for (;;) {
            std::size_t d = timelines_.size();
            for (std::size_t i = 0; i != timelines_.size(); ++i) {
                if (timelines_[i].wake_us < never &&
                    (d == timelines_.size() || timelines_[i].wake_us < timelines_[d].wake_us)) {
                    d = i;
                }
            }
            if (d == timelines_.size()) { break; }
            act(d);
            if (given_up_) { return false; }
        }
        for (std::size_t d = 0; d != timelines_.size(); ++d) {
            if (timelines_[d].next != frame_.sequence[d].size() || !timelines_[d].pieces.empty()) { return false; }
        }
        return true;
    }
    [[nodiscard]] constexpr std::int64_t placed() const noexcept { return placed_; }
    /// When the last device ends, with `after_us` of each device after its passes and tasks.
    [[nodiscard]] constexpr double end_us(const std::vector<double>& after_us) const {
        double last = 0;
        for (std::size_t d = 0; d != timelines_.size(); ++d) {
            last = std::max(last, timelines_[d].free_us + after_us[d]);
        }
        return last;
    }
    /// Time that a device was idle with tasks to do.
    [[nodiscard]] constexpr double lost_us(std::size_t device) const { return timelines_[device].lost_us; }
    [[nodiscard]] constexpr filled_schedule result(double lower_bound_us) && {
        return {std::move(passes_), std::move(tasks_), lower_bound_us};
    }

private:
    static constexpr double never = std::numeric_limits<double>::infinity();
    static constexpr std::size_t window = 12; ///< passes, from the next one on, among which one may overtake

    struct timeline {
        std::size_t next{};
        double free_us{};
        double wake_us{}; ///< when it decides next; never while it waits for others
        double lost_us{};
        double late_us{};          ///< how late its last pass was, against its earliest start
        std::vector<int> pieces{}; ///< not ended yet
        bool after_task{};         ///< it last ran a task, which the next layer may extend
        std::int64_t paused{};     ///< bytes of activations between tasks
        std::int64_t running{};    ///< bytes held in all until free_us
        std::int64_t ahead{};      ///< bytes held by passes that ran ahead of the next one in order
    };
    struct piece_progress {
        int layer{};
        double ready_us{};
    };

    [[nodiscard]] constexpr const chain_piece& piece(int p) const { return pieces_[static_cast<std::size_t>(p)]; }
    [[nodiscard]] constexpr const frozen_layer& layer_of(int p, int layer) const {
        return work_.components[static_cast<std::size_t>(piece(p).component)].layers[static_cast<std::size_t>(layer)];
    }
    [[nodiscard]] constexpr bool has_begun(int p) const {
        return progress_[static_cast<std::size_t>(p)].layer != piece(p).first_layer;
    }
    /// Bytes of the waiting input of layer `layer`.
    [[nodiscard]] constexpr std::int64_t input_bytes(int p, int layer) const {
        return layer == 0 ? 0 : layer_of(p, layer - 1).output_bytes * piece(p).samples;
    }

    /// The most bytes that passes hold at the next position of a device's order, by `levels` of the frame, plus those
    /// of passes that ran ahead of it and `more`.
    [[nodiscard]] constexpr std::int64_t held_by_passes(std::size_t d,
                                                        const std::vector<std::vector<std::int64_t>>& levels,
                                                        std::int64_t more = 0) const {
        return std::min(frame_.held_most[d], levels[d][timelines_[d].next] + timelines_[d].ahead + more);
    }

    constexpr void act(std::size_t d) {
        timeline& l = timelines_[d];
        const double now = l.wake_us;
        const bool more = l.next != frame_.sequence[d].size();
        const int x = more ? frame_.sequence[d][l.next] : -1;
        const auto at = static_cast<std::size_t>(x);
        const bool known = more && pending_[at] == 0;
        if (known && !(ready_us_[at] > now)) { return run_pass(d, x, now); }
        const double latest = more ? rules_.end_us - frame_.tail_us[at] : never;
        double wanted = more ? expected_us(x, 4) : never;
        const auto [y, soon] = overtaking(l, d, now, latest, wanted);
        if (y >= 0 && !(soon > now)) { return run_pass(d, y, now); }
        wanted = std::min(wanted, soon);
        if (const int p = choose(l, d, now, latest - now, wanted - now); p >= 0) { return run_layer(d, p, now); }
        double wake = std::min(soon, known ? ready_us_[at] : never);
        for (const int p : l.pieces) {
            const double ready = progress_[static_cast<std::size_t>(p)].ready_us;
            if (ready > now) { wake = std::min(wake, ready); }
        }
        if (rules_.alone) { // what ends elsewhere may make room
            for (const timeline& other : timelines_) {
                if (other.free_us > now) { wake = std::min(wake, other.free_us); }
            }
        }
        l.wake_us = wake;
    }

    /// The pass that may overtake those before it, and when it can run: the first that can run now, else the soonest;
    /// {-1, never} when there is none.
    [[nodiscard]] constexpr std::pair<int, double> overtaking(const timeline& l, std::size_t d, double now,
                                                              double latest, double wanted) const {
        std::pair<int, double> soonest{-1, never};
        if (rules_.overtake < 0) { return soonest; }
        const std::vector<int>& order = frame_.sequence[d];
        for (std::size_t i = l.next + 1; i < std::min(order.size(), l.next + window); ++i) {
            const int y = order[i];
            const auto at = static_cast<std::size_t>(y);
            if (done_[at] != 0 || pending_[at] != 0) { continue; }
            if (y % frame_.index.microbatches != 0 && done_[at - 1] == 0) { continue; }
            const double start = std::max(now, ready_us_[at]);
            const double length = frame_.duration_us(y);
            if (!(start < soonest.second) || start + length > latest ||
                start + length - wanted > rules_.overtake * length) {
                continue;
            }
            if (!limit_.empty() &&
                held_by_passes(d, frame_.held_from, frame_.takes[frame_.op_of(y)]) + l.paused > limit_[d]) {
                continue;
            }
            soonest = {y, start};
            if (!(start > now)) { break; }
        }
        return soonest;
    }

    /// Estimates when a pass that has not run will be ready, from up to `depth` passes back, whose devices are assumed
    /// to be as late as they last were.
    [[nodiscard]] constexpr double expected_us(int x, int depth) const {
        const auto at = static_cast<std::size_t>(x);
        double ready = std::max(ready_us_[at], frame_.earliest_us[at]);
        if (pending_[at] == 0) { return ready; }
        for (const auto& link : frame_.index.before[frame_.op_of(x)]) {
            const int y = frame_.instance_of(static_cast<std::size_t>(link.op), x);
            if (done_[static_cast<std::size_t>(y)] != 0) { continue; }
            const timeline& there = timelines_[frame_.device_of(y)];
            double start = frame_.earliest_us[static_cast<std::size_t>(y)] + there.late_us;
            if (depth != 0) { start = std::max(there.free_us, expected_us(y, depth - 1)); }
            ready = std::max(ready, start + frame_.duration_us(y) + link.lag_us);
        }
        return ready;
    }

    /// The piece whose next layer best fills the gap; -1 when none fits.
    [[nodiscard]] constexpr int choose(const timeline& l, std::size_t d, double now, double room, double gap) const {
        const double slack = 1e-9 * rules_.end_us;
        int best = -1;
        double best_length = 0;
        bool best_inside = false;
        int open = 0;
        for (const int p : l.pieces) {
            if (has_begun(p) && piece(p).before < 0 && piece(p).after < 0) { ++open; }
        }
        int begun = -1; // component whose new chain was looked at: the others are alike and adjacent
        for (const int p : l.pieces) {
            const piece_progress& is = progress_[static_cast<std::size_t>(p)];
            if (is.ready_us > now) { continue; }
            const chain_piece& of = piece(p);
            const bool begins = !has_begun(p) && of.before < 0;
            if (begins && rules_.alone && under_way_ != 0) { continue; }
            const bool fresh = begins && of.after < 0;
            if (fresh) {
                if (open >= rules_.open || of.component == begun) { continue; }
                begun = of.component;
            }
            const double length = layer_of(p, is.layer).duration_us(of.samples);
            if (length > room + slack || length - gap > rules_.delay * length + slack || !has_room(l, d, p, now)) {
                continue;
            }
            if (of.after >= 0) { return p; } // others wait for it
            const bool inside = length <= gap + slack;
            const bool better = best < 0 || (inside != best_inside ? inside
                                             : inside              ? length > best_length
                                                                   : length < best_length);
            if (better) { best = p, best_length = length, best_inside = inside; }
        }
        return best;
    }

    /// Whether memory lets the next layer of `p` run on device `d`, and its output wait if more layers follow.
    [[nodiscard]] constexpr bool has_room(const timeline& l, std::size_t d, int p, double now) const {
        if (limit_.empty()) { return true; }
        const chain_piece& of = piece(p);
        const int layer = progress_[static_cast<std::size_t>(p)].layer;
        const std::int64_t others = l.paused - input_bytes(p, layer);
        const std::int64_t live = layer_of(p, layer).live_bytes * of.samples;
        if (held_by_passes(d, frame_.held_before) + others + live > limit_[d]) { return false; }
        const bool ends = layer == of.last_layer;
        if (ends && of.after < 0) { return true; }
        const std::int64_t kept = layer_of(p, layer).output_bytes * of.samples;
        if (held_by_passes(d, frame_.held_from) + others + kept > limit_[d]) { return false; }
        if (!ends) { return true; }
        const auto there = static_cast<std::size_t>(piece(of.after).device);
        const timeline& other = timelines_[there];
        const bool runs = other.free_us > now + layer_of(p, layer).duration_us(of.samples);
        const std::int64_t held = held_by_passes(there, frame_.held_from) + other.paused;
        return std::max(held, runs ? other.running : 0) + kept <= limit_[there];
    }

    constexpr void run_pass(std::size_t d, int x, double now) {
        timeline& l = timelines_[d];
        stand_still(d, now);
        const double end = passes_.devices[d].emplace_back(frame_.index.timed(x, now)).end_us;
        const std::vector<int>& order = frame_.sequence[d];
        if (!limit_.empty()) {
            if (order[l.next] != x) { l.ahead += frame_.takes[frame_.op_of(x)]; }
            l.running = held_by_passes(d, frame_.held_from) + l.paused;
        }
        l.free_us = l.wake_us = end;
        l.after_task = false;
        l.late_us = now - frame_.earliest_us[static_cast<std::size_t>(x)];
        done_[static_cast<std::size_t>(x)] = 1;
        for (; l.next != order.size() && done_[static_cast<std::size_t>(order[l.next])] != 0; ++l.next) {
            const int ran = order[l.next];
            if (!limit_.empty() && ran != x) { l.ahead -= frame_.takes[frame_.op_of(ran)]; }
        }
        if (rules_.alone) { wake_all(end); }
        for (const auto& link : frame_.index.after[frame_.op_of(x)]) {
            const int y = frame_.instance_of(static_cast<std::size_t>(link.op), x);
            const auto at = static_cast<std::size_t>(y);
            ready_us_[at] = std::max(ready_us_[at], end + link.lag_us);
            if (--pending_[at] != 0) { continue; }
            timeline& other = timelines_[frame_.device_of(y)];
            const std::vector<int>& there = frame_.sequence[frame_.device_of(y)];
            if (rules_.overtake >= 0 || (other.next != there.size() && there[other.next] == y)) {
                other.wake_us = std::min(other.wake_us, std::max(other.free_us, ready_us_[at]));
            }
        }
    }

    constexpr void run_layer(std::size_t d, int p, double now) {
        timeline& l = timelines_[d];
        stand_still(d, now);
        const chain_piece& of = piece(p);
        piece_progress& is = progress_[static_cast<std::size_t>(p)];
        const frozen_layer& layer = layer_of(p, is.layer);
        const double end = now + layer.duration_us(of.samples);
        auto& list = tasks_[d];
        const bool goes_on = l.after_task && list.back().end_us == now && list.back().component == of.component &&
                             list.back().first_sample == of.first_sample && list.back().last_layer == is.layer - 1;
        if (goes_on) {
            list.back().last_layer = is.layer;
            list.back().end_us = end;
        } else {
            list.push_back({of.component, is.layer, is.layer, of.first_sample, of.samples, of.device, now, end});
        }
        if (is.layer == of.first_layer && of.before < 0) { ++under_way_; }
        if (is.layer == of.first_layer && of.before >= 0) {
            timelines_[static_cast<std::size_t>(piece(of.before).device)].paused -= input_bytes(p, is.layer);
        }
        l.paused -= input_bytes(p, is.layer);
        if (!limit_.empty()) {
            l.running = held_by_passes(d, frame_.held_before) + l.paused + layer.live_bytes * of.samples;
        }
        l.free_us = l.wake_us = end;
        l.after_task = true;
        is.ready_us = end;
        const std::int64_t kept = layer.output_bytes * of.samples;
        const bool ends = is.layer++ == of.last_layer;
        if (ends) { std::erase(l.pieces, p); }
        if (ends && of.after < 0) { --under_way_; }
        if (rules_.alone) { wake_all(end); }
        if (ends && of.after < 0) { return; }
        l.paused += kept; // held here until the next piece starts, wherever that runs
        if (!ends) { return; }
        timeline& other = timelines_[static_cast<std::size_t>(piece(of.after).device)];
        const double there = end + work_.link.transfer_us(kept);
        progress_[static_cast<std::size_t>(of.after)].ready_us = there;
        other.paused += kept;
        other.running += kept;
        if (other.wake_us > there) { other.wake_us = std::max(there, other.free_us); }
    }

    /// Wakes devices that wait for room on another device or for a chain to end.
    constexpr void wake_all(double end) {
        for (timeline& l : timelines_) { l.wake_us = std::min(l.wake_us, std::max(end, l.free_us)); }
    }

    /// Accounts for the idle time before what is placed at `now`.
    constexpr void stand_still(std::size_t d, double now) {
        timeline& l = timelines_[d];
        const double idle_us = now - l.free_us;
        if (!l.pieces.empty()) { l.lost_us += idle_us; }
        if (!rules_.spare_us.empty()) { given_up_ = given_up_ || (rules_.spare_us[d] -= idle_us) < 0; }
        ++placed_;
    }

    const fill_problem& frame_;
    const frozen_work& work_;
    const std::vector<chain_piece>& pieces_;
    fill_rules rules_;
    const std::vector<std::int64_t>& limit_;
    std::vector<timeline> timelines_;
    std::vector<int> pending_;
    std::vector<double> ready_us_;
    std::vector<char> done_; ///< [instance] whether it has been placed
    std::vector<piece_progress> progress_;
    int under_way_{}; ///< chains begun and not ended
    bool given_up_{};
    std::int64_t placed_{}; ///< passes and layers
    schedule passes_{};
    std::vector<std::vector<frozen_task>> tasks_{};
};

} // namespace pulse::detail
