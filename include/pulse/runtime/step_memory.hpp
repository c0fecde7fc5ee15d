#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <pulse/plan/layout.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/space.hpp>

namespace pulse {

/// Memory of one rank for its steps, allocated once. Layouts share it, as steps of only one run at a time: each area is
/// as large as the largest layout needs.
template <class Space>
class step_room {
public:
    step_room(std::span<const memory_layout* const> layouts, const any_transport& transport) :
        block_{most(layouts, [](const memory_layout& l) { return l.block_bytes; })},
        workspace_{most(layouts, [](const memory_layout& l) { return l.workspace_bytes; })},
        results_{most(layouts, [](const memory_layout& l) { return l.result_bytes; })},
        // In one piece: NCCL rounds every allocation up to 2 MiB.
        slots_{transport.allocate(most(layouts, [](const memory_layout& l) {
            std::int64_t all = 0;
            for (const std::int64_t bytes : l.slot_bytes) { all += aligned(bytes); }
            return all;
        }))} {}

    [[nodiscard]] std::byte* block() const noexcept { return block_.data(); }
    [[nodiscard]] std::byte* workspace() const noexcept { return workspace_.data(); }
    /// Results that frozen tasks make for the next step, whatever its layout.
    [[nodiscard]] std::byte* results() const noexcept { return results_.data(); }
    [[nodiscard]] std::byte* slots() const noexcept { return slots_; }

private:
    template <class Bytes>
    [[nodiscard]] static std::size_t most(std::span<const memory_layout* const> layouts, const Bytes& bytes) {
        std::int64_t found = 0;
        for (const memory_layout* one : layouts) { found = std::max(found, bytes(*one)); }
        return static_cast<std::size_t>(found);
    }

    typename Space::bytes block_;
    typename Space::bytes workspace_;
    typename Space::bytes results_;
    std::byte* slots_;
};

/// The memory of one rank's step in a step_room: the block, the message slots and the workspace of a memory_layout, and
/// two rooms for results of frozen tasks.
///
/// It counts what a program acquires as it runs and exposes its bytes, so that a test can see what was really written.
/// Spans and addresses are those of the space.
template <class Space>
class basic_step_memory {
public:
    /// The room must outlive it.
    basic_step_memory(const memory_layout& layout, const step_room<Space>& room) :
        places_{layout.places}, room_{room}, block_size_{layout.block_bytes}, workspace_size_{layout.workspace_bytes},
        result_size_{layout.result_bytes}, slot_size_{layout.slot_bytes}, slots_(layout.slot_bytes.size()),
        slot_used_(layout.slot_bytes.size(), 0) {
        std::byte* next = room.slots();
        for (std::size_t s = 0; s != slots_.size(); ++s) {
            slots_[s] = next;
            next += aligned(slot_size_[s]);
        }
    }

    [[nodiscard]] std::byte* address(int place) const noexcept {
        const buffer_place& p = places_[static_cast<std::size_t>(place)];
        return p.slot >= 0 ? slots_[static_cast<std::size_t>(p.slot)] : room_.block() + p.offset;
    }
    [[nodiscard]] std::byte* workspace() const noexcept { return room_.workspace(); }
    /// The room for results of even or odd steps: 0 or 1.
    [[nodiscard]] std::byte* results(int parity) const noexcept {
        return room_.results() + parity * (result_size_ / 2);
    }

    /// The current block, workspace and slots, for measuring what a step writes.
    [[nodiscard]] std::span<std::byte> block_bytes() const noexcept {
        return {room_.block(), static_cast<std::size_t>(block_size_)};
    }
    [[nodiscard]] std::span<std::byte> workspace_bytes() const noexcept {
        return {room_.workspace(), static_cast<std::size_t>(workspace_size_)};
    }
    [[nodiscard]] std::size_t slot_count() const noexcept { return slots_.size(); }
    [[nodiscard]] std::span<std::byte> slot_bytes(std::size_t slot) const noexcept {
        return {slots_[slot], static_cast<std::size_t>(slot_size_[slot])};
    }

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

    /// Records that the transport exchanged the buffer of this place for another of the same size.
    void exchanged(int place, std::byte* now) noexcept {
        slots_[static_cast<std::size_t>(places_[static_cast<std::size_t>(place)].slot)] = now;
    }

    [[nodiscard]] std::int64_t live_bytes() const noexcept { return live_bytes_; }
    /// Most bytes that buffers held at once.
    [[nodiscard]] std::int64_t most_live_bytes() const noexcept { return most_live_bytes_; }
    /// The most that was used of the block and the slots, and all of the workspace and the rooms for results.
    [[nodiscard]] step_bytes used() const noexcept {
        return {block_used_, std::accumulate(slot_used_.begin(), slot_used_.end(), std::int64_t{}), workspace_size_,
                result_size_};
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept { return used().total(); }

private:
    std::vector<buffer_place> places_;
    const step_room<Space>& room_;
    std::int64_t block_size_;
    std::int64_t workspace_size_;
    std::int64_t result_size_;
    std::vector<std::int64_t> slot_size_;
    std::vector<std::byte*> slots_;
    std::vector<std::int64_t> slot_used_;
    std::int64_t block_used_{};
    std::int64_t live_bytes_{};
    std::int64_t most_live_bytes_{};
};

/// The step memory of a rank on the host.
using step_memory = basic_step_memory<host_space>;

} // namespace pulse
