#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/device_copies.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/threads/channel.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::cuda {

/// How thread ranks on devices pass messages.
struct thread_options {
    /// Between ranks of one device, a buffer that its sender needs no more changes hands instead of being copied.
    /// Tensors then move from step to step, and work that was captured in a graph is not replayed.
    bool exchange{};
};

using device_channel = host::channel<device_copies>;

/// Ranks that are threads of one process, each with a device, and what they share.
class thread_group {
public:
    /// `devices[r]` is the device of rank r; several ranks may have one. Throws input_error when there is no rank or no
    /// such device.
    explicit thread_group(std::vector<int> devices, thread_options options = {}) :
        devices_{std::move(devices)}, host_{static_cast<int>(devices_.size())} {
        for (const int from : devices_) {
            for (const int to : devices_) { open_link(from, to); }
        }
        for (const int from : devices_) {
            for (const int to : devices_) {
                channels_.push_back(std::make_unique<device_channel>(from, to, options.exchange));
            }
        }
    }
    thread_group(const thread_group&) = delete;
    thread_group& operator=(const thread_group&) = delete;
    ~thread_group() {
        // Nothing may be thrown here, also where a kernel has failed and every call returns its error.
        int before = 0;
        const bool known = cudaGetDevice(&before) == cudaSuccess;
        for (const auto& [device, memory] : memory_) {
            static_cast<void>(cudaSetDevice(device));
            static_cast<void>(cudaFree(memory));
        }
        if (known) { static_cast<void>(cudaSetDevice(before)); }
    }

    [[nodiscard]] int size() const noexcept { return static_cast<int>(devices_.size()); }
    [[nodiscard]] int device_of(int rank) const noexcept { return devices_[static_cast<std::size_t>(rank)]; }
    /// Throws input_error when there is no such pair of ranks.
    [[nodiscard]] device_channel& between(int from, int to) {
        static_cast<void>(host_.between(from, to));
        return *channels_[static_cast<std::size_t>(from) * devices_.size() + static_cast<std::size_t>(to)];
    }

    /// The first failure wins; every post, wait and collective operation of every rank then throws
    /// peer_failed with its text.
    void fail(int rank, std::string_view what) noexcept {
        {
            const std::lock_guard lock{failure_mutex_};
            failed_.set(what);
            host_.fail(rank, failed_.text());
        }
        // It is never set again, so it can be read without the mutex.
        for (const auto& c : channels_) { c->fail(failed_.text()); }
    }
    [[nodiscard]] std::pair<int, std::string> first_failure() { return host_.first_failure(); }
    /// The rank takes no further part: whoever waits for what it has not posted gets an error that names it.
    void leave(int rank) {
        host_.leave(rank);
        for (int other = 0; other != size(); ++other) {
            between(rank, other).leave(side::sender, rank);
            between(other, rank).leave(side::receiver, rank);
        }
    }
    /// See host::thread_group::sum.
    void sum(int rank, std::span<double> values) { host_.sum(rank, values); }
    /// See host::thread_group::gather.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(int rank, std::span<const std::byte> mine) {
        return host_.gather(rank, mine);
    }
    /// See host::thread_group::broadcast.
    void broadcast(int rank, std::vector<std::byte>& bytes) { host_.broadcast(rank, bytes); }

    /// Memory of the rank's device that lives as long as the group.
    [[nodiscard]] std::byte* allocate(int rank, std::size_t bytes) {
        const device_scope here{device_of(rank)};
        const std::lock_guard lock{memory_mutex_};
        memory_.reserve(memory_.size() + 1);
        memory_.emplace_back(device_of(rank), cuda::allocate(memory_place::device, bytes == 0 ? 1 : bytes));
        return memory_.back().second;
    }

private:
    /// Lets the device `from` reach the memory of `to`, where it can; else copies go through the host.
    static void open_link(int from, int to) {
        require_device(to);
        if (from == to) { return; }
        const device_scope here{from};
        int can = 0;
        check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
        if (can == 0) { return; }
        const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
        if (status == cudaErrorPeerAccessAlreadyEnabled) {
            static_cast<void>(cudaGetLastError());
            return;
        }
        check(status, "cudaDeviceEnablePeerAccess");
    }

    std::vector<int> devices_;
    host::thread_group host_;
    std::vector<std::unique_ptr<device_channel>> channels_{};
    std::mutex failure_mutex_{};
    host::failure failed_{};
    std::mutex memory_mutex_{};
    std::vector<std::pair<int, std::byte*>> memory_{};
};

/// One rank's end of a thread_group, with the stream in which the rank computes.
///
/// A backend of the rank must use stream(): transfers are ordered with it by events, and neither side's host waits for
/// a transfer, but only until the other side has posted it.
class thread_transport {
public:
    /// On the thread of the rank, whose device becomes the rank's. Throws input_error when the group has no such rank.
    thread_transport(std::shared_ptr<thread_group> group, int rank) :
        group_{on_device(std::move(group), rank)}, rank_{rank} {}
    thread_transport(const thread_transport&) = delete;
    thread_transport& operator=(const thread_transport&) = delete;

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return group_->size(); }
    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
    /// Where gradients of replicas are exchanged and added: messages between replicas are ordered with this stream, all
    /// others with stream().
    [[nodiscard]] cudaStream_t reduction_stream() const noexcept { return reductions_.get(); }

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        group_->between(rank_, peer).post(side::sender, message, parts, stream_for(message));
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        group_->between(peer, rank_).post(side::receiver, message, parts, stream_for(message));
    }
    void wait_send(int peer, message_id message) {
        group_->between(rank_, peer).wait(side::sender, message, stream_for(message));
    }
    void wait_recv(int peer, message_id message) {
        group_->between(peer, rank_).wait(side::receiver, message, stream_for(message));
    }
    [[nodiscard]] bool arrived(int peer, message_id message) { return group_->between(peer, rank_).arrived(message); }
    /// Of values on the host.
    void sum(std::span<double> values) { group_->sum(rank_, values); }
    /// Of bytes on the host.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        return group_->gather(rank_, mine);
    }
    /// Of bytes on the host.
    void broadcast(std::vector<std::byte>& bytes) { group_->broadcast(rank_, bytes); }
    void fail(std::string_view what) noexcept { group_->fail(rank_, what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) { return group_->allocate(rank_, bytes); }

    /// What transfers from this rank carry that were started so far.
    [[nodiscard]] traffic_count sent() {
        traffic_count all;
        for (int peer = 0; peer != size(); ++peer) { all += group_->between(rank_, peer).delivered(); }
        return all;
    }

private:
    [[nodiscard]] static std::shared_ptr<thread_group> on_device(std::shared_ptr<thread_group> group, int rank) {
        if (rank < 0 || rank >= group->size()) { throw input_error{"pulse: there is no rank " + std::to_string(rank)}; }
        select_device(group->device_of(rank));
        return group;
    }

    [[nodiscard]] cudaStream_t stream_for(const message_id& message) const noexcept {
        return is_between_replicas(message.kind) ? reduction_stream() : stream();
    }

    std::shared_ptr<thread_group> group_;
    int rank_;
    cuda::stream stream_{};
    cuda::stream reductions_{};
};

static_assert(transport<thread_transport>, "thread_transport is a transport");

/// Runs body(transport) on one thread per rank, rank r on device devices[r], and waits for all; as host::run_ranks.
template <class Body>
void run_ranks(std::vector<int> devices, const thread_options& options, Body body) {
    const auto group = std::make_shared<thread_group>(std::move(devices), options);
    host::detail::run_ranks_on<thread_transport>([](auto work) { return std::jthread{std::move(work)}; }, group, body);
}

} // namespace pulse::cuda
