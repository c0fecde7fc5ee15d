#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include <support/encoded_steps.hpp>
#include <support/random_frozen.hpp>
#include <pulse/core/error.hpp>

using namespace pulse;
using namespace pulse::test;

TEST_CASE("frozen tasks in any gaps give the bits of encoding inline, each layer once on each sample") {
    std::mt19937 random{71};
    constexpr int steps = 3;
    for (int i = 0; i != 60; ++i) {
        plan p = draw_encoded_plan(random, 1 + i % 4);
        if (p.cut.stages.empty()) { continue; }
        CAPTURE(i);
        const cost_table costs = costs_with_frozen(p.microbatch_size);
        const std::uint64_t seed = random();
        encode_tally none;
        const auto want = run_encoded(p, costs, seed, steps, none);
        REQUIRE(none.runs.empty());
        draw_frozen_tasks(p, costs, random);
        encode_tally seen;
        const int forgets = i % 3 == 0 ? 1 : -1;
        const auto made = run_encoded(p, costs, seed, steps, seen, i % 8 == 0 ? 200 : 0, forgets);
        for (const auto& [r, of_rank] : made) {
            CHECK(of_rank.memory_as_planned);
            CHECK(of_rank.losses == want.at(r).losses);
            CHECK(of_rank.gradients == want.at(r).gradients);
        }
        // The last step encodes for a step that never comes; forgotten results are encoded twice.
        const auto samples = static_cast<std::size_t>(p.microbatches * p.microbatch_size * p.data_degree);
        CHECK(seen.runs.size() == result_widths.size() * chain_layers * samples * (steps + 1));
        for (const auto& [what, times] : seen.runs) { CHECK(times == (what[2] == forgets ? 2 : 1)); }
    }
}

TEST_CASE("a plan with frozen tasks is refused where the task encodes nothing") {
    std::mt19937 random{72};
    plan p = draw_encoded_plan(random, 1);
    const cost_table costs = costs_with_frozen(p.microbatch_size);
    p.data_degree = 1;
    draw_frozen_tasks(p, costs, random);
    std::string said;
    try {
        threads::run_ranks(1, {}, [&](threads::transport& transport) {
            encoded_math on;
            executor<encoded_model, encoded_math> rank{on, transport, p, costs};
            drawn_task<encoded_model, float> task{{1, p.microbatch_size, p.microbatches}};
            rank.step(task);
        });
    } catch (const error& e) { said = e.what(); }
    CHECK(said.find("the plan has frozen tasks, so the task of this run must have encode(call)") != std::string::npos);
}
