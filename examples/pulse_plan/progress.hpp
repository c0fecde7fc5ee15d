#pragma once

#include <chrono>
#include <string>

#include <pulse/schedule/synthesis.hpp>
#include <pulse/tune/search_space.hpp>

namespace pulse_plan {

/// Reports a search's progress on stderr: a line that updates itself on a terminal, nothing elsewhere.
class progress {
public:
    progress();
    ~progress();
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

    void tuning(const pulse::tune_progress& state);
    void solving(const pulse::synthesis_progress& state);
    /// Erases the line.
    void clear();

private:
    using clock = std::chrono::steady_clock;

    void draw(const std::string& text);

    bool terminal_;
    bool drawn_{};
    clock::time_point shown_{};
};

} // namespace pulse_plan
