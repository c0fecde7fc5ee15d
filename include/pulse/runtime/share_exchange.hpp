#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::detail {

/// The message parts for these elements of an array, exchanged between replicas.
template <class T>
[[nodiscard]] std::vector<message_part> parts_of(const std::vector<element_range>& ranges, T* values) {
    std::vector<message_part> parts;
    for (const element_range& r : ranges) {
        parts.push_back(
            {reinterpret_cast<std::byte*>(values + r.first), r.size * sizeof(T), traffic_kind::gradient, false});
    }
    return parts;
}

/// A rank's messages to and from each replica of a circle, one to and one from each, all in flight together: in the
/// order of for_each_round, and in as few groups as the transport allows.
///
/// All replicas of a circle post the same groups. NCCL cuts a large group into kernels, each rank at its own place and
/// with another order of pairs after a cut (scheduleP2pTasksToPlan in enqueue.cc), so several rounds form a group only
/// if it is not cut. A single round may be cut: a rank sends to one replica and receives from one in it, in the order
/// of the parts, and the first incomplete part has both its sides in running kernels.
class share_exchange {
public:
    /// The parts to or from each replica, by its number in the circle; no parts means no message.
    using messages = std::vector<std::vector<message_part>>;

    share_exchange() = default;
    /// Constructed alike on all replicas of the circle. Messages have this `kind` and `index`. The memory of their
    /// parts must be set before they are posted; for received parts, it may be set through from().
    share_exchange(const replica_place& place, const replica_circle& circle, message_kind kind, int index, messages out,
                   messages in) :
        out_{std::move(out)},
        in_{std::move(in)} {
        std::size_t calls = 0;
        const std::size_t most_calls = 2 * rounds_at_once();
        // Messages are numbered by owner: shares are sent to it, everything else comes from it.
        const bool to_owner = kind == message_kind::gradient_share;
        const auto add = [&](bool sends, int number, messages& all) {
            const std::span<message_part> parts{all[static_cast<std::size_t>(number)]};
            const int peer = circle.replica(number);
            const message_id message{kind, index, microbatch_id{sends == to_owner ? peer : place.replica}};
            if (!parts.empty()) { posts_.push_back({sends, place.rank_of_replica(peer), message, parts}); }
            if (++calls % most_calls == 0) { ends_.push_back(posts_.size()); }
        };
        for_each_round(
            circle, [&](int to) { add(true, to, out_); }, [&](int from) { add(false, from, in_); });
        ends_.push_back(posts_.size());
    }
    share_exchange(share_exchange&&) = default;
    share_exchange& operator=(share_exchange&&) = default;

    /// The parts received from a replica, by its number.
    [[nodiscard]] std::span<message_part> from(int number) noexcept { return in_[static_cast<std::size_t>(number)]; }

    void post(const any_transport& transport) {
        std::size_t first = 0;
        for (const std::size_t end : ends_) {
            if (first != end) { transport.post_together(std::span{posts_}.subspan(first, end - first)); }
            first = end;
        }
        heard_ = 0;
    }
    /// Whether everything posted to be received has arrived.
    [[nodiscard]] bool arrived(const any_transport& transport) {
        for (; heard_ != posts_.size(); ++heard_) {
            const message_post& p = posts_[heard_];
            if (!p.sends && !transport.arrived(p.peer, p.message)) { return false; }
        }
        return true;
    }
    /// Waits for everything that was posted.
    void wait(const any_transport& transport) const {
        for (const message_post& p : posts_) {
            if (!p.sends) { transport.wait_recv(p.peer, p.message); }
        }
        for (const message_post& p : posts_) {
            if (p.sends) { transport.wait_send(p.peer, p.message); }
        }
    }

private:
    /// The same number on all replicas of a circle, because each has everyone's shares among its messages; with
    /// different numbers their groups would wait for each other.
    [[nodiscard]] std::size_t rounds_at_once() const noexcept {
        std::size_t most = 1;
        for (const messages* all : {&out_, &in_}) {
            for (const auto& parts : *all) { most = std::max(most, parts.size()); }
        }
        return std::max<std::size_t>(1, most_parts_together / (2 * most));
    }

    messages out_{};
    messages in_{};
    std::vector<message_post> posts_{};
    std::vector<std::size_t> ends_{}; ///< ends of the groups in posts_
    std::size_t heard_{};             ///< posts_ before this one have arrived
};

} // namespace pulse::detail
