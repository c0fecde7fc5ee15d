#include <exception>
#include <iostream>

#include <pulse/core/error.hpp>

#include "arguments.hpp"
#include "planning.hpp"
#include "stop_on_signal.hpp"

int main(int argc, char** argv) {
    int exit_code = 0;
    const auto parsed = pulse_plan::parse(argc, argv, exit_code);
    if (!parsed) { return exit_code; }
    const auto say = [](const std::exception& e, int code) {
        std::cerr << "pulse_plan: " << e.what() << '\n';
        return code;
    };
    try {
        const pulse_plan::stop_on_signal stop;
        pulse_plan::make_plan(*parsed, stop.token());
        if (!std::cout.flush()) { throw pulse::error{"the report cannot be written to the standard output"}; }
        return 0;
    } catch (const pulse::input_error& e) { return say(e, 2); } catch (const pulse::infeasible_error& e) {
        return say(e, 3);
    } catch (const std::exception& e) { return say(e, 1); }
}
