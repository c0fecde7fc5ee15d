#include "frozen_measure.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <pulse/hardware/clusters.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/plan_for.hpp>

#include "statistics.hpp"
#include "text_table.hpp"
#include "timed_model.hpp"

namespace pulse_bench {

namespace {

using nlohmann::ordered_json;
using pulse::frozen_mode;
using clock_type = std::chrono::steady_clock;
using backbone = timed<16, 1024, 7>;
using math = pulse::reference::backend<float>;

constexpr int encoder_layers = 8;

/// A task whose encoder sleeps for its planned time and does nothing else.
struct encoding_task : timed_task {
    const pulse::frozen_component& component;

    void encode(const pulse::encoding& call) const {
        backbone::take(component.duration_us(call.what.first_layer, call.what.last_layer, call.what.samples));
    }
    static void encoded(const pulse::encoded_results&) {}
};

/// Uneven layers, and an encoder of 40 % of their load.
pulse::cost_table costs_of(double scale) {
    double load = 0;
    for (std::size_t l = 0; l != backbone::times.size(); ++l) {
        const double us = scale * (1500 + 300 * static_cast<double>(l * 7 % 5));
        backbone::times[l] = {us, us * 1.1, us * 0.8};
        load += 2.9 * us;
    }
    pulse::cost_table costs = backbone::costs();
    pulse::frozen_component encoder{"encoder", pulse::frozen_use::input, 64, 64, 1, {}};
    for (int l = 0; l != encoder_layers; ++l) {
        encoder.layers.push_back({pulse::label{"encoder_"} + static_cast<unsigned>(l), 0,
                                  0.4 * load / encoder_layers * (l % 2 == 0 ? 1.4 : 0.6), 0, 64, 128});
    }
    costs.frozen.push_back(encoder);
    return costs;
}

struct measured_step {
    double measured_ms{};
    double simulated_ms{};
};

/// Median step, after one that does not count.
measured_step step_of(const pulse::plan& plan, const pulse::cost_table& costs, int steps) {
    std::vector<double> seen{};
    pulse::threads::run_ranks(plan.pipeline_degree, {}, [&](pulse::threads::transport& transport) {
        wake_on_time();
        math on;
        pulse::executor<backbone::model, math> rank{on, transport, plan, costs};
        const pulse::frozen_component none{};
        encoding_task task{{}, costs.frozen.empty() ? none : costs.frozen.front()};
        for (int s = -1; s != steps; ++s) {
            transport.sum({});
            const auto start = clock_type::now();
            rank.step(task);
            transport.sum({});
            const std::chrono::duration<double, std::milli> took = clock_type::now() - start;
            if (s >= 0 && transport.rank() == 0) { seen.push_back(took.count()); }
        }
    });
    const pulse::step_model model{plan, costs};
    return {median(seen), simulate(plan, model, pulse::lower(plan, model), {}).step_us * 1e-3};
}

pulse::plan plan_with(const pulse::cost_table& costs, int devices, int microbatches, frozen_mode mode) {
    pulse::plan_request ask{};
    ask.devices = devices;
    ask.cluster = pulse::one_node(devices);
    ask.pipeline_degree = devices;
    ask.microbatch_size = 1;
    ask.microbatches = microbatches;
    ask.split_backward = false;
    ask.kept = pulse::parameter_memory{};
    ask.frozen = mode;
    return pulse::plan_for(costs, ask).plan;
}

} // namespace

ordered_json measure_frozen(bool quick, bool markdown) {
    const pulse::cost_table costs = costs_of(quick ? 0.1 : 4.0);
    std::printf("16 layers of %s of all passes and an encoder of 40 %% of their load, which take their times asleep; P "
                "thread ranks, M microbatches of one sample, unsplit%s\n\n",
                quick ? "0.4 to 0.8 ms" : "17 to 31 ms", quick ? "; --quick: the figures mean nothing" : "");
    text_table table{{"P", "M", "encodes", "measured ms", "simulated ms", "simulated / measured", "bubbles are"}, {}};
    ordered_json rows = ordered_json::array();
    for (const auto& [devices, microbatches] : {std::pair{2, 2}, {2, 4}, {4, 4}, {4, 8}}) {
        struct way {
            std::string name{};
            measured_step step{};
        };
        std::vector<way> ways{};
        const int steps = quick ? 1 : 5;
        ways.push_back(
            {"in the bubbles", step_of(plan_with(costs, devices, microbatches, frozen_mode::bubbles), costs, steps)});
        pulse::plan first = plan_with(costs, devices, microbatches, frozen_mode::first);
        ways.push_back({"first on all ranks", step_of(first, costs, steps)});
        pulse::cost_table alone = costs;
        alone.frozen.clear();
        const pulse::plan passes = plan_with(alone, devices, microbatches, frozen_mode::none);
        pulse::frozen_work work{costs.frozen, microbatches, {}, {}};
        work.hosts.resize(static_cast<std::size_t>(devices));
        work.hosts.front() = {0};
        const pulse::filled_schedule on_first = pulse::detail::encode_first(passes.order, work, {});
        first = passes;
        first.order = on_first.passes;
        first.frozen_tasks = on_first.tasks;
        first.frozen_hosts = work.hosts;
        ways.push_back({"first on rank 0", step_of(first, costs, steps)});
        // The cut accounts for the longer first layer.
        const double before_us = costs.frozen.front().duration_us(1);
        alone.layers.front().forward_us += before_us;
        backbone::times.front().forward += before_us;
        ways.push_back({"on rank 0, before its stage",
                        step_of(plan_with(alone, devices, microbatches, frozen_mode::none), alone, steps)});
        backbone::times.front().forward -= before_us;
        for (const way& w : ways) {
            const double faster = w.step.measured_ms / ways.front().step.measured_ms;
            table.rows.push_back({std::to_string(devices), std::to_string(microbatches), w.name,
                                  text_of("%.1f", w.step.measured_ms), text_of("%.1f", w.step.simulated_ms),
                                  text_of("%.3f", w.step.simulated_ms / w.step.measured_ms), text_of("%.2fx", faster)});
            rows.push_back({{"ranks", devices},
                            {"microbatches", microbatches},
                            {"encodes", w.name},
                            {"measured_ms", w.step.measured_ms},
                            {"simulated_ms", w.step.simulated_ms},
                            {"bubbles_speedup", faster}});
        }
    }
    table.print(markdown);
    return rows;
}

} // namespace pulse_bench
