#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Where one value of a buffer lives, from instruction `first`, which writes it, to instruction `last`, its release.
struct buffer_place {
    buffer_id buffer{};
    int first{};
    int last{};
    std::int64_t bytes{};
    int slot{-1}; ///< index into memory_layout::slot_bytes; -1 for `saved` and `deferred`, which lie in the block
    std::int64_t offset{-1}; ///< in the block, in bytes; -1 for slots

    [[nodiscard]] constexpr bool operator==(const buffer_place&) const = default;
};

/// The memory of one rank's step by purpose, in bytes. Steps that run one at a time share their memory, so each part is
/// as large as in the step that needs most of it (grow_to).
struct step_bytes {
    std::int64_t block{};
    std::int64_t slots{};
    std::int64_t workspace{};
    std::int64_t results{};

    [[nodiscard]] constexpr std::int64_t total() const noexcept { return block + slots + workspace + results; }
    constexpr void grow_to(const step_bytes& other) noexcept {
        block = std::max(block, other.block);
        slots = std::max(slots, other.slots);
        workspace = std::max(workspace, other.workspace);
        results = std::max(results, other.results);
    }
    [[nodiscard]] constexpr bool operator==(const step_bytes&) const = default;
};

/// The memory of one rank's step. Each buffer that a message may carry has a slot of exactly its size, because a
/// transport may swap two slots of equal size between ranks instead of copying; the rest is packed into one block.
struct memory_layout {
    /// In the order in which they are acquired.
    std::vector<buffer_place> places{};
    std::int64_t block_bytes{};
    std::vector<std::int64_t> slot_bytes{};
    std::int64_t workspace_bytes{};
    /// Results that frozen tasks make for the next step, and those that this step reads; both live across steps.
    std::int64_t result_bytes{};
    /// Peak of live bytes in the block, sizes rounded up to buffer_alignment: a lower bound for any packing.
    std::int64_t block_bound_bytes{};
    /// Peak of live bytes over all buffers, not rounded; without workspace.
    std::int64_t live_peak_bytes{};

    [[nodiscard]] constexpr step_bytes bytes() const noexcept {
        return {block_bytes, std::accumulate(slot_bytes.begin(), slot_bytes.end(), std::int64_t{}), workspace_bytes,
                result_bytes};
    }
    [[nodiscard]] constexpr std::int64_t total_bytes() const noexcept { return bytes().total(); }
    [[nodiscard]] constexpr bool operator==(const memory_layout&) const = default;
};

/// Lays out the memory of one rank from the lifetimes in its program. Throws input_error if a buffer is read before it
/// is written, written while alive, or not released exactly once.
[[nodiscard]] PULSE_CONSTEXPR memory_layout lay_out(const step_model& model, const program& of_rank);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/layout.ipp> // IWYU pragma: keep
#endif
