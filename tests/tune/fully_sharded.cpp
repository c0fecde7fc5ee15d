// The baseline of bench_paper: laws that any model of its time must satisfy.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/profile/cost_table.hpp>

#include "../../bench/fully_sharded.hpp"

using namespace pulse;
using pulse_bench::gathered;
using pulse_bench::reduced;
using pulse_bench::sharded_step;
using pulse_bench::sharding;
using pulse_bench::step_of;
using pulse_bench::tune_sharding;

namespace {

struct sharded_case {
    cost_table costs{};
    cluster machine{};
    sharding how{};
    double load_us{};
    std::int64_t parameter_bytes{};
};

/// Layers of 10 us per pass and 8000 bytes of parameters.
cost_table equal_layers(std::size_t count) {
    layer_cost layer{};
    layer.forward_us = layer.backward_input_us = layer.backward_weight_us = 10;
    layer.parameter_bytes = 8000;
    cost_table costs{};
    costs.layers.assign(count, layer);
    return costs;
}

/// Some layers without parameters, one skip over all, one to four nodes, every choice of `sharding`.
template <class Check>
void for_each_case(Check check) {
    std::mt19937 draw{7};
    const auto up_to = [&](int most) { return static_cast<int>(draw() % static_cast<unsigned>(most + 1)); };
    for (int n = 0; n != 400; ++n) {
        sharded_case c{};
        const int layers = 2 + up_to(8);
        c.costs.input_bytes = 100;
        for (int l = 0; l != layers; ++l) {
            layer_cost layer{};
            layer.forward_us = 1 + up_to(20);
            layer.backward_input_us = 1 + up_to(20);
            layer.parameter_bytes = up_to(3) == 0 ? 0 : 1000 * (1 + up_to(50));
            layer.backward_weight_us = layer.parameter_bytes > 0 ? 1 + up_to(20) : 0;
            layer.saved_bytes = up_to(1000);
            layer.output_bytes = up_to(1000);
            c.costs.layers.push_back(layer);
            c.parameter_bytes += layer.parameter_bytes;
        }
        c.costs.skips.push_back({0, layers - 1, 10});
        c.machine.nodes = 1 + up_to(3);
        c.machine.devices_per_node = 1 + up_to(7);
        c.machine.intra_node = {.latency_us = 0.1 * up_to(20), .bandwidth_gb_per_s = 1.0 + up_to(10)};
        c.machine.inter_node = {.latency_us = 0.1 * up_to(50), .bandwidth_gb_per_s = 0.2 + 0.1 * up_to(10)};
        c.how.hybrid = up_to(1) == 1;
        c.how.microbatches = 1 + up_to(3);
        c.how.keeps = static_cast<gathered>(up_to(2));
        c.how.when = static_cast<reduced>(up_to(2));
        c.how.recompute = up_to(1) == 1;
        c.how.ahead = 1 + up_to(1);
        for (const layer_cost& l : c.costs.layers) { c.load_us += l.load_us() + (c.how.recompute ? l.forward_us : 0); }
        c.load_us *= c.how.microbatches;
        check(c);
    }
}

} // namespace

TEST_CASE("fully sharded: one device, and links without limits, take the time of the passes") {
    for_each_case([](sharded_case c) {
        cluster one = c.machine;
        one.nodes = one.devices_per_node = 1;
        const sharded_step alone = step_of(c.costs, one, {}, c.how);
        CHECK(alone.step_us == doctest::Approx(c.load_us));
        CHECK(alone.sent_bytes == 0);
        c.machine.intra_node = c.machine.inter_node = {};
        CHECK(step_of(c.costs, c.machine, {}, c.how).step_us == doctest::Approx(c.load_us));
    });
}

TEST_CASE("fully sharded: a step is as long as each of its queues, and not longer than all of them") {
    for_each_case([](const sharded_case& c) {
        const sharded_step step = step_of(c.costs, c.machine, {.memory_gb_per_s = 1.0}, c.how);
        CHECK(step.compute_us >= doctest::Approx(c.load_us));
        for (const double queue : {step.compute_us, step.inside_us, step.across_us}) {
            CHECK(step.step_us >= doctest::Approx(queue));
        }
        CHECK(step.step_us <= doctest::Approx(step.compute_us + step.inside_us + step.across_us));
    });
}

TEST_CASE("fully sharded: a faster link is never slower") {
    for_each_case([](sharded_case c) {
        const double before = step_of(c.costs, c.machine, {}, c.how).step_us;
        cluster faster = c.machine;
        faster.intra_node.bandwidth_gb_per_s *= 1.7;
        CHECK(step_of(c.costs, faster, {}, c.how).step_us <= doctest::Approx(before));
        faster = c.machine;
        faster.inter_node.bandwidth_gb_per_s *= 1.7;
        faster.inter_node.latency_us *= 0.5;
        CHECK(step_of(c.costs, faster, {}, c.how).step_us <= doctest::Approx(before));
    });
}

TEST_CASE("fully sharded: every copy of the parameters that is sent costs its bytes") {
    // Four layers of 8000 bytes on two nodes of four devices: a ring of eight sends 7/8 of each layer, a ring of four
    // 3/4, and each device all-reduces its quarter over the two nodes.
    const cost_table costs = equal_layers(4);
    const cluster machine{.nodes = 2,
                          .devices_per_node = 4,
                          .intra_node = {.latency_us = 0, .bandwidth_gb_per_s = 4.0},
                          .inter_node = {.latency_us = 0, .bandwidth_gb_per_s = 0.5}};
    sharding how{.microbatches = 3};
    const auto units_sent = [&] {
        const sharded_step step = step_of(costs, machine, {}, how);
        CHECK(step.sent_bytes % 7000 == 0);
        CHECK(step.inside_us == doctest::Approx(static_cast<double>(step.sent_bytes) / 0.5e3));
        return step.sent_bytes / 7000;
    };
    // Forward and backward gather, except for a pass that follows one of the same unit.
    CHECK(units_sent() == 3 * (4 + 3 + 4) - 2);
    how.keeps = gathered::microbatch;
    CHECK(units_sent() == 3 * (4 + 4) - 2);
    how.keeps = gathered::step;
    CHECK(units_sent() == 4 + 3 * 4);
    how.when = reduced::last;
    CHECK(units_sent() == 4 + 4);

    how.hybrid = true;
    sharded_step step = step_of(costs, machine, {}, how);
    CHECK(step.sent_bytes == 8 * 6000 + 4 * 2000);
    CHECK(step.inside_us == doctest::Approx(8 * 6000 / 4e3));
    CHECK(step.across_us == doctest::Approx(4 * 4 * 2000 / 0.5e3));
    how.when = reduced::inside;
    CHECK(step_of(costs, machine, {}, how).across_us == step.across_us);
    how.when = reduced::every;
    CHECK(step_of(costs, machine, {}, how).across_us == doctest::Approx(3 * step.across_us));
}

TEST_CASE("fully sharded: units are gathered as far ahead as is said, and two wait for their reduction at most") {
    cost_table costs = equal_layers(3);
    // A gather or a scatter takes 7 x 2 us.
    cluster machine{.devices_per_node = 8, .intra_node = {.latency_us = 0, .bandwidth_gb_per_s = 0.5}};
    sharding how{};
    CHECK(step_of(costs, machine, {}, how).step_us == doctest::Approx(134));
    how.ahead = 2;
    CHECK(step_of(costs, machine, {}, how).step_us == doctest::Approx(126));
    // 7 x 10 us: the last gather waits for the second forward, at 170; the first backward ends at 270; the last
    // backward waits for the scatter of its gradients, at 340.
    machine.intra_node.bandwidth_gb_per_s = 0.1;
    how.keeps = gathered::microbatch;
    how.ahead = 1;
    costs.layers[0].forward_us = 100;
    costs.layers[0].backward_weight_us = 190;
    const sharded_step step = step_of(costs, machine, {}, how);
    CHECK(step.inside_us == doctest::Approx(6 * 70));
    CHECK(step.step_us == doctest::Approx(340 + 200 + 70));
}

TEST_CASE("fully sharded: what is kept longer, or by fewer devices, takes more memory") {
    for_each_case([](sharded_case c) {
        const auto peak = [&] { return step_of(c.costs, c.machine, {}, c.how).peak_bytes; };
        c.how.recompute = false;
        const std::int64_t whole_graph = peak();
        c.how.recompute = true;
        CHECK(peak() <= whole_graph);
        c.how.keeps = gathered::pass;
        const std::int64_t twice = peak();
        c.how.keeps = gathered::microbatch;
        CHECK(peak() >= twice);
        c.how.hybrid = false;
        const std::int64_t whole = peak();
        c.how.hybrid = true;
        if (c.machine.devices_per_node > 1) { CHECK(peak() >= whole); }
        CHECK(whole >= c.parameter_bytes * 8 / c.machine.devices());
    });
}

TEST_CASE("fully sharded: the tuned one fits, and no other choice is faster") {
    for_each_case([](const sharded_case& c) {
        const int batch = c.machine.devices() * 4;
        cluster machine = c.machine;
        const auto costs_of = [&](int size) {
            cost_table costs = c.costs;
            for (layer_cost& l : costs.layers) { l.saved_bytes *= size; }
            return costs;
        };
        sharding how = c.how;
        how.microbatches = 4;
        const sharded_step one = step_of(costs_of(1), machine, {}, how);
        machine.memory_bytes = one.peak_bytes;
        const auto best = tune_sharding(costs_of, machine, {}, batch, how.hybrid);
        REQUIRE(best.has_value());
        CHECK(best->step.peak_bytes <= machine.memory_bytes);
        CHECK(best->step.step_us <= one.step_us);
        machine.memory_bytes = 1;
        CHECK(!tune_sharding(costs_of, machine, {}, batch, how.hybrid).has_value());
    });
}
