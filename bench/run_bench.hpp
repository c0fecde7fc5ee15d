#pragma once

#include <cstdio>
#include <exception>
#include <string_view>

#include <CLI/CLI.hpp>

namespace pulse_bench {

/// Whether this is a Release build; says so on stderr when it is not.
[[nodiscard]] inline bool is_release() {
    const bool release = std::string_view{PULSE_BUILD_TYPE} == "Release";
    if (!release) {
        std::fprintf(stderr, "bench: a %s build measures nothing of interest; use the release preset\n",
                     PULSE_BUILD_TYPE);
    }
    return release;
}

/// A benchmark's main: reads its command line, then calls `measure()`. Exit status: 0 measured or --help, 1 failed, 2
/// refused, also for a CLI::ParseError of `measure`; one line on stderr says why.
template <class Measure>
[[nodiscard]] int run_bench(CLI::App& app, int argc, char** argv, const Measure& measure) {
    if (!is_release()) { return 2; }
    app.failure_message(
        [](const CLI::App* of, const CLI::Error& e) { return of->get_name() + ": " + e.what() + "\n"; });
    try {
        app.parse(argc, argv);
        return measure();
    } catch (const CLI::Success& e) { return app.exit(e); } catch (const CLI::ParseError& e) {
        static_cast<void>(app.exit(e));
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
        return 1;
    }
}

} // namespace pulse_bench
