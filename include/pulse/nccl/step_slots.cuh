#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/event.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/runtime/prove_slots.hpp>
#include <pulse/runtime/transfer_slots.hpp>

namespace pulse::nccl {

/// A rank's position in the slots of its step: the next transfer, whether it is the last of its slot, and from which
/// point of the compute stream on it may start. Steps repeat endlessly.
class step_slots {
public:
    void follow(const rank_transfers& mine) {
        const std::int64_t early = early_receives_;
        *this = step_slots{};
        early_receives_ = early;
        std::vector<int> slot_at(mine.steps.size(), -1);
        std::vector<int> waiter(mine.steps.size(), -1);
        for (std::size_t i = 0; i != mine.steps.size(); ++i) {
            for (const int w : mine.steps[i].waits) { waiter[static_cast<std::size_t>(w)] = static_cast<int>(i); }
        }
        for (std::size_t s = 0; s != mine.slots.size(); ++s) {
            for (const int t : mine.slots[s].transfers) { slot_at[static_cast<std::size_t>(t)] = static_cast<int>(s); }
            slots_.push_back({static_cast<int>(mine.slots[s].transfers.size()), 0});
        }
        for (std::size_t i = 0; i != mine.steps.size(); ++i) {
            const transfer_step& one = mine.steps[i];
            if (one.what == transfer_step::role::other) { continue; }
            transfers_.push_back({one.what == transfer_step::role::send, one.message, static_cast<int>(i),
                                  one.free_after, slot_at[i], waiter[i]});
        }
    }

    /// Whether there are any transfers to follow.
    [[nodiscard]] bool known() const noexcept { return !transfers_.empty(); }
    /// Index of the next transfer in the step.
    [[nodiscard]] int next() const noexcept { return static_cast<int>(next_); }
    /// Number of receives that could start before the instruction in front of them was done.
    [[nodiscard]] std::int64_t early_receives() const noexcept { return early_receives_; }

    /// The point of `computes` after which the next transfer of the step may start; nullptr: its current end. Transfers
    /// start in posting order, as the proof of their slots requires: no receive starts before the transfer in front of
    /// it. Throws error when the plan's next transfer is a different one.
    [[nodiscard]] const cuda::event* start_of(bool sends, message_id message, cudaStream_t computes) {
        const transfer& now = transfers_[next_];
        if (now.sends != sends || now.message != message) {
            throw error{"pulse: " + to_text(message) + " was posted where the plan's slots expect " +
                        to_text(now.message)};
        }
        if (next_ == 0) { marks_ = 0; }
        mark(now.instruction, computes);
        if (sends) { return nullptr; }
        const int before = next_ == 0 ? -1 : transfers_[next_ - 1].instruction;
        for (std::size_t m = 0; m + 1 < marks_; ++m) {
            if (labels_[m] <= now.free_after || labels_[m] < before) { continue; }
            ++early_receives_;
            return &points_[m];
        }
        return nullptr;
    }
    /// Call when the next transfer was posted; returns whether it is the last of its slot.
    [[nodiscard]] bool completes() {
        slot& mine = slots_[static_cast<std::size_t>(transfers_[next_].slot)];
        next_ = (next_ + 1) % transfers_.size();
        if (++mine.posted != mine.size) { return false; }
        mine.posted = 0;
        return true;
    }
    /// Call before `computes` waits for the transfer with this index; -1: a message outside the step.
    void before_wait(int number, cudaStream_t computes) {
        if (number < 0 || static_cast<std::size_t>(number) >= transfers_.size()) { return; }
        const int instruction = transfers_[static_cast<std::size_t>(number)].waited_at;
        if (instruction >= 0) { mark(instruction, computes); }
    }

private:
    struct transfer {
        bool sends{};
        message_id message{};
        int instruction{};
        int free_after{};
        int slot{};
        int waited_at{};
    };
    struct slot {
        int size{};
        int posted{};
    };

    /// Records the work in the stream so far as a point before this instruction of the step.
    void mark(int instruction, cudaStream_t computes) {
        if (marks_ != 0 && labels_[marks_ - 1] == instruction) { return; }
        if (marks_ == points_.size()) {
            points_.emplace_back();
            labels_.push_back(0);
        }
        points_[marks_].record(computes);
        labels_[marks_++] = instruction;
    }

    std::vector<transfer> transfers_{}; ///< of a step, in order
    std::vector<slot> slots_{};
    std::size_t next_{};
    std::deque<cuda::event> points_{}; ///< of this step; labels_ has the instruction after each
    std::vector<int> labels_{};
    std::size_t marks_{};
    std::int64_t early_receives_{};
};

} // namespace pulse::nccl
