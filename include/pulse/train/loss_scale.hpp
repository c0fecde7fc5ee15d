#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>

namespace pulse::train {

/// How the loss scale of half-precision training follows the gradients.
struct loss_scaling {
    double initial = 65536;
    double growth = 2;    ///< factor after `interval` steps without an overflow
    double backoff = 0.5; ///< factor after an overflow
    std::int64_t interval = 2000;

    [[nodiscard]] constexpr bool operator==(const loss_scaling&) const = default;
};

/// The loss is multiplied by a scale so that small gradients do not underflow; a step whose gradients overflow is left
/// out and the scale goes down (Micikevicius et al. 2018, section 3.2; defaults and rule of torch.amp.GradScaler).
///
/// Its state is what a checkpoint keeps. Every rank sees the same sums, so the scales of all ranks stay the same.
class loss_scaler {
public:
    struct state {
        double scale{};               ///< 0: no run has scaled its loss yet
        std::int64_t good_steps{};    ///< since the last change of the scale
        std::int64_t skipped_steps{}; ///< in all: steps that the optimizer left out

        [[nodiscard]] constexpr bool operator==(const state&) const = default;
    };

    /// The scale of a training that needs none: 1, always. It keeps the state of the run that it continues, so that
    /// training may go from one precision to another and back.
    loss_scaler() = default;
    /// Throws input_error naming what is out of range.
    explicit loss_scaler(const loss_scaling& options) : options_{options}, state_{options.initial, 0, 0}, on_{true} {
        const auto require = [](bool good, const char* what) {
            if (!good) { throw input_error{std::string{"loss_scaling: "} + what}; }
        };
        require(std::isfinite(options.initial) && options.initial > 0, "initial must be above 0");
        require(std::isfinite(options.growth) && options.growth >= 1, "growth must be at least 1");
        require(options.backoff > 0 && options.backoff < 1, "backoff must be between 0 and 1");
        require(options.interval >= 1, "interval must be at least 1");
    }

    [[nodiscard]] bool on() const noexcept { return on_; }
    [[nodiscard]] double scale() const noexcept { return on_ ? state_.scale : 1.0; }
    [[nodiscard]] const state& now() const noexcept { return state_; }
    void resume(const state& kept) noexcept {
        // who left the state may not have scaled
        if (!on_ || kept.scale > 0) { state_ = kept; }
    }

    /// After each step: whether its gradients were finite. Throws error when they are not however small the scale.
    void update(bool finite) {
        if (!on_) { return; }
        if (!finite) {
            ++state_.skipped_steps;
            state_.good_steps = 0;
            state_.scale *= options_.backoff;
            if (state_.scale < 0x1p-24) {
                throw error{"the gradients are not finite at any loss scale: a smaller learning rate may help"};
            }
        } else if (++state_.good_steps == options_.interval) {
            state_.good_steps = 0;
            state_.scale *= options_.growth;
        }
    }

private:
    loss_scaling options_{};
    state state_{};
    bool on_{};
};

} // namespace pulse::train
