#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/nccl/communicator.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::nccl {

/// One of a rank's sequences of transfers: a communicator, the stream that runs its groups in order, and the messages
/// posted to it. Not thread-safe.
class peer_stream {
public:
    using clock = std::chrono::steady_clock;

    peer_stream() = default;
    explicit peer_stream(communicator with) : communicator_{std::move(with)}, stream_{std::in_place, -1} {}

    [[nodiscard]] communicator& with() noexcept { return communicator_; }
    [[nodiscard]] const cuda::stream& stream() const noexcept { return *stream_; }

    /// Posts a message whose tensors are ready to send, or whose buffers are free, once all current work in `on` is
    /// done, or already at `since` if given. `peer` is the rank in the communicator, `world_peer` the one in the run,
    /// which find and errors use, `ordinal` the result of find_ordinal().
    void post(bool sends, int peer, int world_peer, message_id message, std::span<message_part> parts, cudaStream_t on,
              const cuda::event* since, int ordinal) {
        drop_done();
        if (spare_.empty()) { spare_.emplace_back(); }
        posting p = std::move(spare_.back());
        spare_.pop_back();
        p.sends = sends;
        p.peer = peer;
        p.world_peer = world_peer;
        p.message = message;
        p.parts = parts;
        p.since = since;
        p.ordinal = ordinal;
        p.launched = p.waited = false;
        p.stuck_since.reset();
        p.ready.record(on);
        posted_.push_back(std::move(p));
    }

    /// Starts all posted, unstarted messages as one group; they may wait for each other (prove_slots).
    void launch() {
        for (posting& p : posted_) {
            if (!p.launched) { stream_->wait(p.since != nullptr ? *p.since : p.ready); }
        }
        check(ncclGroupStart(), "ncclGroupStart");
        ncclResult_t result = ncclSuccess;
        for (posting& p : posted_) {
            if (p.launched) { continue; }
            for (const message_part& part : p.parts) {
                if (part.bytes == 0 || (result != ncclSuccess && result != ncclInProgress)) { continue; }
                result = p.sends
                             ? ncclSend(part.data, part.bytes, ncclUint8, p.peer, communicator_.get(), stream_->get())
                             : ncclRecv(part.data, part.bytes, ncclUint8, p.peer, communicator_.get(), stream_->get());
                if (!p.sends) { continue; }
                sent_.of(part.kind) += static_cast<std::int64_t>(part.bytes);
            }
            if (p.sends) { ++sent_.messages; }
        }
        // A group that was begun is ended, whatever happened in it.
        const ncclResult_t ended = ncclGroupEnd();
        check(result, "ncclSend or ncclRecv", communicator_.get());
        check(ended, "ncclGroupEnd", communicator_.get());
    }
    /// Call when the communicator has settled after launch().
    void launched() {
        for (posting& p : posted_) {
            if (p.launched) { continue; }
            p.over.record(stream_->get());
            p.launched = true;
        }
    }

    [[nodiscard]] int find_ordinal(bool sends, int world_peer, message_id message) {
        return find(sends, world_peer, message).ordinal;
    }
    /// Makes later work in `on` wait for the oldest transfer of that message. Throws error when it was not posted, or
    /// its slot has not started.
    void wait(bool sends, int world_peer, message_id message, cudaStream_t on) {
        posting& p = find(sends, world_peer, message);
        if (!p.launched) {
            throw error{"pulse: " + name(p) + " was waited for before all messages of its slot were posted"};
        }
        p.over.block(on);
        p.waited = true;
    }
    /// Whether wait() for that message would succeed: it makes a stream wait, never the host.
    [[nodiscard]] bool arrived(int world_peer, message_id message) { return find(false, world_peer, message).launched; }

    /// Names the first unfinished transfer if this rank has been ready for it for more than `longest`; none otherwise.
    [[nodiscard]] std::optional<std::string> stuck(clock::duration longest) {
        for (posting& p : posted_) {
            if (!p.launched || p.over.reached()) { continue; }
            if (!p.stuck_since && p.ready.reached()) { p.stuck_since = clock::now(); }
            // Later transfers wait for this one, not for their peers.
            if (!p.stuck_since || clock::now() - *p.stuck_since <= longest) { return std::nullopt; }
            return name(p);
        }
        return std::nullopt;
    }
    /// Names the oldest started transfer that is unfinished.
    [[nodiscard]] std::string oldest() const {
        for (const posting& p : posted_) {
            if (p.launched && !p.over.reached()) { return name(p); }
        }
        return "no message";
    }
    [[nodiscard]] const traffic_count& sent() const noexcept { return sent_; }

private:
    struct posting {
        bool sends{};
        int peer{};
        int world_peer{};
        message_id message{};
        std::span<message_part> parts{};
        const cuda::event* since{};
        int ordinal{};
        bool launched{};
        bool waited{};
        cuda::event ready{};
        cuda::event over{};
        std::optional<clock::time_point> stuck_since{};
    };

    [[nodiscard]] static std::string name(const posting& p) {
        return to_text(p.message) + (p.sends ? " to rank " : " from rank ") + std::to_string(p.world_peer);
    }
    [[nodiscard]] posting& find(bool sends, int world_peer, message_id message) {
        for (posting& p : posted_) {
            if (p.sends == sends && p.world_peer == world_peer && p.message == message && !p.waited) { return p; }
        }
        throw error{"pulse: a rank waits for a message that it never posted"};
    }
    /// Recycles the events of transfers that are over and were waited for.
    void drop_done() {
        std::size_t kept = 0;
        for (std::size_t i = 0; i != posted_.size(); ++i) {
            if (posted_[i].waited && posted_[i].over.reached()) {
                spare_.push_back(std::move(posted_[i]));
            } else {
                if (kept != i) { posted_[kept] = std::move(posted_[i]); }
                ++kept;
            }
        }
        while (posted_.size() != kept) { posted_.pop_back(); }
    }

    communicator communicator_{};
    std::optional<cuda::stream> stream_{};
    std::vector<posting> posted_{};
    std::vector<posting> spare_{};
    traffic_count sent_{};
};

/// Aborts the communicators of a device's streams concurrently: ncclCommAbort marks its communicator, then waits for
/// that communicator's streams, which may be queued behind another one's receives (commDestroySync of NCCL 2.19 to
/// 2.30).
inline void abort_all(std::span<peer_stream> streams, int device) noexcept {
    std::vector<std::jthread> aborting;
    try {
        for (peer_stream& l : streams) {
            if (!l.with()) { continue; }
            aborting.emplace_back([&l, device] {
                // NCCL restores the thread's current device; on another device that would create a context.
                static_cast<void>(cudaSetDevice(device));
                l.with().abort();
            });
        }
    } catch (...) {} // without threads, the rest are aborted one by one
    aborting.clear();
    for (peer_stream& l : streams) { l.with().abort(); }
}

} // namespace pulse::nccl
