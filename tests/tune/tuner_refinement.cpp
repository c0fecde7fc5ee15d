#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <stop_token>

#include <pulse/tune/tuner.hpp>

#include "mentions.hpp"
#include "plain_space.hpp"

namespace tuner_tests {

TEST_CASE("a stopped search returns the best so far, and says that it did not finish") {
    drawn_space s = plain_space();
    std::stop_source source;
    s.options.stop = source.get_token();
    s.options.prune = false;
    std::size_t schedules = 0;
    s.options.progress = [&](const tune_progress& p) {
        CHECK(p.done <= p.total);
        if (p.stage == "schedules" && ++schedules == 4) { source.request_stop(); }
    };
    const tuning made = s.run();
    CHECK_FALSE(made.finished);
    CHECK(made.evaluations == 4);
    CHECK(made.plan.predicted.step_us > 0);
    CHECK(made.count(tune_verdict::not_reached) > 0);
    // Stopped before it found anything.
    CHECK(mentions(refusal<error>(s), "stopped"));
}

TEST_CASE("a search that is stopped while it refines did not finish either") {
    drawn_space s = plain_space();
    std::stop_source source;
    s.options.stop = source.get_token();
    s.options.refine = [&](const schedule_problem& problem) {
        source.request_stop();
        synthesis found{};
        found.best = list_schedule(problem);
        return found;
    };
    const tuning made = s.run();
    CHECK_FALSE(made.finished);
    CHECK(made.count(tune_verdict::not_reached) == 0);
}

TEST_CASE("refinement looks again at the best few and never makes the choice worse") {
    std::mt19937 random{5003};
    for (int i = 0; i != 8; ++i) {
        drawn_space s = draw_space(random);
        const tuning before = s.run();
        int asked = 0;
        s.options.refined = 2;
        s.options.refine = [&](const schedule_problem& problem) {
            ++asked;
            synthesis found{};
            found.best = list_schedule(problem, {.effort = list_effort::rules});
            return found;
        };
        const tuning after = s.run();
        CHECK(asked == static_cast<int>(std::min<std::size_t>(2, before.ranking.size())));
        CHECK(after.best_row().step_us <= before.best_row().step_us);
        CHECK(after.plan.predicted.step_us == after.best_row().step_us);
    }
}

TEST_CASE("a proof of the refinement becomes the bound of the step, where it holds for every order") {
    drawn_space s = plain_space();
    s.machine.nodes = 1;
    s.options.pipeline_degrees = {2};
    s.options.microbatch_sizes = {1};
    s.options.placements = {placement::sequential};
    s.options.routings = {skip_routing::direct};
    s.options.split_backwards = {true};
    s.options.recomputations = {recomputation::none};
    // The tuner trusts a proved bound; one above the step can only come from the refinement.
    const double proved = 2 * s.run().best_row().step_us;
    s.options.refine = [&](const schedule_problem& problem) {
        synthesis found{};
        found.best = list_schedule(problem);
        found.lower_bound_us = proved;
        return found;
    };
    const tuning after = s.run();
    CHECK(after.plan.predicted.lower_bound_us == doctest::Approx(proved));
    CHECK(after.best_row().bound_us == after.plan.predicted.lower_bound_us);
    // A recompute may hide behind a transfer: a bound proved for the problem does not hold for the step.
    s.options.recomputations = {recomputation::stages};
    CHECK(s.run().plan.predicted.lower_bound_us != doctest::Approx(proved));
}

} // namespace tuner_tests
