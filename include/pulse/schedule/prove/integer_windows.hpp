#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <pulse/schedule/prove/window_state.hpp>

namespace pulse::detail {

/// A window_state for many short propagations: times in whole numbers, the instances of a device side by side, and two
/// rules, each a loop without branches over a device. Of two instances of a device one comes first when the other order
/// does not fit into their windows; what surely runs before an instance runs one after the other.
///
/// Windows are least starts and least times from an end to the end of the step. Both hold for shorter cutoffs too.
class integer_windows {
public:
    struct windows {
        std::vector<std::int32_t> head{};
        std::vector<std::int32_t> tail{};
    };

    /// Times in units of `grain_us`, where it is above 0 and not too fine; else of a small part of `longest_us`, the
    /// longest cutoff to come, rounded so that no schedule is lost.
    integer_windows(const window_facts& facts, double longest_us, double grain_us) : facts_{&facts} {
        constexpr double most = 0x1p28;
        exact_ = grain_us > 0 && longest_us / grain_us < most;
        unit_us_ = exact_ ? grain_us : longest_us / most;
        const auto& index = facts.index;
        const auto m = static_cast<std::size_t>(index.microbatches);
        place_.resize(static_cast<std::size_t>(index.ops()) * m, 0);
        for (std::size_t d = 0; d != index.on_device.size(); ++d) {
            block here{};
            here.first = duration_.size();
            for (const int op : index.on_device[d]) {
                for (int k = 0; k != index.microbatches; ++k) {
                    place_[facts.at(op, k)] = duration_.size();
                    here.by_head.push_back(static_cast<std::int32_t>(duration_.size() - here.first));
                    duration_.push_back(whole(facts.duration(op)));
                }
            }
            here.used = duration_.size() - here.first;
            here.size = (here.used + lanes - 1) / lanes * lanes; // the rest has no length and never comes first
            duration_.resize(here.first + here.size, 0);
            device_.resize(duration_.size(), d);
            here.by_tail = here.by_head;
            here.before.resize(here.size * here.size / lanes, 0);
            here.after.resize(here.size * here.size / lanes, 0);
            least_.resize(std::max(least_.size(), here.size), 0);
            blocks_.push_back(std::move(here));
        }
        dirty_.resize(blocks_.size(), 0);
        take_edges(index.before, before_, first_before_);
        take_edges(index.after, after_, first_after_);
    }

    /// Time in units, at most `time_us`.
    [[nodiscard]] std::int32_t whole(double time_us) const {
        const double units = time_us / unit_us_;
        return static_cast<std::int32_t>(std::floor(exact_ ? units + 1e-3 : units * (1 - 1e-12)));
    }
    /// Cutoff in units, at least `cutoff_us`.
    [[nodiscard]] std::int32_t cutoff_of(double cutoff_us) const {
        const double units = cutoff_us / unit_us_;
        return static_cast<std::int32_t>(exact_ ? std::floor(units + 1e-3) : std::ceil(units * (1 + 1e-12)));
    }

    /// Where instance k of `op` lies in `windows`.
    [[nodiscard]] std::size_t place(int op, int k) const { return place_[facts_->at(op, k)]; }
    [[nodiscard]] std::int32_t duration(std::size_t at) const { return duration_[at]; }

    /// The windows of `state`; its settled orders hold from now on for `narrow`.
    [[nodiscard]] windows take(const window_state& state) {
        windows out{std::vector<std::int32_t>(duration_.size(), 0), std::vector<std::int32_t>(duration_.size(), 0)};
        const auto& index = facts_->index;
        for (int op = 0; op != index.ops(); ++op) {
            block& here = blocks_[static_cast<std::size_t>(index.device[static_cast<std::size_t>(op)])];
            for (int k = 0; k != index.microbatches; ++k) {
                const std::size_t at = place(op, k);
                out.head[at] = std::max(0, whole(state.start[facts_->at(op, k)]));
                out.tail[at] = std::max(0, whole(state.cutoff_us - state.due[facts_->at(op, k)]));
                for (const int a : facts_->neighbours(op)) {
                    const int count = state.surely_before(*facts_, a, op, k);
                    for (int j = 0; j != index.microbatches; ++j) {
                        const auto one = static_cast<std::size_t>(place(a, j)) - here.first;
                        put(here.before, here.size, one, at - here.first, j < count);
                        put(here.after, here.size, at - here.first, one, j < count);
                    }
                }
            }
        }
        return out;
    }

    /// Narrows a state by `known`, which holds for its cutoff or a longer one.
    void give(const windows& known, window_state& state) const {
        const auto& index = facts_->index;
        for (int op = 0; op != index.ops(); ++op) {
            for (int k = 0; k != index.microbatches; ++k) {
                const std::size_t at = facts_->at(op, k);
                state.start[at] = std::max(state.start[at], known.head[place_[at]] * unit_us_);
                state.due[at] = std::min(state.due[at], state.cutoff_us - known.tail[place_[at]] * unit_us_);
            }
        }
    }

    /// The whole state is to be looked at by the next `narrow`, or what a change at `at` makes necessary.
    void touch_all() { std::fill(dirty_.begin(), dirty_.end(), char{1}); }
    void touch(std::size_t at) { changed_.push_back(at); }

    /// Narrows `w`; false when no schedule is as short as `cutoff`. Goes through at most `most` devices.
    [[nodiscard]] bool narrow(windows& w, std::int32_t cutoff, std::int64_t most) {
        cutoff_ = cutoff;
        const bool may_be = follow(w) && go_round(w, most);
        changed_.clear();
        std::fill(dirty_.begin(), dirty_.end(), char{0});
        return may_be;
    }

    /// Pairs of instances that all calls of `narrow` have looked at: the work done.
    [[nodiscard]] std::int64_t visits() const noexcept { return visits_; }

private:
    static constexpr std::size_t lanes = 16;
    using lane_vector [[gnu::vector_size(lanes * sizeof(std::int32_t))]] = std::int32_t;

    struct edge {
        std::size_t to{};
        std::int32_t lag{};
    };
    /// The instances of a device: [first, first + size) of all arrays, of which `used` are instances.
    struct block {
        std::size_t first{};
        std::size_t used{};
        std::size_t size{};
        /// Bit b of the row of a: a surely runs before b; the same with a and b exchanged.
        std::vector<std::uint16_t> before{};
        std::vector<std::uint16_t> after{};
        /// Latest head first, latest tail first: as they were when last needed.
        std::vector<std::int32_t> by_head{};
        std::vector<std::int32_t> by_tail{};
    };

    static void put(std::vector<std::uint16_t>& rows, std::size_t size, std::size_t a, std::size_t b, bool yes) {
        auto& bits = rows[(a * size + b) / lanes];
        const auto bit = static_cast<std::uint16_t>(1U << (b % lanes));
        bits = static_cast<std::uint16_t>(yes ? bits | bit : bits & ~bit);
    }

    void take_edges(const std::vector<std::vector<indexed_problem::link>>& links, std::vector<edge>& out,
                    std::vector<std::size_t>& first) {
        // Edges of padding are none; those of instances come in the order of places.
        std::vector<std::vector<edge>> at(duration_.size());
        const auto& index = facts_->index;
        for (int op = 0; op != index.ops(); ++op) {
            for (const auto& link : links[static_cast<std::size_t>(op)]) {
                for (int k = 0; k != index.microbatches; ++k) {
                    at[place(op, k)].push_back({place(link.op, k), whole(link.lag_us)});
                }
            }
        }
        for (const auto& list : at) {
            first.push_back(out.size());
            out.insert(out.end(), list.begin(), list.end());
        }
        first.push_back(out.size());
    }

    /// What `changed_` changes along the dependencies, from instance to instance.
    [[nodiscard]] bool follow(windows& w) {
        while (!changed_.empty()) {
            const std::size_t x = changed_.back();
            changed_.pop_back();
            if (w.head[x] + duration_[x] + w.tail[x] > cutoff_) { return false; }
            dirty_[device_[x]] = 1;
            for (std::size_t e = first_after_[x]; e != first_after_[x + 1]; ++e) {
                const std::int32_t head = w.head[x] + duration_[x] + after_[e].lag;
                if (head <= w.head[after_[e].to]) { continue; }
                w.head[after_[e].to] = head;
                changed_.push_back(after_[e].to);
            }
            for (std::size_t e = first_before_[x]; e != first_before_[x + 1]; ++e) {
                const std::int32_t tail = w.tail[x] + duration_[x] + before_[e].lag;
                if (tail <= w.tail[before_[e].to]) { continue; }
                w.tail[before_[e].to] = tail;
                changed_.push_back(before_[e].to);
            }
        }
        return true;
    }

    [[nodiscard]] bool go_round(windows& w, std::int64_t most) {
        for (std::int64_t left = most; left > 0;) {
            bool none = true;
            for (std::size_t d = 0; d != blocks_.size(); ++d) {
                if (dirty_[d] == 0) { continue; }
                none = false;
                dirty_[d] = 0;
                block& here = blocks_[d];
                line_up(here, w.head, w.tail, here.by_head, here.before);
                line_up(here, w.tail, w.head, here.by_tail, here.after);
                visits_ += static_cast<std::int64_t>(2 * here.size * here.size);
                if (!follow(w)) { return false; }
                --left;
            }
            if (none) { break; }
        }
        return true;
    }

    /// Raises the heads of a device; seen from the end, its tails.
    void line_up(const block& here, std::vector<std::int32_t>& head, const std::vector<std::int32_t>& tail,
                 std::vector<std::int32_t>& order, const std::vector<std::uint16_t>& first) {
        std::int32_t* const h = head.data() + here.first;
        const std::int32_t* const q = tail.data() + here.first;
        const std::int32_t* const length = duration_.data() + here.first;
        const std::size_t size = here.size;
        for (std::size_t i = 1; i < order.size(); ++i) { // nearly in order
            const std::int32_t x = order[i];
            std::size_t j = i;
            for (; j != 0 && h[order[j - 1]] < h[x]; --j) { order[j] = order[j - 1]; }
            order[j] = x;
        }
        sources_.clear();
        for (const std::int32_t x : order) {
            // what ends after `latest` when it starts soonest does not come before x
            sources_.push_back({x, h[x], length[x], cutoff_ - q[x] - length[x]});
        }
        const std::size_t groups = size / lanes;
        lane_vector number{};
        lane_vector bit{};
        for (std::size_t t = 0; t != lanes; ++t) {
            number[t] = static_cast<std::int32_t>(t);
            bit[t] = std::int32_t{1} << t;
        }
        for (std::size_t g = 0; g != groups; ++g) {
            lane_vector end{};
            lane_vector least{};
            lane_vector work{};
            std::memcpy(&least, h + g * lanes, sizeof least);
            std::memcpy(&end, length + g * lanes, sizeof end);
            end += least;
            for (const source& s : sources_) {
                const std::int32_t sure = first[static_cast<std::size_t>(s.at) * groups + g];
                const lane_vector after = ((end > s.latest) | ((bit & sure) != 0)) & (number != s.at);
                work += after & s.lasts;
                const lane_vector start = (work + s.start) & after;
                least = least > start ? least : start;
            }
            number += static_cast<std::int32_t>(lanes);
            std::memcpy(least_.data() + g * lanes, &least, sizeof least);
        }
        const std::int32_t* const least = least_.data();
        for (std::size_t t = 0; t != here.used; ++t) {
            if (least[t] == h[t]) { continue; }
            h[t] = least[t];
            changed_.push_back(here.first + t);
        }
    }

    const window_facts* facts_;
    bool exact_{};
    double unit_us_{};
    std::int32_t cutoff_{};
    /// By place: instances of devices side by side. By instance: its place.
    std::vector<std::int32_t> duration_{};
    std::vector<std::size_t> device_{};
    std::vector<std::size_t> place_{};
    std::vector<block> blocks_{};
    /// Edges into and out of place x are [first_before_[x], first_before_[x + 1]) of before_, and so on.
    std::vector<edge> before_{};
    std::vector<edge> after_{};
    std::vector<std::size_t> first_before_{};
    std::vector<std::size_t> first_after_{};
    /// Places whose windows changed, and devices to look at again.
    std::vector<std::size_t> changed_{};
    std::vector<char> dirty_{};
    std::int64_t visits_{};
    /// Scratch of one device.
    struct source {
        std::int32_t at{};
        std::int32_t start{};
        std::int32_t lasts{};
        std::int32_t latest{};
    };
    std::vector<source> sources_{};
    std::vector<std::int32_t> least_{};
};

} // namespace pulse::detail
