#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/bound/jackson_preemptive.hpp>
#include <pulse/schedule/fill/exact_fill.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/validate_fill.hpp>

namespace pulse {

namespace detail {

/// Every sequence of starts, passes and calls in the order of time, each as early as what started before allows.
/// Microbatches are alike, so each operation takes them in order; samples are alike, so a new call takes the next ones.
class exact_filler {
public:
    exact_filler(const schedule_problem& problem, const frozen_work& work, double bound_us, double known_us,
                 const search_limit& limit) :
        problem_{problem},
        work_{work}, index_{index_problem(problem)}, budget_{limit}, best_us_{known_us}, relaxed_us_{known_us},
        after_us_{work.after_us}, done_(static_cast<std::size_t>(index_.ops()), 0),
        begun_(work.components.size(), 0), free_us_(static_cast<std::size_t>(problem.devices), 0.0),
        pass_us_{busy_us(problem)}, end_us_(done_.size() * microbatches(), 0.0), tail_us_(end_us_) {
        after_us_.resize(free_us_.size(), 0.0);
        for (std::size_t k = microbatches(); k-- != 0;) {
            for (std::size_t i = index_.alone.size(); i-- != 0;) {
                const auto op = static_cast<std::size_t>(index_.alone[i]);
                double after = std::max(after_us_[device_of(op)],
                                        k + 1 == microbatches() ? 0.0 : tail_us_[at(op, k + 1)]);
                for (const auto& l : index_.after[op]) {
                    after = std::max(after, l.lag_us + tail_us_[at(static_cast<std::size_t>(l.op), k)]);
                }
                tail_us_[at(op, k)] = index_.duration[op] + after;
            }
        }
        bound_us_ = std::max(bound_us, passes_bound_us(0));
        if (best_us_ > bound_us_ * (1 + 1e-9)) { search(0); }
        if (!budget_.over()) { bound_us_ = std::max(bound_us_, std::min(best_us_, relaxed_us_)); }
    }

    [[nodiscard]] double end_us() const { return best_us_; }
    [[nodiscard]] double bound_us() const { return bound_us_; }
    [[nodiscard]] std::int64_t nodes() const { return budget_.nodes(); }
    /// Empty where nothing better than what was known is found.
    [[nodiscard]] const filled_schedule& best() const { return best_; }

private:
    /// Samples of a component that are called together.
    struct chunk {
        int component{};
        int first_sample{};
        int samples{};
        int layer{};     ///< that comes next
        int device{-1};  ///< of the layer before
        double end_us{}; ///< of the layer before

        [[nodiscard]] bool operator==(const chunk&) const = default;
    };
    /// A start: of the next microbatch of a pass, or of a layer of a chunk, which may be a new one.
    struct move {
        double start_us{};
        double tail_us{};
        int op{-1};
        std::size_t chunk{};
        int component{};
        int samples{};
        int device{};
    };
    struct started {
        move what{};
        double end_us{};
    };

    [[nodiscard]] std::size_t microbatches() const { return static_cast<std::size_t>(index_.microbatches); }
    [[nodiscard]] std::size_t at(std::size_t op, std::size_t k) const { return op * microbatches() + k; }
    [[nodiscard]] std::size_t device_of(std::size_t op) const { return static_cast<std::size_t>(index_.device[op]); }
    [[nodiscard]] const frozen_component& component(int c) const {
        return work_.components[static_cast<std::size_t>(c)];
    }
    [[nodiscard]] double rest_us(const chunk& c) const {
        const frozen_component& of = component(c.component);
        return of.duration_us(c.layer, static_cast<int>(of.layers.size()) - 1, c.samples);
    }
    [[nodiscard]] double arrival_us(const chunk& c, int device) const {
        if (c.layer == 0 || c.device == device) { return c.end_us; }
        const frozen_layer& before = component(c.component).layers[static_cast<std::size_t>(c.layer - 1)];
        return c.end_us + work_.link.transfer_us(before.output_bytes * c.samples);
    }
    /// Bytes that passes hold on a device now, or with the next microbatch of `op`.
    [[nodiscard]] std::int64_t held_bytes(int device, int op) const {
        std::int64_t level = 0;
        for (const memory_hold& h : problem_.holds) {
            if (h.device != device) { continue; }
            const int begin = index_.op_of(h.begin);
            const int ended = std::min(done_[static_cast<std::size_t>(index_.op_of(h.end))],
                                       done_[static_cast<std::size_t>(index_.op_of(h.also_end))]);
            level += h.bytes * (done_[static_cast<std::size_t>(begin)] + (begin == op ? 1 : 0) - ended);
        }
        return level;
    }
    [[nodiscard]] bool has_room(int device, int op, std::int64_t more) const {
        return problem_.memory_limit_bytes.empty() ||
               held_bytes(device, op) + more <= problem_.memory_limit_bytes[static_cast<std::size_t>(device)];
    }

    /// An end that no order of the passes that are left can beat: what device and predecessors leave as heads, longest
    /// paths as tails, on each machine by itself.
    [[nodiscard]] double passes_bound_us(double since) const {
        std::vector<double> end = end_us_;
        std::vector<std::vector<machine_job>> jobs(free_us_.size());
        for (std::size_t k = 0; k != microbatches(); ++k) {
            for (const int o : index_.alone) {
                const auto op = static_cast<std::size_t>(o);
                if (static_cast<int>(k) < done_[op]) { continue; }
                double head = std::max(since, free_us_[device_of(op)]);
                if (k != 0) { head = std::max(head, end[at(op, k - 1)]); }
                for (const auto& l : index_.before[op]) {
                    head = std::max(head, end[at(static_cast<std::size_t>(l.op), k)] + l.lag_us);
                }
                end[at(op, k)] = head + index_.duration[op];
                jobs[device_of(op)].push_back({head, index_.duration[op], tail_us_[at(op, k)] - index_.duration[op]});
            }
        }
        double bound = 0;
        for (std::size_t d = 0; d != jobs.size(); ++d) {
            bound = std::max({bound, free_us_[d] + after_us_[d], jackson_preemptive(std::move(jobs[d]))});
        }
        return bound;
    }

    /// Whether the calls that are left fit on their hosts before the best end: one component after the other, and all.
    [[nodiscard]] bool calls_fit(double since) const {
        std::vector<double> left(work_.components.size(), 0.0);
        for (std::size_t c = 0; c != left.size(); ++c) {
            left[c] = least_work_us(work_.components[c], work_.samples - begun_[c]);
        }
        const double least_after = *std::min_element(after_us_.begin(), after_us_.end());
        for (const chunk& c : chunks_) {
            const double rest = rest_us(c);
            left[static_cast<std::size_t>(c.component)] += rest;
            if (is_open(c) && std::max(since, c.end_us) + rest + least_after >= cutoff_us()) { return false; }
        }
        double all = 0;
        double all_room = 0;
        for (std::size_t d = 0; d != free_us_.size(); ++d) { all_room += room_us(d, since); }
        for (std::size_t c = 0; c != left.size(); ++c) {
            double room = 0;
            for (std::size_t d = 0; d != free_us_.size(); ++d) {
                if (work_.may_host(static_cast<int>(c), static_cast<int>(d))) { room += room_us(d, since); }
            }
            if (left[c] > room + slack_us()) { return false; }
            all += left[c];
        }
        return all <= all_room + slack_us();
    }
    [[nodiscard]] double room_us(std::size_t d, double since) const {
        return std::max(0.0, best_us_ - after_us_[d] - std::max(since, free_us_[d]) - pass_us_[d]);
    }
    [[nodiscard]] double slack_us() const { return 1e-9 * best_us_; }
    [[nodiscard]] double cutoff_us() const { return best_us_ - slack_us(); }
    [[nodiscard]] bool is_open(const chunk& c) const {
        return c.layer != static_cast<int>(component(c.component).layers.size());
    }

    /// Whether a state in which the same has started was no later in anything that can start yet; else it is noted.
    [[nodiscard]] bool repeats(double since) {
        std::vector<int> key = done_;
        std::vector<double> times{};
        for (const double free : free_us_) { times.push_back(std::max(since, free)); }
        for (std::size_t op = 0; op != done_.size(); ++op) {
            for (const auto& l : index_.before[op]) {
                const auto b = static_cast<std::size_t>(l.op);
                for (int k = done_[op]; k < done_[b]; ++k) {
                    times.push_back(
                        std::max(times[device_of(op)], end_us_[at(b, static_cast<std::size_t>(k))] + l.lag_us));
                }
            }
        }
        key.insert(key.end(), begun_.begin(), begun_.end());
        std::vector<std::pair<std::vector<int>, std::pair<double, double>>> calls{};
        for (const chunk& c : chunks_) {
            if (!is_open(c)) { continue; }
            const double here = std::max(since, c.end_us);
            const double elsewhere = std::max(since, arrival_us(c, -1));
            const int device = here == elsewhere ? -1 : c.device; // it is everywhere already
            calls.push_back({{c.component, c.samples, c.layer, device}, {here, elsewhere}});
        }
        std::sort(calls.begin(), calls.end());
        for (const auto& [what, when] : calls) {
            key.insert(key.end(), what.begin(), what.end());
            times.push_back(when.first);
            times.push_back(when.second);
        }
        auto& known = seen_[std::move(key)];
        const auto no_later = [](const std::vector<double>& a, const std::vector<double>& b) {
            return std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return x <= y; });
        };
        for (const auto& other : known) {
            if (no_later(other, times)) { return true; }
        }
        std::erase_if(known, [&](const auto& other) { return no_later(times, other); });
        if (stored_ < most_stored) {
            stored_ += times.size() + 8;
            known.push_back(std::move(times));
        }
        return false;
    }

    [[nodiscard]] std::vector<move> moves(double since) const {
        std::vector<move> out{};
        const auto add = [&](move m, double ready) {
            m.start_us = std::max({since, ready, free_us_[static_cast<std::size_t>(m.device)]});
            if (m.start_us + m.tail_us < cutoff_us()) { out.push_back(m); }
        };
        for (std::size_t op = 0; op != done_.size(); ++op) {
            if (done_[op] == index_.microbatches) { continue; }
            const auto k = static_cast<std::size_t>(done_[op]);
            double ready = 0;
            bool known = has_room(index_.device[op], static_cast<int>(op), 0);
            for (const auto& l : index_.before[op]) {
                const auto b = static_cast<std::size_t>(l.op);
                known = known && done_[b] > done_[op];
                ready = std::max(ready, end_us_[at(b, k)] + l.lag_us);
            }
            if (known) {
                add({0, tail_us_[at(op, k)], static_cast<int>(op), 0, 0, 0, index_.device[op]}, ready);
            }
        }
        const auto add_call = [&](const chunk& c, std::size_t number) {
            const frozen_layer& layer = component(c.component).layers[static_cast<std::size_t>(c.layer)];
            for (int d = 0; d != problem_.devices; ++d) {
                if (!work_.may_host(c.component, c.layer, d)) { continue; }
                // what takes no time holds nothing
                if (layer.duration_us(c.samples) > 0 && !has_room(d, -1, layer.live_bytes * c.samples)) { continue; }
                add({0, rest_us(c), -1, number, c.component, c.samples, d}, arrival_us(c, d));
            }
        };
        for (std::size_t i = 0; i != chunks_.size(); ++i) {
            if (is_open(chunks_[i])) { add_call(chunks_[i], i); }
        }
        for (std::size_t c = 0; c != begun_.size(); ++c) {
            const int most = std::min(work_.components[c].max_chunk, work_.samples - begun_[c]);
            for (int k = 1; k <= most; ++k) {
                add_call({static_cast<int>(c), begun_[c], k, 0, -1, 0.0}, chunks_.size());
            }
        }
        std::stable_sort(out.begin(), out.end(), [](const move& a, const move& b) {
            return a.start_us != b.start_us ? a.start_us < b.start_us : a.tail_us > b.tail_us;
        });
        return out;
    }

    void search(double since) {
        if (!budget_.spend(200) || passes_bound_us(since) >= cutoff_us() || !calls_fit(since)) { return; }
        const bool passes_done = std::all_of(done_.begin(), done_.end(),
                                             [&](int done) { return done == index_.microbatches; });
        if (passes_done && std::none_of(chunks_.begin(), chunks_.end(), [&](const chunk& c) { return is_open(c); }) &&
            std::all_of(begun_.begin(), begun_.end(), [&](int begun) { return begun == work_.samples; })) {
            return keep();
        }
        if (repeats(since)) { return; }
        for (const move& m : moves(since)) {
            if (budget_.over()) { return; }
            const auto d = static_cast<std::size_t>(m.device);
            const double free = free_us_[d];
            if (m.op >= 0) {
                const auto op = static_cast<std::size_t>(m.op);
                const double end = m.start_us + index_.duration[op];
                log_.push_back({m, end});
                end_us_[at(op, static_cast<std::size_t>(done_[op]++))] = free_us_[d] = end;
                pass_us_[d] -= index_.duration[op];
                search(m.start_us);
                pass_us_[d] += index_.duration[op];
                --done_[op];
            } else {
                const auto c = static_cast<std::size_t>(m.component);
                const bool fresh = m.chunk == chunks_.size();
                if (fresh) {
                    chunks_.push_back({m.component, begun_[c], m.samples, 0, -1, 0.0});
                    begun_[c] += m.samples;
                }
                const chunk before = chunks_[m.chunk];
                const frozen_layer& layer = work_.components[c].layers[static_cast<std::size_t>(before.layer)];
                const double end = m.start_us + layer.duration_us(m.samples);
                log_.push_back({m, end});
                free_us_[d] = end;
                chunks_[m.chunk] = {m.component, before.first_sample, m.samples, before.layer + 1, m.device, end};
                search(m.start_us);
                chunks_[m.chunk] = before;
                if (fresh) {
                    begun_[c] -= m.samples;
                    chunks_.pop_back();
                }
            }
            free_us_[d] = free;
            log_.pop_back();
        }
    }

    /// Keeps what has started as a schedule, if memory allows the chains their pauses.
    void keep() {
        filled_schedule found{};
        found.passes.devices.resize(free_us_.size());
        found.tasks.resize(free_us_.size());
        std::vector<int> next(done_.size(), 0);
        std::vector<int> layer(chunks_.size(), 0);
        std::vector<char> after_task(free_us_.size(), 0);
        for (const auto& [m, end] : log_) {
            const auto d = static_cast<std::size_t>(m.device);
            auto& tasks = found.tasks[d];
            if (m.op >= 0) {
                const stage_pass p = index_.pass_of(m.op);
                found.passes.devices[d].push_back(
                    {p.op, p.stage, next[static_cast<std::size_t>(m.op)]++, m.start_us, end});
            } else {
                const int first = chunks_[m.chunk].first_sample;
                const int l = layer[m.chunk]++;
                const bool goes_on = after_task[d] != 0 && tasks.back().end_us == m.start_us &&
                                     tasks.back().component == m.component && tasks.back().first_sample == first &&
                                     tasks.back().last_layer == l - 1;
                if (goes_on) {
                    tasks.back().last_layer = l;
                    tasks.back().end_us = end;
                } else {
                    tasks.push_back({m.component, l, l, first, m.samples, m.device, m.start_us, end});
                }
            }
            after_task[d] = static_cast<char>(m.op < 0);
        }
        double end = 0;
        for (std::size_t d = 0; d != free_us_.size(); ++d) { end = std::max(end, free_us_[d] + after_us_[d]); }
        if (find_fill_violation(problem_, work_, found.passes, found.tasks).broken()) {
            relaxed_us_ = std::min(relaxed_us_, end);
            return;
        }
        best_us_ = end;
        best_ = std::move(found);
    }

    static constexpr std::size_t most_stored = 40'000'000; // numbers

    const schedule_problem& problem_;
    const frozen_work& work_;
    indexed_problem index_;
    search_budget budget_;
    double best_us_;
    double relaxed_us_; ///< the least end that memory of pauses alone forbids
    double bound_us_{};
    std::vector<double> after_us_;
    std::vector<int> done_;       ///< [operation] microbatches that have started
    std::vector<int> begun_;      ///< [component] samples
    std::vector<double> free_us_; ///< [device]
    std::vector<double> pass_us_; ///< [device] of passes that are left
    std::vector<double> end_us_;  ///< [operation, microbatch] of those that have started
    std::vector<double> tail_us_; ///< [operation, microbatch] from its start to the end of all, at least
    std::vector<chunk> chunks_{};
    std::vector<started> log_{};
    std::map<std::vector<int>, std::vector<std::vector<double>>> seen_{};
    std::size_t stored_{};
    filled_schedule best_{};
};

} // namespace detail

PULSE_INLINE exact_fill fill_exactly(const schedule_problem& problem, const schedule& passes, const frozen_work& work,
                                     double passes_bound_us, const search_limit& limit, const fill_options& first) {
    exact_fill out{fill_schedule(problem, passes, work, passes_bound_us, first), 0, 0, 0};
    std::vector<double> busy = busy_us(problem);
    std::vector<double> after = work.after_us;
    after.resize(busy.size(), 0.0);
    for (std::size_t d = 0; d != busy.size(); ++d) {
        double end = out.best.passes.devices[d].empty() ? 0.0 : out.best.passes.devices[d].back().end_us;
        if (!out.best.tasks[d].empty()) { end = std::max(end, out.best.tasks[d].back().end_us); }
        out.end_us = std::max(out.end_us, end + after[d]);
        busy[d] += after[d];
    }
    const double least_after = *std::min_element(after.begin(), after.end());
    out.bound_us = std::max(out.best.lower_bound_us + least_after, detail::spread_bound_us(work, busy));
    detail::exact_filler search{problem, work, out.bound_us, out.end_us, limit};
    const double bound_us = out.best.lower_bound_us;
    if (search.end_us() < out.end_us) { out.best = search.best(); }
    out.end_us = search.end_us();
    out.bound_us = search.bound_us();
    out.nodes = search.nodes();
    // without anything behind the passes, ends are makespans
    const bool plain = *std::max_element(after.begin(), after.end()) <= 0;
    out.best.lower_bound_us = plain ? std::min(out.bound_us, out.end_us) : bound_us;
    return out;
}

} // namespace pulse
