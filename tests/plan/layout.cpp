#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/backend_scratch.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/planned.hpp>

using pulse::buffer_place;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

bool is_in_block(const buffer_place& p) {
    return p.buffer.kind == pulse::buffer_kind::saved || p.buffer.kind == pulse::buffer_kind::deferred;
}

/// The buffer's only place at that moment; null if there is none or more than one.
const buffer_place* place_at(const pulse::memory_layout& layout, const pulse::buffer_id& buffer, int moment) {
    const buffer_place* found = nullptr;
    for (const auto& p : layout.places) {
        if (p.buffer != buffer || moment < p.first || moment > p.last) { continue; }
        if (found != nullptr) { return nullptr; }
        found = &p;
    }
    return found;
}

} // namespace

TEST_CASE("places never overlap, lie inside their memory, and hold every access") {
    random_plans make{31};
    for (int i = 0; i != 250; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const auto programs = pulse::lower(c.planned, model);
        const auto report = pulse::check(c.planned, model, programs);
        REQUIRE(report.ok());
        for (const auto& program : programs) {
            CAPTURE(i);
            CAPTURE(program.device);
            const pulse::memory_layout layout = pulse::lay_out(model, program);
            for (const auto& p : layout.places) {
                CHECK(p.bytes == model.bytes(p.buffer));
                CHECK(p.first < p.last);
                if (is_in_block(p)) {
                    CHECK(p.slot == -1);
                    CHECK(p.offset >= 0);
                    CHECK(p.offset % 64 == 0);
                    CHECK(p.offset + p.bytes <= layout.block_bytes);
                } else {
                    REQUIRE(p.slot >= 0);
                    REQUIRE(p.slot < static_cast<int>(layout.slot_bytes.size()));
                    CHECK(layout.slot_bytes[static_cast<std::size_t>(p.slot)] == p.bytes);
                }
                for (const auto& q : layout.places) {
                    if (&p == &q || q.last < p.first || p.last < q.first) { continue; }
                    CHECK(p.buffer != q.buffer);
                    if (!is_in_block(p)) {
                        CHECK(p.slot != q.slot);
                    } else if (is_in_block(q) && p.bytes > 0 && q.bytes > 0) {
                        CHECK((p.offset + p.bytes <= q.offset || q.offset + q.bytes <= p.offset));
                    }
                }
            }
            for (std::size_t at = 0; at != program.instructions.size(); ++at) {
                for (const auto& a : model.accesses(program.device, program.instructions[at])) {
                    const buffer_place* p = place_at(layout, a.buffer, static_cast<int>(at));
                    REQUIRE(p != nullptr);
                    CHECK((a.mode == pulse::access::write) == (p->first == static_cast<int>(at)));
                }
                if (const auto* r = std::get_if<pulse::op::release>(&program.instructions[at])) {
                    const buffer_place* p = place_at(layout, r->buffer, static_cast<int>(at));
                    REQUIRE(p != nullptr);
                    CHECK(p->last == static_cast<int>(at));
                }
            }
            CHECK(layout.live_peak_bytes == report.live_peak_bytes[static_cast<std::size_t>(program.device)]);
            CHECK(layout.total_bytes() >= layout.live_peak_bytes + layout.workspace_bytes);
            CHECK(layout.block_bytes >= layout.block_bound_bytes);
        }
    }
}

TEST_CASE("the block is packed close to its lower bound, and slots are as few as can be") {
    random_plans make{32};
    std::int64_t used = 0;
    std::int64_t bound = 0;
    for (int i = 0; i != 300; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        for (const auto& program : pulse::lower(c.planned, model)) {
            const pulse::memory_layout layout = pulse::lay_out(model, program);
            used += layout.block_bytes;
            bound += layout.block_bound_bytes;
            // For each size, as many slots as values of that size are alive at one time.
            std::map<std::int64_t, int> slots{};
            for (const auto bytes : layout.slot_bytes) { ++slots[bytes]; }
            for (const auto& [bytes, count] : slots) {
                int most = 0;
                for (std::size_t at = 0; at != program.instructions.size(); ++at) {
                    const int now = static_cast<int>(at);
                    most = std::max(most, static_cast<int>(std::count_if(layout.places.begin(), layout.places.end(),
                                                                         [&, size = bytes](const auto& p) {
                                                                             return p.slot >= 0 && p.bytes == size &&
                                                                                    p.first <= now && now <= p.last;
                                                                         })));
                }
                CHECK(count == most);
            }
        }
    }
    MESSAGE("block bytes over their bound: " << static_cast<double>(used) / static_cast<double>(bound));
    CHECK(used <= bound + bound / 20);
}

TEST_CASE("tensors inside a stage's blocks do not overlap while both are needed") {
    random_plans make{33};
    for (int i = 0; i != 500; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        for (int s = 0; s != model.stage_count(); ++s) {
            const pulse::stage_footprint& f = model.footprint(s);
            struct span {
                std::int64_t offset, bytes;
                int born, dies; // in B's steps over the layers, last to first
            };
            std::vector<span> saved{};
            std::vector<span> deferred{};
            CHECK((f.input >= 0) == (s == 0));
            if (s == 0) { saved.push_back({f.input, c.costs.input_bytes, 0, 0}); }
            const int last = model.last_layer(s);
            for (int l = model.first_layer(s); l <= last; ++l) {
                const auto& at = f.of_layer(l);
                const auto& cost = model.layer(l);
                CHECK((at.output >= 0) == !model.held_apart(l));
                CHECK((at.output_gradient >= 0) == (l < last));
                saved.push_back({at.saved, cost.saved_bytes, 0, 0});
                if (at.output >= 0) { saved.push_back({at.output, cost.output_bytes, 0, 0}); }
                // Split: alive until W. Unsplit: layer l + 1 makes a gradient and layer l reads it; deferred lives in
                // layer l.
                const bool split = c.planned.split_backward;
                const int step = last - l;
                // The gradient at a residual's end is also read at its start.
                int opened = l;
                if (cost.open_bytes == 0) {
                    while (opened > model.first_layer(s) && model.layer(opened - 1).open_bytes != 0) { --opened; }
                }
                if (l < last) {
                    deferred.push_back(
                        {at.output_gradient, cost.output_bytes, split ? 0 : step - 1, split ? 0 : last - opened});
                }
                deferred.push_back({at.deferred, cost.deferred_bytes, split ? 0 : step, split ? 0 : step});
            }
            const auto apart = [](const std::vector<span>& all, std::int64_t end) {
                for (const auto& a : all) {
                    CHECK(a.offset >= 0);
                    CHECK(a.offset % 64 == 0);
                    CHECK(a.offset + a.bytes <= end);
                    for (const auto& b : all) {
                        if (&a == &b || a.dies < b.born || b.dies < a.born || a.bytes == 0 || b.bytes == 0) {
                            continue;
                        }
                        CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
                    }
                }
            };
            apart(saved, f.saved_bytes);
            apart(deferred, f.deferred_bytes);
            CHECK(f.saved_bytes == model.bytes({pulse::buffer_kind::saved, s, {}}));
            CHECK(f.deferred_bytes == model.bytes({pulse::buffer_kind::deferred, s, {}}));
        }
        for (int d = 0; d != model.device_count(); ++d) {
            std::int64_t largest = 0;
            for (const auto& s : c.planned.cut.stages) {
                for (int l = s.first_layer; s.device == d && l <= s.last_layer; ++l) {
                    const pulse::layer_cost& cost = c.costs.layers[static_cast<std::size_t>(l)];
                    const std::int64_t own = cost.workspace_bytes;
                    const std::int64_t padded = (own + 63) / 64 * 64;
                    // A recompute of stage 0 leaves the recomputed conditioning behind layer 0's scratch.
                    largest = std::max(largest, l > 0 ? own : padded + c.costs.conditioning_bytes);
                    // A recompute of a whole stage leaves its output behind its last layer's scratch, except for the
                    // last stage, whose output belongs to the loss.
                    if (!c.planned.recompute.is_whole(s.index) || l != s.last_layer) { continue; }
                    if (s.index + 1 != model.stage_count()) {
                        largest = std::max(largest, padded + cost.output_bytes + cost.open_bytes);
                    }
                }
            }
            CHECK(pulse::workspace_bytes_of(model, d) == largest);
        }
    }
}

TEST_CASE("a program whose lifetimes are broken has no layout") {
    random_plans make{34};
    const planned_model c = make();
    const pulse::step_model model{c.planned, c.costs};
    const auto programs = pulse::lower(c.planned, model);
    pulse::program damaged = programs[0];
    const auto release = std::find_if(damaged.instructions.begin(), damaged.instructions.end(),
                                      [](const auto& i) { return std::holds_alternative<pulse::op::release>(i); });
    damaged.instructions.insert(release, *release);
    CHECK_THROWS_WITH_AS((void)pulse::lay_out(model, damaged), doctest::Contains("rank 0, instruction"),
                         pulse::input_error);
    damaged = programs[0];
    damaged.instructions.erase(
        std::find_if(damaged.instructions.begin(), damaged.instructions.end(),
                     [](const auto& i) { return std::holds_alternative<pulse::op::release>(i); }));
    CHECK_THROWS_AS((void)pulse::lay_out(model, damaged), pulse::input_error);
    damaged = programs[0];
    damaged.instructions.erase(damaged.instructions.begin());
    CHECK_THROWS_AS((void)pulse::lay_out(model, damaged), pulse::input_error);
}

TEST_CASE("a backend's scratch is in the peak of every device, that of frozen networks where they are") {
    random_plans make{36};
    for (int i = 0; i != 60; ++i) {
        planned_model c = make();
        for (std::size_t l = 0; l != c.costs.layers.size(); ++l) {
            c.costs.layers[l].parameter_bytes = static_cast<std::int64_t>(37 * l % 11 * 40);
            c.costs.layers[l].frozen_parameter_bytes = static_cast<std::int64_t>(l % 3 * 400);
        }
        pulse::parameter_memory kept = pulse::adamw_memory(4);
        kept.beside_last_stage = 1;
        const auto without = pulse::peak_bytes(c.planned, c.costs, kept);
        kept.scratch = {.library_bytes = 1'000'000,
                        .copies_of_weights = 1,
                        .copies_of_tensors = 2,
                        .partial_bytes = 10'000'000,
                        .frozen_bytes = 100'000'000};
        const auto with = pulse::peak_bytes(c.planned, c.costs, kept);
        // With two extents, the memory is what the larger one needs.
        pulse::planned both{.plan = c.planned, .costs = c.costs, .kept = kept};
        both.others.push_back({{{}, 0.5, c.planned}, c.costs});
        both.costs.input_bytes += 1'000'000;
        CHECK(pulse::peak_bytes(both) == pulse::peak_bytes(c.planned, both.costs, kept));
        const int last = c.planned.cut.stages.back().device;
        for (std::size_t d = 0; d != with.size(); ++d) {
            std::int64_t most = 0;
            for (const pulse::stage& s : c.planned.cut.stages) {
                for (int l = s.first_layer; l <= s.last_layer && s.device == static_cast<int>(d); ++l) {
                    const auto& layers = c.costs.layers;
                    const auto at = static_cast<std::size_t>(l);
                    std::int64_t read = l == 0 ? c.costs.input_bytes : layers[at - 1].output_bytes;
                    for (const auto& edge : c.costs.skips) { read += edge.to == l ? edge.bytes : 0; }
                    const std::int64_t weights = layers[at].parameter_bytes + layers[at].frozen_parameter_bytes;
                    const std::int64_t tensor = 2 * std::max(read, layers[at].output_bytes);
                    most = std::max(most, weights + tensor);
                }
            }
            const bool encodes = static_cast<int>(d) == last && last != c.planned.cut.stages.front().device;
            CHECK(with[d] - without[d] == 11'000'000 + most + 8 * 256 + (encodes ? 101'000'000 + 8 * 256 : 0));
        }
    }
    for (const auto member : {&pulse::backend_scratch::library_bytes, &pulse::backend_scratch::partial_bytes,
                              &pulse::backend_scratch::frozen_bytes}) {
        pulse::parameter_memory wrong = pulse::adamw_memory(4);
        wrong.scratch.*member = -1;
        CHECK_THROWS_AS(pulse::check_parameter_memory(wrong), pulse::input_error);
    }
}

TEST_CASE("what is kept beside the first and the last stage is in the peaks of their devices, once where that is one") {
    random_plans make{35};
    int alone = 0;
    for (int i = 0; i != 60; ++i) {
        const planned_model c = make();
        const auto without = pulse::peak_bytes(c.planned, c.costs, pulse::adamw_memory(4));
        pulse::parameter_memory kept = pulse::adamw_memory(4);
        kept.beside_first_stage = 1000;
        kept.beside_last_stage = 10;
        const auto with = pulse::peak_bytes(c.planned, c.costs, kept);
        const int first = c.planned.cut.stages.front().device;
        const int last = c.planned.cut.stages.back().device;
        alone += first == last ? 0 : 1;
        for (std::size_t d = 0; d != with.size(); ++d) {
            const int device = static_cast<int>(d);
            CHECK(with[d] - without[d] == (device == first ? 1000 : device == last ? 10 : 0));
        }
    }
    CHECK(alone > 5);
    for (const auto member :
         {&pulse::parameter_memory::beside_first_stage, &pulse::parameter_memory::beside_last_stage}) {
        pulse::parameter_memory wrong = pulse::adamw_memory(4);
        wrong.*member = -1;
        CHECK_THROWS_AS(pulse::check_parameter_memory(wrong), pulse::input_error);
    }
}
