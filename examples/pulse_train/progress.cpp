#include "progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <unistd.h>

namespace pulse_train {

progress::progress(std::int64_t first_step, std::int64_t last_step, double time_limit_s)
    : first_{first_step}, last_{last_step}, time_limit_s_{time_limit_s}, terminal_{isatty(STDOUT_FILENO) == 1} {}

progress::~progress() {
    if (drawn_) { std::fputc('\n', stdout); }
    std::fflush(stdout);
}

double progress::seconds_left(std::int64_t step) const {
    const double spent = std::chrono::duration<double>(clock::now() - start_).count();
    const double by_steps = spent / static_cast<double>(std::max<std::int64_t>(1, step - first_)) * static_cast<double>(last_ - step);
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
    const auto left = static_cast<int>(std::lround(seconds_left(step)));
    char text[160];
    std::snprintf(text, sizeof text, "step %lld/%lld  loss %.4f  %.1f samples/s  %d:%02d left", static_cast<long long>(step),
                  static_cast<long long>(last_), smoothed_loss_, smoothed_rate_, left / 60, left % 60);
    if (!terminal_) {
        std::puts(text);
        std::fflush(stdout);
        return;
    }
    constexpr int width = 24;
    const int full = last_ > first_ ? static_cast<int>(width * (step - first_) / (last_ - first_)) : width;
    std::printf("\r[%s%s] %s\033[K", std::string(static_cast<std::size_t>(full), '#').c_str(),
                std::string(static_cast<std::size_t>(width - full), '.').c_str(), text);
    std::fflush(stdout);
    drawn_ = true;
}

} // namespace pulse_train
