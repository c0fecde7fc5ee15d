#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace pulse::detail {

/// Per counts of begun passes of one device (u16string in the order of its operations): the least time from the start
/// of its next pass to the end of the step. Counts that are not listed allow no makespan below `below_us`.
struct completion_times {
    double below_us{};
    std::unordered_map<std::u16string, double> rest_us{};
};

/// What a search over states may do.
struct state_limits {
    /// Only schedules that are shorter count.
    double below_us{};
    /// States in all: past them the search is cut short.
    std::int64_t nodes{};
    /// States per layer: past them only the most promising ones live on (beam search).
    std::int64_t width{std::numeric_limits<std::int64_t>::max()};
    /// Asked now and then: whether to end.
    std::function<bool()> over{};
};

/// What a search for schedules that are shorter than a makespan found.
struct state_search_result {
    /// The makespan of `order`, tails of what is relaxed left out. Where none was found, and the search ended by
    /// itself, a makespan that no schedule beats.
    double makespan_us{};
    /// States that were kept.
    std::int64_t nodes{};
    /// The search ended by itself and left nothing out, so `makespan_us` is proved.
    bool finished{};
    /// When a schedule of the relaxation was found, the shortest: its passes per kept device in order, instances
    /// numbered op * microbatches + microbatch.
    std::vector<std::vector<int>> order{};
};

} // namespace pulse::detail
