#pragma once

#include <array>
#include <cstdint>

namespace pulse::detail {

/// What was tuned on the grid of `bench_plan gaps`, besides the shares in the tables of phases. Work is in the steps of
/// search_budget::spend.
struct tuned {
    /// With more instances than this, parts of a step are worth a search of their own.
    static constexpr int long_step = 400;
    static constexpr int most_window_instances = 1024;
    /// Up to so many instances justification runs in many rounds, beyond in few.
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
    /// Where devices have so many states, hardly anything is proved.
    static constexpr double too_many_states = 1e7;
    static constexpr double too_many_states_share = 0.1;

    static constexpr std::int64_t pattern_moves = 50'000;
    static constexpr int pattern_tries = 6;
    /// Of a pattern's period, over the largest load: the first that is tried, those of longer ones, of shorter ones.
    static constexpr double period = 1.02;
    static constexpr std::array longer_periods{1.05, 1.1, 1.2, 1.4};
    static constexpr std::array shorter_periods{1.005, 1.0};
    static constexpr std::array pattern_delays{0.0, 0.5, 1.0};

    /// Of a walk: at first, and an instance at least.
    static constexpr std::int64_t walk_work = 3'000'000;
    static constexpr std::int64_t walk_work_of_instance = 900;
    /// Out of reach of any walk, but walks of tiny problems end at once and are many.
    static constexpr std::int64_t most_walk_work = 1'000'000'000'000;
    /// First temperatures by turns, and the last one, in mean durations of a pass.
    static constexpr std::array warm{3.0, 3.0, 1.0, 10.0, 3.0};
    static constexpr double cold = 0.1;
    /// Of justification, likewise.
    static constexpr double warm_shifts = 0.1;
    /// Instances of a part of a long step, in the mean.
    static constexpr double part_instances = 400;
    static constexpr std::int64_t shifts_of_walk = 4;
};

} // namespace pulse::detail
