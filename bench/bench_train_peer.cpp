// The same UNet, batch and optimizer on one rank of pulse and in PyTorch on the CPU, with as many threads, in turn.
//   bench_train_peer [--threads N] [--batch N] [--rounds N] [--json FILE]
// pulse also clips and keeps an average of the weights in its step; torch does not.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/host/backend.hpp>
#include <pulse/host/threads.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/tune/plan_pipeline.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "peer_process.hpp"
#include "release_only.hpp"

namespace {

using model = pulse::ddpm_fmnist;
using math = pulse::host::onednn_backend;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct task {
    int batch;
    pulse::rank_parameters<float>* parameters{};
    pulse::train::rank_optimizer* optimizer{};
    pulse::host::thread_transport* transport{};
    math* backend{};
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
        backend->weights_changed();
    }
};

int number(const char* text, int least) {
    const int value = std::atoi(text);
    if (value < least) {
        std::fprintf(stderr, "bench_train_peer: %s is not a number of at least %d\n", text, least);
        std::exit(2);
    }
    return value;
}

} // namespace

int main(int argc, char** argv) {
    if (!pulse_bench::is_release()) { return 2; }
    int threads = 1, batch = 32, rounds = 9;
    std::string json_file;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--threads") == 0) { threads = number(argv[i + 1], 1); }
        else if (std::strcmp(argv[i], "--batch") == 0) { batch = number(argv[i + 1], 1); }
        else if (std::strcmp(argv[i], "--rounds") == 0) { rounds = number(argv[i + 1], 1); }
        else if (std::strcmp(argv[i], "--json") == 0) { json_file = argv[i + 1]; }
        else {
            std::fprintf(stderr, "usage: bench_train_peer [--threads N] [--batch N] [--rounds N] [--json FILE]\n");
            return 2;
        }
    }
    try {
        pulse_bench::peer_process torch{{PULSE_PYTHON, PULSE_PEER_SCRIPT, PULSE_TORCH_UNET_FOLDER, std::to_string(threads), std::to_string(batch)}};
        const std::string about = torch.read();
        std::vector<double> own_ms, nchw_ms, nhwc_ms, ratios;
        const auto costs = pulse::analytic_costs(pulse::graph_of<model>().view(), pulse::cpu_core, batch, sizeof(float));
        const auto plan = pulse::plan_pipeline(costs, {.kind = pulse::placement::sequential, .split_backward = false});
        pulse::host::run_ranks(1, {}, [&](pulse::host::thread_transport& transport) {
            math backend{threads};
            pulse::executor<model, math, pulse::host::thread_transport> rank{backend, transport, plan, costs};
            for (const auto& block : rank.parameters().blocks()) {
                pulse::nn::initialise<float>(pulse::parameters_of<model>(block.layer), 1, rank.parameters().values_of(block.layer));
            }
            pulse::train::rank_optimizer optimizer{model::layer_count, 1, rank.parameters().values().size(), {}, 1.0, 0.999};
            task work{batch, &rank.parameters(), &optimizer, &transport, &backend};
            for (int r = -2; r != rounds; ++r) {
                const double nchw = std::atof(torch.ask("nchw").c_str());
                const auto start = std::chrono::steady_clock::now();
                rank.step(work);
                const double own = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
                const double nhwc = std::atof(torch.ask("nhwc").c_str());
                if (r < 0) { continue; }
                own_ms.push_back(own);
                nchw_ms.push_back(nchw);
                nhwc_ms.push_back(nhwc);
                ratios.push_back(std::min(nchw, nhwc) / own);
            }
        });
        const double flops = 3 * 624539904.0 * batch;
        std::printf("ddpm_fmnist, batch %d, AdamW, %d thread%s, torch %s", batch, threads, threads == 1 ? "" : "s", about.c_str());
        const auto row = [&](const char* name, const std::vector<double>& ms) {
            std::printf("  %-24s %8.1f ms a step  %7.1f samples/s  %6.1f GFLOP/s\n", name, median(ms), 1e3 * batch / median(ms), flops / median(ms) * 1e-6);
        };
        row("pulse, P = 1", own_ms);
        row("torch, channels first", nchw_ms);
        row("torch, channels last", nhwc_ms);
        std::printf("  pulse against the faster torch of each round: %.2fx (median of %d rounds)\n", median(ratios), rounds);
        if (!json_file.empty()) {
            const nlohmann::ordered_json all{{"format", "pulse-bench-train-peer/1"}, {"threads", threads}, {"batch", batch},
                                             {"pulse_ms", own_ms}, {"torch_nchw_ms", nchw_ms}, {"torch_nhwc_ms", nhwc_ms}, {"speedup", median(ratios)}};
            pulse::io::write_file(json_file, all.dump(2) + "\n");
        }
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_train_peer: %s (is python3-torch installed?)\n", e.what());
        return 1;
    }
}
