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

/// Parts of a message between replicas: these elements of an array.
template <class T>
[[nodiscard]] std::vector<message_part> parts_of(const std::vector<element_range>& ranges, T* values) {
    std::vector<message_part> parts;
    for (const element_range& r : ranges) {
        parts.push_back(
            {reinterpret_cast<std::byte*>(values + r.first), r.size * sizeof(T), traffic_kind::gradient, false});
    }
    return parts;
}

/// What a rank sends to each replica of a circle and receives from each, one message a pair, all side by side: in the
/// order of for_each_round, and in as few groups as the transport takes.
///
/// All of a circle post the same groups. NCCL cuts a large group into kernels, each rank at its own place and with
/// pairs in another order behind a cut (scheduleP2pTasksToPlan in enqueue.cc), so that several rounds are a group only
/// where it is not cut. A round by itself may be: a rank sends to one replica in it and receives from one, in the
/// order of the parts, and of the parts that are not over the first has both its sides in kernels that run.
class share_exchange {
public:
    /// The parts to or from each replica, by its number in the circle; without parts there is no message.
    using messages = std::vector<std::vector<message_part>>;

    share_exchange() = default;
    /// On all replicas of the circle alike. Messages are of `kind` and have this index. The memory of their parts must
    /// be known when they are posted; that of parts that are received may be given by from().
    share_exchange(const replica_place& place, const replica_circle& circle, message_kind kind, int index, messages out,
                   messages in) :
        out_{std::move(out)},
        in_{std::move(in)} {
        std::size_t calls = 0;
        const std::size_t most_calls = 2 * rounds_at_once();
        // A share goes to who adds it, all else comes from there.
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

    /// The parts that are received from a replica, by its number.
    [[nodiscard]] std::span<message_part> from(int number) noexcept { return in_[static_cast<std::size_t>(number)]; }

    void post(const any_transport& transport) {
        std::size_t first = 0;
        for (const std::size_t end : ends_) {
            if (first != end) { transport.post_together(std::span{posts_}.subspan(first, end - first)); }
            first = end;
        }
        heard_ = 0;
    }
    /// Whether all that was posted to be received has arrived.
    [[nodiscard]] bool arrived(const any_transport& transport) {
        for (; heard_ != posts_.size(); ++heard_) {
            const message_post& p = posts_[heard_];
            if (!p.sends && !transport.arrived(p.peer, p.message)) { return false; }
        }
        return true;
    }
    /// Returns when all that was posted is over.
    void wait(const any_transport& transport) const {
        for (const message_post& p : posts_) {
            if (!p.sends) { transport.wait_recv(p.peer, p.message); }
        }
        for (const message_post& p : posts_) {
            if (p.sends) { transport.wait_send(p.peer, p.message); }
        }
    }

private:
    /// All of a circle find the same number, or their groups would wait for each other: each has every one's shares
    /// among its messages.
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
    std::vector<std::size_t> ends_{}; ///< of what is posted together
    std::size_t heard_{};             ///< of posts_, those before have arrived
};

} // namespace pulse::detail
