#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse {

/// Gives every replica the new weights of the shares whose optimizer state the others keep: share_of every layer, from
/// the replica of that number. Over all replicas D - 1 times the bytes of the weights are sent.
class weight_exchange {
public:
    weight_exchange() = default;
    /// `layers` have `first` and `size`, of `values`, which must stay where they are.
    template <class Block, class T>
    weight_exchange(const replica_place& place, std::span<const Block> layers, std::span<T> values) :
        place_{place}, out_(static_cast<std::size_t>(place.replicas())), in_(out_.size()) {
        for (int r = 0; r != place.replicas(); ++r) {
            if (r == place.replica) { continue; }
            out_[static_cast<std::size_t>(r)] = parts_of(shares_of(layers, place.replicas(), place.replica), values);
            in_[static_cast<std::size_t>(r)] = parts_of(shares_of(layers, place.replicas(), r), values);
        }
    }

    /// All replicas of the stages call it, between steps. On a device, its adder orders it with other work.
    void run(const any_transport& transport) {
        for_each_pair(
            place_,
            [&](int to) {
                if (has(out_, to)) {
                    transport.post_send(place_.rank_of_replica(to), message(place_.replica), of(out_, to));
                }
            },
            [&](int from) {
                if (has(in_, from)) { transport.post_recv(place_.rank_of_replica(from), message(from), of(in_, from)); }
            });
        for (int r = 0; r != place_.replicas(); ++r) {
            if (has(in_, r)) { transport.wait_recv(place_.rank_of_replica(r), message(r)); }
        }
        for (int r = 0; r != place_.replicas(); ++r) {
            if (has(out_, r)) { transport.wait_send(place_.rank_of_replica(r), message(place_.replica)); }
        }
    }

private:
    using messages = std::vector<std::vector<message_part>>;

    template <class T>
    [[nodiscard]] static std::vector<message_part> parts_of(const std::vector<element_range>& shares,
                                                            std::span<T> values) {
        std::vector<message_part> parts;
        for (const element_range& r : shares) {
            parts.push_back({reinterpret_cast<std::byte*>(values.data() + r.first), r.size * sizeof(T),
                             traffic_kind::gradient, false});
        }
        return parts;
    }
    [[nodiscard]] static std::vector<message_part>& of(messages& all, int replica) {
        return all[static_cast<std::size_t>(replica)];
    }
    [[nodiscard]] static bool has(messages& all, int replica) { return !of(all, replica).empty(); }
    [[nodiscard]] message_id message(int from) const noexcept {
        return {message_kind::weight_share, place_.device, microbatch_id{from}};
    }

    replica_place place_{};
    messages out_{};
    messages in_{};
};

} // namespace pulse
