// Every operation of the CUDA backend at the layers of Stable Diffusion 2.1 and SDXL, in bfloat16, as a share of what
// the card does: of its copy bandwidth, or of its rate of large products, both measured first. Inputs come from memory,
// not from the cache, and a sample of every result is checked against plain loops in double.
//   bench_blocks [--batch 1 4 16] [--only TEXT] [--rounds N] [--quick] [--markdown] [--json FILE]
// Exit status: 0 measured, 1 failed or something is wrong, 2 refused, 77 no GPU.
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "blocks.hpp"
#include "json_output.hpp"
#include "run_bench.hpp"
#include "text_table.hpp"

namespace {

using pulse_bench::text_of;

/// The share of the ceiling that binds: of memory where there are no products, else the greater of both shares.
double share(const pulse_bench::block_report& report, const pulse_bench::block_row& row) {
    const double memory = row.bytes / row.seconds / report.bytes_per_second;
    const double products = row.flops / row.seconds / report.flops_per_second;
    return products > memory ? products : memory;
}

int measure(const pulse_bench::block_options& options, bool markdown, const std::string& json_file) {
    pulse_bench::json_output json{json_file};
    if (!pulse_bench::has_device()) {
        std::puts("skipped: no GPU");
        return 77;
    }
    const pulse_bench::block_report report = measure_blocks(options);
    const std::string driver = std::to_string(report.driver / 1000) + "." + std::to_string(report.driver % 1000 / 10);
    std::printf("%s, driver for CUDA %s\n", report.device.c_str(), driver.c_str());
    std::printf("copy: %.0f GB/s read and written; product: %.0f TFLOP/s in bfloat16\n", report.bytes_per_second * 1e-9,
                report.flops_per_second * 1e-12);
    if (options.quick) { std::puts("--quick: the figures mean nothing"); }
    pulse_bench::text_table table{
        {"operation", "shape", "batch", "us", "+-%", "GB/s", "TFLOP/s", "% of ceiling", "checked", "#wrong"}};
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::int64_t wrong = 0;
    for (const pulse_bench::block_row& row : report.rows) {
        wrong += row.wrong;
        const double percent = 100 * share(report, row);
        table.rows.push_back({row.operation, row.shape, std::to_string(row.batch), text_of("%.2f", row.seconds * 1e6),
                              text_of("%.1f", row.spread_percent), text_of("%.0f", row.bytes / row.seconds * 1e-9),
                              row.flops == 0 ? "-" : text_of("%.0f", row.flops / row.seconds * 1e-12),
                              text_of("%.1f", percent), std::to_string(row.checked), std::to_string(row.wrong)});
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
    }
    table.print(markdown);
    json.write({{"format", "pulse-bench-blocks/1"},
                {"device", report.device},
                {"driver", driver},
                {"copy_gb_per_s", report.bytes_per_second * 1e-9},
                {"product_tflop_per_s", report.flops_per_second * 1e-12},
                {"quick", options.quick},
                {"rows", rows}});
    if (wrong != 0) { std::fprintf(stderr, "bench_blocks: %lld numbers are wrong\n", static_cast<long long>(wrong)); }
    return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    pulse_bench::block_options options;
    bool markdown = false;
    std::string json_file;
    CLI::App app{"Operations of the CUDA backend as a share of what the card does", "bench_blocks"};
    app.add_option("--batch", options.batches, "samples of a microbatch")->check(CLI::PositiveNumber);
    app.add_option("--only", options.only, "operations whose name contains this");
    app.add_option("--rounds", options.rounds, "timings of which the median counts")->check(CLI::Range(3, 1000));
    app.add_flag("--quick", options.quick, "one small shape of each operation; the figures mean nothing");
    app.add_flag("--markdown", markdown, "print Markdown");
    app.add_option("--json", json_file, "write the figures here");
    return pulse_bench::run_bench(app, argc, argv, [&] { return measure(options, markdown, json_file); });
}
