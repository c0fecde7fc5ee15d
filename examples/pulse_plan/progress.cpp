#include "progress.hpp"

#include <cstdio>
#include <string>

#include <unistd.h>

#include <pulse/core/text_table.hpp>

namespace pulse_plan {

using pulse::duration_text;
using pulse::number_text;
using pulse::percent_text;

progress::progress() : terminal_{isatty(STDERR_FILENO) == 1} {}

progress::~progress() { clear(); }

void progress::tuning(const pulse::tune_progress& state) {
    std::string text = std::string{state.stage} + ": " + std::to_string(state.done) + " of " +
                       std::to_string(state.total) + " candidates";
    if (state.best_step_us > 0) { text += ", best step " + duration_text(state.best_step_us); }
    draw(text);
}

void progress::solving(const pulse::synthesis_progress& state) {
    const double gap = pulse::gap_of(state.makespan_us, state.lower_bound_us);
    draw("schedule: makespan " + duration_text(state.makespan_us) + ", bound " + duration_text(state.lower_bound_us) +
         ", gap " + percent_text(gap) + ", " + number_text(state.seconds, 1) + " s");
}

void progress::clear() {
    if (drawn_) { std::fputs("\r\033[K", stderr); }
    drawn_ = false;
}

void progress::draw(const std::string& text) {
    const auto now = clock::now();
    if (!terminal_ || (drawn_ && now - shown_ < std::chrono::milliseconds{100})) { return; }
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    drawn_ = true;
    shown_ = now;
}

} // namespace pulse_plan
