#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/stream.cuh>

#include "p2p_kernels.cuh"
#include "p2p_measure.hpp"

namespace pulse_bench {

/// What moves the bytes of a copy between devices.
enum class copy_engine : std::uint8_t {
    runtime, ///< cudaMemcpyPeerAsync, or cudaMemcpyAsync on one device
    kernel,  ///< copy_bytes
    bulk,    ///< copy_bytes_in_bulk
};

/// A path between two devices or within one; one thread starts the copies and holds both ends. A copy runs in a stream
/// of the sending device.
class copy_path {
public:
    copy_path(copy_engine by, std::array<int, 2> devices) : by_{by}, ends_{side_on(devices[0]), side_on(devices[1])} {}

    [[nodiscard]] static std::vector<int> ends() { return {0, 1}; }
    void prepare(std::size_t most) {
        for (side& s : ends_) {
            const pulse::cuda::device_scope here{s.device};
            s.out = pulse::cuda::device_memory<std::byte>{most};
            s.in = pulse::cuda::device_memory<std::byte>{most};
        }
    }
    void write(int end, std::size_t at, std::span<const std::byte> bytes) {
        pulse::cuda::upload(bytes.data(), of(end).out.data() + at, bytes.size());
    }
    void poison(int end, std::size_t at, std::span<const std::byte> bytes) {
        pulse::cuda::upload(bytes.data(), of(end).in.data() + at, bytes.size());
    }
    void read(int end, std::size_t at, std::span<std::byte> bytes) {
        pulse::cuda::download(of(end).in.data() + at, bytes.data(), bytes.size());
    }

    void round_trip(std::size_t bytes) {
        send(0, bytes);
        ends_[0].sent.record(ends_[0].stream.get());
        ends_[1].stream.wait(ends_[0].sent);
        send(1, bytes);
        ends_[1].stream.synchronize();
    }
    post_time stream(std::size_t bytes, int messages, bool both) {
        post_time posted;
        const auto begin = std::chrono::steady_clock::now();
        for (int m = 0; m != messages; ++m) {
            send(0, bytes);
            if (both) { send(1, bytes); }
        }
        posted.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        posted.posts = (both ? 2 : 1) * messages;
        ends_[0].stream.synchronize();
        if (both) { ends_[1].stream.synchronize(); }
        return posted;
    }
    static void sum(std::span<double>) {}

private:
    struct side {
        int device{};
        int multiprocessors{};
        pulse::cuda::stream stream{};
        pulse::cuda::event sent{};
        pulse::cuda::device_memory<std::byte> out{};
        pulse::cuda::device_memory<std::byte> in{};
    };
    [[nodiscard]] static side side_on(int device) {
        const pulse::cuda::device_scope here{device};
        side made;
        made.device = device;
        made.multiprocessors = pulse::cuda::properties_of(device).multiprocessors;
        return made;
    }
    [[nodiscard]] side& of(int end) { return ends_[static_cast<std::size_t>(end)]; }

    /// Between two devices, each call changes the thread's device, since one thread serves both.
    void send(int end, std::size_t bytes) {
        const side& from = of(end);
        const side& to = of(1 - end);
        const bool two = from.device != to.device;
        if (by_ == copy_engine::runtime) {
            if (!two) { return pulse::cuda::copy_async(to.in.data(), from.out.data(), bytes, from.stream.get()); }
            return pulse::cuda::check(
                cudaMemcpyPeerAsync(to.in.data(), to.device, from.out.data(), from.device, bytes, from.stream.get()),
                "cudaMemcpyPeerAsync");
        }
        if (two) { pulse::cuda::check(cudaSetDevice(from.device), "cudaSetDevice"); }
        const pulse::cuda::queue on{from.stream.get(), from.multiprocessors, nullptr};
        const auto n = static_cast<std::int64_t>(bytes);
        by_ == copy_engine::kernel ? copy_by_kernel(on, from.out.data(), to.in.data(), n)
                                   : copy_in_bulk(on, from.out.data(), to.in.data(), n);
    }

    copy_engine by_;
    std::array<side, 2> ends_;
};

} // namespace pulse_bench
