#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include <pulse/plan/peak_bytes.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuner.hpp>

#include "drawn_space.hpp"
#include "mentions.hpp"
#include "plain_space.hpp"

namespace tuner_tests {

TEST_CASE("where nothing fits, the refusal names the candidate that needs least") {
    drawn_space s = plain_space();
    s.options.memory_limit_bytes = 100;
    const std::string text = refusal<infeasible_error>(s);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    left_out_candidates left_out{};
    for (const tune_candidate& c : enumerate_candidates(s.options, 4, 2, left_out)) {
        const cost_table costs = scaled_costs(s.costs, c.microbatch_size);
        try {
            std::int64_t most = 0;
            const parameter_memory kept = parameter_memory_of(s.options, c);
            for (const least_memory& need : least_memory_of(costs, cut_candidate(costs, c, kept, 100), c.split_backward,
                                                            c.routing, c.recompute, kept, c.data_degree)) {
                most = std::max(most, need.total_bytes());
            }
            least = std::min(least, most);
        } catch (const infeasible_error&) { continue; }
    }
    CHECK(mentions(text, "needs " + std::to_string(least) + " bytes of 100"));
}

TEST_CASE("memory is judged by the exact layout: what fits is taken as it is, and what is refused fits in no order") {
    std::mt19937 random{5004};
    int taken = 0;
    int alone = 0;
    for (int i = 0; i != 16; ++i) {
        drawn_space s = draw_space(random);
        INFO("space " << i);
        s.options.prune = false;
        s.options.gradient_release = i >= 12;
        const int devices = s.machine.devices();
        left_out_candidates left_out{};
        auto all = enumerate_candidates(s.options, devices, s.machine.nodes, left_out);
        std::shuffle(all.begin(), all.end(), random);
        for (std::size_t k = 0; k != std::min<std::size_t>(all.size(), 32); ++k) {
            const tune_candidate& c = all[k];
            INFO(to_text(c));
            const cost_table costs = scaled_costs(s.costs, c.microbatch_size);
            const parameter_memory kept = parameter_memory_of(s.options, c);
            partition cut{};
            try {
                cut = cut_candidate(costs, c, kept, 0);
            } catch (const infeasible_error&) { continue; }
            const auto least_of = [&](const parameter_memory& of) {
                return least_memory_of(costs, cut, c.split_backward, c.routing, c.recompute, of, c.data_degree,
                                       s.options.gradient_release);
            };
            const std::vector<least_memory> least = least_of(kept);
            parameter_memory with_scratch = kept;
            with_scratch.scratch.library_bytes = 1000;
            const std::vector<least_memory> more = least_of(with_scratch);
            for (std::size_t d = 0; d != least.size(); ++d) {
                least_memory wanted = least[d];
                wanted.workspace_bytes += 1000 + scratch_rounding_bytes;
                REQUIRE(more[d] == wanted);
            }
            const auto prepared = [&](std::int64_t limit) {
                return prepare_candidate(costs, s.machine, cut, c, s.options, limit);
            };
            const evaluated_candidate free = evaluate_candidate(costs, c, prepared(0), s.options.list);
            const auto& peaks = free.planned.predicted.peak_memory_bytes;
            for (std::size_t d = 0; d != peaks.size(); ++d) { REQUIRE(least[d].total_bytes() <= peaks[d]); }
            // A limit of exactly its peak gives the same plan.
            const std::int64_t most = *std::max_element(peaks.begin(), peaks.end());
            const evaluated_candidate fits = evaluate_candidate(costs, c, prepared(most), s.options.list);
            REQUIRE(fits.planned == free.planned);
            ++taken;
            if (c.pipeline_degree != 1 || c.method != schedule_method::list) { continue; }
            // A single device can always run its microbatches one by one, but gradients exist for all of them.
            if (s.options.gradient_release) { continue; }
            tune_candidate once = c;
            once.microbatches = 1;
            const auto one = evaluate_candidate(
                costs, once, prepare_candidate(costs, s.machine, cut, once, s.options, 0), s.options.list);
            const std::int64_t enough = one.planned.predicted.peak_memory_bytes.front();
            REQUIRE(least.front().total_bytes() <= enough);
            REQUIRE(evaluate_candidate(costs, c, prepared(enough), s.options.list).planned.predicted.step_us ==
                    doctest::Approx(free.planned.predicted.step_us));
            ++alone;
        }
    }
    CHECK(taken > 150);
    CHECK(alone > 15);
}

TEST_CASE("replicas take room for each other's gradients, and sharing the optimizer's state leaves a D-th part of it") {
    drawn_space s = plain_space();
    s.machine.nodes = 1;
    s.machine.devices_per_node = 8;
    s.options.pipeline_degrees = {2};
    s.options.microbatch_sizes = {1};
    s.options.placements = {placement::sequential};
    s.options.routings = {skip_routing::direct};
    s.options.split_backwards = {false};
    s.options.recomputations = {recomputation::none};
    s.options.sharded_optimizers = {false, true};
    const auto peak_of = [](const tuning& made, bool sharded) {
        std::int64_t peak = 0;
        for (const tune_row& row : made.rows) {
            if (row.candidate.sharded_optimizer == sharded) { peak = row.peak_memory_bytes; }
        }
        return peak;
    };
    for (const int replicas : {1, 2, 4}) {
        CAPTURE(replicas);
        s.options.devices = 2 * replicas;
        s.options.global_batch = 2 * replicas;
        s.options.memory_limit_bytes = 0;
        const tuning free = s.run();
        REQUIRE(free.rows.size() == (replicas == 1 ? 1 : 2));
        // Four layers of 100 parameters per device, in one stage; the rest does not depend on the number of replicas.
        const std::int64_t parameters = std::int64_t{4} * 800;
        const plan& best = free.plan;
        plan alone = best;
        alone.data_degree = 1;
        const cost_table costs = scaled_costs(s.costs, 1);
        const std::int64_t passes = peak_bytes(alone, costs, s.options.kept)[0] - 5 * parameters;
        const std::int64_t share = replica_share_bytes(parameters / 4, 4, replicas, 4);
        const auto peaks = peak_bytes(best, costs, s.options.kept);
        CHECK(peaks[0] == passes + 5 * parameters + (replicas - 1) * share);
        if (replicas == 1) { continue; }
        CHECK(peak_bytes(best, costs, {.sharded = true})[0] ==
              passes + 2 * parameters + 3 * parameters / replicas + (replicas - 1) * share);
        REQUIRE(peak_of(free, true) < peak_of(free, false));
        // Both send as much: shares and sums, or shares and weights.
        CHECK(free.rows[0].gradient_bytes == free.rows[1].gradient_bytes);
        // If only one fits, it is chosen, and the other states what it lacks.
        s.options.memory_limit_bytes = peak_of(free, true);
        const tuning made = s.run();
        CHECK(made.best_row().candidate.sharded_optimizer);
        CHECK(mentions(to_text(made.best_row().candidate), "sharded optimizer"));
        const tune_row* other = find_row(made, tune_verdict::memory);
        REQUIRE(other != nullptr);
        CHECK_FALSE(other->candidate.sharded_optimizer);
        CHECK(mentions(other->reason, "gradients of other replicas"));
    }
    s.options.kept.scalar_bytes = 0;
    CHECK(mentions(refusal<input_error>(s), "scalar_bytes"));
    s.options.kept = {.gradient_bytes = 0};
    CHECK(mentions(refusal<input_error>(s), "gradient_bytes"));
    s.options.kept = {};
    s.options.sharded_optimizers = {};
    CHECK(mentions(refusal<input_error>(s), "sharded_optimizers"));
}

} // namespace tuner_tests
