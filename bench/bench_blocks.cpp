// Measures every operation of the CUDA backend at the layers of Stable Diffusion 2.1 and SDXL, in bfloat16, as a share
// of the card's copy bandwidth or of its rate of large products, both measured first. Inputs come from memory, not from
// the cache, and a sample of every result is checked against plain loops in double. Then it measures forward and
// backward passes of whole ResNet blocks and transformers, and whole training steps of both UNets. If the Python that
// is found has PyTorch, these also run there (blocks_peer.py) on the same card, and both sides' results are compared.
//   bench_blocks [--part operations layers steps] [--batch 1 4 16] [--only TEXT...] [--rounds N] [--quick]
//                [--time-engines SECONDS]
//                [--torch eager compile graphs | none] [--torch-device cuda|cpu] [--torch-precision master|autocast]
//                [--python FILE] [--script FILE] [--markdown] [--json FILE]
//   bench_blocks --count [--card NAME] [--batch 1 4] [--only TEXT...] [--quick] [--markdown] [--json FILE]
// --count needs no device: it counts the work of a training step of each UNet by kind, beside the least and beside
// torch.compile's step, and estimates the time of an H100's kernels at a card's rates (counted_work.hpp).
// Exit status: 0 measured, 1 failed or something is wrong, 2 refused, 77 no GPU.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "blocks.hpp"
#include "blocks_count.hpp"
#include "json_output.hpp"
#include "ledger.hpp"
#include "run_bench.hpp"
#include "step_rows.hpp"
#include "text_table.hpp"
#include "torch_peer.hpp"
#include "training_step.hpp"

namespace {

using pulse_bench::block_report;
using pulse_bench::block_row;
using pulse_bench::compared_row;
using pulse_bench::text_of;
using json = nlohmann::ordered_json;

// Targets on an H200.
constexpr double least_bandwidth_percent = 85;
constexpr double least_library_percent = 97;
constexpr double least_speedup = 1.15;

struct bench_options {
    pulse_bench::block_options blocks{};
    bool steps{};
    double time_engines_s{};
    bool markdown{};
    pulse_bench::torch_options torch{};
    std::string json_file{};
};

/// The share of the ceiling that binds: of memory if there are no products, else the greater of both shares.
double share(const block_report& report, const block_row& row) {
    const double memory = row.bytes / row.seconds / report.bytes_per_second;
    const double products = row.flops / row.seconds / report.flops_per_second;
    return products > memory ? products : memory;
}

/// Prints how many rows reach a target.
class target {
public:
    target(std::string what, double least) : what_{std::move(what)}, least_{least} {}

    void add(const std::string& name, double value) {
        ++count_;
        met_ += value >= least_ ? 1 : 0;
        if (count_ == 1 || value < worst_) {
            worst_ = value;
            worst_name_ = name;
        }
    }
    void print(const char* unit) const {
        if (count_ == 0) { return; }
        std::printf("%s: target >= %g%s, met by %d of %d; least %.2f%s (%s)\n", what_.c_str(), least_, unit, met_,
                    count_, worst_, unit, worst_name_.c_str());
    }

private:
    std::string what_;
    double least_;
    int count_{};
    int met_{};
    double worst_{};
    std::string worst_name_{};
};

std::string full_name(const std::string& name, const std::string& shape, int batch) {
    return name + (shape.empty() ? "" : " " + shape) + ", batch " + std::to_string(batch);
}

/// Prints the operations; returns them for the file.
json operations(const block_report& report, bool markdown) {
    pulse_bench::text_table table{{"operation", "shape", "batch", "us", "+-%", "GB/s", "TFLOP/s", "% of ceiling",
                                   "% of library", "checked", "#wrong"}};
    target memory{"operations without products, % of copy bandwidth", least_bandwidth_percent};
    target products{"convolutions and products, % of the rate of cuDNN or cuBLASLt called alone",
                    least_library_percent};
    json rows = json::array();
    for (const block_row& row : report.rows) {
        const double percent = 100 * share(report, row);
        const double of_library = 100 * row.library_seconds / row.seconds;
        const std::string name = full_name(row.operation, row.shape, row.batch);
        if (row.flops == 0) { memory.add(name, percent); }
        if (row.library_seconds > 0) { products.add(name, of_library); }
        table.rows.push_back({row.operation, row.shape, std::to_string(row.batch), text_of("%.2f", row.seconds * 1e6),
                              text_of("%.1f", row.spread_percent), text_of("%.0f", row.bytes / row.seconds * 1e-9),
                              row.flops == 0 ? "-" : text_of("%.0f", row.flops / row.seconds * 1e-12),
                              text_of("%.1f", percent), row.library_seconds > 0 ? text_of("%.1f", of_library) : "-",
                              std::to_string(row.checked), std::to_string(row.wrong)});
        rows.push_back({{"operation", row.operation},
                        {"shape", row.shape},
                        {"batch", row.batch},
                        {"us", row.seconds * 1e6},
                        {"spread_percent", row.spread_percent},
                        {"bytes", row.bytes},
                        {"flop", row.flops},
                        {"ceiling_percent", percent},
                        {"checked", row.checked},
                        {"wrong", row.wrong}});
        if (row.library_seconds > 0) { rows.back()["library_us"] = row.library_seconds * 1e6; }
    }
    if (!report.rows.empty()) { table.print(markdown); }
    memory.print(" %");
    products.print(" %");
    return rows;
}

std::vector<compared_row> own_layers(const block_report& report) {
    std::vector<compared_row> rows;
    for (const block_row& row : report.layers) {
        compared_row made{.name = row.operation, .shape = row.shape, .batch = row.batch};
        made.own.failure = row.failure;
        made.own.seconds = row.seconds;
        made.own.spread_percent = row.spread_percent;
        made.agreed = row.agreed;
        made.checked = row.checked;
        made.wrong = row.wrong;
        if (row.failure.empty()) { made.ceiling_percent = 100 * share(report, row); }
        rows.push_back(made);
    }
    return rows;
}

/// Measures the steps of pulse and prints each at once.
std::vector<compared_row> own_steps(const bench_options& options, const block_report& report) {
    std::vector<compared_row> rows;
    for (const pulse_bench::step_model& model : pulse_bench::step_models(options.blocks.quick)) {
        const std::string name = std::string{"step "} + model.name;
        if (!options.steps || !options.blocks.wants(name)) { continue; }
        for (const int batch : options.blocks.batches) {
            compared_row made{.name = model.name, .batch = batch};
            made.own = model.measure({batch, options.blocks.rounds, options.time_engines_s});
            made.shape = text_of("%.1f M", static_cast<double>(made.own.parameters) * 1e-6);
            if (made.own.failure.empty()) {
                made.ceiling_percent = 100 * made.own.flops / made.own.seconds / report.flops_per_second;
                made.agreed = made.own.agreed;
                std::printf("pulse, %s: %.2f ms\n%s%s", full_name(name, "", batch).c_str(), 1e3 * made.own.seconds,
                            made.own.attention.c_str(), made.own.engines.c_str());
            } else {
                made.wrong = made.own.out_of_memory() ? 0 : 1;
                std::printf("pulse, %s: %s\n", full_name(name, "", batch).c_str(), made.own.failure.c_str());
            }
            std::fflush(stdout);
            rows.push_back(made);
        }
    }
    return rows;
}

/// Asks torch for the same rows, in one process per mode, after pulse has released its memory. Returns its answers
/// about itself.
json ask_torch(const bench_options& options, std::vector<compared_row>& layers, std::vector<compared_row>& steps) {
    json about = json::object();
    for (const std::string& mode : options.torch.modes) {
        if (layers.empty() && steps.empty()) { continue; }
        pulse_bench::torch_peer peer{options.torch, mode};
        about[mode] = peer.ask({{"what", "about"}});
        if (about[mode].contains("failure")) {
            std::printf("torch %s: %s\n", mode.c_str(), about[mode]["failure"].get<std::string>().c_str());
            continue;
        }
        std::printf("torch %s: %s, %s\n", mode.c_str(), about[mode].value("torch", "").c_str(),
                    about[mode].value("precision", "").c_str());
        const auto say = [&](const compared_row& row, const pulse_bench::step_figures& found) {
            const std::string name = full_name(row.name, row.shape, row.batch);
            if (found.failure.empty()) {
                std::printf("torch %s, %s: %.2f ms\n", mode.c_str(), name.c_str(), 1e3 * found.seconds);
            } else {
                std::printf("torch %s, %s: %s\n", mode.c_str(), name.c_str(), found.failure.c_str());
            }
            std::fflush(stdout);
        };
        for (compared_row& row : layers) {
            for (const pulse_bench::block_layer& l : pulse_bench::layers_of(options.blocks.quick)) {
                if (l.operation != row.name || l.text() != row.shape) { continue; }
                const auto found = peer.figures(request_of(l, row.batch, options.blocks.rounds));
                row.add(mode, found);
                say(row, found.step);
            }
        }
        for (compared_row& row : steps) {
            const auto found = peer.figures(
                {{"what", "step"}, {"model", row.name}, {"batch", row.batch}, {"rounds", options.blocks.rounds}});
            row.add(mode, found);
            say(row, found.step);
        }
    }
    return about;
}

json print_rows(const std::vector<compared_row>& rows, const bench_options& options, bool steps) {
    json made = json::array();
    if (rows.empty()) { return made; }
    table_of(rows, options.torch.modes, steps).print(options.markdown);
    target speed{"training steps, times as fast as torch's compiled ones", least_speedup};
    for (const compared_row& row : rows) {
        if (steps && row.speedup() > 0) { speed.add(full_name(row.name, "", row.batch), row.speedup()); }
        made.push_back(json_of(row));
    }
    speed.print("");
    return made;
}

int measure(const bench_options& options) {
    pulse_bench::json_output file{options.json_file};
    if (!pulse_bench::has_device()) {
        std::puts("skipped: no GPU");
        return 77;
    }
    const block_report report = measure_blocks(options.blocks);
    const std::string driver = std::to_string(report.driver / 1000) + "." + std::to_string(report.driver % 1000 / 10);
    std::printf("%s, driver for CUDA %s\n", report.device.c_str(), driver.c_str());
    std::printf("copy: %.0f GB/s read and written; product: %.0f TFLOP/s in bfloat16\n", report.bytes_per_second * 1e-9,
                report.flops_per_second * 1e-12);
    if (options.blocks.quick) { std::puts("--quick: the figures mean nothing"); }
    const json rows = operations(report, options.markdown);
    std::fputs(report.attention.c_str(), stdout); // tells cuDNN's kernels from pulse's own
    std::vector<compared_row> layers = own_layers(report);
    std::vector<compared_row> steps = own_steps(options, report);
    const json about = ask_torch(options, layers, steps);
    const json layer_rows = print_rows(layers, options, false);
    const json step_rows = print_rows(steps, options, true);

    std::int64_t wrong = 0;
    for (const block_row& row : report.rows) { wrong += row.wrong; }
    for (const auto* some : {&layers, &steps}) {
        for (const compared_row& row : *some) { wrong += row.wrong; }
    }
    file.write({{"format", "pulse-bench-blocks/1"},
                {"device", report.device},
                {"driver", driver},
                {"copy_gb_per_s", report.bytes_per_second * 1e-9},
                {"product_tflop_per_s", report.flops_per_second * 1e-12},
                {"attention", report.attention},
                {"quick", options.blocks.quick},
                {"rows", rows},
                {"torch", about},
                {"layers", layer_rows},
                {"steps", step_rows}});
    if (wrong != 0) { std::fprintf(stderr, "bench_blocks: %lld numbers are wrong\n", static_cast<long long>(wrong)); }
    return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    bench_options options;
    std::vector<std::string> parts{"operations", "layers", "steps"};
    std::vector<std::string> modes{"eager", "compile", "graphs"};
    options.torch = {.python = PULSE_PYTHON, .script = PULSE_PEER_SCRIPT, .device = "cuda", .precision = "master"};
    CLI::App app{"Operations of the CUDA backend as a share of what the card does; layers and training steps made of "
                 "them, here and in PyTorch",
                 "bench_blocks"};
    pulse_bench::count_options counted;
    bool counts = false;
    CLI::Option* const count = app.add_flag("--count", counts, "count the work of training steps, without a device");
    std::vector<std::string> cards;
    for (const auto& known : pulse_bench::counted_cards) { cards.emplace_back(known.first); }
    app.add_option("--card", counted.card, "card whose rates --count uses to estimate the times of an H100's kernels")
        ->needs(count)
        ->check(CLI::IsMember(cards));
    CLI::Option* const batches = app.add_option("--batch", options.blocks.batches, "samples in a microbatch");
    batches->check(CLI::PositiveNumber);
    app.add_option("--part", parts, "what to measure")
        ->excludes(count)
        ->check(CLI::IsMember({"operations", "layers", "steps"}));
    app.add_option("--only", options.blocks.only,
                   "only operations, layers and 'step MODEL' whose names contain one of these");
    app.add_option("--rounds", options.blocks.rounds, "timings, of which the median is taken")
        ->excludes(count)
        ->check(CLI::Range(3, 1000));
    app.add_option("--time-engines", options.time_engines_s,
                   "seconds in which engines are timed for each step; 0: take those that heuristics rank first")
        ->excludes(count)
        ->check(CLI::Range(0.0, 1e6));
    app.add_flag("--quick", options.blocks.quick, "one small shape of each; the figures mean nothing");
    app.add_option("--torch", modes,
                   "how PyTorch runs: eager, compile (torch.compile), graphs (torch.compile and CUDA graphs) or none")
        ->excludes(count)
        ->check(CLI::IsMember({"eager", "compile", "graphs", "none"}));
    app.add_option("--torch-device", options.torch.device,
                   "where PyTorch runs; on the CPU it shows whether the results agree")
        ->excludes(count)
        ->check(CLI::IsMember({"cuda", "cpu"}));
    app.add_option("--torch-precision", options.torch.precision, "precision of a step in PyTorch, see blocks_peer.py")
        ->excludes(count)
        ->check(CLI::IsMember({"master", "autocast"}));
    app.add_option("--python", options.torch.python, "the Python that has PyTorch")
        ->excludes(count)
        ->check(CLI::ExistingFile);
    app.add_option("--script", options.torch.script,
                   "path of blocks_peer.py, if it has moved since this program was built")
        ->excludes(count)
        ->check(CLI::ExistingFile);
    app.add_flag("--markdown", options.markdown, "print Markdown");
    app.add_option("--json", options.json_file, "write the figures to this file");
    return pulse_bench::run_bench(app, argc, argv, [&] {
        if (counts) {
            if (batches->count() == 0) { options.blocks.batches = {1, 4}; }
            counted.blocks = options.blocks;
            counted.markdown = options.markdown;
            counted.json_file = options.json_file;
            return count_blocks(counted, argv);
        }
        const auto has = [&](const char* part) { return std::ranges::find(parts, part) != parts.end(); };
        options.blocks.operations = has("operations");
        options.blocks.layers = has("layers");
        options.steps = has("steps");
        std::erase(modes, "none");
        options.torch.modes = modes;
        return measure(options);
    });
}
