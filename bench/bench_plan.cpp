// Measures the planner, part by part; every part prints a table and writes it with --json FILE.
//   bench_plan PART [options]      (bench_plan --help lists the parts)
// Exit status: 0 measured (met or missed), 1 failed, 2 refused.
#include <CLI/CLI.hpp>

#include "plan_parts.hpp"
#include "run_bench.hpp"

int main(int argc, char** argv) {
    CLI::App app{"Measures what the planner achieves, part by part.", "bench_plan"};
    app.require_subcommand(1);
    for (const auto add : pulse_bench::plan_parts) { add(app); }
    return pulse_bench::run_bench(app, argc, argv, [] { return 0; }); // the parts measure during parsing
}
