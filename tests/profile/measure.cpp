#include <pulse/profile/measure.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/model/graph.hpp>

namespace {

using namespace pulse;

constexpr std::array<layer_node, 3> three{layer_node{"a", 8, 16, 5, 3, 1, 2, 1.0},
                                          layer_node{"b", 16, 4, 0, 0, 0, 0, 1.0},
                                          layer_node{"c", 4, 2, 7, 0, 0, 0, 1.0}};
constexpr std::array<skip_link, 1> skips{skip_link{0, 2, 6}};
constexpr graph_view graph{"three", three, skips, 9};

/// A clock that only the fake runner advances.
struct fake_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<fake_clock>;
    static inline duration elapsed{};
    static time_point now() { return time_point{elapsed}; }
    static void pass_us(double us) { elapsed += duration{static_cast<rep>(us * 1000.0)}; }
};

using call = std::pair<int, pass>;
constexpr auto F = pass::forward;
constexpr auto B = pass::backward_input;
constexpr auto W = pass::backward_weight;

// The passes of one training step of `three`; layer b has no parameters.
const std::vector<call> step{{0, F}, {1, F}, {2, F}, {2, B}, {2, W}, {1, B}, {0, B}, {0, W}};

} // namespace

TEST_CASE("every pass gets the median of its timed runs, and bytes come with it") {
    std::vector<call> calls;
    // Sweep i of the eight passes: true duration 10 x (place in the step + 1), times 100 during warm-up and times 7 in
    // two of the five timed sweeps; the median must ignore both.
    const auto run = [&calls](int layer, pass op) {
        const std::size_t sweep = calls.size() / step.size();
        const std::size_t place = calls.size() % step.size();
        calls.emplace_back(layer, op);
        const double factor = sweep < 3 ? 100.0 : sweep == 4 || sweep == 5 ? 7.0 : 1.0;
        fake_clock::pass_us(factor * 10.0 * static_cast<double>(place + 1));
    };
    const cost_table table = measure_costs<fake_clock>(graph, 2, 4, "fake", run, {.warm_up_sweeps = 3, .sweeps = 5});
    REQUIRE(calls.size() == 8 * step.size());
    for (std::size_t c = 0; c != calls.size(); ++c) { CHECK(calls[c] == step[c % step.size()]); }
    for (std::size_t place = 0; place != step.size(); ++place) {
        const auto& [layer, op] = step[place];
        const layer_cost& cost = table.layers[static_cast<std::size_t>(layer)];
        const double us = op == F ? cost.forward_us : op == B ? cost.backward_input_us : cost.backward_weight_us;
        CHECK(us == 10.0 * static_cast<double>(place + 1));
    }
    CHECK(table.layers[1].backward_weight_us == 0.0);

    cost_table bytes = table;
    for (layer_cost& cost : bytes.layers) { cost.forward_us = cost.backward_input_us = cost.backward_weight_us = 0.0; }
    cost_table expected = blank_costs(graph, 2, 4);
    expected.device = "fake";
    CHECK(bytes == expected);
}

TEST_CASE("a runner that says how long a pass took is believed, whatever the clock says") {
    const auto run = [](int layer, pass op) {
        fake_clock::pass_us(1000.0);
        return 10.0 * layer + static_cast<double>(op) + 1.0;
    };
    const cost_table table = measure_costs<fake_clock>(graph, 1, 4, "fake", run, {.warm_up_sweeps = 0, .sweeps = 3});
    for (std::size_t l = 0; l != table.layers.size(); ++l) {
        CHECK(table.layers[l].forward_us == 10.0 * static_cast<double>(l) + 1.0);
        CHECK(table.layers[l].backward_input_us == 10.0 * static_cast<double>(l) + 2.0);
    }
    CHECK(table.layers[2].backward_weight_us == 23.0);
}

TEST_CASE("an even number of sweeps gives the mean of the middle two") {
    int sweep = 0;
    const auto run = [&sweep](int layer, pass op) {
        fake_clock::pass_us(std::array{40.0, 10.0, 1000.0, 20.0}[static_cast<std::size_t>(sweep)]);
        if (layer == 0 && op == W) { ++sweep; }
    };
    const cost_table table = measure_costs<fake_clock>(graph, 1, 4, "fake", run, {.warm_up_sweeps = 0, .sweeps = 4});
    for (const layer_cost& cost : table.layers) { CHECK(cost.forward_us == 30.0); }
}

TEST_CASE("where others use the core now and then, all passes together take as long as the median sweep") {
    // In each sweep a different pass is delayed by 800 us.
    std::size_t calls = 0;
    const auto run = [&calls](int, pass) {
        const std::size_t sweep = calls / step.size();
        fake_clock::pass_us(calls % step.size() == sweep % step.size() ? 900.0 : 100.0);
        ++calls;
    };
    const cost_table table = measure_costs<fake_clock>(graph, 1, 4, "fake", run, {.warm_up_sweeps = 0, .sweeps = 5});
    for (const layer_cost& cost : table.layers) { CHECK(cost.forward_us == 200.0); }
}

TEST_CASE("a busy runner is timed on the real clock") {
    // The duration on a busy machine is unknown, but five of nine measurements are at least their median.
    using clock = std::chrono::steady_clock;
    const auto run = [](int layer, pass) {
        const auto until = clock::now() + std::chrono::microseconds{layer == 1 ? 2000 : 200};
        while (clock::now() < until) {}
    };
    const auto begun = clock::now();
    const cost_table table = measure_costs(graph, 1, 4, "busy", run, {.warm_up_sweeps = 1, .sweeps = 9});
    const double elapsed = std::chrono::duration<double, std::micro>(clock::now() - begun).count();
    CHECK(table.layers[0].forward_us >= 200.0);
    CHECK(table.layers[1].forward_us >= 2000.0);
    CHECK(5 * (table.layers[0].forward_us + table.layers[1].forward_us) <= elapsed);
}

TEST_CASE("bad options are refused and a runner's error passes through") {
    const auto run = [](int, pass) {};
    const auto refused = [&run](const measure_options& options) {
        try {
            static_cast<void>(measure_costs(graph, 1, 4, "fake", run, options));
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"accepted"};
    };
    CHECK(refused({.warm_up_sweeps = 0, .sweeps = 1}) == "accepted");
    CHECK(refused({.warm_up_sweeps = -1}) == "measure: warm_up_sweeps must be at least 0");
    CHECK(refused({.sweeps = 0}) == "measure: sweeps must be at least 1");
    const auto failing = [](int layer, pass) {
        if (layer == 2) { throw std::runtime_error("layer 2"); }
    };
    CHECK_THROWS_WITH_AS(static_cast<void>(measure_costs(graph, 1, 4, "fake", failing)), "layer 2", std::runtime_error);
}
