#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include <pulse/train/edm.hpp>
#include <pulse/train/flow.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// How noise is added to the training samples: by a schedule of betas, by rectified flow, or as in EDM.
class noise_process {
public:
    // Implicit: each of these stands for a process.
    noise_process(noise_schedule by_betas) : how_{std::move(by_betas)} {}              // NOLINT
    noise_process(const rectified_flow& flow) : how_{flow} { require_in_range(flow); } // NOLINT
    noise_process(const edm_noise& edm) : how_{edm} { require_in_range(edm); }         // NOLINT

    /// Number of timesteps; timestep 0 has the least noise.
    [[nodiscard]] int steps() const noexcept {
        return std::visit(
            [](const auto& how) {
                if constexpr (requires { how.train_steps; }) {
                    return how.train_steps;
                } else {
                    return how.steps();
                }
            },
            how_);
    }
    /// The betas; null for flow and EDM.
    [[nodiscard]] const noise_schedule* betas() const noexcept { return std::get_if<noise_schedule>(&how_); }
    /// Level of timestep t for samples of `pixels` pixels. `type`: what the network predicts, with betas; flow and EDM
    /// define their own.
    [[nodiscard]] noise_level at(int t, prediction_type type, std::int64_t pixels) const {
        if (const auto* flow = std::get_if<rectified_flow>(&how_)) { return flow->at(t, pixels); }
        if (const auto* edm = std::get_if<edm_noise>(&how_)) { return edm->at(t); }
        return betas()->at(t, type);
    }
    /// Level at which the network reads this time.
    [[nodiscard]] noise_level at_time(double time, prediction_type type) const {
        if (const auto* flow = std::get_if<rectified_flow>(&how_)) { return flow->at(time / flow->train_steps); }
        if (const auto* edm = std::get_if<edm_noise>(&how_)) { return edm->of(std::exp(4 * time)); }
        return betas()->at(static_cast<int>(time), type);
    }
    /// Level of the training sample at a global position, a function of the position and the seed.
    [[nodiscard]] noise_level drawn(std::uint64_t seed, std::uint64_t position, prediction_type type,
                                    std::int64_t pixels) const {
        if (const auto* flow = std::get_if<rectified_flow>(&how_)) { return flow->drawn(seed, position, pixels); }
        if (const auto* edm = std::get_if<edm_noise>(&how_)) { return edm->drawn(seed, position); }
        const auto count = static_cast<std::uint32_t>(steps());
        return betas()->at(static_cast<int>(random_source{seed, random_stream::timesteps}.below(count, position)),
                           type);
    }

private:
    std::variant<noise_schedule, rectified_flow, edm_noise> how_;
};

} // namespace pulse::train
