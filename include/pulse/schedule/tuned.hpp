#pragma once

#include <array>
#include <cstdint>

namespace pulse::detail {

/// What was tuned on the grid of `bench_plan gaps`, besides the shares in the tables of phases. Work is in the steps of
/// search_budget::spend.
struct tuned {
    /// With more instances than this, a step is long: it gains more from search than from proofs.
    static constexpr int long_step = 400;
    static constexpr int most_window_instances = 1024;
    /// Up to this many instances justification runs in many rounds, beyond in few.
    static constexpr int many_rounds_instances = 10'000;
    static constexpr int many_rounds = 10;
    static constexpr int few_rounds = 2;

    /// Of a list schedule, an instance.
    static constexpr std::int64_t list_work = 40;
    static constexpr std::int64_t list_search_work = 60'000'000;
    /// Where memory is limited, patterns do better on long steps.
    static constexpr std::int64_t list_search_work_of_long_limited = 15'000'000;
    /// Of a published order, a pass; and the part of the time that looking for one may take.
    static constexpr double known_order_seconds = 4e-7;
    static constexpr double known_orders_share = 0.2;

    static constexpr std::int64_t device_bound_work = 100;
    /// Of a propagation of windows, an instance.
    static constexpr std::int64_t window_work = 400;

    /// The share of a proof whose last turns gained nothing is multiplied by this for each.
    static constexpr double fruitless = 0.15;
    /// Where devices have this many states, hardly anything is proved.
    static constexpr double too_many_states = 1e7;
    static constexpr double too_many_states_share = 0.1;

    static constexpr std::int64_t pattern_moves = 50'000;
    static constexpr int pattern_tries = 6;
    /// Of a pattern's period, over the largest load: the first that is tried, those of longer ones, of shorter ones.
    static constexpr double period = 1.02;
    static constexpr std::array longer_periods{1.05, 1.1, 1.2, 1.4};
    static constexpr std::array shorter_periods{1.005, 1.0};
    static constexpr std::array pattern_delays{0.0, 0.5, 1.0};

    /// Of a slice of iterated justification: at least, and an instance.
    static constexpr std::int64_t shifts_work = 12'000'000;
    static constexpr std::int64_t shifts_work_of_instance = 3600;
    /// Its first temperature, in mean durations of a pass.
    static constexpr double warm_shifts = 0.1;
};

} // namespace pulse::detail
