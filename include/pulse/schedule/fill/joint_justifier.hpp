#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/fill/fill_problem.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

/// Double justification (Valls, Ballestin, Quintanilla, 2005) of passes and layers together: latest ends first, each
/// moves to the latest gap of its device that its successors allow; then, earliest starts first, to the earliest gap.
/// Microbatches of an operation and layers of a chunk stay in order, layers on their devices; memory is ignored.
class joint_justifier {
public:
    /// Uses the operations of `frame`, not its orders.
    constexpr joint_justifier(const fill_problem& frame, const frozen_work& work, const std::vector<double>& after_us) :
        index_{frame.index}, work_{work}, after_us_{after_us}, passes_{static_cast<std::size_t>(frame.instances())},
        place_(frame.index.alone.size(), 0), lists_(after_us.size()) {
        for (std::size_t i = 0; i != place_.size(); ++i) {
            place_[static_cast<std::size_t>(index_.alone[i])] = static_cast<int>(i);
        }
    }

    /// Justifies `fill` for at most `most` rounds, while each gains, and returns when everything ends: never later than
    /// before. `fill` becomes the result when that ends sooner. Subtracts the placements tried from `left`.
    constexpr double justify(filled_schedule& fill, double end_us, int most, std::int64_t& left) {
        take(fill);
        for (int round = 0; round != most; ++round) {
            left -= 2 * static_cast<std::int64_t>(order_.size());
            place_all(true);
            const double found = place_all(false);
            if (!(found < end_us * (1 - 1e-12))) { break; }
            end_us = found;
            give(fill);
        }
        return end_us;
    }

private:
    /// A pass of a microbatch, or a layer on a chunk of samples.
    struct job {
        int device{};
        double length_us{};
        double end_us{};
        int rank{}; ///< greater than the ranks of all that it waits for
        frozen_task layer{};
        int before{-1}; ///< the layer before it on the same chunk
        int after{-1};
        double sent_us{}; ///< from the end of `before` to the earliest start of this one
    };
    struct placed {
        double start_us{};
        double end_us{};
        int job{};
    };
    struct keyed {
        double end_us{};
        int rank{};
        int job{};
    };

    constexpr void take(const filled_schedule& fill) {
        const int m = index_.microbatches;
        jobs_.assign(passes_, {});
        order_.clear();
        for (std::size_t d = 0; d != fill.passes.devices.size(); ++d) {
            for (const timed_pass& p : fill.passes.devices[d]) {
                const int op = index_.op_of({p.op, p.stage});
                const int x = op * m + p.microbatch;
                const auto o = static_cast<std::size_t>(op);
                jobs_[static_cast<std::size_t>(x)] = {static_cast<int>(d), index_.duration[o], p.end_us,
                                                      place_[o] * m + p.microbatch};
                order_.push_back({0, 0, x});
            }
        }
        std::vector<std::pair<std::pair<int, int>, std::pair<int, int>>> chains{}; // component, sample; layer, job
        for (const auto& list : fill.tasks) {
            for (const frozen_task& t : list) {
                double at = t.start_us;
                for (int l = t.first_layer; l <= t.last_layer; ++l) {
                    const auto& layer = work_.components[static_cast<std::size_t>(t.component)].layers;
                    const double length = layer[static_cast<std::size_t>(l)].duration_us(t.samples);
                    const int x = static_cast<int>(jobs_.size());
                    chains.push_back({{t.component, t.first_sample}, {l, x}});
                    order_.push_back({0, 0, x});
                    jobs_.push_back({t.device,
                                     length,
                                     at += length,
                                     l,
                                     {t.component, l, l, t.first_sample, t.samples, t.device, 0, 0}});
                }
            }
        }
        std::sort(chains.begin(), chains.end());
        for (std::size_t i = 1; i < chains.size(); ++i) {
            if (chains[i].first != chains[i - 1].first) { continue; }
            const auto [l, x] = chains[i].second;
            const int before = chains[i - 1].second.second;
            job& here = jobs_[static_cast<std::size_t>(x)];
            job& there = jobs_[static_cast<std::size_t>(before)];
            here.before = before;
            there.after = x;
            if (here.device == there.device) { continue; }
            const auto& layers = work_.components[static_cast<std::size_t>(here.layer.component)].layers;
            here.sent_us =
                work_.link.transfer_us(layers[static_cast<std::size_t>(l - 1)].output_bytes * here.layer.samples);
        }
    }

    /// Places all jobs, latest end first, each as soon as its predecessors and its device allow: seen from the end, or,
    /// by the ends found there, from the beginning. Returns when the last one ends.
    constexpr double place_all(bool from_end) {
        for (keyed& k : order_) {
            const job& j = jobs_[static_cast<std::size_t>(k.job)];
            k.end_us = j.end_us;
            k.rank = from_end ? j.rank : -j.rank;
        }
        std::sort(order_.begin(), order_.end(), [](const keyed& a, const keyed& b) {
            if (a.end_us != b.end_us) { return a.end_us > b.end_us; }
            return a.rank != b.rank ? a.rank > b.rank : a.job > b.job;
        });
        for (auto& list : lists_) { list.clear(); }
        for (const keyed& k : order_) {
            job& j = jobs_[static_cast<std::size_t>(k.job)];
            const auto d = static_cast<std::size_t>(j.device);
            const double ready = std::max(from_end ? after_us_[d] : 0.0, ready_us(k.job, j, from_end));
            auto& list = lists_[d];
            std::size_t i = list.size();
            while (i != 0 && list[i - 1].end_us > ready) { --i; }
            double start = ready;
            for (;; ++i) {
                if (i != 0) { start = std::max(ready, list[i - 1].end_us); }
                if (i == list.size() || start + j.length_us <= list[i].start_us) { break; }
            }
            j.end_us = start + j.length_us;
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), {start, j.end_us, k.job});
        }
        double last = 0;
        for (std::size_t d = 0; d != lists_.size(); ++d) {
            const double behind = from_end ? 0.0 : after_us_[d];
            last = std::max(last, (lists_[d].empty() ? 0.0 : lists_[d].back().end_us) + behind);
        }
        return last;
    }

    /// When all that job `x` waits for has ended and has arrived.
    [[nodiscard]] constexpr double ready_us(int x, const job& j, bool from_end) const {
        double ready = 0;
        const auto wait = [&](int y, double lag_us) {
            ready = std::max(ready, jobs_[static_cast<std::size_t>(y)].end_us + lag_us);
        };
        if (static_cast<std::size_t>(x) >= passes_) {
            if (!from_end && j.before >= 0) { wait(j.before, j.sent_us); }
            if (from_end && j.after >= 0) { wait(j.after, jobs_[static_cast<std::size_t>(j.after)].sent_us); }
            return ready;
        }
        const int m = index_.microbatches;
        const int k = x % m;
        const auto op = static_cast<std::size_t>(x / m);
        if (!from_end && k != index_.first[op]) { wait(x - 1, 0); }
        if (from_end && k + 1 != index_.end[op]) { wait(x + 1, 0); }
        for (const auto& link : from_end ? index_.after[op] : index_.before[op]) {
            if (!index_.runs_on(static_cast<std::size_t>(link.op), k)) { continue; }
            wait(link.op * m + k, link.lag_us);
        }
        return ready;
    }

    /// Writes what `place_all` found from the beginning into `fill`.
    constexpr void give(filled_schedule& fill) const {
        for (std::size_t d = 0; d != lists_.size(); ++d) {
            auto& passes = fill.passes.devices[d];
            auto& tasks = fill.tasks[d];
            passes.clear();
            tasks.clear();
            bool goes_on = false; // the previous job is a task
            for (const placed& p : lists_[d]) {
                if (static_cast<std::size_t>(p.job) < passes_) {
                    passes.push_back(index_.timed(p.job, p.start_us));
                    goes_on = false;
                    continue;
                }
                frozen_task t = jobs_[static_cast<std::size_t>(p.job)].layer;
                t.start_us = p.start_us;
                t.end_us = p.end_us;
                const bool joins =
                    goes_on && tasks.back().end_us == t.start_us && tasks.back().component == t.component &&
                    tasks.back().first_sample == t.first_sample && tasks.back().last_layer + 1 == t.first_layer;
                if (joins) {
                    tasks.back().last_layer = t.last_layer;
                    tasks.back().end_us = t.end_us;
                } else {
                    tasks.push_back(t);
                }
                goes_on = true;
            }
        }
    }

    indexed_problem index_;
    const frozen_work& work_;
    std::vector<double> after_us_;
    std::size_t passes_;
    std::vector<int> place_; ///< [op] position in the order of a microbatch that runs alone
    std::vector<job> jobs_{};
    std::vector<keyed> order_{};
    std::vector<std::vector<placed>> lists_;
};

} // namespace pulse::detail
