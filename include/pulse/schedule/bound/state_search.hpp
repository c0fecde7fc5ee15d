#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/relaxed_problem.hpp>
#include <pulse/schedule/bound/relaxed_states.hpp>

namespace pulse::detail {

/// Limits of a search over states.
struct state_limits {
    /// Only schedules shorter than this count.
    double below_us{};
    /// States in total; beyond them the search is cut short.
    std::int64_t nodes{};
    /// States per layer; beyond them only the most promising ones survive (beam search).
    std::int64_t width{std::numeric_limits<std::int64_t>::max()};
    /// Asked now and then whether to end.
    std::function<bool()> over{};
};

/// The result of a search for schedules shorter than a makespan.
struct state_search_result {
    /// The makespan of `order`, without the tails of relaxed passes. When no order was found and the search ended by
    /// itself, a makespan that no schedule beats.
    double makespan_us{};
    /// States that were kept.
    std::int64_t nodes{};
    /// The search ended by itself and left nothing out, so `makespan_us` is proved.
    bool finished{};
    /// The shortest schedule of the relaxation, if one was found: its passes per kept device, in order; an instance is
    /// op * microbatches + microbatch.
    std::vector<std::vector<int>> order{};
};

/// Dynamic programming over the states of a relaxed problem: layer l holds the states with l passes begun. The answer
/// is exact when all devices are kept.
class state_search {
public:
    /// At most 65,535 microbatches.
    explicit state_search(relaxed_problem problem) : states_{std::move(problem)} {}

    /// Uses the completion times of the kept device at position `device`; they must outlive the search.
    void guide(std::size_t device, const completion_times& times) { states_.guide(device, times); }

    /// Searches for schedules within limits. `times`, for a relaxation to one device, receives the completion times of
    /// the opposite direction, complete when the search finishes.
    [[nodiscard]] state_search_result run(const state_limits& limits, completion_times* times = nullptr) {
        if (times != nullptr) { *times = {limits.below_us, {}}; }
        states_.list(times);
        state_search_result out{};
        bool narrowed = false;
        relaxed_states::layer now{};
        relaxed_states::layer next{};
        states_.begin(limits.below_us, now);
        for (std::size_t placed = 0; placed != states_.passes() && !now.states.empty(); ++placed) {
            next.places.clear();
            next.states.clear();
            states_.count_anew();
            for (const auto& s : now.states) {
                if (out.nodes + states_.kept() > limits.nodes || limits.over()) {
                    out.nodes += states_.kept();
                    return out;
                }
                for (std::size_t at = 0; at < s.steps.size(); ++at) {
                    states_.expand(s, s.times.data() + at * (s.times.size() / s.steps.size()), s.steps[at], next);
                }
            }
            out.nodes += states_.kept();
            if (states_.kept() > limits.width) {
                narrow(next, static_cast<std::size_t>(limits.width));
                narrowed = true;
            }
            std::swap(now, next);
        }
        out.finished = !narrowed;
        out.makespan_us = states_.least_pruned_us();
        for (const auto& s : now.states) {
            for (std::size_t i = 0; i != s.steps.size(); ++i) {
                const auto devices = static_cast<std::ptrdiff_t>(states_.devices());
                const auto one = s.times.begin() + static_cast<std::ptrdiff_t>(i) * (1 + devices);
                const double end = *std::max_element(one + 1, one + 1 + devices);
                if (end >= out.makespan_us) { continue; }
                out.makespan_us = end;
                out.order = states_.order_of(s.steps[i]);
            }
        }
        return out;
    }

    /// Keeps the best `width` states of a layer.
    static void narrow(relaxed_states::layer& l, std::size_t width) {
        std::vector<double> scores{};
        for (const auto& s : l.states) { scores.insert(scores.end(), s.scores.begin(), s.scores.end()); }
        const auto last = scores.begin() + static_cast<std::ptrdiff_t>(width);
        std::nth_element(scores.begin(), last, scores.end());
        const double worst = *last;
        auto equal = static_cast<std::ptrdiff_t>(width) -
                     std::count_if(scores.begin(), scores.end(), [&](double score) { return score < worst; });
        for (auto& s : l.states) {
            for (std::size_t i = s.steps.size(); i-- > 0;) {
                const bool stays = s.scores[i] < worst || (s.scores[i] == worst && equal-- > 0);
                if (!stays) { relaxed_states::erase(s, i, s.times.size() / s.steps.size()); }
            }
        }
    }

private:
    relaxed_states states_;
};

} // namespace pulse::detail
