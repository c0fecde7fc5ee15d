#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>

namespace pulse::train {

/// How the loss scale of half-precision training adapts to the gradients.
struct loss_scaling {
    double initial = 65536;
    double growth = 2;    ///< factor after `interval` steps without an overflow
    double backoff = 0.5; ///< factor after an overflow
    std::int64_t interval = 2000;

    [[nodiscard]] constexpr bool operator==(const loss_scaling&) const = default;
};

/// Multiplies the loss by a scale so that small gradients do not underflow; a step whose gradients overflow is skipped
/// and the scale reduced (Micikevicius et al. 2018, section 3.2; defaults and rule of torch.amp.GradScaler).
///
/// Checkpoints keep its state. Every rank sees the same sums, so all ranks have the same scale.
class loss_scaler {
public:
    struct state {
        double scale{};               ///< 0: no run has scaled its loss so far
        std::int64_t good_steps{};    ///< since the last change of the scale
        std::int64_t skipped_steps{}; ///< in all: steps that the optimizer skipped

        [[nodiscard]] constexpr bool operator==(const state&) const = default;
    };

    /// A scale of 1 for training that needs none. It keeps the state of the run that it resumes, so that training may
    /// switch precision and back.
    loss_scaler() = default;
    /// Throws input_error naming what is out of range.
    explicit loss_scaler(const loss_scaling& options) : options_{options}, state_{options.initial, 0, 0}, on_{true} {
        const auto require = [](bool good, const char* what) {
            if (!good) { throw input_error{std::string{"loss_scaling: "} + what}; }
        };
        require(std::isfinite(options.initial) && options.initial > 0, "initial must be above 0 and finite");
        require(std::isfinite(options.growth) && options.growth >= 1, "growth must be at least 1 and finite");
        require(options.backoff > 0 && options.backoff < 1, "backoff must be between 0 and 1");
        require(options.interval >= 1, "interval must be at least 1");
    }

    [[nodiscard]] bool on() const noexcept { return on_; }
    [[nodiscard]] double scale() const noexcept { return on_ ? state_.scale : 1.0; }
    [[nodiscard]] const state& now() const noexcept { return state_; }
    void resume(const state& kept) noexcept {
        // the saved run may not have scaled its loss
        state_ = !on_ || kept.scale > 0 ? kept : state{options_.initial, 0, 0};
    }

    /// Call after each step with whether its gradients were finite. Throws error when the scale falls below 2^-24.
    void update(bool finite) {
        if (!on_) { return; }
        if (!finite) {
            ++state_.skipped_steps;
            state_.good_steps = 0;
            state_.scale *= options_.backoff;
            if (state_.scale < 0x1p-24) {
                throw error{"the gradients are not finite at any loss scale: a smaller learning rate may help"};
            }
        } else if (++state_.good_steps >= options_.interval) { // a resumed run may have had a longer one
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
