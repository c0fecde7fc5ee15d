#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

/// Time of the optimizer step, us: it moves parameter_memory::moved_bytes per parameter at this rate. 0 GB/s: no time.
[[nodiscard]] constexpr double optimizer_us(std::int64_t parameter_bytes, const parameter_memory& kept,
                                            double gb_per_s) noexcept {
    if (!(gb_per_s > 0.0)) { return 0; }
    const double moved = 1.0 * kept.moved_bytes() / kept.scalar_bytes;
    return static_cast<double>(parameter_bytes) * moved / (gb_per_s * 1e3);
}

/// Gradients that are reduced in one piece.
struct gradient_bucket {
    int device{};
    int stage{};
    std::int64_t bytes{};
    /// How long before the end of the stage's last pass the bucket is complete.
    double before_end_us{};
};

/// The buckets of a partition; a layer without parameters is in none.
///
/// A stage of a pipeline is one bucket, complete at the end of the stage's last pass. A single device (plain data
/// parallelism) reduces layer by layer while its last backward runs: a bucket closes when it has `least_bytes` or holds
/// the lowest layer of the stage with parameters, before the pass ends or at its end. `split_backward` says whether the
/// stage's last pass is W or B + W.
[[nodiscard]] PULSE_CONSTEXPR std::vector<gradient_bucket> gradient_buckets(const cost_table& costs,
                                                                            const partition& cut, bool split_backward,
                                                                            std::int64_t least_bytes = 25'000'000);

/// Time at which single-device ranks (plain data parallelism) have reduced their gradients and updated their
/// parameters, us: buckets are reduced in the order in which they complete, while the passes go on.
///
/// `stage_end_us`: end of each stage's last pass; `passes_end_us`: of the device's. `parameter_bytes`: one copy.
[[nodiscard]] PULSE_CONSTEXPR double end_step_us(const std::vector<gradient_bucket>& buckets, int replicas,
                                                 const simulation_options& world,
                                                 const std::vector<double>& stage_end_us, double passes_end_us,
                                                 std::int64_t parameter_bytes);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/step_end.ipp> // IWYU pragma: keep
#endif
