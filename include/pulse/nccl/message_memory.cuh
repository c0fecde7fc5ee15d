#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

#include <pulse/cuda/memory.cuh>
#include <pulse/nccl/communicator.cuh>

namespace pulse::nccl {

/// Owns message memory: from ncclMemAlloc and registered with communicators, or plain device memory.
class message_memory {
public:
    explicit message_memory(bool registers = false) noexcept : registers_{registers} {}
    message_memory(message_memory&& other) noexcept :
        registers_{other.registers_}, blocks_{std::exchange(other.blocks_, {})} {}
    message_memory& operator=(message_memory&& other) noexcept {
        message_memory taken{std::move(other)};
        std::swap(registers_, taken.registers_);
        std::swap(blocks_, taken.blocks_);
        return *this;
    }
    ~message_memory() { release(); }

    /// Whether this device and these communicators support registration.
    [[nodiscard]] static bool can_register(std::span<const ncclComm_t> with) {
        try {
            message_memory probe{true};
            static_cast<void>(probe.allocate(4096, with));
            return true;
        } catch (const nccl_error&) { return false; }
    }

    [[nodiscard]] bool registers() const noexcept { return registers_; }

    /// 64-byte aligned. ncclMemAlloc rounds up to the device's granularity, 2 MiB: ask for few large blocks. Throws
    /// nccl_error or cuda::out_of_memory.
    [[nodiscard]] std::byte* allocate(std::size_t bytes, std::span<const ncclComm_t> with) {
        bytes = bytes == 0 ? 1 : bytes;
        blocks_.reserve(blocks_.size() + 1);
        if (!registers_) {
            blocks_.push_back({cuda::allocate(cuda::memory_place::device, bytes), {}});
            return blocks_.back().data;
        }
        void* data = nullptr;
        check(ncclMemAlloc(&data, bytes), "ncclMemAlloc");
        block& made = blocks_.emplace_back(block{static_cast<std::byte*>(data), {}});
        made.handles.reserve(with.size());
        for (const ncclComm_t one : with) {
            void* handle = nullptr;
            check(ncclCommRegister(one, data, bytes, &handle), "ncclCommRegister", one);
            made.handles.emplace_back(one, handle);
        }
        return made.data;
    }
    /// Deregisters and frees all of it. Before an abort of the communicators, call forget_communicators().
    void release() noexcept {
        for (const block& b : std::exchange(blocks_, {})) {
            for (const auto& [one, handle] : b.handles) { static_cast<void>(ncclCommDeregister(one, handle)); }
            static_cast<void>(registers_ ? static_cast<int>(ncclMemFree(b.data)) : static_cast<int>(cudaFree(b.data)));
        }
    }
    /// Drops all registrations, which end with the communicators.
    void forget_communicators() noexcept {
        for (block& b : blocks_) { b.handles.clear(); }
    }

private:
    struct block {
        std::byte* data{};
        std::vector<std::pair<ncclComm_t, void*>> handles{};
    };

    bool registers_{};
    std::vector<block> blocks_{};
};

} // namespace pulse::nccl
