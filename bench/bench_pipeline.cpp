// Measures what the pipeline costs and gains: (a) the executor's overhead, (b) two ranks against one, (c) the simulator
// against the clock, (d) folded placement against a sequential one that relays its skips, on a slow link.
//   bench_pipeline [--quick] [--json FILE] [a|b|c|d ...]
// Exit status: 0 measured (met or missed), 1 failed, 2 refused.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/nn/initialise.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/profile/measure.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "direct_step.hpp"
#include "json_output.hpp"
#include "run_bench.hpp"
#include "statistics.hpp"
#include "timed_model.hpp"

namespace {

using model = pulse::ddpm_fmnist;
using math = pulse::onednn::backend;
using nlohmann::ordered_json;
using pulse_bench::median;
using pulse_bench::spread;
using clock_type = std::chrono::steady_clock;

double milliseconds_since(clock_type::time_point t) {
    return std::chrono::duration<double, std::milli>(clock_type::now() - t).count();
}

/// How long to measure; a quick run only shows that the program works.
struct effort {
    bool quick{};

    [[nodiscard]] int of(int full, int quick_one) const { return quick ? quick_one : full; }
};

/// Prints the target of a part and whether it is met, and puts both in its JSON.
void judge(ordered_json& part, const std::string& target, bool met) {
    std::printf("    target: %s: %s\n\n", target.c_str(), met ? "met" : "missed");
    part["target"] = target;
    part["met"] = met;
}

/// Arbitrary images and targets, always the same.
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

pulse::cost_table measured_costs(int batch, effort how) {
    const pulse::measure_options options{.sweeps = how.of(pulse::measure_options{}.sweeps, 1)};
    math backend;
    pulse::layer_bench<model, math> bench{backend, batch};
    constexpr auto graph = pulse::graph_of<model>();
    return pulse::measure_costs(
        graph.view(), batch, sizeof(float), pulse::label{"host"},
        [&](int layer, pulse::pass what) { bench(layer, what); }, options);
}

template <class Model, class B>
using executor = pulse::executor<Model, B>;

/// (a) The same step through the executor at P = 1 and by direct calls of the layers, in turn.
ordered_json overhead(effort how) {
    const int batch = how.of(4, 1), microbatches = how.of(4, 1), rounds = how.of(16, 2);
    std::vector<double> direct_ms, executor_ms, ratios;
    const pulse::cost_table costs = measured_costs(batch, how);
    const pulse::plan plan =
        pulse::plan_candidate(
            costs, {.microbatches = microbatches, .kind = pulse::placement::sequential, .split_backward = false})
            .plan;
    pulse::threads::run_ranks(1, {}, [&](pulse::threads::transport& transport) {
        math backend;
        steady_task task{batch};
        pulse_bench::direct_step<model, math> direct{backend, batch};
        executor<model, math> rank{backend, transport, plan, costs};
        initialise(direct.parameters());
        initialise(rank.parameters());
        for (int r = -2; r != rounds; ++r) {
            double d = 0, e = 0;
            const auto time_direct = [&] {
                const auto start = clock_type::now();
                direct.step(task, microbatches);
                d = milliseconds_since(start);
            };
            const auto time_executor = [&] {
                const auto start = clock_type::now();
                rank.step(task);
                e = milliseconds_since(start);
            };
            // the second finds other caches and another clock speed, so both take turns at being second
            if (r % 2 == 0) {
                time_direct();
                time_executor();
            } else {
                time_executor();
                time_direct();
            }
            if (r < 0) { continue; }
            direct_ms.push_back(d);
            executor_ms.push_back(e);
            ratios.push_back(e / d);
        }
    });
    const double percent = 100 * (median(ratios) - 1);
    std::printf("(a) executor overhead, P=1, ddpm_fmnist, %d microbatches of %d\n", microbatches, batch);
    std::printf(
        "    layers called directly %8.1f ms, executor %8.1f ms: %+.2f %% (median of %d pairs, spread %.1f %%)\n",
        median(direct_ms), median(executor_ms), percent, rounds, spread(ratios));
    ordered_json part{{"direct_ms", median(direct_ms)},
                      {"executor_ms", median(executor_ms)},
                      {"overhead_percent", percent},
                      {"spread_percent", spread(ratios)}};
    judge(part, "overhead of at most 2 %", percent <= 2);
    return part;
}

double step_ms(const pulse::plan& plan, const pulse::cost_table& costs, int batch, int steps) {
    std::vector<double> seen;
    pulse::threads::run_ranks(plan.pipeline_degree, {}, [&](pulse::threads::transport& transport) {
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

/// (b) P = 2 against P = 1, one thread per rank, in turn; P = 1 with the faster of unsplit and split backward passes.
ordered_json two_ranks(effort how) {
    const int batch = how.of(8, 1), microbatches = how.of(8, 2), rounds = how.of(7, 1), steps = how.of(2, 1);
    const pulse::cost_table costs = measured_costs(batch, how);
    const auto alone = [&](bool split) {
        return pulse::plan_candidate(
                   costs, {.microbatches = microbatches, .kind = pulse::placement::sequential, .split_backward = split})
            .plan;
    };
    const std::array<pulse::plan, 2> one{alone(false), alone(true)};
    const pulse::plan two = pulse::plan_candidate(costs, {.pipeline_degree = 2, .microbatches = microbatches}).plan;
    std::array<std::vector<double>, 2> one_ms;
    std::vector<double> two_ms, ratios;
    for (int r = 0; r != rounds; ++r) {
        for (std::size_t split : {0U, 1U}) { one_ms[split].push_back(step_ms(one[split], costs, batch, steps)); }
        two_ms.push_back(step_ms(two, costs, batch, steps));
    }
    const std::size_t faster = median(one_ms[1]) < median(one_ms[0]) ? 1 : 0;
    for (std::size_t r = 0; r != two_ms.size(); ++r) { ratios.push_back(one_ms[faster][r] / two_ms[r]); }
    const double planned = one[faster].predicted.step_us / two.predicted.step_us;
    std::printf("(b) two ranks against one, one thread each, ddpm_fmnist, %d microbatches of %d\n", microbatches,
                batch);
    std::printf("    P=1 %s %8.1f ms (%s %.1f ms), P=2 folded %8.1f ms: %.2fx (median of %d pairs, spread %.1f %%); "
                "planned %.2fx\n",
                faster == 1 ? "split" : "unsplit", median(one_ms[faster]), faster == 1 ? "unsplit" : "split",
                median(one_ms[1 - faster]), median(two_ms), median(ratios), rounds, spread(ratios), planned);
    ordered_json part{
        {"p1_unsplit_ms", median(one_ms[0])}, {"p1_split_ms", median(one_ms[1])}, {"p2_ms", median(two_ms)},
        {"speedup", median(ratios)},          {"spread_percent", spread(ratios)}, {"planned_speedup", planned}};
    judge(part, "at least 1.7x the faster P=1", median(ratios) >= 1.7);
    return part;
}

/// Median step of a timed model on emulated links, after one that does not count, and the simulated step.
template <class Timed>
std::pair<double, double> timed_step_ms(const pulse::plan& plan, const pulse::cost_table& costs,
                                        const pulse::threads::link_options& link, int steps) {
    std::vector<double> seen;
    pulse::threads::run_ranks(plan.pipeline_degree, link, [&](pulse::threads::transport& transport) {
        pulse_bench::wake_on_time();
        pulse::reference::backend<float> backend;
        pulse_bench::timed_task task;
        executor<typename Timed::model, pulse::reference::backend<float>> rank{backend, transport, plan, costs};
        for (int s = -1; s != steps; ++s) {
            transport.sum({});
            const auto start = clock_type::now();
            rank.step(task);
            transport.sum({});
            if (s >= 0 && transport.rank() == 0) { seen.push_back(milliseconds_since(start)); }
        }
    });
    const pulse::step_model model_of_plan{plan, costs};
    const auto simulated = pulse::simulate(
        plan, model_of_plan, pulse::lower(plan, model_of_plan),
        {.between_ranks = {.latency_us = link.latency_us, .bandwidth_gb_per_s = link.bandwidth_gb_per_s}});
    return {median(seen), simulated.step_us * 1e-3};
}

/// (c) Layers that take a known time, links of known speed: the simulator against the clock.
ordered_json simulator_against_clock(effort how) {
    using uneven = pulse_bench::timed<24, 16384, 10>;
    const int microbatches = how.of(16, 8);
    const std::vector<int> degrees = how.quick ? std::vector{4} : std::vector{4, 8};
    double worst = 0;
    for (std::size_t l = 0; l != uneven::times.size(); ++l) {
        const double us = 1500 + 400 * static_cast<double>(l * 7 % 5);
        uneven::times[l] = {us, us * 1.1, us * 0.8};
    }
    const pulse::cost_table costs = uneven::costs();
    ordered_json rows;
    std::printf("(c) simulated against measured step, 24 timed layers of 1.5 to 3.1 ms, %d microbatches, links 300 us "
                "+ 0.05 GB/s\n",
                microbatches);
    for (const int devices : degrees) {
        for (const auto kind : {pulse::placement::folded, pulse::placement::sequential}) {
            const bool folded = kind == pulse::placement::folded;
            const pulse::plan plan = pulse::plan_candidate(costs,
                                                           {.pipeline_degree = devices,
                                                            .microbatches = microbatches,
                                                            .kind = kind,
                                                            .routing = pulse::skip_routing::relayed,
                                                            .split_backward = folded,
                                                            .method = folded ? pulse::schedule_method::list
                                                                             : pulse::schedule_method::one_f_one_b},
                                                           pulse::link{.latency_us = 300, .bandwidth_gb_per_s = 0.05})
                                         .plan;
            const auto [measured, simulated] =
                timed_step_ms<uneven>(plan, costs, {.latency_us = 300, .bandwidth_gb_per_s = 0.05}, how.of(3, 1));
            const double off = 100 * (simulated / measured - 1);
            worst = std::max(worst, std::abs(off));
            std::printf("    P=%d %-10s measured %8.1f ms, simulated %8.1f ms: %+.1f %%\n", devices,
                        std::string{pulse::name_of(kind)}.c_str(), measured, simulated, off);
            rows.push_back({{"ranks", devices},
                            {"placement", pulse::name_of(kind)},
                            {"measured_ms", measured},
                            {"simulated_ms", simulated},
                            {"off_percent", off}});
        }
    }
    ordered_json part{{"rows", rows}, {"worst_percent", worst}};
    judge(part, "simulated within 5 % of measured", worst <= 5);
    return part;
}

/// (d) Hunyuan-DiT v1.2 at 1024 px on 4 and 8 devices of 256 TFLOP/s at 40 %: real times; tensors and links scaled down
/// by the same factor (11,534,336 bytes to 65,536).
ordered_json slow_links(effort how) {
    using hunyuan = pulse_bench::timed<40, 16384, 19>;
    constexpr double flops_per_us = 256e12 * 0.4 * 1e-6;
    for (std::size_t l = 0; l != hunyuan::times.size(); ++l) {
        const double flops = l < 21 ? 343.27e9 : 375.75e9; // blocks, decoder blocks with the skip's linear layer
        const double us = flops / flops_per_us / how.of(1, 4);
        hunyuan::times[l] = {us, us, us};
    }
    const pulse::cost_table costs = hunyuan::costs();
    constexpr double scale = 65536.0 / 11534336.0;
    const int microbatches = how.of(16, 8);
    const int steps = how.of(3, 1);
    const std::vector<double> speeds = how.quick ? std::vector{30.0} : std::vector{30.0, 10.0};
    const std::vector<int> degrees = how.quick ? std::vector{4} : std::vector{4, 8};
    std::vector<double> speedups;
    ordered_json rows;
    std::printf("(d) folded against sequential 1F1B with relayed skips, Hunyuan-DiT's shapes, 40 blocks, 19 skips, %d "
                "microbatches of 1\n",
                microbatches);
    for (const double real_gb_per_s : speeds) {
        for (const int devices : degrees) {
            for (const bool blocking : {false, true}) {
                const pulse::link speed{.latency_us = 20, .bandwidth_gb_per_s = real_gb_per_s * scale};
                const pulse::threads::link_options link{
                    .latency_us = 20, .bandwidth_gb_per_s = speed.bandwidth_gb_per_s, .blocking = blocking};
                const pulse::plan sequential = pulse::plan_candidate(costs,
                                                                     {.pipeline_degree = devices,
                                                                      .microbatches = microbatches,
                                                                      .kind = pulse::placement::sequential,
                                                                      .routing = pulse::skip_routing::relayed,
                                                                      .split_backward = false,
                                                                      .method = pulse::schedule_method::one_f_one_b},
                                                                     speed)
                                                   .plan;
                pulse::tune_candidate fold{.pipeline_degree = devices, .microbatches = microbatches};
                const pulse::plan folded = pulse::plan_candidate(costs, fold, speed).plan;
                fold.split_backward = false;
                const pulse::plan unsplit = pulse::plan_candidate(costs, fold, speed).plan;
                const double a = timed_step_ms<hunyuan>(sequential, costs, link, steps).first;
                const double b = timed_step_ms<hunyuan>(unsplit, costs, link, steps).first;
                const double c = timed_step_ms<hunyuan>(folded, costs, link, steps).first;
                const auto bytes = [](const pulse::plan& p) {
                    return static_cast<double>(p.predicted.boundary_bytes + p.predicted.skip_bytes);
                };
                std::printf("    P=%d %4.0f GB/s %-22s sequential %7.0f ms; folded, unsplit %7.0f ms: %.2fx; folded, "
                            "split %7.0f ms: %.2fx; bytes %+.0f %%\n",
                            devices, real_gb_per_s, blocking ? "sends hold up the rank" : "sends overlap", a, b, a / b,
                            c, a / c, 100 * (bytes(folded) / bytes(sequential) - 1));
                speedups.push_back(a / c);
                rows.push_back({{"ranks", devices},
                                {"gb_per_s", real_gb_per_s},
                                {"blocking", blocking},
                                {"sequential_ms", a},
                                {"folded_unsplit_ms", b},
                                {"folded_split_ms", c},
                                {"speedup", a / c},
                                {"bytes_ratio", bytes(folded) / bytes(sequential)}});
            }
        }
    }
    const auto [least, most] = std::minmax_element(speedups.begin(), speedups.end());
    std::printf("    target: none; folded, split against sequential: %.2fx to %.2fx\n\n", *least, *most);
    return {
        {"rows", rows}, {"least_speedup", *least}, {"greatest_speedup", *most}, {"target", nullptr}, {"met", nullptr}};
}

} // namespace

int main(int argc, char** argv) {
    std::string json_file;
    std::vector<std::string> parts;
    effort how{};
    CLI::App app{"What the pipeline costs and what it brings; see README.md", "bench_pipeline"};
    app.add_option("--json", json_file, "also write the figures to this file");
    app.add_flag("--quick", how.quick, "few small runs: shows that the program works; the figures mean nothing");
    app.add_option("parts", parts, "a: executor, b: two ranks, c: simulator, d: slow links (all)")
        ->check(CLI::IsMember({"a", "b", "c", "d"}));
    return pulse_bench::run_bench(app, argc, argv, [&] {
        pulse_bench::json_output json{json_file};
        const auto wanted = [&](const char* part) {
            return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
        };
        if (how.quick) { std::puts("--quick: the figures mean nothing\n"); }
        ordered_json all{{"format", "pulse-bench-pipeline/1"}, {"quick", how.quick}};
        if (wanted("a")) { all["overhead"] = overhead(how); }
        if (wanted("b")) { all["two_ranks"] = two_ranks(how); }
        if (wanted("c")) { all["simulator"] = simulator_against_clock(how); }
        if (wanted("d")) { all["slow_links"] = slow_links(how); }
        json.write(all);
        return 0;
    });
}
