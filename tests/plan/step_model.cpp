#include <cstddef>
#include <set>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <support/check_both.hpp>
#include <pulse/core/label.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/step_model.hpp>

using pulse::buffer_kind;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

/// Four layers folded over two devices, one skip from the first to the last, one microbatch.
constexpr planned_model folded_pair() {
    planned_model c{};
    c.planned.pipeline_degree = 2;
    c.planned.split_backward = false;
    c.planned.cut.devices = 2;
    for (int s = 0; s != 4; ++s) {
        c.planned.cut.stages.push_back({s, pulse::device_of(pulse::placement::folded, s, 2), s, s});
    }
    c.costs.layers.resize(4);
    for (auto& l : c.costs.layers) { l.output_bytes = l.saved_bytes = 128; }
    c.costs.skips.push_back({0, 3, 128});
    c.planned.order.devices = {{{pulse::pass::forward, 0, 0, 0, 1},
                                {pulse::pass::forward, 3, 0, 3, 4},
                                {pulse::pass::backward_input, 3, 0, 4, 5},
                                {pulse::pass::backward_input, 0, 0, 7, 8}},
                               {{pulse::pass::forward, 1, 0, 1, 2},
                                {pulse::pass::forward, 2, 0, 2, 3},
                                {pulse::pass::backward_input, 2, 0, 5, 6},
                                {pulse::pass::backward_input, 1, 0, 6, 7}}};
    return c;
}

constexpr int messages_sent() {
    const planned_model c = folded_pair();
    int sent = 0;
    for (const auto& p : pulse::lower(c.planned, pulse::step_model{c.planned, c.costs})) {
        for (const auto& i : p.instructions) { sent += std::holds_alternative<pulse::op::send>(i) ? 1 : 0; }
    }
    return sent;
}

constexpr bool layout_is_tight() {
    const planned_model c = folded_pair();
    const pulse::step_model model{c.planned, c.costs};
    for (const auto& p : pulse::lower(c.planned, model)) {
        const pulse::memory_layout layout = pulse::lay_out(model, p);
        if (layout.block_bytes != layout.block_bound_bytes || layout.places.empty()) { return false; }
    }
    return true;
}

} // namespace

TEST_SUITE("constexpr") {
    TEST_CASE("a plan is lowered and laid out while it is compiled") {
        // F and B over boundaries 0 and 2; the fold between stages 1 and 2 is on one device.
        CHECK_BOTH(messages_sent() == 4);
        CHECK_BOTH(layout_is_tight());
    }
}

TEST_CASE("facts agree with their definitions") {
    random_plans make{71};
    for (int i = 0; i != 500; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const auto& stages = c.planned.cut.stages;
        CAPTURE(i);
        for (int l = 0; l != model.layer_count(); ++l) {
            CHECK(model.stage_of_layer(l) == pulse::stage_of(stages, l));
            bool apart = l == stages[static_cast<std::size_t>(model.stage_of_layer(l))].last_layer &&
                         l + 1 != model.layer_count();
            for (const auto& e : c.costs.skips) {
                apart = apart || (e.from == l && pulse::stage_of(stages, e.to) != pulse::stage_of(stages, l));
            }
            CHECK(model.held_apart(l) == apart);
        }
        std::set<int> into{};
        std::set<int> from{};
        for (int s = 0; s != model.stage_count(); ++s) {
            int run = s;
            while (run > 0 &&
                   stages[static_cast<std::size_t>(run) - 1].device == stages[static_cast<std::size_t>(s)].device) {
                --run;
            }
            CHECK(model.conditioning_run(s) == run);
            int before = -1;
            for (const int e : model.edges_into(s)) {
                CHECK(e > before);
                before = e;
                CHECK(model.target_stage(e) == s);
                CHECK(into.insert(e).second);
            }
            for (const int e : model.edges_from(s)) {
                CHECK(model.source_stage(e) == s);
                CHECK(from.insert(e).second);
            }
        }
        CHECK(into.size() == c.costs.skips.size());
        CHECK(from.size() == c.costs.skips.size());
        for (int e = 0; e != model.edge_count(); ++e) {
            CHECK(int{model.is_inside(e)} + int{model.is_local(e)} + int{model.is_crossing(e)} == 1);
        }
    }
}

TEST_CASE("the two sides of a message correspond part by part") {
    random_plans make{72};
    for (int i = 0; i != 500; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        for (const auto& message : model.messages(pulse::microbatch_id{0})) {
            const int from = model.sender(message);
            const int to = model.receiver(message);
            CHECK(from != to);
            const auto sent = model.parts(message, from);
            const auto received = model.parts(message, to);
            REQUIRE(sent.size() == received.size());
            std::set<pulse::buffer_id> distinct{};
            for (std::size_t k = 0; k != sent.size(); ++k) {
                CHECK(distinct.insert(received[k]).second);
                CHECK(model.bytes(sent[k]) == model.bytes(received[k]));
                const bool is_skip =
                    received[k].kind == buffer_kind::skip || received[k].kind == buffer_kind::skip_gradient;
                CHECK(model.is_skip_part(message, k) == is_skip);
                if (received[k].kind == buffer_kind::skip && sent[k].kind == buffer_kind::activation) {
                    CHECK(model.edge(received[k].index).from == sent[k].index);
                } else {
                    CHECK(sent[k].kind == received[k].kind);
                    if (sent[k].kind != buffer_kind::conditioning &&
                        sent[k].kind != buffer_kind::conditioning_gradient) {
                        CHECK(sent[k].index == received[k].index);
                    }
                }
            }
        }
    }
}
