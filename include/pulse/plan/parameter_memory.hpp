#pragma once

#include <cstdint>

#include <pulse/core/error.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// What a rank keeps of its parameters, in multiples of their bytes as scalars.
struct parameter_memory {
    /// All: values, gradients, moments, average, master weights.
    int copies{5};
    /// Of those, how many are spread over the replicas of a stage instead of kept by each
    /// (optimizer_replicas::sharded).
    int sharded_copies{};
    int scalar_bytes{4};
    /// Of one element of a gradient; 0: 4, or as many as a scalar has where that is more.
    int gradient_bytes{};
    /// Parameters of the conditioning module, which are among layer 0's: replicas share them for themselves.
    std::int64_t conditioning_parameters{};

    [[nodiscard]] constexpr int gradient_element_bytes() const noexcept {
        if (gradient_bytes > 0) { return gradient_bytes; }
        return scalar_bytes < 4 ? 4 : scalar_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const parameter_memory&) const = default;
};

/// Throws input_error, naming the field, for what no rank can keep.
constexpr void check_parameter_memory(const parameter_memory& kept) {
    if (kept.copies < 0) { throw input_error("parameter_memory: copies must not be negative"); }
    if (kept.sharded_copies < 0 || kept.sharded_copies > kept.copies) {
        throw input_error("parameter_memory: sharded_copies must be from 0 to copies");
    }
    if (kept.scalar_bytes < 1) { throw input_error("parameter_memory: scalar_bytes must be at least 1"); }
    if (kept.gradient_bytes < 0) { throw input_error("parameter_memory: gradient_bytes must not be negative"); }
    if (kept.conditioning_parameters < 0) {
        throw input_error("parameter_memory: conditioning_parameters must not be negative");
    }
}

/// Bytes of a stage's parameters, one copy.
[[nodiscard]] constexpr std::int64_t parameter_bytes_of(const step_model& model, int stage) noexcept {
    std::int64_t bytes = 0;
    for (int l = model.first_layer(stage); l <= model.last_layer(stage); ++l) {
        bytes += model.layer(l).parameter_bytes;
    }
    return bytes;
}

/// Bytes of the parameters on a device, one copy.
[[nodiscard]] constexpr std::int64_t parameter_bytes_on(const step_model& model, int device) noexcept {
    std::int64_t bytes = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        if (model.device_of_stage(s) == device) { bytes += parameter_bytes_of(model, s); }
    }
    return bytes;
}

/// How many parameters so many bytes of scalars are.
[[nodiscard]] constexpr std::int64_t elements_of(std::int64_t parameter_bytes, const parameter_memory& kept) noexcept {
    return (parameter_bytes + kept.scalar_bytes - 1) / kept.scalar_bytes;
}

/// Bytes of the gradients of so many bytes of parameters.
[[nodiscard]] constexpr std::int64_t gradient_bytes_of(std::int64_t parameter_bytes,
                                                       const parameter_memory& kept) noexcept {
    return elements_of(parameter_bytes, kept) * kept.gradient_element_bytes();
}

/// Bytes in which a rank of `device` receives gradients of other replicas: what replica_sum takes.
[[nodiscard]] constexpr std::int64_t replica_bytes_on(const step_model& model, int device, int replicas,
                                                      const parameter_memory& kept) noexcept {
    std::int64_t most = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        if (model.device_of_stage(s) != device) { continue; }
        const std::int64_t share = replica_share_bytes(elements_of(parameter_bytes_of(model, s), kept),
                                                       model.last_layer(s) - model.first_layer(s) + 1, replicas,
                                                       kept.gradient_element_bytes());
        most = most < share ? share : most;
    }
    return replicas < 2 ? 0 : most * (replicas - 1);
}

/// Bytes of sharded state that replica `replica` of `device` keeps: its share_of every layer. The last replica has the
/// most.
[[nodiscard]] constexpr std::int64_t sharded_bytes_on(const step_model& model, int device, int replicas, int replica,
                                                      const parameter_memory& kept) noexcept {
    std::int64_t elements = 0;
    const auto add = [&](std::int64_t size) {
        const auto before = [&](std::int64_t share) {
            return size / replicas * share + size % replicas * share / replicas;
        };
        elements += before(replica + 1) - before(replica);
    };
    for (int l = 0; l != model.layer_count(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) != device) { continue; }
        const std::int64_t all = elements_of(model.layer(l).parameter_bytes, kept);
        const std::int64_t apart = l == 0 && kept.conditioning_parameters <= all ? kept.conditioning_parameters : 0;
        add(apart);
        add(all - apart);
    }
    return elements * kept.sharded_copies * kept.scalar_bytes;
}

/// Bytes of parameters, with all that a rank keeps of them, of replica `replica` of `device`, and its room for
/// gradients of other replicas: all memory of a rank that its order of passes does not change, but for workspace.
[[nodiscard]] constexpr std::int64_t kept_bytes_on(const step_model& model, int device, int replicas, int replica,
                                                   const parameter_memory& kept) noexcept {
    return parameter_bytes_on(model, device) * (kept.copies - kept.sharded_copies) +
           sharded_bytes_on(model, device, replicas, replica, kept) + replica_bytes_on(model, device, replicas, kept);
}

/// What all replicas of a stage together send while its gradients are summed: each to the replica that sums it from all
/// others, and, unless state is sharded, the sum back.
[[nodiscard]] constexpr std::int64_t all_reduce_bytes(const step_model& model, int stage, int replicas,
                                                      const parameter_memory& kept = {}) noexcept {
    const int ways = kept.sharded_copies > 0 ? 1 : 2;
    return replicas < 2 ? 0 : ways * (replicas - 1) * gradient_bytes_of(parameter_bytes_of(model, stage), kept);
}

/// What all ranks of a plan's replicas send each other in a step: all_reduce_bytes of every stage and, where state is
/// sharded, every new weight from the replica that made it to all others.
[[nodiscard]] constexpr std::int64_t replica_traffic_bytes(const step_model& model, int replicas,
                                                           const parameter_memory& kept = {}) noexcept {
    std::int64_t bytes = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        bytes += all_reduce_bytes(model, s, replicas, kept);
        if (kept.sharded_copies > 0) { bytes += (replicas - 1) * parameter_bytes_of(model, s); }
    }
    return bytes;
}

} // namespace pulse
