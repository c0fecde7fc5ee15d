#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
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
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>

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

/// Whether an instruction is a release: a rank's memory changes owners only there.
bool is_release(const pulse::instruction& what) { return std::holds_alternative<pulse::op::release>(what); }

/// Number of slots of each size that a program needs.
std::map<std::int64_t, int> slots_of(const pulse::step_model& model, const pulse::program& of_rank) {
    std::map<std::int64_t, int> slots{};
    for (const auto bytes : pulse::lay_out(model, of_rank).slot_bytes) { ++slots[bytes]; }
    return slots;
}

/// Whether the last instruction before `at` that touches the buffer is a send.
bool is_sent_last(const pulse::step_model& model, const pulse::program& of_rank, std::size_t at,
                  const pulse::buffer_id& buffer) {
    while (at-- != 0) {
        for (const auto& a : model.accesses(of_rank.device, of_rank.instructions[at])) {
            if (a.buffer == buffer) { return std::holds_alternative<pulse::op::send>(of_rank.instructions[at]); }
        }
    }
    return false;
}

/// For each size, the most tensors whose last touch is the same send.
std::map<std::int64_t, int> last_sent_together(const pulse::step_model& model, const pulse::program& of_rank) {
    std::map<std::int64_t, int> most{};
    std::map<std::pair<std::size_t, std::int64_t>, int> ended{}; // by send and size
    std::map<pulse::buffer_id, std::size_t> last{};
    for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
        for (const auto& a : model.accesses(of_rank.device, of_rank.instructions[i])) { last[a.buffer] = i; }
        const auto* r = std::get_if<pulse::op::release>(&of_rank.instructions[i]);
        if (r == nullptr) { continue; }
        const std::size_t at = last[r->buffer];
        if (!std::holds_alternative<pulse::op::send>(of_rank.instructions[at])) { continue; }
        const auto bytes = model.bytes(r->buffer);
        most[bytes] = std::max(most[bytes], ++ended[{at, bytes}]);
    }
    return most;
}

/// The program with every release right after the last touch, as ranks with blocking sends do it.
pulse::program released_at_once(const pulse::step_model& model, const pulse::program& of_rank) {
    pulse::program made{of_rank.device, {}};
    std::set<pulse::buffer_id> ended{}; // backwards: buffers whose last touch was seen
    std::vector<pulse::instruction> backwards{};
    for (std::size_t i = of_rank.instructions.size(); i-- != 0;) {
        const pulse::instruction& one = of_rank.instructions[i];
        if (is_release(one)) { continue; }
        const auto touched = model.accesses(of_rank.device, one);
        for (const auto& a : touched) {
            if (ended.insert(a.buffer).second) { backwards.push_back(pulse::op::release{a.buffer}); }
        }
        backwards.push_back(one);
        for (const auto& a : touched) {
            if (a.mode == pulse::access::write) { ended.erase(a.buffer); }
        }
    }
    made.instructions.assign(backwards.rbegin(), backwards.rend());
    return made;
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

TEST_CASE(
    "programs send what the partition predicts, what is open at a cut included, and no skip under folded placement") {
    random_plans make{2};
    int open_cuts = 0;
    for (int i = 0; i != 500; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const auto [boundary, skip] = sent_bytes(model, pulse::lower(c.planned, model));
        const pulse::traffic expected = pulse::traffic_of(c.planned.cut, c.costs, c.planned.routing);
        CAPTURE(i);
        CHECK(boundary == expected.boundary() * c.planned.microbatches);
        CHECK(skip == expected.skip() * c.planned.microbatches);
        for (const pulse::stage& s : c.planned.cut.stages) {
            open_cuts += c.costs.layers[static_cast<std::size_t>(s.last_layer)].open_bytes > 0 ? 1 : 0;
        }
        if (c.planned.cut.kind == pulse::placement::folded) { CHECK(skip == 0); }
    }
    CHECK(open_cuts > 200);
}

TEST_CASE("a receive comes before every pass that ends after the message is produced, and after all others") {
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

TEST_CASE("a sent tensor keeps its slot as long as the slots that the plan allows suffice, and no longer") {
    for (const bool scattered : {false, true}) {
        random_plans make{9, scattered};
        int kept = 0;
        int waited = 0;
        for (int i = 0; i != 150; ++i) {
            const planned_model c = make();
            const pulse::step_model model{c.planned, c.costs};
            for (const pulse::program& p : pulse::lower(c.planned, model)) {
                CAPTURE(i);
                CAPTURE(p.device);
                const pulse::program at_once = released_at_once(model, p);
                const auto blocking = slots_of(model, at_once);
                auto together = last_sent_together(model, p);
                const auto fits = [&](const pulse::program& one) {
                    for (const auto& [bytes, count] : slots_of(model, one)) {
                        if (count > blocking.at(bytes) + c.planned.spare_sends * together[bytes]) { return false; }
                    }
                    return true;
                };
                CHECK(fits(p));
                for (std::size_t at = 0; at != p.instructions.size(); ++at) {
                    const auto* r = std::get_if<pulse::op::release>(&p.instructions[at]);
                    if (r == nullptr) { continue; }
                    std::size_t next = at;
                    while (is_release(p.instructions[next])) { ++next; }
                    if (!is_sent_last(model, p, at, r->buffer)) {
                        // Right after its last touch: only releases stand between.
                        std::size_t before = at;
                        while (is_release(p.instructions[before])) { --before; }
                        const auto touched = model.accesses(p.device, p.instructions[before]);
                        CHECK(std::any_of(touched.begin(), touched.end(),
                                          [&](const auto& a) { return a.buffer == r->buffer; }));
                        continue;
                    }
                    if (std::holds_alternative<pulse::op::optimizer_step>(p.instructions[next])) {
                        ++kept;
                        continue;
                    }
                    // Moved behind the next instruction, memory would not suffice, or its buffer is written there.
                    ++waited;
                    pulse::program later = p;
                    const auto begin = later.instructions.begin();
                    std::rotate(begin + static_cast<std::ptrdiff_t>(at), begin + static_cast<std::ptrdiff_t>(at) + 1,
                                begin + static_cast<std::ptrdiff_t>(next) + 1);
                    const auto written = model.accesses(p.device, p.instructions[next]);
                    const bool anew = std::any_of(written.begin(), written.end(), [&](const auto& a) {
                        return a.buffer == r->buffer && a.mode == pulse::access::write;
                    });
                    CHECK((anew || !fits(later)));
                }
            }
        }
        CHECK(kept > 500);
        CHECK(waited > 500);
    }
}

TEST_CASE("what was sent first is waited for first") {
    random_plans make{10};
    int pairs = 0;
    for (int i = 0; i != 150; ++i) {
        planned_model c = make();
        c.planned.recompute = pulse::recomputation::none; // so that few buffers are written twice
        const pulse::step_model model{c.planned, c.costs};
        for (const pulse::program& p : pulse::lower(c.planned, model)) {
            std::map<pulse::buffer_id, std::size_t> sent{};
            std::map<std::int64_t, std::size_t> last{}; // by size: where the last released buffer was sent
            for (std::size_t at = 0; at != p.instructions.size(); ++at) {
                for (const auto& a : model.accesses(p.device, p.instructions[at])) {
                    sent.erase(a.buffer);
                    if (std::holds_alternative<pulse::op::send>(p.instructions[at])) { sent[a.buffer] = at; }
                }
                const auto* r = std::get_if<pulse::op::release>(&p.instructions[at]);
                if (r == nullptr || sent.count(r->buffer) == 0) { continue; }
                std::size_t next = at;
                while (is_release(p.instructions[next])) { ++next; }
                if (std::holds_alternative<pulse::op::optimizer_step>(p.instructions[next])) { break; }
                // A buffer that is about to be rewritten is waited for out of turn.
                const auto written = model.accesses(p.device, p.instructions[next]);
                if (std::any_of(written.begin(), written.end(), [&](const auto& a) { return a.buffer == r->buffer; })) {
                    continue;
                }
                // Several releases before one instruction have no order, so compare across such groups.
                const auto bytes = model.bytes(r->buffer);
                if (last.count(bytes) != 0 && !is_release(p.instructions[at - 1])) {
                    CHECK(last[bytes] <= sent[r->buffer]);
                    ++pairs;
                }
                last[bytes] = std::max(last[bytes], sent[r->buffer]);
            }
        }
    }
    CHECK(pairs > 200);
}

TEST_CASE("a negative number of spare sends is refused") {
    random_plans make{11};
    planned_model c = make();
    c.planned.spare_sends = -1;
    const pulse::step_model model{c.planned, c.costs};
    CHECK_THROWS_WITH_AS((void)pulse::lower(c.planned, model), doctest::Contains("spare_sends"), pulse::input_error);
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
        // A backward cannot come before everything else on its device: its own forward would follow it.
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
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("appears twice"), pulse::input_error);
    damaged = c.planned;
    damaged.order.devices[0][0].stage = 99;
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model), doctest::Contains("names a stage that does not exist"),
                         pulse::input_error);
    damaged = c.planned;
    damaged.order.devices[0][0].microbatch = -1;
    CHECK_THROWS_WITH_AS((void)pulse::lower(damaged, model),
                         doctest::Contains("names a microbatch that does not exist"), pulse::input_error);
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
