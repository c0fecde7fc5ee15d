#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/fill/chain_pieces.hpp>
#include <pulse/schedule/fill/fill_problem.hpp>
#include <pulse/schedule/fill/fill_run.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/fill/joint_justifier.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/random_numbers.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/schedule/validate_fill.hpp>

namespace pulse {

namespace detail {

/// How far a task may delay a pass, as shares of the task's duration, likeliest first.
inline constexpr std::array<double, 6> delay_shares{0.5, 0.35, 0.2, 0.05, 0.7, 1.0};

/// Most samples in a call of a component.
[[nodiscard]] constexpr int most_of_call(const frozen_work& work, std::size_t component) {
    return std::min(work.components[component].max_chunk, work.samples);
}
[[nodiscard]] constexpr int half_of(int chunk) noexcept { return (chunk + 1) / 2; }

/// Of the chunks with more than one sample, halves those whose longest call of one layer is at least half as long as
/// the longest: time, not samples, decides what fits a gap. False when there are none.
[[nodiscard]] constexpr bool shorten_calls(const frozen_work& work, std::vector<int>& chunk) {
    std::vector<double> longest_us(chunk.size(), 0.0);
    double most_us = -1;
    for (std::size_t c = 0; c != chunk.size(); ++c) {
        for (const frozen_layer& l : work.components[c].layers) {
            longest_us[c] = std::max(longest_us[c], l.duration_us(chunk[c]));
        }
        if (chunk[c] > 1) { most_us = std::max(most_us, longest_us[c]); }
    }
    for (std::size_t c = 0; c != chunk.size(); ++c) {
        if (chunk[c] > 1 && 2 * longest_us[c] >= most_us) { chunk[c] = half_of(chunk[c]); }
    }
    return most_us >= 0;
}

/// How a fill is made: how chains are cut, and the rules of the walk.
struct fill_choice {
    std::vector<int> chunk{};      ///< [component] samples of a call
    std::vector<int> line{};       ///< the devices in the order in which chains are cut over them
    std::vector<double> bias_us{}; ///< [device] how much less work it gets
    double delay{};
    int open{3};
    bool cut{true};
    bool alone{};
    double overtake{-1}; ///< below 0 the orders of the passes stay
};

/// Makes many walks and keeps the best.
class filler {
public:
    constexpr filler(const schedule_problem& problem, const schedule& passes, const frozen_work& work, double bound_us,
                     std::int64_t placements) :
        problem_{problem},
        work_{work}, placements_{placements}, left_{placements}, busy_{busy_us(problem)}, bound_us_{bound_us},
        after_us_{work.after_us} {
        after_us_.resize(busy_.size(), 0.0);
        for (std::size_t d = 0; d != busy_.size(); ++d) { busy_[d] += after_us_[d]; }
        frame_ = frame_of(problem, passes, after_us_);
        least_us_ = std::max(frame_.end_us, frozen_end_bound_us(problem, work, bound_us));
    }

    /// Returns when everything ends with `choice`; `never` when memory does not allow it. Keeps what is better than all
    /// before. `lost_us`, if given, receives how long each device was idle with tasks to do; without it, a walk that
    /// cannot come near the best is given up and returns `never`.
    constexpr double walk(const fill_choice& choice, std::vector<double>* lost_us = nullptr) {
        std::vector<double> base = busy_;
        std::vector<double> spare(lost_us == nullptr ? base.size() : 0, best_us_ * (reorders_ ? near_best : 1 + 1e-9));
        for (std::size_t d = 0; d != base.size(); ++d) { base[d] += choice.bias_us[d]; }
        const auto pieces = cut_chains(work_, base, choice.chunk, choice.line, choice.cut);
        double end = frame_.end_us;
        for (const chain_piece& p : pieces) {
            base[static_cast<std::size_t>(p.device)] +=
                work_.components[static_cast<std::size_t>(p.component)].duration_us(p.first_layer, p.last_layer,
                                                                                    p.samples);
        }
        for (std::size_t d = 0; d != spare.size(); ++d) { spare[d] -= base[d] - choice.bias_us[d]; }
        left_ -= static_cast<std::int64_t>(pieces.size());
        for (const double b : base) { end = std::max(end, b); }
        fill_run run{frame_,
                     problem_,
                     work_,
                     pieces,
                     {end, choice.delay, choice.open, choice.alone, choice.overtake, std::move(spare)}};
        const bool ended = run.run();
        left_ -= run.placed();
        if (!ended) { return never; }
        double end_us = run.end_us(after_us_);
        if (lost_us != nullptr) {
            for (std::size_t d = 0; d != base.size(); ++d) { (*lost_us)[d] = run.lost_us(d); }
        }
        const bool better = end_us < best_us_;
        if (!better && !(reorders_ && end_us < best_us_ * near_best)) { return end_us; }
        if (reorders_ && end_us == walked_us_) { return justified_us_; } // assumed to be the same walk
        filled_schedule found = std::move(run).result(bound_us_);
        if (better && !fits(found)) { return never; }
        if (reorders_) {
            walked_us_ = end_us;
            justified_us_ = end_us = justified(found, end_us);
        }
        if (end_us < best_us_) {
            best_us_ = end_us;
            best_choice_ = choice;
            best_ = std::move(found);
        }
        return end_us;
    }

    /// The choice that walks start from: only the starts of the devices' first passes are known. The device that waits
    /// longest gets the first layers of a cut chain, which it can run meanwhile.
    [[nodiscard]] constexpr fill_choice first_choice(std::vector<int> chunk) const {
        fill_choice choice{};
        choice.chunk = std::move(chunk);
        choice.bias_us.resize(busy_.size(), 0.0);
        std::vector<std::pair<double, int>> begins{};
        for (const auto& list : frame_.sequence) {
            const double at_us = list.empty() ? never : frame_.earliest_us[static_cast<std::size_t>(list.front())];
            begins.emplace_back(-at_us, static_cast<int>(begins.size()));
        }
        std::sort(begins.begin(), begins.end());
        for (const auto& [when, d] : begins) { choice.line.push_back(d); }
        return choice;
    }

    /// Repeats a walk, each time with shares adapted to the time that the devices lost in the one before.
    constexpr void level(fill_choice choice) {
        std::vector<double> lost(busy_.size(), 0.0);
        double here = never;
        for (int round = 0, since = 0; since != 3 && goes_on(); ++round, ++since) {
            const double end_us = walk(choice, &lost);
            if (end_us == never) { return; }
            for (std::size_t d = 0; d != lost.size(); ++d) {
                choice.bias_us[d] = round == 0 ? lost[d] : 0.5 * (choice.bias_us[d] + lost[d]);
            }
            if (end_us < here * (1 - 1e-6)) { here = end_us, since = 0; }
        }
    }

    /// Makes small changes to the best choice and keeps those that are not worse.
    constexpr void improve() {
        random_numbers random{};
        const std::size_t devices = busy_.size();
        fill_choice here = best_choice_;
        double end_us = best_us_;
        while (goes_on()) {
            fill_choice next = here;
            const auto share = [&] { return 2 * random.unit() - 1; };
            switch (random.below(reorders_ ? 6 : 4)) {
            case 0: next.delay = std::min(1.0, std::max(0.02, next.delay * (1 + 0.4 * share()))); break;
            case 1: next.open = 1 + static_cast<int>(random.below(8)); break;
            case 2: std::swap(next.line[random.below(devices)], next.line[random.below(devices)]); break;
            case 4: next.overtake = overtakes[random.below(overtakes.size())]; break;
            default:
                for (double& b : next.bias_us) {
                    if (random.below(4) == 0) { b += share() * (end_us - least_us_); }
                }
            }
            const bool from_first = reorders_ && random.below(3) == 0;
            if (from_first) { std::swap(frame_, first_frame_); }
            const double found = walk(next);
            if (from_first) { std::swap(frame_, first_frame_); }
            if (found <= end_us) {
                if (reorders_ && found < end_us) { take_orders(); }
                end_us = found, here = std::move(next);
            }
        }
    }
    /// When the end is still far from the bound: lets passes overtake one another, justifies them, walks with every
    /// delay, and improves again, with another 1.25 times as many placements.
    constexpr void reorder() {
        if (!(best_us_ > least_us_ * 1.01)) { return; }
        left_ = placements_ + placements_ / 4;
        first_frame_ = frame_;
        joint_.emplace_back(frame_, work_, after_us_);
        reorders_ = true;
        fill_choice choice = first_choice(best_choice_.chunk);
        for (const double delay : delay_shares) {
            for (const double overtake : {0.2, 0.5}) {
                choice.delay = delay;
                choice.overtake = overtake;
                level(choice);
            }
        }
        take_orders();
        improve();
    }
    [[nodiscard]] constexpr bool goes_on() const {
        return !found() || (left_ > 0 && best_us_ > least_us_ * (1 + 1e-9));
    }
    [[nodiscard]] constexpr bool found() const { return best_us_ < never; }
    [[nodiscard]] constexpr filled_schedule result() && { return std::move(best_); }

private:
    static constexpr double never = std::numeric_limits<double>::infinity();
    /// A walk that ends within this factor of the best may become the best by justification.
    static constexpr double near_best = 1.003;
    /// Values of `overtake`: -1 keeps the orders, the others are shares of a pass's duration.
    static constexpr std::array<double, 6> overtakes{-1, 0, 0.2, 0.5, 0.8, 1e9};

    /// Makes the orders of the best the ones that walks start from.
    constexpr void take_orders() {
        frame_ = frame_of(problem_, best_.passes, after_us_);
        left_ -= frame_.instances();
    }
    /// Whether a result of walks with other orders, or of justification, stays within memory.
    constexpr bool fits(const filled_schedule& found) {
        if (!reorders_ || problem_.memory_limit_bytes.empty()) { return true; }
        left_ -= 4 * static_cast<std::int64_t>(frame_.instances());
        return !find_violation(problem_, found.passes).broken() &&
               !find_fill_violation(problem_, work_, found.passes, found.tasks).broken();
    }
    /// Justifies `found` in at most two rounds, replaces it when that ends sooner, and returns when everything ends.
    constexpr double justified(filled_schedule& found, double end_us) {
        filled_schedule moved = found;
        const double end = joint_.front().justify(moved, end_us, 2, left_);
        if (!(end < end_us) || (end < best_us_ && !fits(moved))) { return end_us; }
        found = std::move(moved);
        return end;
    }

    const schedule_problem& problem_;
    const frozen_work& work_;
    std::int64_t placements_;
    std::int64_t left_;        ///< placements left
    std::vector<double> busy_; ///< [device] by passes and after_us
    double bound_us_;
    std::vector<double> after_us_;
    fill_problem frame_{};
    bool reorders_{};
    fill_problem first_frame_{}; ///< of the given passes, once other orders are tried
    std::vector<joint_justifier> joint_{};
    double least_us_{}; ///< no choice ends sooner
    double best_us_{never};
    double walked_us_{}; ///< end of the last justified walk, before and after justification
    double justified_us_{};
    fill_choice best_choice_{};
    filled_schedule best_{};
};

/// Throws infeasible_error; names the first layer that fits on no host even alone after all passes, if there is one.
[[noreturn]] inline void throw_no_room(const schedule_problem& problem, const frozen_work& work) {
    for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
        const frozen_component& of = work.components[static_cast<std::size_t>(c)];
        for (int i = 0; i != static_cast<int>(of.layers.size()); ++i) {
            const frozen_layer& l = of.layers[static_cast<std::size_t>(i)];
            std::int64_t room = 0;
            for (int d = 0; d != problem.devices; ++d) {
                const std::int64_t limit = problem.memory_limit_bytes[static_cast<std::size_t>(d)];
                if (work.may_host(c, i, d)) { room = std::max(room, limit); }
            }
            if (l.live_bytes <= room) { continue; }
            throw infeasible_error("frozen " + of.name.str() + ": layer " + l.name.str() + " needs " +
                                   std::to_string(l.live_bytes) + " bytes for one sample, and no host has more than " +
                                   std::to_string(room));
        }
    }
    throw infeasible_error("frozen work: no order of layers was found that stays within memory_limit_bytes");
}

} // namespace detail

PULSE_CONSTEXPR filled_schedule fill_schedule(const schedule_problem& problem, const schedule& passes,
                                              const frozen_work& work, double passes_bound_us,
                                              const fill_options& options) {
    const double bound = detail::frozen_bound_us(problem, work, passes_bound_us);
    if (work.components.empty() || work.samples == 0) {
        return {passes, std::vector<std::vector<frozen_task>>(passes.devices.size()), bound};
    }
    detail::filler fill{problem, passes, work, bound, options.placements};
    detail::fill_choice choice = fill.first_choice({});
    for (std::size_t c = 0; c != work.components.size(); ++c) { choice.chunk.push_back(detail::most_of_call(work, c)); }
    do {
        for (const double delay : detail::delay_shares) {
            choice.delay = delay;
            fill.level(choice);
        }
        if (!fill.found()) {
            auto whole = choice;
            whole.open = 1;
            whole.cut = false;
            fill.level(whole);
            whole.alone = true;
            if (!fill.found()) { fill.level(whole); }
        }
    } while (detail::shorten_calls(work, choice.chunk));
    if (!fill.found()) { detail::throw_no_room(problem, work); }
    fill.improve();
    if (options.reorder_passes) { fill.reorder(); }
    return std::move(fill).result();
}

} // namespace pulse
