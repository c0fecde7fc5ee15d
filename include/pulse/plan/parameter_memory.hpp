#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/plan/backend_scratch.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Bytes of the tables through which an optimizer finds the values that it updates: a fixed part, a part per layer, and
/// a part per chunk of a layer.
struct update_tables {
    int fixed{};
    int layer{};
    int chunk{};
    std::int64_t chunk_elements{1};
    int factored{}; ///< added to the fixed part if moments are factored

    [[nodiscard]] constexpr bool operator==(const update_tables&) const = default;
};

/// What a rank keeps for every parameter, in bytes.
struct parameter_memory {
    /// The value that passes compute with; a cost table counts it as parameter_bytes.
    int scalar_bytes{4};
    int gradient_bytes{4};
    /// The optimizer's state: master weight or rounding error, moments, average.
    int state_bytes{12};
    /// Further state for every moment_block neighbouring parameters.
    int block_bytes{};
    /// What that state consists of.
    optimizer_form form{};
    /// Whether the replicas of a stage shard the state instead of keeping all of it each (optimizer_replicas::sharded).
    bool sharded{};
    update_tables tables{};
    /// What the backend uses beyond that and the memory of a step.
    backend_scratch scratch{};
    /// Number of parameters of the conditioning module, which are counted in layer 0 but sharded on their own.
    std::int64_t conditioning_parameters{};
    /// The same for the second backbone of a cascade.
    std::int64_t second_conditioning_parameters{};
    /// Bytes kept besides the parameters, such as frozen networks that encode the data: on the device of the first
    /// stage, and on the device of the last stage if that is another.
    std::int64_t beside_first_stage{};
    std::int64_t beside_last_stage{};

    /// Bytes of one parameter if replicas share nothing.
    [[nodiscard]] constexpr int total_bytes() const noexcept { return scalar_bytes + gradient_bytes + state_bytes; }
    /// Bytes that an optimizer step moves per parameter: it reads and writes everything, except that it only reads the
    /// gradient. Adafactor reads the gradient four times in all, for the sums of rows, of columns and of the update.
    [[nodiscard]] constexpr int moved_bytes() const noexcept {
        return 2 * total_bytes() + (form.is_factored() ? 2 : -1) * gradient_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const parameter_memory&) const = default;
};

/// What AdamW keeps for values of `scalar_bytes`, unless `form` says otherwise: a gradient, two moments and a weight
/// average in float (or in the values' own type if that is wider), and a float master weight if the values are
/// narrower. 22 bytes for bf16 and fp16, 20 for float; 8 for bf16 with 8-bit moments, stochastic weights and no
/// average. The floats of factored moments are counted by a cost table. Throws input_error if `form` has kahan or
/// stochastic weights for values of 4 bytes or more.
[[nodiscard]] constexpr parameter_memory adamw_memory(int scalar_bytes, const optimizer_form& form = {}) {
    const bool narrow = scalar_bytes < 4;
    if (!narrow && form.weights != weight_form::float32) {
        throw input_error("optimizer: weights: kahan and stochastic need values narrower than a float");
    }
    const int wide = narrow ? 4 : scalar_bytes;
    const bool coded = form.moments == moment_form::dynamic8;
    const int moments = form.is_factored() ? 0 : coded ? 2 : 2 * wide;
    const int beside = form.weights == weight_form::kahan               ? scalar_bytes
                       : narrow && form.weights == weight_form::float32 ? 4
                                                                        : 0;
    return {.scalar_bytes = scalar_bytes,
            .gradient_bytes = wide,
            .state_bytes = beside + moments + (form.averages ? wide : 0),
            .block_bytes = coded ? 8 : 0,
            .form = form};
}

/// Why every replica keeps all of the factored moments.
inline constexpr const char* unshared_moments = "adafactor keeps state for whole tensors, which replicas cannot share";

/// Throws input_error, naming the field, if a size is out of range or factored moments are to be sharded.
constexpr void check_parameter_memory(const parameter_memory& kept) {
    if (kept.scalar_bytes < 1) { throw input_error("parameter_memory: scalar_bytes must be at least 1"); }
    if (kept.gradient_bytes < 1) { throw input_error("parameter_memory: gradient_bytes must be at least 1"); }
    if (kept.state_bytes < 0) { throw input_error("parameter_memory: state_bytes must not be negative"); }
    if (kept.block_bytes < 0) { throw input_error("parameter_memory: block_bytes must not be negative"); }
    if (kept.tables.fixed < 0 || kept.tables.layer < 0 || kept.tables.chunk < 0 || kept.tables.chunk_elements < 1 ||
        kept.tables.factored < 0) {
        throw input_error("parameter_memory: tables must not be negative, and chunk_elements must be at least 1");
    }
    if (kept.sharded && kept.form.is_factored()) {
        throw input_error(std::string{"parameter_memory: sharded: "} + unshared_moments);
    }
    const backend_scratch& scratch = kept.scratch;
    if (scratch.library_bytes < 0 || scratch.copies_of_weights < 0 || scratch.copies_of_tensors < 0 ||
        scratch.partial_bytes < 0 || scratch.frozen_bytes < 0) {
        throw input_error("parameter_memory: scratch must not be negative");
    }
    if (kept.conditioning_parameters < 0) {
        throw input_error("parameter_memory: conditioning_parameters must not be negative");
    }
    if (kept.second_conditioning_parameters < 0) {
        throw input_error("parameter_memory: second_conditioning_parameters must not be negative");
    }
    if (kept.beside_first_stage < 0) { throw input_error("parameter_memory: beside_first_stage must not be negative"); }
    if (kept.beside_last_stage < 0) { throw input_error("parameter_memory: beside_last_stage must not be negative"); }
}

/// Throws input_error, naming `source` and the layer, if moments are factored and a layer has no factored_elements.
constexpr void check_moments(const optimizer_form& form, const cost_table& costs, std::string_view source = "costs") {
    if (!form.is_factored()) { return; }
    for (const layer_cost& layer : costs.layers) {
        if (layer.parameter_bytes == 0 || layer.factored_elements != 0) { continue; }
        throw input_error(std::string{source} + ": layers: " + layer.name.str() +
                          ": factored_elements is missing, but adafactor needs it");
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

/// Bytes of the frozen weights on a device, which have no gradient and no optimizer state and are not sharded.
[[nodiscard]] constexpr std::int64_t frozen_parameter_bytes_on(const step_model& model, int device) noexcept {
    std::int64_t bytes = 0;
    for (int l = 0; l != model.layer_count(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) != device) { continue; }
        bytes += model.layer(l).frozen_parameter_bytes;
    }
    return bytes;
}

/// Number of parameters whose values take `parameter_bytes`.
[[nodiscard]] constexpr std::int64_t elements_of(std::int64_t parameter_bytes, const parameter_memory& kept) noexcept {
    return (parameter_bytes + kept.scalar_bytes - 1) / kept.scalar_bytes;
}

/// Bytes of the gradients of parameters that take `parameter_bytes`.
[[nodiscard]] constexpr std::int64_t gradient_bytes_of(std::int64_t parameter_bytes,
                                                       const parameter_memory& kept) noexcept {
    return elements_of(parameter_bytes, kept) * kept.gradient_bytes;
}

/// Gradients are shifted by multiples of this many elements, so that the alignment of vector accesses does not change.
inline constexpr std::int64_t gradient_alignment = 64;

/// Gradient elements that a device needs under any order of passes (place_gradients): those of its largest stage,
/// counted from the last multiple of gradient_alignment before them.
[[nodiscard]] constexpr std::int64_t least_gradients_on(const step_model& model, int device,
                                                        const parameter_memory& kept) noexcept {
    std::int64_t before = 0;
    std::int64_t most = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        if (model.device_of_stage(s) != device) { continue; }
        const std::int64_t size = elements_of(parameter_bytes_of(model, s), kept);
        const std::int64_t room = size == 0 ? 0 : before % gradient_alignment + size;
        most = most < room ? room : most;
        before += size;
    }
    return most;
}

/// Bytes of gradients on a device; with gradient release, the least that any order of passes needs.
[[nodiscard]] constexpr std::int64_t gradient_bytes_on(const step_model& model, int device,
                                                       const parameter_memory& kept) noexcept {
    return model.gradient_release() ? least_gradients_on(model, device, kept) * kept.gradient_bytes
                                    : gradient_bytes_of(parameter_bytes_on(model, device), kept);
}

/// Bytes of the slots in which a rank of `device` receives gradients of other replicas, as replica_sum allocates them.
[[nodiscard]] constexpr std::int64_t replica_bytes_on(const step_model& model, int device, int replicas,
                                                      const parameter_memory& kept) noexcept {
    std::int64_t most = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        if (model.device_of_stage(s) != device) { continue; }
        const std::int64_t share =
            replica_share_bytes(elements_of(parameter_bytes_of(model, s), kept),
                                model.last_layer(s) - model.first_layer(s) + 1, replicas, kept.gradient_bytes);
        most = most < share ? share : most;
    }
    return replicas < 2 ? 0 : most * (replicas - 1);
}

namespace detail {

/// Calls with the parameter count of every block of a device: its layers, with conditioning modules as separate blocks.
template <class Call>
constexpr void for_each_block(const step_model& model, int device, const parameter_memory& kept, Call&& call) {
    for (int l = 0; l != model.layer_count(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) != device) { continue; }
        const std::int64_t all = elements_of(model.layer(l).parameter_bytes, kept);
        const int stage = model.stage_of_layer(l);
        const bool begins = model.begins_chain(stage) && model.first_layer(stage) == l;
        const std::int64_t own = l == 0 ? kept.conditioning_parameters : kept.second_conditioning_parameters;
        const std::int64_t apart = begins && own <= all ? own : 0;
        if (apart != 0) { call(apart); }
        call(all - apart);
    }
}

/// Number of parameters of a block of `size` that one replica updates.
[[nodiscard]] constexpr std::int64_t share_of_block(std::int64_t size, int replicas, int replica) noexcept {
    return static_cast<std::int64_t>(share_of({0, static_cast<std::size_t>(size)}, replicas, replica).size);
}

} // namespace detail

/// Bytes of optimizer state on replica `replica` of `device`: all of it or, if sharded, the state of its share of every
/// layer. The last replica has the most.
[[nodiscard]] constexpr std::int64_t state_bytes_on(const step_model& model, int device, int replicas, int replica,
                                                    const parameter_memory& kept) noexcept {
    std::int64_t elements = 0;
    std::int64_t blocks = 0;
    detail::for_each_block(model, device, kept, [&](std::int64_t size) {
        for (int r = 0; r != replicas; ++r) {
            if (kept.sharded && r != replica) { continue; }
            const std::int64_t share = detail::share_of_block(size, replicas, r);
            elements += share;
            blocks += moment_blocks(share);
        }
    });
    std::int64_t factored = 0;
    for (int l = 0; l != model.layer_count() && kept.form.is_factored(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) == device) { factored += model.layer(l).factored_elements; }
    }
    return elements * kept.state_bytes + blocks * kept.block_bytes + factored * 4;
}

/// Bytes of the optimizer's tables on replica `replica` of `device`, which sums squares over its share of every layer.
[[nodiscard]] constexpr std::int64_t table_bytes_on(const step_model& model, int device, int replicas, int replica,
                                                    const parameter_memory& kept) noexcept {
    const int fixed = kept.tables.fixed + (kept.form.is_factored() ? kept.tables.factored : 0);
    std::int64_t bytes = fixed * (1 + static_cast<std::int64_t>(model.further_chains().size()));
    detail::for_each_block(model, device, kept, [&](std::int64_t size) {
        const std::int64_t mine = detail::share_of_block(size, replicas, replica);
        const std::int64_t chunks = (mine + kept.tables.chunk_elements - 1) / kept.tables.chunk_elements;
        bytes += kept.tables.layer + chunks * kept.tables.chunk;
    });
    return bytes;
}

/// Bytes that a device keeps besides its parameters (beside_first_stage or beside_last_stage).
[[nodiscard]] constexpr std::int64_t beside_bytes_on(const step_model& model, int device,
                                                     const parameter_memory& kept) noexcept {
    if (model.device_of_stage(0) == device) { return kept.beside_first_stage; }
    return model.device_of_stage(model.stage_count() - 1) == device ? kept.beside_last_stage : 0;
}

/// Upper bound on the bytes that the backend of `device` uses beyond what is laid out.
[[nodiscard]] constexpr std::int64_t scratch_bytes_on(const step_model& model, int device,
                                                      const parameter_memory& kept) noexcept {
    const bool encodes = beside_bytes_on(model, device, kept) > 0 || model.frozen().network_bytes(device) > 0;
    return scratch_bytes_on(model, device, kept.scratch) + (encodes ? kept.scratch.of_frozen_networks() : 0);
}

/// Bytes on replica `replica` of `device` that do not depend on its order of passes, workspace excepted: parameters
/// with gradients, optimizer state and tables, frozen weights and networks, slots for gradients of other replicas, and
/// the backend's scratch.
[[nodiscard]] constexpr std::int64_t kept_bytes_on(const step_model& model, int device, int replicas, int replica,
                                                   const parameter_memory& kept) noexcept {
    const std::int64_t values = parameter_bytes_on(model, device);
    return values + gradient_bytes_on(model, device, kept) + state_bytes_on(model, device, replicas, replica, kept) +
           table_bytes_on(model, device, replicas, replica, kept) + replica_bytes_on(model, device, replicas, kept) +
           frozen_parameter_bytes_on(model, device) + beside_bytes_on(model, device, kept) +
           model.frozen().network_bytes(device) + scratch_bytes_on(model, device, kept);
}

/// Bytes that all replicas of a stage together send to sum its gradients: every share to the replica that sums it and,
/// unless state is sharded, the sum back.
[[nodiscard]] constexpr std::int64_t all_reduce_bytes(const step_model& model, int stage, int replicas,
                                                      const parameter_memory& kept = {}) noexcept {
    const int ways = kept.sharded ? 1 : 2;
    return replicas < 2 ? 0 : ways * (replicas - 1) * gradient_bytes_of(parameter_bytes_of(model, stage), kept);
}

/// Bytes that the ranks of all replicas of a plan send each other in a step: all_reduce_bytes of every stage and, if
/// state is sharded, every new weight from the replica that made it to all others.
[[nodiscard]] constexpr std::int64_t replica_traffic_bytes(const step_model& model, int replicas,
                                                           const parameter_memory& kept = {}) noexcept {
    std::int64_t bytes = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        bytes += all_reduce_bytes(model, s, replicas, kept);
        if (kept.sharded) { bytes += (replicas - 1) * parameter_bytes_of(model, s); }
    }
    return bytes;
}

} // namespace pulse
