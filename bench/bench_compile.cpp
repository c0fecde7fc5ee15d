// What including pulse costs: seconds of processor time and peak memory of the compiler, for the umbrellas and the
// example trainers, header-only and against pulse::compiled and pulse::compiled_host, for the planner that runs in the
// compiler (tests/compile_time), all headers of each part, and the backbones of the zoo. Seconds are also given as
// multiples of a unit: ten standard headers that pulse.hpp needs anyway. Targets may be exceeded by half.
//   bench_compile [--compilers g++,clang++] [--quick] [--json FILE]
// Exit status: 0 measured, 1 something did not compile or cost too much, 2 refused. With --quick, which tests run
// beside others, only memory can be too much.
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

#include <pulse/core/text_table.hpp>

#include "json_output.hpp"
#include "run_bench.hpp"

namespace {

namespace fs = std::filesystem;

struct cost {
    double seconds{};
    double megabytes{};
    int status{};
};

/// Runs a compiler to its end; its messages go to our stderr.
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

/// What is compiled, and what it may cost.
struct compile_case {
    std::string what{};
    fs::path source{};
    std::vector<std::string> flags{"-fsyntax-only"};
    double units{};     ///< target; 0 is none
    double megabytes{}; ///< target; 0 is none
    bool quick{false};

    /// Empty if the cost is within 1.5 times the targets.
    [[nodiscard]] std::string excess(double in_units, double in_megabytes) const {
        std::string text{};
        if (units > 0 && in_units > 1.5 * units) { text += "  above 1.5 x " + pulse::number_text(units, 1) + " units"; }
        if (megabytes > 0 && in_megabytes > 1.5 * megabytes) {
            text += "  above 1.5 x " + pulse::number_text(megabytes, 0) + " MB";
        }
        return text;
    }
};

bool is_gcc(const std::string& compiler) { return compiler.find("clang") == std::string::npos; }

std::vector<std::string> command_for(const std::string& compiler, const compile_case& c) {
    std::vector<std::string> command{compiler, "-std=c++20", std::string{"-I"} + PULSE_INCLUDE,
                                     std::string{"-I"} + PULSE_TESTS};
    command.insert(command.end(), c.flags.begin(), c.flags.end());
    if (c.what == "planner_in_the_compiler") {
        if (is_gcc(compiler)) {
            command.insert(command.end(), {"-fconstexpr-ops-limit=1000000000", "-fconstexpr-loop-limit=10000000"});
        } else {
            command.emplace_back("-fconstexpr-steps=1000000000");
        }
    }
    command.push_back(c.source.string());
    return command;
}

/// The cases that have targets come first. Targets are of g++ 12 and nvcc 13; nvcc's units are g++'s.
std::vector<compile_case> cases() {
    const fs::path generated{PULSE_COMPILE_CASES};
    const fs::path examples{PULSE_EXAMPLES};
    const std::string separate = "-DPULSE_SEPARATE_COMPILATION";
    std::vector<compile_case> all{
        {.what = "umbrella", .source = generated / "umbrella.cpp", .units = 4, .megabytes = 300, .quick = true},
        {.what = "umbrella_compiled",
         .source = generated / "umbrella.cpp",
         .flags = {"-fsyntax-only", separate},
         .units = 2.5,
         .megabytes = 250,
         .quick = true},
        {.what = "planner", .source = generated / "planner.cpp"},
        {.what = "planner_compiled", .source = generated / "planner.cpp", .flags = {"-fsyntax-only", separate}},
    };
    const std::vector<std::string> optimised{"-O2", "-c", "-o", "/dev/null", std::string{"-I"} + PULSE_ONEDNN_INCLUDE};
    const auto add_example = [&](const char* what, const fs::path& source, double units, double compiled_units,
                                 double megabytes) {
        all.push_back({.what = what, .source = source, .flags = optimised, .units = units});
        auto flags = optimised;
        flags.insert(flags.end(), {separate, "-DPULSE_SEPARATE_HOST"});
        all.push_back({.what = std::string{what} + "_compiled",
                       .source = source,
                       .flags = std::move(flags),
                       .units = compiled_units,
                       .megabytes = megabytes});
    };
    if (*PULSE_ONEDNN_INCLUDE != '\0') { add_example("own_trainer", examples / "2_own_trainer.cpp", 30, 6, 500); }
    std::vector<fs::path> others{};
    for (const auto& entry : fs::directory_iterator{generated}) {
        const std::string stem = entry.path().stem().string();
        if (stem != "unit" && stem != "umbrella" && stem != "planner") { others.push_back(entry.path()); }
    }
    std::sort(others.begin(), others.end());
    for (const fs::path& source : others) { all.push_back({.what = source.stem().string(), .source = source}); }
    all.push_back({.what = "planner_in_the_compiler", .source = fs::path{PULSE_TESTS} / "compile_time/sd21.cpp"});
    return all;
}

/// Empty if the compiler runs and knows C++20, else what is wrong with it.
std::string wrong_with_compiler(const std::string& compiler) {
    const cost c = run({compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "/dev/null"});
    return c.status == 0 ? "" : compiler + " cannot be run or does not know C++20";
}

int measure(std::vector<std::string> compilers, bool quick, const std::string& json_file) {
    pulse_bench::json_output json{json_file};
    // Those of the command line have been tried; the default ones may be missing.
    std::erase_if(compilers, [](const std::string& compiler) {
        const std::string wrong = wrong_with_compiler(compiler);
        if (!wrong.empty()) { std::printf("left out: %s\n", wrong.c_str()); }
        return !wrong.empty();
    });
    if (compilers.empty()) { throw std::runtime_error("no compiler to measure"); }
    nlohmann::ordered_json all{{"format", "pulse-bench-compile/2"}, {"rows", nlohmann::ordered_json::array()}};
    bool failed = false;
    std::printf("%-28s %-12s %10s %10s %10s %10s\n", "what", "compiler", "CPU s", "units", "target", "MB");
    const auto row = [&](const compile_case& c, const std::string& compiler, const cost& measured, double unit_s,
                         bool held) {
        const double units = measured.seconds / unit_s;
        const std::string target = c.units > 0 ? pulse::number_text(c.units, 1) : "";
        const std::string excess = held ? c.excess(units, measured.megabytes) : "";
        std::printf("%-28s %-12s %10.2f %10.1f %10s %10.0f%s%s\n", c.what.c_str(), compiler.c_str(), measured.seconds,
                    units, target.c_str(), measured.megabytes, measured.status == 0 ? "" : "  does not compile",
                    excess.c_str());
        std::fflush(stdout);
        const bool is_too_much = !(quick ? c.excess(0, held ? measured.megabytes : 0) : excess).empty();
        failed = failed || measured.status != 0 || is_too_much;
        nlohmann::ordered_json one{
            {"what", c.what}, {"compiler", compiler},          {"cpu_s", measured.seconds},
            {"units", units}, {"peak_mb", measured.megabytes}, {"compiles", measured.status == 0}};
        if (c.units > 0) { one["target_units"] = c.units; }
        all["rows"].push_back(std::move(one));
    };
    // The fastest of up to three runs, until one is `enough`, since other work on the machine only adds time. One run
    // with --quick, which does not hold time against targets.
    const auto least_of = [&](const compile_case& c, const std::string& compiler, const auto& enough) {
        cost least = run(command_for(compiler, c));
        for (int again = quick ? 2 : 0; again != 2 && !enough(least); ++again) {
            const cost other = run(command_for(compiler, c));
            if (other.seconds < least.seconds) { least = other; }
        }
        return least;
    };
    for (const std::string& compiler : compilers) {
        const compile_case unit{.what = "unit", .source = fs::path{PULSE_COMPILE_CASES} / "unit.cpp"};
        const cost of_unit = least_of(unit, compiler, [](const cost&) { return false; });
        row(unit, compiler, of_unit, of_unit.seconds, false);
        for (const compile_case& c : cases()) {
            if (quick && !c.quick) { continue; }
            const auto holds = [&](const cost& one) {
                return c.excess(one.seconds / of_unit.seconds, one.megabytes).empty();
            };
            row(c, compiler, least_of(c, compiler, holds), of_unit.seconds, is_gcc(compiler));
        }
        if (quick || !is_gcc(compiler) || *PULSE_NVCC == '\0') { continue; }
        const compile_case device{.what = "cuda_trainer_compiled",
                                  .source = fs::path{PULSE_EXAMPLES} / "3_cuda_trainer.cu",
                                  .flags = {"-arch=sm_90", "-DPULSE_SEPARATE_COMPILATION", "-c", "-o", "/dev/null"},
                                  .units = 26,
                                  .megabytes = 1000};
        row(device, PULSE_NVCC, run(command_for(PULSE_NVCC, device)), of_unit.seconds, true);
    }
    json.write(all);
    return failed ? 1 : 0;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Time and memory that compilers need for pulse.", "bench_compile"};
    std::vector<std::string> compilers{"g++", "clang++"};
    bool quick = false;
    std::string json_file{};
    app.add_option("--compilers", compilers, "Compilers to run")
        ->delimiter(',')
        ->check(wrong_with_compiler)
        ->capture_default_str();
    app.add_flag("--quick", quick, "Compile only the umbrella header, header-only and against pulse::compiled");
    app.add_option("--json", json_file, "Write the figures to this file");
    return pulse_bench::run_bench(app, argc, argv, [&] { return measure(compilers, quick, json_file); });
}
