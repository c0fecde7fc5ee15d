#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/check_cluster.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/known_candidates.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/prepared_candidate.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/tune/tuner_words.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

namespace detail {

/// One search over a space. The result depends on costs, cluster and options only, not on time or chance.
class tuner {
public:
    tuner(const cost_source& costs_of, const cluster& machine, const tune_options& options) :
        options_{options}, candidates_{costs_of, machine, options} {
        check_unlike_devices(machine);
        const int devices = options.devices == 0 ? machine.devices() : options.devices;
        if (devices > machine.devices()) {
            throw input_error("tune: devices: " + std::to_string(devices) + " requested, but the cluster has " +
                              std::to_string(machine.devices()));
        }
        const int places = machine.unlike.empty() ? machine.nodes : machine.devices();
        left_out_candidates left_out{};
        for (const tune_candidate& c : enumerate_candidates(options, devices, places, left_out)) {
            made_.rows.push_back({});
            made_.rows.back().candidate = c;
        }
        made_.indivisible = left_out.indivisible;
        made_.unmet = left_out.unmet;
        needs_.assign(made_.rows.size(), 0);
        unlimited_.assign(made_.rows.size(), 0);
        if (!made_.rows.empty()) { return; }
        refuse_space(left_out, options.global_batch, devices);
    }

    [[nodiscard]] tuning run() {
        bound_all();
        std::vector<std::size_t> order{};
        for (std::size_t i = 0; i != made_.rows.size(); ++i) {
            if (open_[i] != 0) { order.push_back(i); }
        }
        // Choosing what to recompute comes last: it takes many orders, and helps where other plans lack memory.
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const auto place = [&](std::size_t i) {
                const tune_row& row = made_.rows[i];
                return std::tuple{row.candidate.recompute == recomputation::selective, row.bound_us, i};
            };
            return place(a) < place(b);
        });
        made_.finished = !options_.stop.stop_requested();
        for (std::size_t k = 0; k != order.size(); ++k) {
            if (options_.stop.stop_requested()) {
                made_.finished = false;
                break;
            }
            report(k, order.size(), "schedules");
            consider(order[k]);
        }
        if (made_.ranking.empty()) { refuse_tuning(made_, needs_); }
        refine();
        fill();
        made_.finished = made_.finished && !options_.stop.stop_requested();
        conclude();
        return std::move(made_);
    }

private:
    const tune_options& options_;
    known_candidates candidates_;
    tuning made_{};
    std::vector<char> open_{};
    std::vector<std::int64_t> needs_{};                   // of the rows that need more memory, on their worst device
    std::vector<char> unlimited_{};                       // rows whose order was found without a memory limit
    std::map<std::size_t, evaluated_candidate> kept_{};   // plans of the best rows so far
    std::map<std::size_t, evaluated_candidate> passes_{}; // plans before their frozen tasks had times

    void report(std::size_t done, std::size_t total, std::string_view stage) const {
        if (!options_.progress) { return; }
        options_.progress(
            {done, total, made_.ranking.empty() ? 0.0 : made_.rows[made_.ranking.front()].step_us, stage});
    }

    /// Gives every row its bound, or the reason why it has none.
    void bound_all() {
        open_.assign(made_.rows.size(), 0);
        for (std::size_t i = 0; i != made_.rows.size(); ++i) {
            if (options_.stop.stop_requested()) { return; }
            if (i % 64 == 0) { report(i, made_.rows.size(), "bounds"); }
            tune_row& row = made_.rows[i];
            const known_candidates::maybe_cut& found = candidates_.cut(row.candidate);
            if (!found.cut) {
                row.verdict = tune_verdict::cut;
                row.reason = found.why;
                continue;
            }
            if (repeats(row, *found.cut)) { continue; }
            if (const memory_limits most = candidates_.limits(row.candidate); most.any()) {
                const least_memory& need = candidates_.least(row.candidate, *found.cut);
                if (need.total_bytes() > most.of(need.device)) {
                    short_of_memory(i, need.total_bytes(), memory_words(need, most.of(need.device)));
                    continue;
                }
            }
            row.bound_us = candidates_.bound_us(row.candidate, candidates_.prepare(row.candidate).step, 0);
            open_[i] = 1;
        }
    }

    /// Whether a choice of the row has no effect on its cut, so that another candidate gives the same plan.
    [[nodiscard]] bool repeats(tune_row& row, const partition& here) {
        const tune_candidate& c = row.candidate;
        const auto has = [](const auto& values, auto value) {
            return std::find(values.begin(), values.end(), value) != values.end();
        };
        if (c.recompute == recomputation::skips && has(options_.recomputations, recomputation::none)) {
            const auto readers = first_local_readers(candidates_.costs(c.microbatch_size), here.stages);
            if (std::all_of(readers.begin(), readers.end(), [](int reader) { return reader < 0; })) {
                row.reason = "same: no stage reads a skip of another one on its device";
            }
        }
        if (c.recompute == recomputation::selective && has(options_.recomputations, recomputation::none)) {
            const bool whole = here.stages.size() == 1 && has(options_.recomputations, recomputation::stages);
            if (whole) { row.reason = "same: there is one stage, to recompute or not"; }
            if (!candidates_.limits(c).any()) { row.reason = "same: no device has a memory limit"; }
        }
        if (c.routing == skip_routing::relayed && has(options_.routings, skip_routing::direct) &&
            traffic_of(here, candidates_.costs(c.microbatch_size), c.routing).skip() == 0) {
            tune_candidate other = c;
            other.routing = skip_routing::direct;
            if (candidates_.cut(other).cut == here) { row.reason = "same: no skip crosses devices"; }
        }
        for (const double slack : options_.slacks) {
            if (slack == c.slack || !row.reason.empty()) { break; }
            tune_candidate other = c;
            other.slack = slack;
            if (candidates_.cut(other).cut == here) {
                row.reason = "same: a slack of " + std::to_string(slack) + " gives the same cut";
            }
        }
        if (row.reason.empty()) { return false; }
        row.verdict = tune_verdict::same;
        return true;
    }

    void short_of_memory(std::size_t i, std::int64_t bytes, const std::string& why) {
        made_.rows[i].verdict = tune_verdict::memory;
        made_.rows[i].reason = "memory: " + why;
        needs_[i] = bytes;
    }

    /// The step time that a row must not exceed to be among the `wanted` best.
    [[nodiscard]] double cutoff_us(std::size_t wanted) const {
        if (!options_.prune || made_.ranking.size() < wanted) { return std::numeric_limits<double>::infinity(); }
        // Bounds add up in another order than the simulator.
        return made_.rows[made_.ranking[wanted - 1]].step_us * (1.0 + 1e-9);
    }

    [[nodiscard]] double cutoff_us() const { return cutoff_us(options_.ranked); }

    [[nodiscard]] bool bounded_out(tune_row& row) const {
        // Choosing what to recompute takes many orders, so the row must be able to win.
        const bool chooses = row.candidate.recompute == recomputation::selective;
        if (!(row.bound_us > cutoff_us(chooses ? 1 : options_.ranked))) { return false; }
        row.verdict = tune_verdict::bound;
        return true;
    }

    void consider(std::size_t i) {
        tune_row& row = made_.rows[i];
        if (bounded_out(row) || needs_no_choice(row)) { return; }
        tune_candidate c = row.candidate;
        prepared_candidate ready = candidates_.prepare(c);
        const double passes_us = std::max(lower_bound_us(ready.step.plain), recomputed_load_us(c, ready.step.plain));
        row.bound_us = std::max(row.bound_us, candidates_.bound_us(c, ready.step, passes_us));
        if (bounded_out(row)) { return; }
        try {
            ++made_.evaluations;
            evaluated_candidate found = candidates_.evaluate(c, ready);
            needs_[i] = peak_of(found);
            if (found.room_bytes.empty()) { unlimited_[i] = 1; }
            if (c.recompute != found.planned.recompute) {
                const auto& flags = found.planned.recompute.stages;
                if (std::count(flags.begin(), flags.end(), 0) == std::ssize(flags) && without_recomputation(c)) {
                    row.verdict = tune_verdict::same;
                    row.reason = "same: recomputing no stage is the fastest";
                    return;
                }
                c.recompute = found.planned.recompute;
                ready = candidates_.prepare(c);
                row.bound_us = std::max(row.bound_us, candidates_.bound_us(c, ready.step, passes_us));
            }
            if (candidates_.encodes(c) && found.planned.predicted.step_us < cutoff_us()) {
                passes_[i] = found;
                found = candidates_.filled(c, ready, found, 40'000);
            }
            keep(i, std::move(found), ready.gradient_bytes);
        } catch (const memory_error& e) { short_of_memory(i, e.bytes, e.what()); } catch (const infeasible_error& e) {
            short_of_memory(i, needs_[i], e.what());
        }
    }

    /// The row of the same candidate without recomputation, if there is one with the same cut.
    [[nodiscard]] std::optional<std::size_t> without_recomputation(const tune_candidate& c) {
        tune_candidate other = c;
        other.recompute = recomputation::none;
        for (std::size_t i = 0; i != made_.rows.size(); ++i) {
            if (made_.rows[i].candidate == other && candidates_.cut(other).cut == candidates_.cut(c).cut) { return i; }
        }
        return {};
    }

    /// The load of the device that lacks most memory without recomputation and so has to recompute a stage; 0 if none
    /// does.
    [[nodiscard]] double recomputed_load_us(const tune_candidate& c, const schedule_problem& plain) {
        if (c.recompute != recomputation::selective) { return 0; }
        tune_candidate other = c;
        other.recompute = recomputation::none;
        if (candidates_.cut(other).cut != candidates_.cut(c).cut) { return 0; }
        const least_memory& need = candidates_.least(other, *candidates_.cut(other).cut);
        const std::int64_t limit_bytes = candidates_.limits(c).of(need.device);
        if (limit_bytes == 0 || need.total_bytes() <= limit_bytes) { return 0; }
        double load_us = 0;
        double forward_us = std::numeric_limits<double>::infinity();
        for (const stage_timing& s : plain.stages) {
            if (s.device != need.device) { continue; }
            load_us += s.forward_us + s.backward_input_us + s.backward_weight_us;
            forward_us = std::min(forward_us, s.forward_us);
        }
        return (load_us + forward_us) * plain.microbatches;
    }

    /// Whether a row chooses stages to recompute although its order has all the room that it wants without.
    [[nodiscard]] bool needs_no_choice(tune_row& row) {
        if (row.candidate.recompute != recomputation::selective) { return false; }
        const std::optional<std::size_t> same = without_recomputation(row.candidate);
        if (!same || unlimited_[*same] == 0) { return false; }
        row.verdict = tune_verdict::same;
        row.reason = "same: its order has all the room that it wants and recomputes nothing";
        return true;
    }

    [[nodiscard]] static std::int64_t peak_of(const evaluated_candidate& found) {
        const auto& peaks = found.planned.predicted.peak_memory_bytes;
        return *std::max_element(peaks.begin(), peaks.end());
    }

    void keep(std::size_t i, evaluated_candidate found, std::int64_t gradient_bytes) {
        tune_row& row = made_.rows[i];
        const prediction& expected = found.planned.predicted;
        row.verdict = tune_verdict::slower;
        row.step_us = expected.step_us;
        row.samples_per_s = expected.samples_per_s;
        row.bubble_ratio = expected.bubble_ratio;
        row.peak_memory_bytes = peak_of(found);
        row.boundary_bytes = expected.boundary_bytes;
        row.skip_bytes = expected.skip_bytes;
        row.gradient_bytes = gradient_bytes;
        const auto before = [&](std::size_t a, std::size_t b) {
            const double x = made_.rows[a].step_us;
            const double y = made_.rows[b].step_us;
            return x != y ? x < y : a < b;
        };
        auto& ranking = made_.ranking;
        ranking.insert(std::upper_bound(ranking.begin(), ranking.end(), i, before), i);
        kept_[i] = std::move(found);
        const std::size_t plans = std::max(options_.ranked, static_cast<std::size_t>(options_.refined));
        if (ranking.size() > plans) {
            kept_.erase(ranking[plans]);
            passes_.erase(ranking[plans]);
        }
    }

    /// The candidate of a row whose plan is kept, with the stages that its plan recomputes.
    [[nodiscard]] tune_candidate chosen_of(std::size_t i) const {
        tune_candidate c = made_.rows[i].candidate;
        c.recompute = kept_.at(i).planned.recompute;
        return c;
    }

    /// Searches longer for the orders of the best few; keeps what is faster and fits, and proved bounds.
    void refine() {
        if (!options_.refine) { return; }
        const std::size_t few = std::min(made_.ranking.size(), static_cast<std::size_t>(options_.refined));
        const std::vector<std::size_t> best(made_.ranking.begin(),
                                            made_.ranking.begin() + static_cast<std::ptrdiff_t>(few));
        for (std::size_t k = 0; k != best.size(); ++k) {
            if (options_.stop.stop_requested()) { return; }
            report(k, best.size(), "refinement");
            const std::size_t i = best[k];
            const tune_candidate c = chosen_of(i);
            const frozen_placement where = kept_.at(i).frozen;
            const prepared_candidate whole = candidates_.prepare(c);
            const prepared_candidate ready = candidates_.encodes(c) ? beside_frozen(whole, where) : whole;
            evaluated_candidate found{};
            double proof_us = 0;
            bool fits = true;
            try {
                found = refine_candidate(candidates_.costs(c.microbatch_size), c, ready, options_.refine,
                                         kept_.at(i).room_bytes, proof_us);
                if (candidates_.encodes(c)) { expect_frozen(found, ready, where); }
            } catch (const infeasible_error&) { fits = false; }
            made_.rows[i].bound_us = std::max(made_.rows[i].bound_us, candidates_.bound_us(c, ready.step, proof_us));
            const auto is_better = [&] { return found.planned.predicted.step_us < made_.rows[i].step_us; };
            if (!fits || !is_better()) { continue; }
            if (candidates_.encodes(c)) {
                const evaluated_candidate alone = found;
                try {
                    found = candidates_.filled(c, whole, alone, 40'000);
                } catch (const infeasible_error&) { continue; }
                if (!is_better()) { continue; }
                passes_[i] = alone;
            }
            made_.ranking.erase(std::find(made_.ranking.begin(), made_.ranking.end(), i));
            keep(i, std::move(found), ready.gradient_bytes);
        }
    }

    /// Places the frozen tasks of the best row with more effort.
    void fill() {
        const std::size_t best = made_.ranking.front();
        const tune_candidate c = chosen_of(best);
        if (!candidates_.encodes(c) || options_.stop.stop_requested()) { return; }
        report(0, 1, "frozen tasks");
        const prepared_candidate ready = candidates_.prepare(c);
        evaluated_candidate longer = candidates_.filled(c, ready, passes_.at(best), 400'000);
        if (!(longer.planned.predicted.step_us < made_.rows[best].step_us)) { return; }
        made_.ranking.erase(made_.ranking.begin());
        keep(best, std::move(longer), made_.rows[best].gradient_bytes);
    }

    void conclude() {
        made_.chosen = made_.ranking.front();
        tune_row& winner = made_.rows[made_.chosen];
        winner.verdict = tune_verdict::best;
        winner.reason.clear();
        made_.plan = std::move(kept_[made_.chosen].planned);
        made_.frozen = std::move(kept_[made_.chosen].frozen);
        made_.plan.predicted.lower_bound_us = winner.bound_us;
        made_.world = candidates_.prepare(winner.candidate).step.world;
        made_.kept = made_.world.kept;
        made_.layout = winner.candidate.layout;
        made_.costs = candidates_.costs(winner.candidate.microbatch_size);
        made_.limits = candidates_.limits(winner.candidate);
        explain_rows(made_);
    }
};

} // namespace detail

PULSE_INLINE tuning tune(const cost_source& costs_of, const cluster& machine, const tune_options& options) {
    return detail::tuner{costs_of, machine, options}.run();
}

} // namespace pulse
