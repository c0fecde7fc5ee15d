#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/print.hpp>

using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

/// Boundary and skip bytes that the programs send.
std::pair<std::int64_t, std::int64_t> sent_bytes(const pulse::step_model& model,
                                                 const std::vector<pulse::program>& programs) {
    std::pair<std::int64_t, std::int64_t> sum{};
    for (const auto& p : programs) {
        for (const auto& i : p.instructions) {
            const auto* s = std::get_if<pulse::op::send>(&i);
            if (s == nullptr) { continue; }
            const auto parts = model.parts(s->message, p.device);
            for (std::size_t k = 0; k != parts.size(); ++k) {
                (model.is_skip_part(s->message, k) ? sum.second : sum.first) += model.bytes(parts[k]);
            }
        }
    }
    return sum;
}

} // namespace

TEST_CASE("every program of every plan passes check") {
    random_plans make{1};
    for (int i = 0; i != 1500; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const auto programs = pulse::lower(c.planned, model);
        const pulse::check_report report = pulse::check(c.planned, model, programs);
        CAPTURE(i);
        REQUIRE_MESSAGE(report.ok(), report.violation);
    }
}

TEST_CASE("programs send what the partition predicts, and no skip but residual ones under folded placement") {
    random_plans make{2};
    int residual_crossings = 0;
    for (int i = 0; i != 500; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const auto [boundary, skip] = sent_bytes(model, pulse::lower(c.planned, model));
        const pulse::traffic expected = pulse::traffic_of(c.planned.cut, c.costs, c.planned.routing);
        CAPTURE(i);
        CHECK(boundary == expected.boundary() * c.planned.microbatches);
        CHECK(skip == expected.skip() * c.planned.microbatches);
        if (c.planned.cut.kind != pulse::placement::folded) { continue; }
        pulse::cost_table collocated = c.costs;
        std::erase_if(collocated.skips, [](const pulse::skip_cost& edge) { return edge.residual; });
        CHECK(pulse::traffic_of(c.planned.cut, collocated, c.planned.routing).skip() == 0);
        residual_crossings += skip > 0 ? 1 : 0;
    }
    CHECK(residual_crossings > 20);
}

TEST_CASE("a message stands before every pass that ends once it is there, and behind every other") {
    random_plans make{8};
    for (int i = 0; i != 200; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        for (const auto& p : pulse::lower(c.planned, model)) {
            const auto& passes = c.planned.order.devices[static_cast<std::size_t>(p.device)];
            std::size_t done = 0;
            for (const auto& one : p.instructions) {
                done += pulse::is_compute(one) && !std::holds_alternative<pulse::op::recompute>(one) ? 1U : 0U;
                const auto* r = std::get_if<pulse::op::recv>(&one);
                if (r == nullptr) { continue; }
                double there = -1;
                for (const auto& made : c.planned.order.devices[static_cast<std::size_t>(model.sender(r->message))]) {
                    const auto op =
                        pulse::step_model::is_backward(r->message) ? pulse::pass::backward_input : pulse::pass::forward;
                    if (made.op == op && made.stage == model.producer_stage(r->message) &&
                        made.microbatch == pulse::index_of(r->message.microbatch)) {
                        there = made.end_us;
                    }
                }
                if (done > 0) { CHECK(passes[done - 1].end_us <= there); }
                if (done < passes.size()) { CHECK(passes[done].end_us >= there); }
            }
        }
    }
}

TEST_CASE("the order of passes is the schedule's, whatever its times say") {
    random_plans make{3};
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        for (auto& passes : c.planned.order.devices) {
            for (auto& p : passes) { p.start_us = p.end_us = make.coin() ? 0.0 : make.between(0, 100); }
        }
        const pulse::step_model model{c.planned, c.costs};
        const auto report = pulse::check(c.planned, model, pulse::lower(c.planned, model));
        CAPTURE(i);
        CHECK_MESSAGE(report.ok(), report.violation);
    }
}

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
                    // Releases of other buffers may stand between.
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
                // Between passes: nothing saved but by stages whose B has begun.
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

TEST_CASE("an impossible order is refused by the name of a pass") {
    random_plans make{5};
    int refused = 0;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        auto& passes =
            c.planned.order.devices[static_cast<std::size_t>(make.between(0, c.planned.pipeline_degree - 1))];
        const auto a = static_cast<std::size_t>(make.between(0, static_cast<int>(passes.size()) - 1));
        const pulse::timed_pass moved = passes[a];
        passes.erase(passes.begin() + static_cast<std::ptrdiff_t>(a));
        // A backward before everything else on its device cannot be: its own forward is behind it.
        if (moved.op == pulse::pass::forward) {
            passes.push_back(moved);
        } else {
            passes.insert(passes.begin(), moved);
        }
        const pulse::step_model model{c.planned, c.costs};
        try {
            (void)pulse::lower(c.planned, model);
            FAIL("accepted");
        } catch (const pulse::input_error& e) {
            ++refused;
            CHECK(std::string(e.what()).find("can never start") != std::string::npos);
            CHECK(std::string(e.what()).find(" of stage ") != std::string::npos);
        }
    }
    CHECK(refused == 300);
}

TEST_CASE("an incomplete schedule is refused by the name of the pass") {
    random_plans make{6};
    planned_model c = make();
    const pulse::step_model model{c.planned, c.costs};
    pulse::plan damaged = c.planned;
    damaged.order.devices[0].pop_back();
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("is missing"), pulse::input_error);
    damaged = c.planned;
    damaged.order.devices[0].push_back(damaged.order.devices[0][0]);
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("is there twice"), pulse::input_error);
    damaged = c.planned;
    damaged.order.devices[0][0].stage = 99;
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("no such stage"), pulse::input_error);
    damaged = c.planned;
    damaged.order.devices[0][0].microbatch = -1;
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("no such microbatch"),
                         pulse::input_error);
    damaged = c.planned;
    damaged.order.devices.emplace_back();
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("one list for each device"),
                         pulse::input_error);
}

TEST_CASE("a cut that does not fit the costs is refused") {
    random_plans make{7};
    const planned_model c = make();
    planned_model damaged = c;
    damaged.costs.layers.push_back(damaged.costs.layers.back());
    CHECK_THROWS_AS((pulse::step_model{damaged.planned, damaged.costs}), pulse::input_error);
    damaged = c;
    damaged.planned.cut.stages[0].first_layer = 1;
    CHECK_THROWS_AS((pulse::step_model{damaged.planned, damaged.costs}), pulse::input_error);
    damaged = c;
    damaged.planned.cut.stages[0].device = 9;
    CHECK_THROWS_AS((pulse::step_model{damaged.planned, damaged.costs}), pulse::input_error);
    damaged = c;
    damaged.costs.skips.push_back({1, 1, 4});
    CHECK_THROWS_AS((pulse::step_model{damaged.planned, damaged.costs}), pulse::input_error);
}
