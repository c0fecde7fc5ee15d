#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pulse::cuda {

/// The cuDNN engine, cuBLASLt algorithm or pulse kernel chosen for one graph, product or attention, with its times.
struct engine_choice {
    std::string name{};   ///< what is computed, for a report
    std::string engine{}; ///< in the library's own notation; "pulse": pulse's own kernel
    double seconds{};     ///< spent on timing; 0: the first proposal was used untimed
    double first_us{};    ///< per run of the heuristics' first; for attention, of what is used without timing
    double us{};          ///< per run of the engine
    double uses{};        ///< per step

    void note_times(double run_s, double first_run_s, double all_s) noexcept {
        us = 1e6 * run_s;
        first_us = 1e6 * first_run_s;
        seconds = all_s;
    }
    /// Microseconds saved per step compared with the heuristics' first.
    [[nodiscard]] double saved_us() const noexcept { return uses * (first_us - us); }
};

/// Choices by graph or product, grouped by library version and kind of device.
using engine_choice_groups = std::map<std::string, std::map<std::string, engine_choice>>;

/// Shared choices of engines: what one backend has timed within a budget, others use. Equal shapes then get equal
/// engines, and results equal bits, on all ranks with one kind of device and, if the choices are kept, in all runs.
///
/// Timing is separate from training: one rank per kind of device runs every shape of a step with engine_options that
/// time (time_engines), then all ranks receive its choices and time nothing; a shape without a choice uses the
/// heuristics' first engine on every rank. So no rank times while others wait for its messages, and no choice depends
/// on which rank was first.
///
/// While backends time with it, only one thread at a time may use it; otherwise it does not change, and any thread may.
class engine_choices {
public:
    /// `budget_s`: total seconds of timing, after which the heuristics' first engines are used; a choice under way at
    /// that moment is made among what was timed by then. `known` was read from `source`.
    explicit engine_choices(double budget_s, engine_choice_groups known = {}, std::string source = {}) :
        budget_s_{budget_s}, all_{std::move(known)}, source_{std::move(source)} {}

    /// Null if nothing was chosen. The first time that a library has choices only for other versions or devices, stderr
    /// says so.
    [[nodiscard]] engine_choice* find(const std::string& made_for, const std::string& what) {
        const auto group = all_.find(made_for);
        if (group == all_.end()) {
            say_of_others(made_for);
            return nullptr;
        }
        const auto found = group->second.find(what);
        return found == group->second.end() ? nullptr : &found->second;
    }
    /// The returned reference stays valid.
    engine_choice& keep(const std::string& made_for, const std::string& what, engine_choice made) {
        spent_s_ += made.seconds;
        return all_[made_for][what] = std::move(made);
    }
    [[nodiscard]] double left_s() const noexcept { return budget_s_ - spent_s_; }

    /// Sets how many uses per step each later use of an engine counts as; 1 by default.
    void count_each_as(double uses) noexcept { each_ = uses; }
    void count(engine_choice* used) const noexcept {
        if (used != nullptr) { used->uses += each_; }
    }

    [[nodiscard]] const engine_choice_groups& all() const noexcept { return all_; }

    /// For the shapes that were used: how many were timed, what that cost and saves, and one line for each of the five
    /// engines that save most; empty if nothing was timed.
    [[nodiscard]] std::string report() const {
        std::vector<const engine_choice*> timed;
        std::size_t shapes = 0;
        double seconds = 0;
        double saved_us = 0;
        for (const auto& [made_for, group] : all_) {
            for (const auto& [what, one] : group) {
                if (one.uses <= 0) { continue; }
                ++shapes;
                if (one.seconds <= 0) { continue; }
                timed.push_back(&one);
                seconds += one.seconds;
                saved_us += one.saved_us();
            }
        }
        if (timed.empty()) { return {}; }
        std::stable_sort(timed.begin(), timed.end(),
                         [](const engine_choice* a, const engine_choice* b) { return a->saved_us() > b->saved_us(); });
        char line[160];
        std::snprintf(line, sizeof line,
                      "%zu of %zu shapes were timed in %.2f s; their engines save %.3f ms of a step's passes over the "
                      "heuristics' first\n",
                      timed.size(), shapes, seconds, 1e-3 * saved_us);
        std::string text = line;
        for (std::size_t i = 0; i != std::min<std::size_t>(5, timed.size()) && timed[i]->saved_us() > 0; ++i) {
            std::snprintf(line, sizeof line, "  %9.3f ms: %.1f us instead of %.1f, %g times a step, ",
                          1e-3 * timed[i]->saved_us(), timed[i]->us, timed[i]->first_us, timed[i]->uses);
            text += line + timed[i]->name + "\n";
        }
        return text;
    }

private:
    void say_of_others(const std::string& made_for) {
        const std::string library = made_for.substr(0, made_for.find(' ') + 1);
        const auto other = all_.lower_bound(library);
        if (other == all_.end() || other->first.rfind(library, 0) != 0) { return; }
        if (said_.exchange(true)) { return; }
        std::fprintf(stderr, "pulse: ignoring engines from %s: they were chosen for %s, this is %s\n",
                     source_.empty() ? "this process" : source_.c_str(), other->first.c_str(), made_for.c_str());
    }

    double budget_s_;
    double spent_s_{};
    double each_{1};
    engine_choice_groups all_;
    std::string source_;
    std::atomic<bool> said_{};
};

/// The default of engine_options::choices for options made from now on; null: none. Set it while no thread makes a
/// backend.
[[nodiscard]] inline std::shared_ptr<engine_choices>& process_engine_choices() {
    static std::shared_ptr<engine_choices> all;
    return all;
}

/// The default of engine_options::deterministic for options made from now on. Set it while no thread makes a backend.
[[nodiscard]] inline bool& process_deterministic() noexcept {
    static bool deterministic = true;
    return deterministic;
}

} // namespace pulse::cuda
