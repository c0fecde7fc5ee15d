#include "rank_results.hpp"

#include <utility>

namespace pulse_train {

run_results joined(std::vector<rank_results> of_ranks) {
    run_results all;
    for (rank_results& one : of_ranks) {
        all.events.insert(all.events.end(), one.events.begin(), one.events.end());
        all.busy_us += one.busy_us;
        all.boundary_bytes += one.sent.boundary;
        all.skip_bytes += one.sent.skip;
        all.gradient_bytes += one.sent.gradient;
        all.planned_bytes.push_back(one.planned_bytes);
        all.measured_bytes.push_back(one.measured_bytes);
        all.averages.merge(one.averages);
        if (one.rank == 0) {
            all.losses = std::move(one.losses);
            all.step_seconds = std::move(one.step_seconds);
            all.steps_run = one.steps_run;
            all.last_step = one.last_step;
        }
    }
    return all;
}

} // namespace pulse_train
