#include <atomic>
#include <csignal>
#include <exception>
#include <iostream>

#include "arguments.hpp"
#include "process.hpp"
#include "run.hpp"

namespace {

std::atomic<bool> stop_requested{false};

void request_stop(int) { stop_requested = true; }

} // namespace

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto parsed = pulse_train::parse(argc, argv, exit_code);
    if (!parsed) { return exit_code; }
    std::signal(SIGINT, request_stop);
    std::signal(SIGTERM, request_stop);
    // A signal that nohup ignores stays ignored.
    if (std::signal(SIGHUP, request_stop) == SIG_IGN) { std::signal(SIGHUP, SIG_IGN); }
    std::signal(SIGUSR1, request_stop); // which mpirun forwards to all ranks
    if (parsed->transport != pulse_train::transport_kind::threads) {
        return pulse_train::run_as_process(*parsed, stop_requested);
    }
    try {
        pulse_train::require_alone(*parsed);
        pulse_train::run_for (*parsed)(*parsed, stop_requested);
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "pulse_train: " << e.what() << '\n';
        return pulse_train::exit_code_of(e);
    }
}
