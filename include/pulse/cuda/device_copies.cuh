#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/runtime/transport.hpp>
#include <pulse/threads/channel.hpp>

namespace pulse::cuda {

using threads::side;

/// Devices of ranks that are threads.
struct device_links {
    std::vector<int> devices{}; ///< by rank
    bool exchange{};            ///< see thread_options
};

/// Moves the messages of a channel between devices.
///
/// A transfer runs on a stream of its own, after the work that each side had enqueued when it posted: by then the
/// sender's tensor is made and the receiver's buffer is free. Work that a side enqueues after its wait runs after the
/// transfer. The host waits only until the other side has posted.
class device_copies {
public:
    /// The stream that writes or reads a side's tensors.
    using place = cudaStream_t;
    using mark = event;

    /// Copies run on the sender's device.
    device_copies(const device_links& links, int sender, int receiver) :
        from_{links.devices[static_cast<std::size_t>(sender)]}, to_{links.devices[static_cast<std::size_t>(receiver)]},
        exchanges_{links.exchange && from_ == to_}, copies_{stream_of(from_)} {}

    /// An event belongs to the device of the stream that records it.
    [[nodiscard]] event mark_of(side who) const {
        const device_scope here{who == side::sender ? from_ : to_};
        return event{};
    }
    static void set(event& made, cudaStream_t where) { made.record(where); }
    [[nodiscard]] static bool blocks() noexcept { return false; }
    [[nodiscard]] bool exchanges() const noexcept { return exchanges_; }
    void begin(const event& sent, const event& free) {
        copies_.wait(sent);
        copies_.wait(free);
    }
    void copy(const message_part& from, const message_part& to) {
        if (from_ == to_) {
            check(cudaMemcpyAsync(to.data, from.data, from.bytes, cudaMemcpyDeviceToDevice, copies_.get()),
                  "cudaMemcpyAsync");
        } else {
            check(cudaMemcpyPeerAsync(to.data, to_, from.data, from_, from.bytes, copies_.get()),
                  "cudaMemcpyPeerAsync");
        }
    }
    void end(event& over, std::int64_t) { over.record(copies_.get()); }
    /// A time in the past: the host need not wait for a transfer.
    [[nodiscard]] static std::chrono::steady_clock::time_point over(side, const event&) { return {}; }
    static void join(const event& over, cudaStream_t where) { over.block(where); }
    void settle() noexcept {
        // What the transfers wait for is already enqueued, so this returns. Their errors cannot be reported here.
        static_cast<void>(cudaStreamSynchronize(copies_.get()));
        static_cast<void>(cudaGetLastError());
    }

private:
    [[nodiscard]] static stream stream_of(int device) {
        const device_scope here{device};
        return stream{};
    }

    int from_;
    int to_;
    bool exchanges_;
    stream copies_;
};

} // namespace pulse::cuda
