#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/threads/channel.hpp>

namespace pulse::cuda {

using host::side;

/// One direction between two ranks whose tensors are on devices: messages meet in the order in which both sides post
/// them.
///
/// A transfer starts on a stream of its own, behind what either side had put into its stream when it posted: the
/// sender's tensor is made then, and the receiver's room is free. What a side puts into its stream after its wait runs
/// behind the transfer. The host waits only until the other side has posted.
class device_channel {
public:
    /// Copies run on the sender's device. With `exchange`, a buffer that the sender needs no more changes hands
    /// instead, where both ranks are on one device.
    device_channel(int from_device, int to_device, bool exchange) :
        from_{from_device}, to_{to_device}, exchanges_{exchange && from_device == to_device},
        copies_{stream_of(from_device)}, ring_{make_ring(first_room)} {}
    device_channel(const device_channel&) = delete;
    device_channel& operator=(const device_channel&) = delete;

    /// `on` is the stream that makes or reads the tensors of this side. Throws peer_failed, or error when the two sides
    /// disagree.
    void post(side who, message_id message, std::span<message_part> parts, cudaStream_t on) {
        {
            const std::lock_guard lock{mutex_};
            throw_if_failed();
            std::uint64_t& next = who == side::sender ? next_send_ : next_recv_;
            const std::uint64_t mine = next++;
            if (mine - oldest_ >= ring_.size()) { grow(); }
            transfer& t = at(mine);
            posting& half = who == side::sender ? t.out : t.in;
            half.message = message;
            half.parts = parts;
            half.posted = true;
            half.waited = false;
            half.ready.record(on);
            if (t.out.posted && t.in.posted) { start(t); }
        }
        changed_.notify_all();
    }

    /// What is put into `on` from now on runs behind the oldest transfer of `message`. Throws peer_failed, or error
    /// when the other side has left without posting it.
    void wait(side who, message_id message, cudaStream_t on) {
        std::unique_lock lock{mutex_};
        const std::uint64_t number = find(who, message);
        for (;;) {
            throw_if_failed();
            if (at(number).started) { break; }
            if (const int rank = left_[who == side::sender ? 1 : 0]; rank >= 0) {
                throw error{"pulse: rank " + std::to_string(rank) +
                            " has returned, and another waits for a message with it"};
            }
            changed_.wait(lock);
        }
        at(number).over.block(on);
        (who == side::sender ? at(number).out : at(number).in).waited = true;
        while (oldest_ != next_send_ && oldest_ != next_recv_ && at(oldest_).out.waited && at(oldest_).in.waited) {
            at(oldest_).clear();
            ++oldest_;
        }
    }

    /// Whether the oldest transfer of `message` has started, so that the receiver's host does not wait for it, or its
    /// wait would throw. Throws as wait.
    [[nodiscard]] bool arrived(message_id message) {
        const std::lock_guard lock{mutex_};
        throw_if_failed();
        const transfer& t = at(find(side::receiver, message));
        return t.started || left_[0] >= 0;
    }

    /// Every present and future post and wait throws. No transfer is under way when it returns, and none follows.
    void fail(std::string_view what) noexcept {
        {
            const std::lock_guard lock{mutex_};
            failed_.set(what);
        }
        changed_.notify_all();
        // What the transfers wait for is in the ranks' streams already, so this ends. An error of theirs has no other
        // place.
        static_cast<void>(cudaStreamSynchronize(copies_.get()));
        static_cast<void>(cudaGetLastError());
    }

    /// The rank at that side posts nothing more; what it has posted still meets its other half.
    void leave(side who, int rank) {
        {
            const std::lock_guard lock{mutex_};
            left_[static_cast<std::size_t>(who)] = rank;
        }
        changed_.notify_all();
    }

    /// What was started so far.
    [[nodiscard]] traffic_count delivered() {
        const std::lock_guard lock{mutex_};
        return delivered_;
    }

private:
    static constexpr std::size_t first_room = 64;

    struct posting {
        message_id message{};
        std::span<message_part> parts{};
        bool posted{};
        bool waited{};
        event ready{}; ///< on the rank's device: what it had put into its stream before it posted
    };
    struct transfer {
        posting out{};
        posting in{};
        event over{};
        bool started{};

        void clear() noexcept { out.posted = in.posted = out.waited = in.waited = started = false; }
    };

    [[nodiscard]] static stream stream_of(int device) {
        const device_scope here{device};
        return stream{};
    }
    /// An event belongs to the device of the stream that records it.
    [[nodiscard]] std::vector<transfer> make_ring(std::size_t room) const {
        std::vector<transfer> made;
        made.reserve(room);
        const device_scope sending{from_};
        for (std::size_t i = 0; i != room; ++i) { made.emplace_back(); }
        const device_scope receiving{to_};
        for (transfer& t : made) { t.in.ready = event{}; }
        return made;
    }
    transfer& at(std::uint64_t number) { return ring_[number % ring_.size()]; }
    void grow() {
        std::vector<transfer> wider = make_ring(ring_.size() * 2);
        for (std::uint64_t n = oldest_; n != oldest_ + ring_.size(); ++n) {
            wider[n % wider.size()] = std::move(at(n));
        }
        ring_ = std::move(wider);
    }
    void throw_if_failed() const { failed_.throw_if_set(); }

    void start(transfer& t) {
        if (t.out.message != t.in.message || t.out.parts.size() != t.in.parts.size()) {
            throw error{"pulse: two ranks disagree about the next message between them"};
        }
        for (std::size_t i = 0; i != t.out.parts.size(); ++i) {
            if (t.out.parts[i].bytes != t.in.parts[i].bytes) {
                throw error{"pulse: two ranks disagree about the size of a message"};
            }
        }
        copies_.wait(t.out.ready);
        copies_.wait(t.in.ready);
        for (std::size_t i = 0; i != t.out.parts.size(); ++i) {
            message_part& from = t.out.parts[i];
            message_part& to = t.in.parts[i];
            const auto bytes = static_cast<std::int64_t>(from.bytes);
            if (exchanges_ && from.may_exchange) {
                std::swap(from.data, to.data);
                delivered_.handed_over += bytes;
            } else if (from_ == to_) {
                check(cudaMemcpyAsync(to.data, from.data, from.bytes, cudaMemcpyDeviceToDevice, copies_.get()),
                      "cudaMemcpyAsync");
            } else {
                check(cudaMemcpyPeerAsync(to.data, to_, from.data, from_, from.bytes, copies_.get()),
                      "cudaMemcpyPeerAsync");
            }
            delivered_.of(from.kind) += bytes;
        }
        t.over.record(copies_.get());
        ++delivered_.messages;
        t.started = true;
    }

    std::uint64_t find(side who, message_id message) {
        const std::uint64_t end = who == side::sender ? next_send_ : next_recv_;
        for (std::uint64_t n = oldest_; n != end; ++n) {
            const posting& mine = who == side::sender ? at(n).out : at(n).in;
            if (mine.posted && !mine.waited && mine.message == message) { return n; }
        }
        throw error{"pulse: a rank waits for a message that it never posted"};
    }

    int from_;
    int to_;
    bool exchanges_;
    std::mutex mutex_{};
    std::condition_variable changed_{};
    stream copies_;
    std::vector<transfer> ring_;
    std::uint64_t oldest_{};
    std::uint64_t next_send_{};
    std::uint64_t next_recv_{};
    traffic_count delivered_{};
    host::failure failed_{};
    std::array<int, 2> left_{-1, -1}; ///< of each side: the rank that has returned, or -1
};

} // namespace pulse::cuda
