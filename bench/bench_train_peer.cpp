// Times steps of the same UNet, batch and optimizer on one rank of pulse and in PyTorch, on as many threads, in turn.
//   bench_train_peer [--threads N] [--batch N] [--rounds N] [--quick] [--python FILE] [--json FILE]
// torch also runs compiled if it has torch.compile and a C++ compiler; the first time this takes minutes.
// pulse also clips and keeps an average of the weights in its step; torch does not.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/model/graph_of.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/onednn/adamw.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "json_output.hpp"
#include "peer_process.hpp"
#include "run_bench.hpp"
#include "statistics.hpp"

namespace {

using model = pulse::ddpm_fmnist;
using math = pulse::onednn::backend;
using rank_optimizer = pulse::train::rank_optimizer<pulse::train::host_updates<pulse::onednn::fused_adamw>>;

using pulse_bench::median;

struct task {
    int batch;
    pulse::rank_parameters<float>* parameters{};
    rank_optimizer* optimizer{};
    pulse::threads::transport* transport{};
    std::int64_t step{};
    std::vector<float> times = std::vector<float>(static_cast<std::size_t>(batch), 321.0F);

    [[nodiscard]] const float* timesteps(int) const { return times.data(); }
    void input(int, float* x) const {
        for (int i = 0; i != batch * 784; ++i) { x[i] = 0.05F * static_cast<float>(i % 37 - 18); }
    }
    void loss(int, const float* y, float* dy) const {
        const float scale = 2.0F / static_cast<float>(batch * 784);
        for (int i = 0; i != batch * 784; ++i) { dy[i] = scale * (y[i] - 0.05F * static_cast<float>(i % 23 - 11)); }
    }
    void optimize() {
        const double nothing = 0;
        static_cast<void>(optimizer->step(*parameters, *transport, ++step, 1e-4, {&nothing, 1}, false));
    }
};

/// Floating-point operations of one training step of one sample, the backward pass counted as two forward ones.
double step_flops() {
    constexpr auto graph = pulse::graph_of<model>();
    double sum = 0;
    for (const pulse::layer_node& layer : graph.layers) { sum += layer.forward_flops; }
    return 3 * sum;
}

/// Calls torch's side; marks its errors as torch's.
auto of_torch(auto&& call) {
    try {
        return call();
    } catch (const std::runtime_error& e) {
        throw std::runtime_error{std::string{"torch: "} + e.what() + " (is python3-torch installed?)"};
    }
}

/// Starts torch's side and reads its answer `about` itself. Throws CLI::ValidationError where `command[0]` has no
/// torch.
std::unique_ptr<pulse_bench::peer_process> start_torch(const std::vector<std::string>& command, nlohmann::json& about) {
    const std::string& python = command.front();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(python, ignored) || access(python.c_str(), X_OK) != 0) {
        throw CLI::ValidationError("--python", python + " is not an executable program");
    }
    try {
        return of_torch([&] {
            auto torch = std::make_unique<pulse_bench::peer_process>(command);
            about = nlohmann::json::parse(torch->read(), nullptr, false);
            if (!about.is_object()) { throw std::runtime_error{python + " is not a Python"}; }
            if (about.contains("failure")) { throw std::runtime_error{about.value("failure", "")}; }
            return torch;
        });
    } catch (const std::runtime_error& e) { throw CLI::ValidationError("--python", e.what()); }
}

/// A way to train in torch.
struct torch_variant {
    std::string key;       ///< of train_peer.py
    std::string name;      ///< of its row
    std::string failure{}; ///< why it is not measured; empty where it is
    std::vector<double> ms{};
};

} // namespace

int main(int argc, char** argv) {
    int threads = 1, batch = 32, rounds = 9;
    bool quick = false;
    std::string json_file, python = PULSE_PYTHON;
    const CLI::Range whole{1, 1 << 20};
    CLI::App app{"One rank of pulse against PyTorch on the CPU, the same UNet, batch and optimizer",
                 "bench_train_peer"};
    app.add_option("--threads", threads, "threads of each side")->check(whole);
    app.add_option("--batch", batch, "images in a step")->check(whole);
    app.add_option("--rounds", rounds, "measured steps of each side")->check(whole);
    app.add_option("--python", python, "the Python that has PyTorch");
    app.add_option("--json", json_file, "also write the figures to this file");
    app.add_flag("--quick", quick, "one round of two images: shows that the program works, the figures mean nothing");
    return pulse_bench::run_bench(app, argc, argv, [&] {
        pulse_bench::json_output json{json_file};
        if (quick) {
            batch = 2;
            rounds = 1;
            std::puts("--quick: the figures mean nothing");
        }
        nlohmann::json about;
        const auto torch = start_torch(
            {python, PULSE_PEER_SCRIPT, PULSE_TORCH_UNET_FOLDER, std::to_string(threads), std::to_string(batch)},
            about);
        std::vector<torch_variant> variants{{.key = "nchw", .name = "torch, channels first"},
                                            {.key = "nhwc", .name = "torch, channels last"},
                                            {.key = "compiled_nchw", .name = "torch.compile, channels first"},
                                            {.key = "compiled_nhwc", .name = "torch.compile, channels last"}};
        for (torch_variant& variant : variants) {
            const std::string answer = of_torch([&] { return torch->ask("prepare " + variant.key); });
            if (answer != "ready\n") { variant.failure = answer.substr(0, answer.find('\n')); }
        }
        if (!std::ranges::any_of(variants, &std::string::empty, &torch_variant::failure)) {
            throw std::runtime_error{"torch: " + variants.front().failure};
        }
        std::vector<double> own_ms;
        const auto costs =
            pulse::analytic_costs(pulse::graph_of<model>().view(), pulse::cpu_core, batch, sizeof(float));
        const auto plan =
            pulse::plan_candidate(costs, {.kind = pulse::placement::sequential, .split_backward = false}).plan;
        pulse::threads::run_ranks(1, {}, [&](pulse::threads::transport& transport) {
            math backend{threads};
            pulse::executor<model, math> rank{backend, transport, plan, costs};
            for (const auto& block : rank.parameters().blocks()) {
                pulse::nn::initialise<float>(pulse::parameters_of<model>(block.layer), 1,
                                             rank.parameters().values_of(block.layer));
            }
            rank_optimizer optimizer{model::part_count, 1, rank.parameters(), {.clip_norm = 1.0}};
            task work{batch, &rank.parameters(), &optimizer, &transport};
            for (int r = -2; r != rounds; ++r) {
                const auto start = std::chrono::steady_clock::now();
                rank.step(work);
                const double own =
                    std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
                if (r >= 0) { own_ms.push_back(own); }
                for (torch_variant& variant : variants) {
                    if (!variant.failure.empty()) { continue; }
                    const double ms = of_torch([&] { return torch->ask_number(variant.key); });
                    if (r >= 0) { variant.ms.push_back(ms); }
                }
            }
        });
        const double flops = step_flops() * batch;
        std::printf("ddpm_fmnist, batch %d, AdamW, %d thread%s, torch %s, %lld parameters, %s\n", batch, threads,
                    threads == 1 ? "" : "s", about.value("torch", "").c_str(), about.value("parameters", 0LL),
                    about.value("blas", "").c_str());
        const auto row = [&](const std::string& name, const std::vector<double>& ms) {
            std::printf("  %-29s %8.1f ms a step  %7.1f samples/s  %6.1f GFLOP/s\n", name.c_str(), median(ms),
                        1e3 * batch / median(ms), flops / median(ms) * 1e-6);
        };
        row("pulse, P = 1", own_ms);
        nlohmann::ordered_json figures{{"format", "pulse-bench-train-peer/1"},
                                       {"threads", threads},
                                       {"batch", batch},
                                       {"torch", about},
                                       {"pulse_ms", own_ms}};
        const torch_variant* fastest = nullptr;
        nlohmann::ordered_json not_measured = nlohmann::ordered_json::object();
        for (const torch_variant& variant : variants) {
            if (!variant.failure.empty()) {
                std::printf("  %-29s %s\n", variant.name.c_str(), variant.failure.c_str());
                not_measured[variant.key] = variant.failure;
                continue;
            }
            row(variant.name, variant.ms);
            figures["torch_" + variant.key + "_ms"] = variant.ms;
            if (fastest == nullptr || median(variant.ms) < median(fastest->ms)) { fastest = &variant; }
        }
        std::vector<double> ratios;
        std::ranges::transform(fastest->ms, own_ms, std::back_inserter(ratios), std::divides{});
        std::printf("  pulse against the fastest, %s: %.2fx (median of %d rounds)\n", fastest->name.c_str(),
                    median(ratios), rounds);
        figures["not_measured"] = not_measured;
        figures["fastest"] = fastest->key;
        figures["speedup"] = median(ratios);
        figures["gflop_per_s"] = flops / median(own_ms) * 1e-6;
        figures["quick"] = quick;
        json.write(figures);
        return 0;
    });
}
