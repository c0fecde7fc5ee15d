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

/// Proposals timed per shape when engines are timed within a budget.
inline constexpr int timed_candidates = 6;

/// An engine chosen earlier, in its library's own notation.
struct kept_engine {
    std::string text{};
    engine_choice* counted{}; ///< the record that counts its uses; null: none
};

/// How engines of cuDNN and algorithms of cuBLASLt are chosen.
struct engine_options {
    /// Where choices are kept between runs; by default $PULSE_ENGINE_CACHE.
    engine_store store = engine_store::from_environment();
    /// Number of proposals to time, 4 to 8 is sensible; with 0 or 1, the first proposal is used untimed. Unless it is
    /// kept, a timed choice may differ between runs, and results with it in their last bits.
    int candidates{};
    /// Shared choices, which take precedence over `store`. When timing, new choices are added to them within their
    /// budget, and `store` is not used.
    std::shared_ptr<engine_choices> choices = process_engine_choices();
    /// Excludes engines whose results may differ between runs in their last bits: some for weight gradients of
    /// convolutions, and cuDNN's for attention's backward pass.
    bool deterministic = process_deterministic();
    /// Bytes of device memory that an engine may use.
    std::int64_t workspace_limit{cuda_scratch.library_bytes};

    /// Throws input_error naming the bad option.
    void require_valid() const {
        if (candidates < 0 || candidates > 16) {
            throw input_error("engine_options: candidates must be from 0 to 16, not " + std::to_string(candidates));
        }
        if (workspace_limit < 0) {
            throw input_error("engine_options: workspace_limit must be at least 0, not " +
                              std::to_string(workspace_limit));
        }
    }
    [[nodiscard]] bool times() const noexcept { return candidates > 1; }
    /// Number of proposals that the next choice considers.
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
    /// Keeps a choice. Returns the record that counts its uses from now on, or null.
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

/// The kind of device, which a kept choice depends on besides graph and library.
[[nodiscard]] inline std::string device_key() {
    const device_properties found = properties_of(current_device());
    return "sm_" + std::to_string(found.sm()) + " " + std::to_string(found.multiprocessors) + " multiprocessors, " +
           found.name;
}

/// Seconds of one run, measured by events: the least of three after one warm-up. Waits for the stream.
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

/// The clock of one choice, against the budget left in the options.
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

/// The result of timing candidates.
struct fastest_candidate {
    std::size_t index{}; ///< the number of candidates if none runs
    double seconds{};
    double first_seconds{}; ///< of the first that runs
};

/// Finds the fastest candidate, the first one in a tie. run(i) enqueues candidate i, and may throw pulse::error, which
/// excludes it. Once one has run, the search ends as soon as is_over().
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
