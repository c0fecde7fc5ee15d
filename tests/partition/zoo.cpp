#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/validate.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "../support/check_both.hpp"
#include "exhaustive.hpp"

namespace {

using namespace pulse;

constexpr auto cifar10 = graph_of<ddpm_cifar10>();
constexpr auto fmnist = graph_of<ddpm_fmnist>();

/// What a static_assert can hold of a partition over P devices: a vector may not leave the constant expression.
template <int P>
struct fold {
    std::array<stage, 2 * P> stages{};
    double balance{};
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
};

template <int P>
constexpr fold<P> fold_of(const graph_view& graph) {
    const cost_table costs = analytic_costs(graph, cpu_core, 16, 4);
    const partition cut = skip_aware_partition(costs, P, 1, {.slack = 0.05});
    check_partition(cut, costs);
    const partition_report report = report_of(cut, costs);
    fold<P> out{};
    for (std::size_t s = 0; s != out.stages.size(); ++s) { out.stages[s] = cut.stages[s]; }
    out.balance = report.balance;
    out.boundary_bytes = report.bytes.boundary();
    out.skip_bytes = report.bytes.skip();
    return out;
}

constexpr std::int64_t relayed_bytes(const graph_view& graph, int devices) {
    const cost_table costs = analytic_costs(graph, cpu_core, 16, 4);
    return traffic_of(sequential_partition(costs, devices, {.slack = 0.05}), costs, skip_routing::relayed).total();
}

} // namespace

TEST_SUITE("constexpr") {
    TEST_CASE("the whole partition of ddpm_cifar10 at P=4 is made while compiling") {
        constexpr fold<4> cut = fold_of<4>(cifar10.view());
        static_assert(cut.stages.front().first_layer == 0);
        static_assert(cut.stages.back().last_layer == static_cast<int>(cifar10.layers.size()) - 1);
        static_assert(cut.skip_bytes == 0);
        static_assert(cut.balance > 0.9);
        static_assert(100 * cut.boundary_bytes <= 37 * relayed_bytes(cifar10.view(), 4));
        // The compiled program finds the same cut as the compiler.
        const fold<4> at_run_time = fold_of<4>(cifar10.view());
        CHECK(at_run_time.stages == cut.stages);
        CHECK(at_run_time.boundary_bytes == cut.boundary_bytes);
    }
}

TEST_CASE("the backbones fold over every number of devices that has a cut, with no skip byte on a link") {
    for (const graph_view& graph : {fmnist.view(), cifar10.view()}) {
        const cost_table costs = analytic_costs(graph, cpu_core, 16, 4);
        const double total = report_of(skip_aware_partition(costs, 1), costs).max_load_us;
        double before = total * 1.001;
        for (int devices = 1; devices <= 8; ++devices) {
            CAPTURE(graph.model.str());
            CAPTURE(devices);
            const partition cut = skip_aware_partition(costs, devices);
            check_partition(cut, costs);
            const partition_report report = report_of(cut, costs);
            CHECK(report.bytes.skip() == 0);
            CHECK(report.max_load_us >= total / devices * (1.0 - 1e-12));
            CHECK(report.max_load_us <= before); // a further device may not help, but does no harm here
            before = report.max_load_us;
        }
    }
}

TEST_CASE("the cuts of the backbones between whole layers are those of exhaustive search") {
    static constexpr auto whole_fmnist = uncut_graph_of<ddpm_fmnist>();
    static constexpr auto whole_cifar10 = uncut_graph_of<ddpm_cifar10>();
    for (const graph_view& graph : {whole_fmnist.view(), whole_cifar10.view()}) {
        cost_table costs = analytic_costs(graph, cpu_core, 16, 4);
        // Multiples of 1/1024, so that sums are exact in any order.
        for (layer_cost& layer : costs.layers) {
            layer.forward_us = std::round(layer.forward_us * 1024.0) / 1024.0;
            layer.backward_input_us = std::round(layer.backward_input_us * 1024.0) / 1024.0;
            layer.backward_weight_us = std::round(layer.backward_weight_us * 1024.0) / 1024.0;
        }
        for (const double slack : {0.0, 0.3}) {
            const partition_report ours = report_of(skip_aware_partition(costs, 3, 1, {.slack = slack}), costs);
            const partition_report best = report_of(*test::exhaustive_partition(costs, 3, 1, {.slack = slack}), costs);
            CHECK(ours.max_load_us == best.max_load_us);
            CHECK(ours.bytes == best.bytes);
            CHECK(ours.imbalance_us == best.imbalance_us);
        }
    }
}

TEST_CASE("folding ddpm_fmnist over four devices, between layers, sends at least 66% fewer bytes than relayed skips") {
    static constexpr auto whole = uncut_graph_of<ddpm_fmnist>();
    const cost_table costs = analytic_costs(whole.view(), cpu_core, 16, 4);
    const std::int64_t relayed = traffic_of(sequential_partition(costs, 4), costs, skip_routing::relayed).total();
    const auto folded = [&costs](double slack) {
        return traffic_of(skip_aware_partition(costs, 4, 1, {.slack = slack}), costs, skip_routing::direct).total();
    };
    CHECK(100 * folded(0.0) <= 34 * relayed);
    // Slack never costs bytes, and enough slack moves boundaries to smaller images.
    CHECK(folded(0.1) <= folded(0.0));
    CHECK(folded(0.3) <= folded(0.1));
    CHECK(100 * folded(0.3) <= 25 * relayed);
}
