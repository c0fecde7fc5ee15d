#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/prove/window_state.hpp>

namespace pulse::detail {

/// Narrows a window_state by what holds in every schedule: dependencies, one instance at a time per device, memory.
///
/// Rules, repeated until none changes anything: dependencies and settled orders; pairs that fit in one order only;
/// transitive orders; the settled predecessors of an instance, one after the other; edge finding (Carlier and Pinson,
/// 1989; in the form of Nuijten, 1994); and at the start of every instance that takes memory, what is surely held.
class window_propagator {
public:
    constexpr explicit window_propagator(const window_problem& facts) : facts_{&facts} {}

    /// Narrows `state`; false when no schedule meets its cutoff, up to the rounding of sums.
    ///
    /// When orders form a cycle, rules may push each other by the shortest pass at a time: after some rounds the
    /// windows are left as wide as they are.
    [[nodiscard]] constexpr bool narrow(window_state& state) {
        state_ = &state;
        // A sum of n times is off by at most n units in the last place.
        slack_ = 0x1p-50 * static_cast<double>(64 + state.start.size()) * state.cutoff_us;
        for (std::size_t round = 0; round != 256 + state.start.size(); ++round) {
            changed_ = false;
            if (!follow_dependencies() || !settle_pairs() || !close_transitively() || !settle_memory()) {
                return false;
            }
            if (changed_) { continue; }
            if (!line_up_settled()) { return false; }
            if (changed_) { continue; }
            if (!find_edges()) { return false; }
            if (!changed_) { return true; }
        }
        return true;
    }

    /// Settles that instance k of `a` runs before instance l of `b`; false when the opposite is already settled.
    [[nodiscard]] constexpr bool settle(window_state& state, int a, int k, int b, int l) {
        state_ = &state;
        return put_before(a, k, b, l);
    }

private:
    [[nodiscard]] constexpr bool put_before(int a, int k, int b, int l) {
        auto& ahead = state_->ahead;
        if (ahead[facts_->order_at(a, b, l)] > k) { return true; }
        if (ahead[facts_->order_at(b, a, k)] > l) { return false; }
        changed_ = true;
        const std::size_t first = facts_->order_at(a, b, 0);
        for (int j = l; j != facts_->index.microbatches; ++j) {
            int& count = ahead[first + static_cast<std::size_t>(j)];
            if (count > k) { break; }
            count = k + 1;
        }
        return true;
    }
    [[nodiscard]] constexpr bool raise(int op, int k, double start) {
        const std::size_t at = facts_->at(op, k);
        if (start <= state_->start[at] + slack_) { return true; }
        state_->start[at] = start;
        changed_ = true;
        return start + facts_->duration(op) <= state_->due[at] + slack_;
    }
    [[nodiscard]] constexpr bool lower(int op, int k, double due) {
        const std::size_t at = facts_->at(op, k);
        if (due >= state_->due[at] - slack_) { return true; }
        state_->due[at] = due;
        changed_ = true;
        return state_->start[at] + facts_->duration(op) <= due + slack_;
    }

    constexpr bool follow_dependencies() {
        const auto& index = facts_->index;
        const int m = index.microbatches;
        for (int k = 0; k != m; ++k) {
            for (const int op : index.alone) {
                double start = k == 0 ? 0 : state_->start[facts_->at(op, k - 1)] + facts_->duration(op);
                for (const auto& link : index.before[static_cast<std::size_t>(op)]) {
                    start = std::max(start,
                                     state_->start[facts_->at(link.op, k)] + facts_->duration(link.op) + link.lag_us);
                }
                for (const int a : facts_->neighbours(op)) {
                    const int count = state_->surely_before(*facts_, a, op, k);
                    if (a == op || count == 0) { continue; }
                    start = std::max(start, state_->start[facts_->at(a, count - 1)] + facts_->duration(a));
                }
                if (!raise(op, k, start)) { return false; }
            }
        }
        for (int k = m; k-- != 0;) {
            for (auto it = index.alone.rbegin(); it != index.alone.rend(); ++it) {
                const int op = *it;
                double due = k + 1 == m ? state_->cutoff_us : state_->due[facts_->at(op, k + 1)] - facts_->duration(op);
                for (const auto& link : index.after[static_cast<std::size_t>(op)]) {
                    due = std::min(due, state_->due[facts_->at(link.op, k)] - facts_->duration(link.op) - link.lag_us);
                }
                for (const int b : facts_->neighbours(op)) {
                    if (b == op) { continue; }
                    const int l = state_->perhaps_before(*facts_, b, op, k);
                    if (l < m) { due = std::min(due, state_->due[facts_->at(b, l)] - facts_->duration(b)); }
                }
                if (!lower(op, k, due)) { return false; }
            }
        }
        return true;
    }

    /// Instance k of `a` cannot run before instance l of `b` when both do not fit between the first one's start and the
    /// second one's due.
    constexpr bool settle_pairs() {
        const int m = facts_->index.microbatches;
        for (const auto& ops : facts_->index.on_device) {
            for (const int a : ops) {
                for (const int b : ops) {
                    if (a == b) { continue; }
                    const double both = facts_->duration(a) + facts_->duration(b) - slack_;
                    int l = 0;
                    for (int k = 0; k != m; ++k) {
                        const double least = state_->start[facts_->at(a, k)] + both;
                        while (l != m && least > state_->due[facts_->at(b, l)]) { ++l; }
                        if (l != 0 && !put_before(b, l - 1, a, k)) { return false; }
                    }
                }
            }
        }
        return true;
    }

    constexpr bool close_transitively() {
        const int m = facts_->index.microbatches;
        for (const auto& ops : facts_->index.on_device) {
            for (const int c : ops) {
                for (const int b : ops) {
                    if (b == c) { continue; }
                    for (int l = 0; l != m; ++l) {
                        const int count = state_->surely_before(*facts_, c, b, l);
                        if (count == 0) { continue; }
                        for (const int a : ops) {
                            const int more = state_->surely_before(*facts_, a, c, count - 1);
                            if (a == c || more == 0) { continue; }
                            if (a == b ? more > l : !put_before(a, more - 1, b, l)) { return false; }
                        }
                    }
                }
            }
        }
        return true;
    }

    /// Memory at the start of instance l of `b`: surely begun minus at most ended. Settles an order where one more
    /// begun or one fewer ended would exceed the limit.
    constexpr bool settle_memory() {
        const int m = facts_->index.microbatches;
        for (std::size_t d = 0; d != facts_->holds.size(); ++d) {
            const auto& holds = facts_->holds[d];
            for (const int b : facts_->index.on_device[d]) {
                const auto begins = [&](const window_problem::hold& h) { return h.begin == b; };
                if (std::none_of(holds.begin(), holds.end(), begins)) { continue; }
                for (int l = 0; l != m; ++l) {
                    if (!settle_memory_at(holds, facts_->limit[d], b, l)) { return false; }
                }
            }
        }
        return true;
    }
    constexpr bool settle_memory_at(const std::vector<window_problem::hold>& holds, std::int64_t limit, int b, int l) {
        const int m = facts_->index.microbatches;
        const auto& ops = facts_->neighbours(b);
        begun_.assign(ops.size(), 0);
        ended_.assign(ops.size(), 0);
        for (std::size_t i = 0; i != ops.size(); ++i) {
            begun_[i] = ops[i] == b ? l + 1 : state_->surely_before(*facts_, ops[i], b, l);
            ended_[i] = ops[i] == b ? l : state_->perhaps_before(*facts_, ops[i], b, l);
        }
        const auto place = [&](int op) { return facts_->place[static_cast<std::size_t>(op)]; };
        const auto held = [&](std::size_t begun, std::size_t ended) {
            std::int64_t sum = 0;
            for (const auto& h : holds) {
                const int more = begun_[place(h.begin)] + (place(h.begin) == begun ? 1 : 0);
                const int one = ended_[place(h.end)] - (place(h.end) == ended ? 1 : 0);
                const int two = ended_[place(h.also_end)] - (place(h.also_end) == ended ? 1 : 0);
                sum += h.bytes * std::max(0, more - std::min(one, two));
            }
            return sum;
        };
        const std::size_t none = ops.size();
        if (held(none, none) > limit) { return false; }
        for (std::size_t i = 0; i != ops.size(); ++i) {
            if (ops[i] == b) { continue; }
            const int possible = state_->perhaps_before(*facts_, ops[i], b, l);
            if (begun_[i] < m && begun_[i] < possible && held(i, none) > limit) {
                if (!put_before(b, l, ops[i], begun_[i])) { return false; }
            }
            if (ended_[i] > begun_[i] && held(none, i) > limit) {
                if (!put_before(ops[i], ended_[i] - 1, b, l)) { return false; }
                begun_[i] = ended_[i];
                if (held(none, none) > limit) { return false; }
            }
        }
        return true;
    }

    /// Instances that surely run before another one run one after the other, from each of their starts on.
    constexpr bool line_up_settled() {
        const auto& index = facts_->index;
        const int m = index.microbatches;
        for (const auto& ops : index.on_device) {
            sort_instances(ops);
            for (const int b : ops) {
                for (int l = 0; l != m; ++l) {
                    double work = 0;
                    double start = 0;
                    for (const auto& i : by_start_) {
                        if (state_->surely_before(*facts_, i.op, b, l) <= i.k) { continue; }
                        work += facts_->duration(i.op);
                        start = std::max(start, state_->start[i.at] + work);
                    }
                    if (!raise(b, l, start)) { return false; }
                    work = 0;
                    double due = state_->cutoff_us;
                    for (const auto& i : by_due_) {
                        if (state_->surely_before(*facts_, b, i.op, i.k) <= l) { continue; }
                        work += facts_->duration(i.op);
                        due = std::min(due, state_->due[i.at] - work);
                    }
                    if (!lower(b, l, due)) { return false; }
                }
            }
        }
        return true;
    }

    struct instance {
        int op{};
        int k{};
        std::size_t at{};
        /// Earliest start and due in the direction of edge finding; duration.
        double head{};
        double due{};
        double work{};
        double bound{};
    };

    /// Fills by_start_, latest start first, and by_due_, earliest due first.
    constexpr void sort_instances(const std::vector<int>& ops) {
        by_start_.clear();
        for (const int op : ops) {
            for (int k = 0; k != facts_->index.microbatches; ++k) {
                const std::size_t at = facts_->at(op, k);
                by_start_.push_back({op, k, at, state_->start[at], state_->due[at], facts_->duration(op), 0});
            }
        }
        by_due_ = by_start_;
        std::sort(by_start_.begin(), by_start_.end(),
                  [](const auto& x, const auto& y) { return x.head != y.head ? x.head > y.head : x.at < y.at; });
        std::sort(by_due_.begin(), by_due_.end(),
                  [](const auto& x, const auto& y) { return x.due != y.due ? x.due < y.due : x.at < y.at; });
    }

    constexpr bool find_edges() {
        for (const auto& ops : facts_->index.on_device) {
            sort_instances(ops);
            jobs_.assign(by_start_.rbegin(), by_start_.rend());
            if (!raise_starts()) { return false; }
            for (const auto& j : jobs_) {
                if (j.bound > j.head && !raise(j.op, j.k, j.bound)) { return false; }
            }
            // The same from the end.
            jobs_.assign(by_due_.rbegin(), by_due_.rend());
            for (auto& j : jobs_) {
                const double head = state_->cutoff_us - j.due;
                j.due = state_->cutoff_us - j.head;
                j.head = head;
            }
            if (!raise_starts()) { return false; }
            for (const auto& j : jobs_) {
                if (j.bound > j.head && !lower(j.op, j.k, state_->cutoff_us - j.bound)) { return false; }
            }
        }
        return true;
    }

    /// Edge finding over jobs_, sorted by head: j.bound becomes the greatest head that any set of jobs forces on j.
    constexpr bool raise_starts() {
        constexpr double never = -std::numeric_limits<double>::infinity();
        dues_.clear();
        for (auto& j : jobs_) {
            j.bound = j.head;
            dues_.push_back(j.due);
        }
        std::sort(dues_.begin(), dues_.end());
        dues_.erase(std::unique(dues_.begin(), dues_.end()), dues_.end());
        from_.assign(jobs_.size(), never);
        for (const double due : dues_) {
            double work = 0;
            double end = never;
            for (std::size_t i = jobs_.size(); i-- != 0;) {
                if (jobs_[i].due <= due) {
                    work += jobs_[i].work;
                    end = std::max(end, jobs_[i].head + work);
                    if (end > due + slack_) { return false; }
                }
                from_[i] = end;
            }
            double before = never;
            for (std::size_t i = 0; i != jobs_.size(); ++i) {
                auto& j = jobs_[i];
                if (j.due <= due) {
                    before = std::max(before, j.head + work);
                    work -= j.work;
                    continue;
                }
                if (j.head + work + j.work > due + slack_) { j.bound = std::max(j.bound, from_[i]); }
                if (before + j.work > due + slack_) { j.bound = std::max(j.bound, end); }
            }
        }
        return true;
    }

    const window_problem* facts_;
    window_state* state_{};
    double slack_{};
    bool changed_{};
    std::vector<int> begun_{};
    std::vector<int> ended_{};
    std::vector<instance> by_start_{};
    std::vector<instance> by_due_{};
    std::vector<instance> jobs_{};
    std::vector<double> dues_{};
    std::vector<double> from_{};
};

} // namespace pulse::detail
