#include <atomic>
#include <csignal>
#include <exception>
#include <iostream>

#include <pulse/core/error.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "arguments.hpp"
#include "run.hpp"
#include "small_model.hpp"

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
    try {
        if (parsed->model == "ddpm_fmnist") {
            pulse_train::run_on_host<pulse::ddpm_fmnist>(*parsed, stop_requested);
        } else {
            pulse_train::run_on_host<pulse_train::ddpm_fmnist_small>(*parsed, stop_requested);
        }
        return 0;
    } catch (const pulse::input_error& e) {
        std::cerr << "pulse_train: " << e.what() << '\n';
        return 2;
    } catch (const pulse::infeasible_error& e) {
        std::cerr << "pulse_train: " << e.what() << '\n';
        return 2;
    } catch (const std::exception& e) {
        std::cerr << "pulse_train: " << e.what() << '\n';
        return 1;
    }
}
