// What the planner reaches, part by part; every part prints a table and writes it with --json FILE.
//   bench_plan PART [options]      (bench_plan --help lists the parts)
// Exit status: 0 measured (met or missed), 1 failed, 2 refused.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "plan_parts.hpp"
#include "release_only.hpp"

int main(int argc, char** argv) {
    if (!pulse_bench::is_release()) { return 2; }
    CLI::App app{"What the planner reaches, part by part."};
    app.require_subcommand(1);
    for (const auto add : pulse_bench::plan_parts) { add(app); }
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        app.exit(e);
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_plan: %s\n", e.what());
        return 1;
    }
    return 0;
}
