#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::bench {

namespace detail {

/// A span of time in which exactly these devices run no pass.
struct idle_span {
    double start_us{};
    double end_us{};
    std::vector<int> devices{};
};

/// Idle times before the last pass ends, in order.
[[nodiscard]] constexpr std::vector<idle_span> idle_spans(const schedule& passes) {
    const double slack = 1e-9 * passes.makespan_us();
    std::vector<double> times{0.0};
    for (const auto& list : passes.devices) {
        for (const timed_pass& p : list) {
            times.push_back(p.start_us);
            times.push_back(p.end_us);
        }
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end(), [&](double a, double b) { return b - a <= slack; }),
                times.end());
    std::vector<idle_span> spans{};
    std::vector<std::size_t> next(passes.devices.size(), 0);
    for (std::size_t t = 1; t < times.size(); ++t) {
        const double middle = (times[t - 1] + times[t]) / 2;
        idle_span one{times[t - 1], times[t], {}};
        bool goes_on = !spans.empty();
        for (std::size_t d = 0; d != passes.devices.size(); ++d) {
            const auto& list = passes.devices[d];
            const std::size_t before = next[d];
            while (next[d] != list.size() && list[next[d]].end_us <= middle) { ++next[d]; }
            if (next[d] == list.size() || list[next[d]].start_us >= middle) {
                one.devices.push_back(static_cast<int>(d));
                goes_on = goes_on && next[d] == before; // a pass may take zero time
                // Times that differ only by rounding count as equal.
                if (next[d] != list.size()) { one.end_us = std::min(one.end_us, list[next[d]].start_us); }
                if (next[d] != 0) { one.start_us = std::max(one.start_us, list[next[d] - 1].end_us); }
            }
        }
        if (one.devices.empty()) { continue; }
        if (goes_on && spans.back().devices == one.devices && spans.back().end_us >= one.start_us - slack) {
            spans.back().end_us = one.end_us;
        } else {
            spans.push_back(std::move(one));
        }
    }
    return spans;
}

/// Progress of a component. Its samples are divided into calls, which stay the same for all layers.
struct greedy_chain {
    struct call {
        int first_sample{};
        int samples{};
        int device{-1}; ///< where its last layer ran
        double end_us{};
        bool done{};      ///< layer `layer` has run on it
        std::size_t at{}; ///< index of the idle device that runs it in the current bubble
    };
    const frozen_component* of{};
    int layer{};
    std::vector<call> calls{};
    int whole{}; ///< layers of it that the bubble takes

    [[nodiscard]] constexpr int layers() const { return static_cast<int>(of->layers.size()); }
};

class greedy_filler {
public:
    constexpr greedy_filler(const schedule& passes, const frozen_work& work) : work_{work} {
        made_.passes = passes;
        made_.tasks.resize(passes.devices.size());
        const int devices = static_cast<int>(passes.devices.size());
        for (const frozen_component& c : work.components) {
            greedy_chain chain{&c, work.samples == 0 ? static_cast<int>(c.layers.size()) : 0, {}, 0};
            const int most = std::max(1, std::min(c.max_chunk, (work.samples + devices - 1) / devices));
            for (int s = 0; s < work.samples; s += most) {
                chain.calls.push_back({s, std::min(most, work.samples - s)});
            }
            chains_.push_back(std::move(chain));
        }
    }

    constexpr void fill(const idle_span& in) {
        free_us_.assign(in.devices.size(), std::max(in.start_us, assign(in)));
        end_us_ = in.end_us;
        if (free_us_.front() >= end_us_) { return; }
        most_filled_us_ = 0;
        best_.assign(chains_.size(), 0);
        used_us_ = free_us_;
        choose(0, 0);
        for (std::size_t c = 0; c != chains_.size(); ++c) {
            for (int k = best_[c]; k != 0; --k) { run_layer(c, in); }
        }
        run_part(in);
    }

    [[nodiscard]] constexpr filled_schedule take() { return std::move(made_); }

private:
    const frozen_work& work_;
    filled_schedule made_{};
    std::vector<greedy_chain> chains_{};
    std::vector<double> free_us_{}; ///< of each idle device
    double end_us_{};
    std::vector<double> used_us_{};
    std::vector<int> best_{};
    double most_filled_us_{};

    /// Divides the calls over the idle devices; returns the time at which all of them can begin.
    constexpr double assign(const idle_span& in) {
        double ready_us = 0;
        const std::size_t devices = in.devices.size();
        for (greedy_chain& c : chains_) {
            if (c.layer == c.layers()) { continue; }
            const std::size_t even = (c.calls.size() + devices - 1) / devices;
            std::vector<std::size_t> count(devices, 0);
            for (greedy_chain::call& one : c.calls) {
                one.at = devices;
                for (std::size_t d = 0; d != devices && one.device >= 0; ++d) {
                    if (in.devices[d] == one.device && count[d] < even) { ++count[one.at = d]; }
                }
            }
            for (greedy_chain::call& one : c.calls) {
                if (one.at != devices) { continue; }
                one.at = static_cast<std::size_t>(std::min_element(count.begin(), count.end()) - count.begin());
                ++count[one.at];
                if (one.device < 0 || one.device == in.devices[one.at]) { continue; }
                const int last = c.layer - (one.done ? 0 : 1);
                const auto bytes = c.of->layers[static_cast<std::size_t>(last)].output_bytes * one.samples;
                ready_us = std::max(ready_us, one.end_us + work_.link.transfer_us(bytes));
            }
        }
        return ready_us;
    }

    /// Tries every number of layers of components c and later.
    constexpr void choose(std::size_t c, double filled_us) {
        if (c == chains_.size()) {
            if (filled_us >= most_filled_us_) { // also layers of zero time
                most_filled_us_ = filled_us;
                for (std::size_t i = 0; i != chains_.size(); ++i) { best_[i] = chains_[i].whole; }
            }
            return;
        }
        greedy_chain& chain = chains_[c];
        const std::vector<double> before = used_us_;
        chain.whole = 0;
        choose(c + 1, filled_us);
        for (int l = chain.layer; l != chain.layers(); ++l) {
            for (const greedy_chain::call& one : chain.calls) {
                if (l == chain.layer && one.done) { continue; }
                const double us = chain.of->layers[static_cast<std::size_t>(l)].duration_us(one.samples);
                used_us_[one.at] += us;
                filled_us += us;
            }
            if (*std::max_element(used_us_.begin(), used_us_.end()) > end_us_) { break; }
            ++chain.whole;
            choose(c + 1, filled_us);
        }
        chain.whole = 0;
        used_us_ = before;
    }

    constexpr void run_call(std::size_t c, greedy_chain::call& one, const idle_span& in) {
        const greedy_chain& chain = chains_[c];
        const double start = free_us_[one.at];
        one.device = in.devices[one.at];
        one.end_us = free_us_[one.at] =
            start + chain.of->layers[static_cast<std::size_t>(chain.layer)].duration_us(one.samples);
        one.done = true;
        made_.tasks[static_cast<std::size_t>(one.device)].push_back({static_cast<int>(c), chain.layer, chain.layer,
                                                                     one.first_sample, one.samples, one.device, start,
                                                                     one.end_us});
    }

    constexpr void run_layer(std::size_t c, const idle_span& in) {
        for (greedy_chain::call& one : chains_[c].calls) {
            if (!one.done) { run_call(c, one, in); }
        }
        ++chains_[c].layer;
        for (greedy_chain::call& one : chains_[c].calls) { one.done = false; }
    }

    /// Runs one layer on the samples that fit, of the component that fills the rest longest.
    constexpr void run_part(const idle_span& in) {
        std::size_t best = chains_.size();
        double most_us = 0;
        std::vector<greedy_chain::call*> calls{};
        for (std::size_t c = 0; c != chains_.size(); ++c) {
            greedy_chain& chain = chains_[c];
            if (chain.layer == chain.layers()) { continue; }
            std::vector<double> used = free_us_;
            std::vector<greedy_chain::call*> fit{};
            double filled = 0;
            for (greedy_chain::call& one : chain.calls) {
                const double us = chain.of->layers[static_cast<std::size_t>(chain.layer)].duration_us(one.samples);
                if (one.done || used[one.at] + us > end_us_) { continue; }
                used[one.at] += us;
                filled += us;
                fit.push_back(&one);
            }
            if (filled > most_us) { best = c, most_us = filled, calls = std::move(fit); }
        }
        for (greedy_chain::call* one : calls) { run_call(best, *one, in); }
    }
};

} // namespace detail

/// DiffusionPipe's greedy filling (Tian et al., 2024): frozen work in the bubbles of `passes`, whose times stay fixed.
///
/// A bubble is a span of at least `shortest_us` in which the same devices are idle; bubbles are filled in order of
/// time. All samples are divided over the idle devices, and every layer runs on all of them before the next: first the
/// consecutive layers of the components that fill the bubble longest, then one layer on as many samples as fit. The
/// rest runs on all devices after the passes. A sample stays on its device if that is idle; an activation that moves
/// takes the link. Memory limits are ignored. The lower bound is 0. Every device has all weights: throws input_error
/// unless `hosts` and `split` are empty.
[[nodiscard]] inline filled_schedule greedy_fill(const schedule& passes, const frozen_work& work, double shortest_us) {
    if (!work.hosts.empty() || !work.split.empty()) {
        throw input_error("greedy_fill: every device must host all components");
    }
    detail::greedy_filler filler{passes, work};
    for (const detail::idle_span& bubble : detail::idle_spans(passes)) {
        if (bubble.end_us - bubble.start_us >= shortest_us) { filler.fill(bubble); }
    }
    detail::idle_span rest{passes.makespan_us(), std::numeric_limits<double>::infinity(), {}};
    for (std::size_t d = 0; d != passes.devices.size(); ++d) { rest.devices.push_back(static_cast<int>(d)); }
    filler.fill(rest);
    return filler.take();
}

} // namespace pulse::bench
