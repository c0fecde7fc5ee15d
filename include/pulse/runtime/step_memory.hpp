#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/plan/layout.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/tensor/aligned_bytes.hpp>

namespace pulse {

/// The memory of one rank's step, taken once: the block, the message slots and the workspace of a memory_layout.
///
/// It measures what is really touched, from the acquires that happen and not from the layout's own sums.
class step_memory {
public:
    template <transport T>
    step_memory(const memory_layout& layout, T& transport)
        : places_{layout.places}, block_{allocate_aligned(static_cast<std::size_t>(layout.block_bytes))},
          workspace_{allocate_aligned(static_cast<std::size_t>(layout.workspace_bytes))},
          workspace_bytes_{layout.workspace_bytes}, slot_used_(layout.slot_bytes.size(), 0) {
        slots_.reserve(layout.slot_bytes.size());
        for (const std::int64_t bytes : layout.slot_bytes) {
            slots_.push_back(transport.allocate(static_cast<std::size_t>(bytes)));
        }
    }

    [[nodiscard]] std::byte* address(int place) const noexcept {
        const buffer_place& p = places_[static_cast<std::size_t>(place)];
        return p.slot >= 0 ? slots_[static_cast<std::size_t>(p.slot)] : block_.get() + p.offset;
    }
    [[nodiscard]] std::byte* workspace() const noexcept { return workspace_.get(); }
    [[nodiscard]] std::int64_t bytes(int place) const noexcept { return places_[static_cast<std::size_t>(place)].bytes; }

    void acquire(int place) {
        const buffer_place& p = places_[static_cast<std::size_t>(place)];
        live_bytes_ += p.bytes;
        most_live_bytes_ = std::max(most_live_bytes_, live_bytes_);
        if (p.slot >= 0) {
            slot_used_[static_cast<std::size_t>(p.slot)] =
                std::max(slot_used_[static_cast<std::size_t>(p.slot)], p.bytes);
        } else {
            block_used_ = std::max(block_used_, p.offset + aligned(p.bytes));
        }
    }
    void release(int place) { live_bytes_ -= places_[static_cast<std::size_t>(place)].bytes; }

    /// The transport exchanged the buffer of this place for another of the same size.
    void exchanged(int place, std::byte* now) noexcept {
        slots_[static_cast<std::size_t>(places_[static_cast<std::size_t>(place)].slot)] = now;
    }

    [[nodiscard]] std::int64_t live_bytes() const noexcept { return live_bytes_; }
    /// Most bytes held at once by buffers.
    [[nodiscard]] std::int64_t most_live_bytes() const noexcept { return most_live_bytes_; }
    /// Bytes of the block, the slots and the workspace that were in use at some time.
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        std::int64_t sum = block_used_ + workspace_bytes_;
        for (const std::int64_t s : slot_used_) { sum += s; }
        return sum;
    }

private:
    std::vector<buffer_place> places_;
    aligned_bytes block_;
    aligned_bytes workspace_;
    std::int64_t workspace_bytes_;
    std::vector<std::byte*> slots_;
    std::vector<std::int64_t> slot_used_;
    std::int64_t block_used_{};
    std::int64_t live_bytes_{};
    std::int64_t most_live_bytes_{};
};

} // namespace pulse
