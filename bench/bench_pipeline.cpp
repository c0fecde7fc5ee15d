// What the pipeline costs and what it brings: (a) the executor's overhead, (b) two ranks against one, (c) the simulator
// against the clock, (d) folded placement against a sequential one that relays its skips, on a slow link.
//   bench_pipeline [--json FILE] [a|b|c|d ...]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/host/backend.hpp>
#include <pulse/host/reference.hpp>
#include <pulse/host/threads.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/plan_pipeline.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "direct_step.hpp"
#include "release_only.hpp"
#include "timed_model.hpp"

namespace {

using model = pulse::ddpm_fmnist;
using math = pulse::host::onednn_backend;
using nlohmann::ordered_json;
using clock_type = std::chrono::steady_clock;

double milliseconds_since(clock_type::time_point t) { return std::chrono::duration<double, std::milli>(clock_type::now() - t).count(); }

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Half the distance between the quartiles, in per cent of the median.
double spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return 50 * (values[values.size() * 3 / 4] - values[values.size() / 4]) / median(values);
}

/// Images and targets that do not matter, always the same.
struct steady_task {
    int batch;
    std::vector<float> times = std::vector<float>(static_cast<std::size_t>(batch), 321.0F);

    [[nodiscard]] const float* timesteps(int) const { return times.data(); }
    void input(int m, float* x) const {
        for (int i = 0; i != batch * 784; ++i) { x[i] = 0.05F * static_cast<float>((i + m) % 37 - 18); }
    }
    void loss(int, const float* y, float* dy) const {
        for (int i = 0; i != batch * 784; ++i) { dy[i] = 1e-4F * y[i]; }
    }
    void optimize() {}
};

void initialise(pulse::rank_parameters<float>& parameters) {
    for (const auto& block : parameters.blocks()) {
        pulse::nn::initialise<float>(pulse::parameters_of<model>(block.layer), 1, parameters.values_of(block.layer));
    }
}

pulse::cost_table measured_costs(int batch) {
    math backend;
    pulse::layer_bench<model, math> bench{backend, batch};
    constexpr auto graph = pulse::graph_of<model>();
    return pulse::measure_costs(graph.view(), batch, sizeof(float), pulse::label{"host"},
                                [&](int layer, pulse::layer_pass what) { bench(layer, static_cast<pulse::pass>(what)); });
}

template <class Model, class B>
using executor = pulse::executor<Model, B, pulse::host::thread_transport>;

/// (a) The same step through the executor at P = 1 and by calling the layers, in turn.
ordered_json overhead() {
    constexpr int batch = 4, microbatches = 4, rounds = 15;
    std::vector<double> direct_ms, executor_ms, ratios;
    const pulse::cost_table costs = measured_costs(batch);
    const pulse::plan plan = pulse::plan_pipeline(costs, {.kind = pulse::placement::sequential, .microbatches = microbatches, .split_backward = false});
    pulse::host::run_ranks(1, {}, [&](pulse::host::thread_transport& transport) {
        math backend;
        steady_task task{batch};
        pulse_bench::direct_step<model, math> direct{backend, batch};
        executor<model, math> rank{backend, transport, plan, costs};
        initialise(direct.parameters());
        initialise(rank.parameters());
        for (int r = -2; r != rounds; ++r) {
            auto start = clock_type::now();
            direct.step(task, microbatches);
            const double d = milliseconds_since(start);
            start = clock_type::now();
            rank.step(task);
            const double e = milliseconds_since(start);
            if (r < 0) { continue; }
            direct_ms.push_back(d);
            executor_ms.push_back(e);
            ratios.push_back(e / d);
        }
    });
    const double percent = 100 * (median(ratios) - 1);
    std::printf("(a) executor overhead, P=1, ddpm_fmnist, %d microbatches of %d\n", microbatches, batch);
    std::printf("    layers called directly %8.1f ms, executor %8.1f ms: %+.2f %% (median of %d pairs, spread %.1f %%)\n\n", median(direct_ms),
                median(executor_ms), percent, rounds, spread(ratios));
    return {{"direct_ms", median(direct_ms)}, {"executor_ms", median(executor_ms)}, {"overhead_percent", percent}, {"spread_percent", spread(ratios)}};
}

double step_ms(const pulse::plan& plan, const pulse::cost_table& costs, int batch, int steps) {
    std::vector<double> seen;
    pulse::host::run_ranks(plan.pipeline_degree, {}, [&](pulse::host::thread_transport& transport) {
        math backend;
        steady_task task{batch};
        executor<model, math> rank{backend, transport, plan, costs};
        initialise(rank.parameters());
        for (int s = -1; s != steps; ++s) {
            transport.sum({});
            const auto start = clock_type::now();
            rank.step(task);
            transport.sum({});
            if (s >= 0 && transport.rank() == 0) { seen.push_back(milliseconds_since(start)); }
        }
    });
    return median(seen);
}

/// (b) P = 2 against P = 1, one thread per rank, in turn.
ordered_json two_ranks() {
    constexpr int batch = 8, microbatches = 8, rounds = 7, steps = 2;
    const pulse::cost_table costs = measured_costs(batch);
    const pulse::plan one = pulse::plan_pipeline(costs, {.kind = pulse::placement::sequential, .devices = 1, .microbatches = microbatches});
    const pulse::plan two = pulse::plan_pipeline(costs, {.devices = 2, .microbatches = microbatches});
    std::vector<double> one_ms, two_ms, ratios;
    for (int r = 0; r != rounds; ++r) {
        one_ms.push_back(step_ms(one, costs, batch, steps));
        two_ms.push_back(step_ms(two, costs, batch, steps));
        ratios.push_back(one_ms.back() / two_ms.back());
    }
    std::printf("(b) two ranks against one, one thread each, ddpm_fmnist, %d microbatches of %d\n", microbatches, batch);
    std::printf("    P=1 %8.1f ms, P=2 folded %8.1f ms: %.2fx (median of %d pairs, spread %.1f %%); planned %.2fx\n\n", median(one_ms), median(two_ms),
                median(ratios), rounds, spread(ratios), one.predicted.step_us / two.predicted.step_us);
    return {{"p1_ms", median(one_ms)}, {"p2_ms", median(two_ms)}, {"speedup", median(ratios)}, {"spread_percent", spread(ratios)},
            {"planned_speedup", one.predicted.step_us / two.predicted.step_us}};
}

/// Median step of a timed model on emulated links, and what the simulator says.
template <class Timed>
std::pair<double, double> timed_step_ms(const pulse::plan& plan, const pulse::cost_table& costs, const pulse::host::link_options& link, int steps) {
    std::vector<double> seen;
    pulse::host::run_ranks(plan.pipeline_degree, link, [&](pulse::host::thread_transport& transport) {
        pulse_bench::wake_on_time();
        pulse::host::reference_backend<float> backend;
        pulse_bench::timed_task task;
        executor<typename Timed::model, pulse::host::reference_backend<float>> rank{backend, transport, plan, costs};
        for (int s = 0; s != steps; ++s) {
            transport.sum({});
            const auto start = clock_type::now();
            rank.step(task);
            transport.sum({});
            if (transport.rank() == 0) { seen.push_back(milliseconds_since(start)); }
        }
    });
    const pulse::step_model model_of_plan{plan, costs};
    const auto simulated = pulse::simulate(plan, model_of_plan, pulse::lower(plan, model_of_plan),
                                           {.between_ranks = {.latency_us = link.latency_us, .bandwidth_gb_per_s = link.bandwidth_gb_per_s}});
    return {median(seen), simulated.step_us * 1e-3};
}

/// (c) Layers that take a known time, links of known speed: the simulator against the clock.
ordered_json simulator_against_clock() {
    using uneven = pulse_bench::timed<24, 16384, 10>;
    for (std::size_t l = 0; l != uneven::times.size(); ++l) {
        const double us = 1500 + 400 * static_cast<double>(l * 7 % 5);
        uneven::times[l] = {us, us * 1.1, us * 0.8};
    }
    const pulse::cost_table costs = uneven::costs();
    ordered_json rows;
    std::printf("(c) simulated against measured step, 24 timed layers of 1.5 to 3.1 ms, 16 microbatches, links 300 us + 0.05 GB/s\n");
    for (const int devices : {4, 8}) {
        for (const auto kind : {pulse::placement::folded, pulse::placement::sequential}) {
            const pulse::plan plan = pulse::plan_pipeline(costs, {.kind = kind, .devices = devices, .microbatches = 16,
                                                                  .split_backward = kind == pulse::placement::folded,
                                                                  .routing = pulse::skip_routing::relayed,
                                                                  .method = kind == pulse::placement::folded ? pulse::schedule_method::list
                                                                                                             : pulse::schedule_method::one_f_one_b,
                                                                  .link = {.latency_us = 300, .bandwidth_gb_per_s = 0.05}});
            const auto [measured, simulated] = timed_step_ms<uneven>(plan, costs, {.latency_us = 300, .bandwidth_gb_per_s = 0.05}, 3);
            const double off = 100 * (simulated / measured - 1);
            std::printf("    P=%d %-10s measured %8.1f ms, simulated %8.1f ms: %+.1f %%\n", devices, std::string{pulse::name_of(kind)}.c_str(), measured,
                        simulated, off);
            rows.push_back({{"ranks", devices}, {"placement", pulse::name_of(kind)}, {"measured_ms", measured}, {"simulated_ms", simulated}, {"off_percent", off}});
        }
    }
    std::puts("");
    return rows;
}

/// (d) Hunyuan-DiT v1.2 at 1024 px on 8 devices of 256 TFLOP/s at 40 %: times as they are, tensors and links scaled down by
/// the same factor (11,534,336 bytes to 65,536).
ordered_json slow_links() {
    using hunyuan = pulse_bench::timed<40, 16384, 19>;
    constexpr double flops_per_us = 256e12 * 0.4 * 1e-6;
    for (std::size_t l = 0; l != hunyuan::times.size(); ++l) {
        const double flops = l < 21 ? 343.27e9 : 375.75e9; // blocks, decoder blocks with the skip's linear layer
        const double us = flops / flops_per_us;
        hunyuan::times[l] = {us, us, us};
    }
    const pulse::cost_table costs = hunyuan::costs();
    constexpr double scale = 65536.0 / 11534336.0;
    ordered_json rows;
    std::printf("(d) folded against sequential 1F1B with relayed skips, Hunyuan-DiT's shapes, 40 blocks, 19 skips, 16 microbatches of 1\n");
    for (const double real_gb_per_s : {30.0, 10.0}) {
        for (const int devices : {4, 8}) {
            for (const bool blocking : {false, true}) {
                const pulse::link_speed speed{.latency_us = 20, .bandwidth_gb_per_s = real_gb_per_s * scale};
                const pulse::host::link_options link{.latency_us = 20, .bandwidth_gb_per_s = speed.bandwidth_gb_per_s, .blocking = blocking};
                const pulse::plan sequential = pulse::plan_pipeline(
                    costs, {.kind = pulse::placement::sequential, .devices = devices, .microbatches = 16, .split_backward = false,
                            .routing = pulse::skip_routing::relayed, .method = pulse::schedule_method::one_f_one_b, .link = speed});
                const pulse::plan unsplit = pulse::plan_pipeline(costs, {.devices = devices, .microbatches = 16, .split_backward = false, .link = speed});
                const pulse::plan folded = pulse::plan_pipeline(costs, {.devices = devices, .microbatches = 16, .link = speed});
                const double a = timed_step_ms<hunyuan>(sequential, costs, link, 1).first;
                const double b = timed_step_ms<hunyuan>(unsplit, costs, link, 1).first;
                const double c = timed_step_ms<hunyuan>(folded, costs, link, 1).first;
                const auto bytes = [](const pulse::plan& p) { return static_cast<double>(p.predicted.boundary_bytes + p.predicted.skip_bytes); };
                std::printf("    P=%d %4.0f GB/s %-22s sequential %7.0f ms; folded, unsplit %7.0f ms: %.2fx; folded, split %7.0f ms: %.2fx; bytes %+.0f %%\n",
                            devices, real_gb_per_s, blocking ? "sends hold up the rank" : "sends overlap", a, b, a / b, c, a / c,
                            100 * (bytes(folded) / bytes(sequential) - 1));
                rows.push_back({{"ranks", devices}, {"gb_per_s", real_gb_per_s}, {"blocking", blocking}, {"sequential_ms", a}, {"folded_unsplit_ms", b},
                                {"folded_split_ms", c}, {"speedup", a / c}, {"bytes_ratio", bytes(folded) / bytes(sequential)}});
            }
        }
    }
    return rows;
}

} // namespace

int main(int argc, char** argv) {
    if (!pulse_bench::is_release()) { return 2; }
    std::string json_file;
    std::string parts;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_file = argv[++i];
        } else if (std::strlen(argv[i]) == 1 && std::strchr("abcd", argv[i][0]) != nullptr) {
            parts += argv[i];
        } else {
            std::fprintf(stderr, "usage: bench_pipeline [--json FILE] [a|b|c|d ...]\n");
            return 2;
        }
    }
    const auto wanted = [&](char part) { return parts.empty() || parts.find(part) != std::string::npos; };
    ordered_json all{{"format", "pulse-bench-pipeline/1"}};
    if (wanted('a')) { all["overhead"] = overhead(); }
    if (wanted('b')) { all["two_ranks"] = two_ranks(); }
    if (wanted('c')) { all["simulator"] = simulator_against_clock(); }
    if (wanted('d')) { all["slow_links"] = slow_links(); }
    if (!json_file.empty()) { pulse::io::write_file(json_file, all.dump(2) + "\n"); }
    return 0;
}
