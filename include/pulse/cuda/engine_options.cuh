#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/engine_store.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/plan/cuda_memory.hpp>

namespace pulse::cuda {

/// Of each shape, where engines are timed within a budget.
inline constexpr int timed_candidates = 6;

/// An engine that was chosen before, as its library writes it.
struct kept_engine {
    std::string text{};
    engine_choice* counted{}; ///< whose uses are counted; null: none
};

/// How engines of cuDNN and algorithms of cuBLASLt are chosen.
struct engine_options {
    /// Where choices are kept between runs; $PULSE_ENGINE_CACHE unless told otherwise.
    engine_store store = engine_store::from_environment();
    /// How many proposals are timed, 4 to 8 is a good number; up to 1, the first proposal is taken untimed. A choice by
    /// timing may differ from run to run, and results with it in their last bits, unless it is kept.
    int candidates{};
    /// Choices that are shared, which come before those of `store`. With candidates they are added to, within their
    /// budget, and `store` is not used.
    std::shared_ptr<engine_choices> choices = process_engine_choices();
    /// Whether no engine is taken whose results may differ from run to run in their last bits: some of convolutions'
    /// weight gradients, and those of attention's backward pass.
    bool deterministic = process_deterministic();
    /// Device memory that an engine may use.
    std::int64_t workspace_limit{cuda_scratch.library_bytes};

    /// Throws input_error naming the option.
    void require_valid() const {
        if (candidates < 0 || candidates > 16) {
            throw input_error("engine_options: candidates is " + std::to_string(candidates) + ", not from 0 to 16");
        }
        if (workspace_limit < 0) { throw input_error("engine_options: workspace_limit is less than 0"); }
    }
    [[nodiscard]] bool times() const noexcept { return candidates > 1; }
    /// How many proposals the next choice is among.
    [[nodiscard]] int next_candidates() const noexcept {
        return times() && (choices == nullptr || choices->left_s() > 0) ? candidates : 1;
    }

    /// `made_for`: library version and kind of device.
    [[nodiscard]] std::optional<kept_engine> find(const std::string& made_for, const std::string& what) const {
        if (choices != nullptr) {
            engine_choice* const found = choices->find(made_for, what);
            if (found != nullptr) { return kept_engine{found->engine, times() ? found : nullptr}; }
            if (times()) { return std::nullopt; }
        }
        if (auto text = store.find(key(made_for, what))) { return kept_engine{std::move(*text)}; }
        return std::nullopt;
    }
    /// What is counted from now on.
    engine_choice* keep(const std::string& made_for, const std::string& what, engine_choice made) const {
        if (choices != nullptr && times()) { return &choices->keep(made_for, what, std::move(made)); }
        store.keep(key(made_for, what), made.engine);
        return nullptr;
    }
    void count(engine_choice* used) const noexcept {
        if (choices != nullptr) { choices->count(used); }
    }

private:
    [[nodiscard]] std::string key(const std::string& made_for, const std::string& what) const {
        return made_for + ", " + (times() ? "timed, " : "") + what;
    }
};

/// What a kept choice depends on besides graph and library: the kind of device.
[[nodiscard]] inline std::string device_key() {
    const device_properties found = properties_of(current_device());
    return "sm_" + std::to_string(found.sm()) + " " + std::to_string(found.multiprocessors) + " multiprocessors, " +
           found.name;
}

/// Seconds that one run takes by events, the least of three after one that does not count. Waits for the stream.
template <class Run>
[[nodiscard]] double seconds_of(cudaStream_t stream, const Run& run) {
    event begin{timing::on};
    event end{timing::on};
    run();
    double least = 1e30;
    for (int i = 0; i != 3; ++i) {
        begin.record(stream);
        run();
        end.record(stream);
        end.synchronize();
        const double taken = seconds_between(begin, end);
        least = taken < least ? taken : least;
    }
    return least;
}

/// One choice under way, within the budget of the options.
class engine_trial {
public:
    explicit engine_trial(const engine_options& options) :
        left_s_{options.choices != nullptr ? options.choices->left_s() : 1e30} {}

    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }
    [[nodiscard]] bool is_over() const { return seconds() >= left_s_; }

private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    double left_s_;
};

/// What running candidates has shown.
struct fastest_candidate {
    std::size_t index{}; ///< the number of candidates where none runs
    double seconds{};
    double first_seconds{}; ///< of the first that runs
};

/// The candidate that runs fastest, the first of those that are equally fast; run(i) puts candidate i into the stream,
/// and may throw pulse::error, which leaves it out. Behind one that runs, is_over() ends the search.
template <class Run, class IsOver = bool (*)()>
[[nodiscard]] fastest_candidate fastest(
    cudaStream_t stream, std::size_t count, const Run& run, const IsOver& is_over = [] { return false; }) {
    fastest_candidate best;
    best.index = count;
    for (std::size_t i = 0; i != count && (best.index == count || !is_over()); ++i) {
        double taken = 0.0;
        try {
            taken = seconds_of(stream, [&] { run(i); });
        } catch (const pulse::error&) { continue; }
        if (best.index == count) { best.first_seconds = taken; }
        if (best.index == count || taken < best.seconds) {
            best.index = i;
            best.seconds = taken;
        }
    }
    return best;
}

} // namespace pulse::cuda
