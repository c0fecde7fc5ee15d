#include "progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

namespace pulse_train {

namespace {

/// Width of stdout's terminal; 80 if unknown.
int terminal_columns() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

} // namespace

progress::progress(std::int64_t first_step, std::int64_t last_step, double time_limit_s) :
    first_{first_step}, last_{last_step}, time_limit_s_{time_limit_s}, terminal_{isatty(STDOUT_FILENO) == 1} {}

progress::~progress() {
    if (drawn_) { std::fputc('\n', stdout); }
    std::fflush(stdout);
}

double progress::seconds_left(std::int64_t step) const {
    const double spent = std::chrono::duration<double>(clock::now() - start_).count();
    const double per_step = spent / static_cast<double>(std::max<std::int64_t>(1, step - first_));
    const double by_steps = per_step * static_cast<double>(last_ - step);
    return time_limit_s_ > 0 ? std::clamp(time_limit_s_ - spent, 0.0, by_steps) : by_steps;
}

void progress::step_done(std::int64_t step, double loss, double samples_per_s) {
    const bool fresh = step == first_ + 1;
    smoothed_loss_ = fresh ? loss : 0.95 * smoothed_loss_ + 0.05 * loss;
    smoothed_rate_ = fresh ? samples_per_s : 0.9 * smoothed_rate_ + 0.1 * samples_per_s;
    const auto now = clock::now();
    const bool last = step == last_;
    const auto pause = terminal_ ? std::chrono::milliseconds{100} : std::chrono::milliseconds{10000};
    if (!last && !fresh && now - shown_ < pause) { return; }
    shown_ = now;
    const auto left = std::llround(seconds_left(step));
    char text[160];
    std::snprintf(text, sizeof text, "step %lld/%lld  loss %.4f  %.1f samples/s  %lld:%02lld left",
                  static_cast<long long>(step), static_cast<long long>(last_), smoothed_loss_, smoothed_rate_,
                  left / 60, left % 60);
    if (!terminal_) {
        std::puts(text);
        std::fflush(stdout);
        return;
    }
    draw(text, static_cast<double>(step - first_) / static_cast<double>(last_ - first_));
}

void progress::say(const std::string& line) {
    std::printf("%s%s\n", drawn_ ? "\r\033[K" : "", line.c_str());
    std::fflush(stdout);
    drawn_ = false;
}

void progress::draw(std::string text, double done) {
    // A wrapped line cannot be updated in place, so the bar gets the rest of the line and the last column stays free.
    constexpr std::size_t widest = 24;
    constexpr std::size_t frame = 3;
    const auto room = static_cast<std::size_t>(terminal_columns() - 1);
    if (text.size() > room) { text.resize(room); }
    const std::size_t width = room - text.size() > frame ? std::min(widest, room - text.size() - frame) : 0;
    const auto full = std::min(width, static_cast<std::size_t>(static_cast<double>(width) * done));
    const std::string bar =
        width == 0 ? std::string{} : "[" + std::string(full, '#') + std::string(width - full, '.') + "] ";
    std::printf("\r%s%s\033[K", bar.c_str(), text.c_str());
    std::fflush(stdout);
    drawn_ = true;
}

} // namespace pulse_train
