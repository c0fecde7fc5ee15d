#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/device_copies.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/threads/group.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::cuda {

/// How thread ranks on devices pass messages.
struct thread_options {
    /// Between ranks of one device, a buffer that its sender no longer needs is handed over instead of copied. Tensors
    /// then move from step to step, so that work captured in a graph is not replayed.
    bool exchange{};
};

/// The shared state of ranks that are threads of one process, each with a device.
class thread_group : public threads::group<device_copies> {
public:
    /// `devices[r]` is the device of rank r; several ranks may share one. Throws input_error when there is no rank or
    /// no such device.
    explicit thread_group(std::vector<int> devices, thread_options options = {}) :
        group{static_cast<int>(devices.size()), linked(devices, options)}, devices_{std::move(devices)} {}
    thread_group(const thread_group&) = delete;
    thread_group& operator=(const thread_group&) = delete;
    ~thread_group() {
        // Must not throw, even after a kernel has failed and every call returns its error.
        int before = 0;
        const bool known = cudaGetDevice(&before) == cudaSuccess;
        for (const auto& [device, memory] : memory_) {
            static_cast<void>(cudaSetDevice(device));
            static_cast<void>(cudaFree(memory));
        }
        if (known) { static_cast<void>(cudaSetDevice(before)); }
    }

    [[nodiscard]] int device_of(int rank) const noexcept { return devices_[static_cast<std::size_t>(rank)]; }
    /// To be called on the rank's thread: makes the rank's device current.
    void enter(int rank) const { select_device(device_of(rank)); }
    /// Allocates memory on the rank's device, which lives as long as the group.
    [[nodiscard]] std::byte* allocate(int rank, std::size_t bytes) {
        const device_scope here{device_of(rank)};
        const std::lock_guard lock{memory_mutex_};
        memory_.reserve(memory_.size() + 1);
        memory_.emplace_back(device_of(rank), cuda::allocate(memory_place::device, bytes == 0 ? 1 : bytes));
        return memory_.back().second;
    }

private:
    [[nodiscard]] static device_links linked(const std::vector<int>& devices, const thread_options& options) {
        for (const int from : devices) {
            for (const int to : devices) { open_link(from, to); }
        }
        return {devices, options.exchange};
    }
    /// Lets device `from` access the memory of `to` if it can; otherwise copies go through the host.
    static void open_link(int from, int to) {
        require_device(to);
        if (from == to) { return; }
        const device_scope here{from};
        int can = 0;
        check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
        if (can == 0) { return; }
        const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
        // Without NVSwitch a device has at most eight peers, which cudaDeviceCanAccessPeer does not count.
        if (status == cudaErrorPeerAccessAlreadyEnabled || status == cudaErrorTooManyPeers) {
            static_cast<void>(cudaGetLastError());
            return;
        }
        check(status, "cudaDeviceEnablePeerAccess");
    }

    std::vector<int> devices_;
    std::mutex memory_mutex_{};
    std::vector<std::pair<int, std::byte*>> memory_{};
};

/// The streams of a rank. Messages between replicas are ordered with the second, all others with the first.
struct rank_streams {
    cuda::stream computing{};
    cuda::stream reducing{};

    [[nodiscard]] cudaStream_t operator()(const message_id& message) const noexcept {
        return (is_between_replicas(message.kind) ? reducing : computing).get();
    }
};

/// One rank's end of a thread_group, with the stream in which the rank computes.
///
/// A backend of the rank must use stream(): transfers are ordered with it by events, and a side's host waits only until
/// the other side has posted, not for the transfer.
class thread_transport : public threads::thread_end<thread_group, rank_streams> {
public:
    using thread_end::thread_end;

    [[nodiscard]] cudaStream_t stream() const noexcept { return places().computing.get(); }
    /// The stream on which gradients of replicas are exchanged and added: messages between replicas are ordered with
    /// this stream, all others with stream().
    [[nodiscard]] cudaStream_t reduction_stream() const noexcept { return places().reducing.get(); }
};

static_assert(transport<thread_transport>, "pulse: thread_transport must be a transport");

/// Runs body(transport) on one thread per rank, rank r on device devices[r], and waits for all; as threads::run_ranks.
template <class Body>
void run_ranks(std::vector<int> devices, const thread_options& options, Body body) {
    const auto group = std::make_shared<thread_group>(std::move(devices), options);
    threads::detail::run_ranks_on<thread_transport>([](auto work) { return std::jthread{std::move(work)}; }, group,
                                                    body);
}

} // namespace pulse::cuda
