#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>

using pulse_test::planned_model;
using pulse_test::random_plans;

TEST_CASE("what the recomputed policy restores is what local skips read, and it lowers what waits") {
    random_plans make{4};
    int with_recompute = 0;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        c.planned.recompute = pulse::recomputation::skips;
        const pulse::step_model model{c.planned, c.costs};
        std::vector<bool> made(static_cast<std::size_t>(model.stage_count()));
        for (int e = 0; e != model.edge_count(); ++e) {
            if (model.is_local(e)) { made[static_cast<std::size_t>(model.source_stage(e))] = true; }
        }
        const auto programs = pulse::lower(c.planned, model);
        int recomputes = 0;
        for (const auto& p : programs) {
            for (const auto& one : p.instructions) {
                if (const auto* r = std::get_if<pulse::op::recompute>(&one)) {
                    ++recomputes;
                    CHECK(made[static_cast<std::size_t>(pulse::index_of(r->stage))]);
                }
            }
        }
        CHECK(recomputes == c.planned.microbatches * std::count(made.begin(), made.end(), true));
        with_recompute += recomputes > 0 ? 1 : 0;

        c.planned.recompute = pulse::recomputation::none;
        const auto resident = pulse::check(c.planned, model, pulse::lower(c.planned, model));
        c.planned.recompute = pulse::recomputation::skips;
        const auto recomputed = pulse::check(c.planned, model, programs);
        for (std::size_t d = 0; d != programs.size(); ++d) {
            CHECK(recomputed.live_peak_bytes[d] <= resident.live_peak_bytes[d]);
        }
    }
    CHECK(with_recompute > 50);
}

TEST_CASE("whole stages run again right before their B, and only B and W have what they saved") {
    random_plans make{8};
    int lower_peaks = 0;
    int ranks = 0;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        c.planned.recompute = pulse::recomputation::none;
        const pulse::step_model kept_model{c.planned, c.costs};
        const auto kept = pulse::check(c.planned, kept_model, pulse::lower(c.planned, kept_model));
        c.planned.recompute = pulse::recomputation::stages;
        const pulse::step_model model{c.planned, c.costs};
        const auto programs = pulse::lower(c.planned, model);
        const auto report = pulse::check(c.planned, model, programs);
        CAPTURE(i);
        REQUIRE_MESSAGE(report.ok(), report.violation);
        for (const auto& p : programs) {
            std::set<pulse::buffer_id> alive{};
            for (std::size_t at = 0; at != p.instructions.size(); ++at) {
                const pulse::instruction& one = p.instructions[at];
                if (const auto* b = std::get_if<pulse::op::backward_input>(&one)) {
                    // Releases of other buffers may stand in between.
                    std::size_t before = at - 1;
                    while (!pulse::is_compute(p.instructions[before])) { --before; }
                    const auto* again = std::get_if<pulse::op::recompute>(&p.instructions[before]);
                    REQUIRE(again != nullptr);
                    CHECK(*again == pulse::op::recompute{b->stage, b->microbatch});
                }
                for (const auto& a : model.accesses(p.device, one)) {
                    if (a.mode == pulse::access::write) { alive.insert(a.buffer); }
                }
                if (const auto* r = std::get_if<pulse::op::release>(&one)) { alive.erase(r->buffer); }
                // Between passes only stages whose B has begun have anything saved.
                if (!pulse::is_compute(one)) { continue; }
                for (const auto& buffer : alive) {
                    if (buffer.kind != pulse::buffer_kind::saved) { continue; }
                    const auto is_own = [&](auto of) {
                        return pulse::index_of(of.stage) == buffer.index && of.microbatch == buffer.microbatch;
                    };
                    const auto* f = std::get_if<pulse::op::forward>(&one);
                    const auto* again = std::get_if<pulse::op::recompute>(&one);
                    const bool begun = (f != nullptr && is_own(*f)) || (again != nullptr && is_own(*again)) ||
                                       alive.contains({pulse::buffer_kind::deferred, buffer.index, buffer.microbatch});
                    CHECK_MESSAGE(begun, pulse::to_text(buffer) << " waits at " << pulse::to_text(one));
                }
            }
            lower_peaks += report.live_peak_bytes[static_cast<std::size_t>(p.device)] <
                                   kept.live_peak_bytes[static_cast<std::size_t>(p.device)]
                               ? 1
                               : 0;
            ++ranks;
        }
    }
    MESSAGE("ranks whose peak is lower: " << lower_peaks << " of " << ranks);
    CHECK(3 * lower_peaks > ranks);
}

TEST_CASE("a plan recomputes the stages that it selects, and no others") {
    random_plans make{9};
    int selected = 0;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        const auto lowered = [&](const pulse::stage_recomputation& recompute) {
            c.planned.recompute = recompute;
            const pulse::step_model model{c.planned, c.costs};
            auto programs = pulse::lower(c.planned, model);
            const auto report = pulse::check(c.planned, model, programs);
            REQUIRE_MESSAGE(report.ok(), report.violation);
            return std::pair{std::move(programs), pulse::peak_bytes(c.planned, c.costs, {})};
        };
        const std::size_t stages = c.planned.cut.stages.size();
        CAPTURE(i);
        REQUIRE(lowered(pulse::stage_recomputation{std::vector<char>(stages, 1)}) ==
                lowered(pulse::recomputation::stages));
        REQUIRE(lowered(pulse::stage_recomputation{std::vector<char>(stages, 0)}) ==
                lowered(pulse::recomputation::none));
        std::vector<char> flags{};
        for (std::size_t s = 0; s != stages; ++s) { flags.push_back(make.coin() ? '\1' : '\0'); }
        const auto [programs, peaks] = lowered(pulse::stage_recomputation{flags});
        std::vector<int> again(stages, 0);
        for (const auto& p : programs) {
            for (const auto& one : p.instructions) {
                const auto* r = std::get_if<pulse::op::recompute>(&one);
                if (r != nullptr) { ++again[static_cast<std::size_t>(pulse::index_of(r->stage))]; }
            }
        }
        for (std::size_t s = 0; s != stages; ++s) {
            CHECK(again[s] == (flags[s] != 0 ? c.planned.microbatches : 0));
            selected += flags[s];
        }
        // Programs that recompute another stage do not match the plan.
        const pulse::step_model model{c.planned, c.costs};
        std::vector<char> none(stages, 0);
        c.planned.recompute = pulse::stage_recomputation{none};
        if (again != std::vector<int>(stages, 0)) {
            const auto report = pulse::check(c.planned, model, programs);
            CHECK(report.violation.find("the plan does not recompute the stage") != std::string::npos);
        }
        flags.push_back(0);
        c.planned.recompute = pulse::stage_recomputation{flags};
        CHECK_THROWS_WITH_AS((pulse::step_model{c.planned, c.costs}), doctest::Contains("recomputed_stages"),
                             pulse::input_error);
    }
    CHECK(selected > 300);
}
