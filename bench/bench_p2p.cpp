// Measures messages between two ranks over every path of this machine: latency, bandwidth one way, both ways and beside
// matrix products, the host's time to post one, and whether every byte arrives. The planner reads the line
// t = latency + bytes / bandwidth through the latencies as a link of a cluster.
//   bench_p2p [--path threads copy kernel bulk cuda-threads nccl nccl-registered] [--to BYTES | --sizes BYTES...]
//             [--model NAME --microbatch-size B --pipeline P --scalar-bytes 2|4] [--seconds S] [--repeats N] [--quick]
//             [--json FILE] [--markdown]
//   mpirun -n 2 [--host a,b] bench_p2p --path mpi ...
//   ... --cluster FILE [--intra FILE] [--inter FILE] [--nodes N] [--devices-per-node D] [--memory-bytes BYTES]
// Exit status: 0 measured, 1 failed or bytes are wrong, 2 refused.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/hardware/json.hpp>

#include "json_output.hpp"
#include "p2p.hpp"
#include "p2p_link.hpp"
#include "p2p_paths.hpp"
#include "p2p_sizes.hpp"
#include "run_bench.hpp"
#include "text_table.hpp"

namespace {

using namespace pulse_bench;
using nlohmann::ordered_json;

/// Target for a path on one card: its largest message should reach this share of the rate of a large copy.
constexpr double target_percent = 90;

struct arguments {
    std::vector<std::string> paths{};
    std::vector<std::int64_t> sizes{};
    std::int64_t largest{std::int64_t{1} << 30};
    p2p_model model{};
    double seconds{0.1};
    int repeats{5};
    bool quick{};
    bool markdown{};
    std::string json{};
    std::string cluster{};
    std::string intra{};
    std::string inter{};
    p2p_cluster_options machine{};
};

/// Runs `work`; throws a pulse::error of it as a CLI::ValidationError of the option.
template <class Work>
auto refused_as(const char* option, const Work& work) {
    try {
        return work();
    } catch (const pulse::error& e) { throw CLI::ValidationError(option, e.what()); }
}

std::vector<p2p_size> sizes_of(const arguments& a) {
    std::vector<p2p_size> sizes{};
    for (const std::int64_t bytes : a.sizes) { sizes.push_back({bytes, {}}); }
    if (sizes.empty()) { sizes = doubling_sizes(a.quick ? 65536 : a.largest); }
    if (!a.model.name.empty()) {
        return refused_as("--model", [&] { return joined_sizes(sizes, model_sizes(a.model, false)); });
    }
    if (!a.sizes.empty() || a.quick) { return joined_sizes({}, sizes); }
    for (const char* const name : {"sd21", "sdxl", "hunyuan_dit_v12"}) {
        p2p_model one = a.model;
        one.name = name;
        sizes = refused_as("--pipeline", [&] { return joined_sizes(sizes, model_sizes(one, true)); });
    }
    return sizes;
}

bool has_mpi() {
#if PULSE_BENCH_MPI
    return true;
#else
    return false;
#endif
}

p2p_devices devices_here() {
#if PULSE_BENCH_CUDA
    return find_devices();
#else
    return {};
#endif
}

/// Prints what there is to measure here, and why the rest is not.
void print_machine(const p2p_devices& devices) {
    if (devices.count > 1) {
        std::printf("%d devices (%s): measured between devices 0 and 1, and on the host\n", devices.count,
                    devices.name.c_str());
    } else if (devices.count == 1) {
        std::printf("1 device (%s): measured within it, and on the host; links between devices are not\n",
                    devices.name.c_str());
    } else {
#if PULSE_BENCH_CUDA
        std::puts("no GPU: only paths on the host are measured");
#else
        std::puts("built without CUDA: only paths on the host are measured");
#endif
    }
    std::puts(has_mpi() ? "between processes, also on two hosts: mpirun -n 2 bench_p2p --path mpi"
                        : "built without MPI: no path between processes is measured");
}

/// The paths to measure; without --path all but MPI. Throws CLI::ValidationError for a path that is unavailable here.
std::vector<std::string> paths_of(const arguments& a, const p2p_devices& devices) {
    std::vector<std::string> paths = a.paths;
    if (paths.empty()) {
        paths = {"threads"};
        for (const std::string& path : device_paths) {
            if (devices.count > 0 && (path != "bulk" || devices.bulk_copies)) { paths.push_back(path); }
        }
        if (devices.nccl && devices.count > 1) { paths.insert(paths.end(), nccl_paths.begin(), nccl_paths.end()); }
        return paths;
    }
    for (const std::string& path : paths) {
        const auto is_one_of = [&](const std::vector<std::string>& all) {
            return std::find(all.begin(), all.end(), path) != all.end();
        };
        if (is_one_of(device_paths) && devices.count == 0) {
            throw CLI::ValidationError("--path", path + " needs a GPU");
        }
        if (is_one_of(nccl_paths) && !devices.nccl) {
            throw CLI::ValidationError("--path", "this program was built without NCCL");
        }
        if (is_one_of(nccl_paths) && devices.count < 2) {
            throw CLI::ValidationError("--path", path + " needs two GPUs");
        }
        if (path == "bulk" && !devices.bulk_copies) {
            throw CLI::ValidationError("--path", "bulk needs a GPU of sm_90 or later");
        }
        if (path == "mpi" && !has_mpi()) { throw CLI::ValidationError("--path", "this program was built without MPI"); }
        if (path == "mpi" && paths.size() != 1) {
            throw CLI::ValidationError("--path", "mpi must be the only path, because two processes run it");
        }
    }
    return paths;
}

std::string text_of_size(std::int64_t bytes) {
    for (const auto& [unit, shift] : {std::pair{" GiB", 30}, {" MiB", 20}, {" KiB", 10}}) {
        const std::int64_t one = std::int64_t{1} << shift;
        if (bytes >= one) {
            return text_of(bytes % one == 0 ? "%.0f" : "%.2f", static_cast<double>(bytes) / static_cast<double>(one)) +
                   unit;
        }
    }
    return std::to_string(bytes) + " B";
}

ordered_json json_of(const p2p_report& report, const p2p_fit& fit) {
    ordered_json rows = ordered_json::array();
    for (const p2p_row& row : report.rows) {
        rows.push_back({{"bytes", row.size.bytes},
                        {"name", row.size.name},
                        {"p50_us", row.p50_us},
                        {"p99_us", row.p99_us},
                        {"gb_per_s", row.gb_per_s},
                        {"both_ways_gb_per_s", row.both_ways_gb_per_s},
                        {"beside_products_gb_per_s", row.beside_gb_per_s},
                        {"products_slower_percent", row.product_slower_percent},
                        {"post_us", row.post_us},
                        {"wrong", row.wrong}});
    }
    ordered_json json{{"path", report.path}, {"text", report.text}, {"between_hosts", report.between_hosts}};
    json["fit"] = nullptr;
    if (fit.found) {
        json["fit"] = {{"latency_us", fit.found->line.latency_us},
                       {"bandwidth_gb_per_s", fit.found->line.bandwidth_gb_per_s},
                       {"mean_factor", fit.found->mean_factor},
                       {"worst_factor", fit.found->worst_factor},
                       {"worst_bytes", fit.found->worst_bytes}};
    }
    if (report.copy_gb_per_s > 0) { json["copy_gb_per_s"] = report.copy_gb_per_s; }
    json["rows"] = std::move(rows);
    return json;
}

void print_report(const p2p_report& report, const p2p_fit& fit, bool markdown) {
    std::printf("\n%s: %s\n", report.path.c_str(), report.text.c_str());
    const bool one_card = report.copy_gb_per_s > 0;
    text_table table{
        {"bytes", "p50 us", "p99 us", "GB/s", "both ways", "beside products", "slower %", "post us", "#wrong"}};
    if (one_card) { table.heads.insert(table.heads.begin() + 4, "% of copy"); }
    table.heads.emplace_back("message of");
    for (const p2p_row& row : report.rows) {
        std::vector<std::string> cells{text_of_size(row.size.bytes),
                                       text_of("%.2f", row.p50_us),
                                       text_of("%.2f", row.p99_us),
                                       text_of("%.3g", row.gb_per_s),
                                       text_of("%.3g", row.both_ways_gb_per_s),
                                       text_of("%.3g", row.beside_gb_per_s),
                                       text_of("%.1f", row.product_slower_percent),
                                       text_of("%.2f", row.post_us),
                                       std::to_string(row.wrong)};
        if (one_card) { cells.insert(cells.begin() + 4, text_of("%.1f", 100 * row.gb_per_s / report.copy_gb_per_s)); }
        cells.push_back(row.size.name);
        table.rows.push_back(std::move(cells));
    }
    table.print(markdown);
    if (one_card) {
        const double percent = 100 * report.rows.back().gb_per_s / report.copy_gb_per_s;
        std::printf("a large copy on this card: %.0f GB/s; the largest message: %.1f %% of it (target %.0f %%): %s\n",
                    report.copy_gb_per_s, percent, target_percent, percent >= target_percent ? "met" : "missed");
    }
    if (!fit.found) {
        std::printf("link: none (%s)\n", fit.why_not.c_str());
        return;
    }
    const pulse::link_fit& line = *fit.found;
    std::printf(
        "link: %.3g us + bytes / (%.4g GB/s); times are off by a factor of %.2f in the mean, %.2f at worst (%s)\n",
        line.line.latency_us, line.line.bandwidth_gb_per_s, line.mean_factor, line.worst_factor,
        text_of_size(line.worst_bytes).c_str());
}

/// The link that a file gives, if any; throws CLI::ValidationError if it is of the wrong kind.
std::optional<p2p_link> link_from(const char* option, const std::string& file, bool between_hosts) {
    if (file.empty()) { return std::nullopt; }
    const p2p_link read = refused_as(option, [&] { return load_link(file); });
    if (read.between_hosts != between_hosts) {
        throw CLI::ValidationError(option,
                                   file + " has a link " + (read.between_hosts ? "between" : "inside") + " hosts");
    }
    return read;
}

/// Loads the links of files, measures the missing one, writes the results; `measure` is not called if files give both.
template <class Measure>
int measure_and_write(const arguments& a, const p2p_devices& devices, bool between_hosts, const Measure& measure) {
    std::optional<p2p_link> intra = link_from("--intra", a.intra, false);
    std::optional<p2p_link> inter = link_from("--inter", a.inter, true);
    const bool measures = !(intra && inter);
    if (measures && (between_hosts ? inter : intra)) {
        throw CLI::ValidationError(between_hosts ? "--inter" : "--intra", std::string{"this run measures the link "} +
                                                                              (between_hosts ? "between" : "inside") +
                                                                              " hosts itself");
    }
    if (!measures && !a.json.empty()) {
        throw CLI::ValidationError("--json", "nothing is measured if --intra and --inter give both links");
    }
    json_output json{a.json};
    std::int64_t wrong = 0;
    std::string no_link;
    if (measures) {
        const int devices_per_node = devices.count > 0 ? devices.count : 2;
        const std::int64_t memory = devices.count > 0 ? devices.memory_bytes : host_memory_bytes() / devices_per_node;
        const p2p_link machine{{}, between_hosts, {}, devices_per_node, memory};
        // Refuses what cannot become a cluster before measuring.
        if (!a.cluster.empty()) {
            refused_as("--cluster", [&] {
                return cluster_of(between_hosts ? intra : machine, between_hosts ? machine : inter, a.machine);
            });
        }
        const std::vector<p2p_report> reports = measure();
        ordered_json paths = ordered_json::array();
        for (const p2p_report& report : reports) {
            const p2p_fit fit = fit_of(report);
            print_report(report, fit, a.markdown);
            paths.push_back(json_of(report, fit));
            for (const p2p_row& row : report.rows) { wrong += row.wrong; }
        }
        const p2p_report& used = path_of_ranks(reports);
        p2p_link link = machine;
        link.path = used.path;
        const p2p_fit fit = fit_of(used);
        ordered_json link_json{};
        if (fit.found) {
            link.line = fit.found->line;
            link_json = {{"path", link.path},
                         {"between_hosts", between_hosts},
                         {"latency_us", link.line.latency_us},
                         {"bandwidth_gb_per_s", link.line.bandwidth_gb_per_s}};
        } else {
            no_link = used.path + ": " + fit.why_not;
        }
        json.write({{"format", p2p_format},
                    {"device", devices.name},
                    {"quick", a.quick},
                    {"devices_per_node", link.devices_per_node},
                    {"memory_bytes", link.memory_bytes},
                    {"link", std::move(link_json)},
                    {"paths", std::move(paths)}});
        (between_hosts ? inter : intra) = link;
    }
    if (wrong != 0) {
        std::fprintf(stderr, "bench_p2p: %lld bytes are wrong\n", static_cast<long long>(wrong));
        return 1;
    }
    if (!a.cluster.empty() && !no_link.empty()) {
        std::fprintf(stderr, "bench_p2p: --cluster: nothing is written, %s\n", no_link.c_str());
        return 1;
    }
    if (!a.cluster.empty()) {
        const pulse::cluster made = refused_as("--cluster", [&] { return cluster_of(intra, inter, a.machine); });
        pulse::save_cluster(made, a.cluster);
        std::printf("\n%s: %d x %d devices of %s; inside a host %s, between hosts %s\n", a.cluster.c_str(), made.nodes,
                    made.devices_per_node, text_of_size(made.memory_bytes).c_str(),
                    intra ? intra->path.c_str() : "no link", inter ? inter->path.c_str() : "no link");
    }
    return 0;
}

int run(const arguments& a) {
    if (a.cluster.empty() && !(a.intra + a.inter).empty()) {
        throw CLI::ValidationError("--cluster", "required with --intra or --inter, which only go into it");
    }
    const p2p_options options{sizes_of(a), a.quick ? 0.002 : a.seconds, a.quick ? 3 : a.repeats, a.quick};
    const p2p_devices devices = devices_here();
    const std::vector<std::string> paths = paths_of(a, devices);
    const auto begin = [&] {
        print_machine(devices);
        if (a.quick) { std::puts("--quick: the figures mean nothing"); }
    };
#if PULSE_BENCH_MPI
    if (paths.front() == "mpi") {
        int status = 0;
        const int ended = run_mpi_path([&](const mpi_side& side) {
            if (side.rank != 0) {
                static_cast<void>(side.measure(options));
                return;
            }
            begin();
            status = measure_and_write(a, {}, side.between_hosts,
                                       [&] { return std::vector<p2p_report>{side.measure(options)}; });
        });
        return std::max(status, ended);
    }
#endif
    begin();
    return measure_and_write(a, devices, false, [&] {
        std::vector<p2p_report> reports{};
        for (const std::string& path : paths) {
            if (path == "threads") { reports.push_back(measure_thread_path(options)); }
#if PULSE_BENCH_CUDA
            if (path != "threads") { reports.push_back(measure_device_path(path, options)); }
#endif
        }
        return reports;
    });
}

} // namespace

int main(int argc, char** argv) {
    arguments a;
    CLI::App app{"Messages between two ranks over every path: latency, bandwidth, and the line that the planner reads",
                 "bench_p2p"};
    const auto bytes = CLI::AsSizeValue(false); // "4K" is 4096
    app.add_option("--path", a.paths, "paths to measure; without it, all that exist here except mpi")
        ->check(CLI::IsMember({"threads", "mpi", "copy", "kernel", "bulk", "cuda-threads", "nccl", "nccl-registered"}));
    auto* const sizes = app.add_option("--sizes", a.sizes, "bytes of the messages (4K is 4096)")->transform(bytes);
    app.add_option("--to", a.largest, "largest of the sizes, which double from 8 B (1 GiB)")
        ->transform(bytes)
        ->excludes(sizes);
    app.add_option("--model", a.model.name,
                   "also measure every message of this backbone's plans, instead of the largest of some backbones");
    app.add_option("--microbatch-size", a.model.microbatch_size, "microbatch size of the plans (1)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("--pipeline", a.model.pipeline, "devices of the plans (4)")->check(CLI::Range(2, 1024));
    app.add_option("--scalar-bytes", a.model.scalar_bytes, "bytes per number of an activation (2)")
        ->check(CLI::IsMember({2, 4}));
    app.add_option("--seconds", a.seconds, "seconds for each of the four measurements of a size (0.1)")
        ->check(CLI::Range(1e-3, 3600.0));
    app.add_option("--repeats", a.repeats, "least number of repeats of each measurement (5)")
        ->check(CLI::Range(1, 100000));
    app.add_flag("--quick", a.quick, "8 B to 64 KiB, briefly; the figures mean nothing");
    app.add_flag("--markdown", a.markdown, "print Markdown");
    app.add_option("--json", a.json, "write the figures to this file");
    app.add_option("--cluster", a.cluster, "write the measured link to this file, for pulse_plan --cluster");
    app.add_option("--intra", a.intra, "take the link inside a host from this --json file");
    app.add_option("--inter", a.inter,
                   "take the link between hosts from this --json file; with both, nothing is measured");
    app.add_option("--nodes", a.machine.nodes, "nodes of the cluster (1; 2 with a link between hosts)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("--devices-per-node", a.machine.devices_per_node,
                   "devices per node of the cluster (those found here; 2 if there are none)")
        ->check(CLI::Range(1, 1024));
    app.add_option("--memory-bytes", a.machine.memory_bytes,
                   "memory of a device (as found; the host's, divided among them)")
        ->check(CLI::PositiveNumber);
    return run_bench(app, argc, argv, [&] {
        for (const std::int64_t size : a.sizes) {
            if (size < 1) { throw CLI::ValidationError("--sizes", "must be at least 1"); }
        }
        if (a.largest < 16) { throw CLI::ValidationError("--to", "must be at least 16"); }
        return run(a);
    });
}
