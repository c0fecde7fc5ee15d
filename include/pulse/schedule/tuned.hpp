#pragma once

#include <array>
#include <cstdint>

namespace pulse::detail {

/// Parameters tuned on the grid of `bench_plan gaps`, besides the shares in the tables of phases. Work is counted in
/// steps of search_budget::spend.
struct tuned {
    /// A step with more instances than this is long: it gains more from search than from proofs.
    static constexpr int long_step = 400;
    static constexpr int most_window_instances = 1024;
    /// Up to this many instances justification runs many rounds, beyond that few.
    static constexpr int many_rounds_instances = 10'000;
    static constexpr int many_rounds = 10;
    static constexpr int few_rounds = 2;

    /// Work per instance of a list schedule.
    static constexpr std::int64_t list_work = 40;
    static constexpr std::int64_t list_search_work = 60'000'000;
    /// Where memory is limited, patterns do better on long steps.
    static constexpr std::int64_t list_search_work_of_long_limited = 15'000'000;
    /// Seconds per pass of building a published order, and the share of the remaining time that one may take.
    static constexpr double known_order_seconds = 4e-7;
    static constexpr double known_orders_share = 0.2;

    static constexpr std::int64_t device_bound_work = 100;
    /// Work per instance of a propagation of windows.
    static constexpr std::int64_t window_work = 400;

    /// Factor on the share of the state search for each turn in a row that gained nothing.
    static constexpr double fruitless = 0.15;
    /// With this many states per device, hardly anything is proved.
    static constexpr double too_many_states = 1e7;
    static constexpr double too_many_states_share = 0.1;

    static constexpr std::int64_t pattern_moves = 50'000;
    static constexpr int pattern_tries = 6;
    /// Periods of patterns over the largest load: the first one tried, then the longer or the shorter ones.
    static constexpr double period = 1.02;
    static constexpr std::array longer_periods{1.05, 1.1, 1.2, 1.4};
    static constexpr std::array shorter_periods{1.005, 1.0};
    static constexpr std::array pattern_delays{0.0, 0.5, 1.0};

    /// Work of a slice of iterated justification: the minimum, and per instance.
    static constexpr std::int64_t shifts_work = 12'000'000;
    static constexpr std::int64_t shifts_work_of_instance = 3600;
    /// Its initial temperature, in mean durations of a pass.
    static constexpr double warm_shifts = 0.1;
};

} // namespace pulse::detail
