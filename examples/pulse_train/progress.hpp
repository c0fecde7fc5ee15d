#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pulse_train {

/// Reports a run's progress: a bar that updates itself on a terminal, as wide as fits, else an occasional line.
class progress {
public:
    progress(std::int64_t first_step, std::int64_t last_step, double time_limit_s);
    ~progress();
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

    void step_done(std::int64_t step, double loss, double samples_per_s);
    /// Prints a permanent line.
    void say(const std::string& line);

private:
    using clock = std::chrono::steady_clock;

    [[nodiscard]] double seconds_left(std::int64_t step) const;
    void draw(std::string text, double done);

    std::int64_t first_;
    std::int64_t last_;
    double time_limit_s_;
    bool terminal_;
    bool drawn_{};
    double smoothed_loss_{};
    double smoothed_rate_{};
    clock::time_point start_{clock::now()};
    clock::time_point shown_{};
};

} // namespace pulse_train
