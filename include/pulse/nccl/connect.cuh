#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include <nccl.h>

#include <pulse/cuda/memory.cuh>
#include <pulse/nccl/communicator.cuh>
#include <pulse/nccl/peer_stream.cuh>

namespace pulse::nccl {

/// Connects every pair of ranks of a peer_stream by sending one byte each way while all ranks are present: NCCL
/// connects a pair only at its first message, and then waits for the peer. Collective over its `ranks`, of which this
/// is `me`. `room` is two bytes of device memory. Throws nccl_error, or what `go_on` throws; a message may then still
/// be in flight to `room`, and freeing it would wait until the stream is aborted.
inline void connect(peer_stream& on, std::byte* room, int me, int ranks, const patience& go_on) {
    const ncclComm_t with = on.with().get();
    constexpr const char* what = "the first message of a pair of ranks";
    cuda::fill_bytes_async(room, 0, 2, on.stream().get());
    for (int distance = 1; distance < ranks; ++distance) {
        const int after = (me + distance) % ranks;
        const int before = (me + ranks - distance) % ranks;
        check(ncclGroupStart(), "ncclGroupStart");
        const ncclResult_t out = ncclSend(room, 1, ncclUint8, after, with, on.stream().get());
        const ncclResult_t in = ncclRecv(room + 1, 1, ncclUint8, before, with, on.stream().get());
        check(ncclGroupEnd(), "ncclGroupEnd", with);
        check(out, "ncclSend", with);
        check(in, "ncclRecv", with);
        settle(with, what, go_on);
    }
    while (!on.stream().idle()) {
        go_on();
        check(on.with().state(), what, with);
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
}

} // namespace pulse::nccl
