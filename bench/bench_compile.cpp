// What including pulse costs: seconds of processor time and peak memory of the compiler, for the planner that runs in
// the compiler (tests/compile_time), the umbrella, all headers of each part, and the backbones of the zoo.
//   bench_compile [--compilers g++,clang++] [--quick] [--json FILE]
// Exit status: 0 measured, 1 something did not compile, 2 refused.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "json_output.hpp"
#include "run_bench.hpp"

namespace {

namespace fs = std::filesystem;

struct cost {
    double seconds{};
    double megabytes{};
    int status{};
};

/// Runs a compiler to its end; what it says goes to our stderr.
cost run(const std::vector<std::string>& command) {
    std::vector<char*> arguments{};
    for (const std::string& word : command) { arguments.push_back(const_cast<char*>(word.c_str())); }
    arguments.push_back(nullptr);
    const pid_t child = ::fork();
    if (child < 0) { throw std::runtime_error("fork failed"); }
    if (child == 0) {
        ::execvp(arguments[0], arguments.data());
        ::_exit(127);
    }
    int status = 0;
    rusage used{};
    if (::wait4(child, &status, 0, &used) < 0) { throw std::runtime_error("wait4 failed"); }
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return {seconds(used.ru_utime) + seconds(used.ru_stime), static_cast<double>(used.ru_maxrss) / 1024.0,
            WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

bool is_gcc(const std::string& compiler) { return compiler.find("clang") == std::string::npos; }

std::vector<std::string> command_for(const std::string& compiler, const fs::path& source) {
    std::vector<std::string> command{compiler, "-std=c++20", "-fsyntax-only", std::string{"-I"} + PULSE_INCLUDE,
                                     std::string{"-I"} + PULSE_TESTS};
    if (is_gcc(compiler)) {
        command.insert(command.end(), {"-fconstexpr-ops-limit=1000000000", "-fconstexpr-loop-limit=10000000"});
    } else {
        command.emplace_back("-fconstexpr-steps=1000000000");
    }
    command.push_back(source.string());
    return command;
}

/// Empty if the compiler runs and knows C++20, else what is wrong with it.
std::string wrong_with_compiler(const std::string& compiler) {
    const cost c = run({compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "/dev/null"});
    return c.status == 0 ? "" : compiler + " cannot be run or does not know C++20";
}

int measure(std::vector<std::string> compilers, bool quick, const std::string& json_file) {
    pulse_bench::json_output json{json_file};
    // Those of the command line have been tried, the default ones need not be here.
    std::erase_if(compilers, [](const std::string& compiler) {
        const std::string wrong = wrong_with_compiler(compiler);
        if (!wrong.empty()) { std::printf("left out: %s\n", wrong.c_str()); }
        return !wrong.empty();
    });
    if (compilers.empty()) { throw std::runtime_error("there is no compiler to measure"); }
    std::vector<fs::path> sources{};
    for (const auto& entry : fs::directory_iterator{PULSE_COMPILE_CASES}) {
        if (!quick || entry.path().stem() == "umbrella") { sources.push_back(entry.path()); }
    }
    std::sort(sources.begin(), sources.end());
    if (!quick) { sources.emplace_back(std::string{PULSE_TESTS} + "/compile_time/sd21.cpp"); }

    nlohmann::ordered_json all{{"format", "pulse-bench-compile/1"}, {"rows", nlohmann::ordered_json::array()}};
    bool failed = false;
    std::printf("%-28s %-12s %10s %10s\n", "what", "compiler", "CPU s", "MB");
    for (const fs::path& source : sources) {
        const bool planner = source.stem() == "sd21";
        const std::string what = planner ? "planner_in_the_compiler" : source.stem().string();
        for (const std::string& compiler : compilers) {
            const cost c = run(command_for(compiler, source));
            std::printf("%-28s %-12s %10.2f %10.0f%s\n", what.c_str(), compiler.c_str(), c.seconds, c.megabytes,
                        c.status == 0 ? "" : "  does not compile");
            std::fflush(stdout);
            failed = failed || c.status != 0;
            all["rows"].push_back({{"what", what},
                                   {"compiler", compiler},
                                   {"cpu_s", c.seconds},
                                   {"peak_mb", c.megabytes},
                                   {"compiles", c.status == 0}});
        }
    }
    json.write(all);
    return failed ? 1 : 0;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Seconds and memory that compilers need for pulse.", "bench_compile"};
    std::vector<std::string> compilers{"g++", "clang++"};
    bool quick = false;
    std::string json_file{};
    app.add_option("--compilers", compilers, "Compilers to run")
        ->delimiter(',')
        ->check(wrong_with_compiler)
        ->capture_default_str();
    app.add_flag("--quick", quick, "The umbrella alone");
    app.add_option("--json", json_file, "Write what was measured to this file");
    return pulse_bench::run_bench(app, argc, argv, [&] { return measure(compilers, quick, json_file); });
}
