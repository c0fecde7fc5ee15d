#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/share_exchange.hpp>

namespace pulse {

/// Sends every replica the new weights of the shares whose optimizer state the others keep: share_of every layer, from
/// the replica of that number, through replica_place::circles. All replicas together send D - 1 times the bytes of the
/// weights.
class weight_exchange {
public:
    weight_exchange() = default;
    /// `layers` give `first` and `size` within `values`, which must not move.
    template <class Block, class T>
    weight_exchange(const replica_place& place, std::span<const Block> layers, std::span<T> values) {
        for (const replica_circle& circle : place.circles()) {
            const auto shares = [&](int i) {
                return detail::parts_of(shares_of(layers, place.replicas(), circle, i), values.data());
            };
            detail::share_exchange::messages out(static_cast<std::size_t>(circle.size));
            detail::share_exchange::messages in(out.size());
            for (int i = 0; i != circle.size; ++i) {
                if (i == circle.here) { continue; }
                out[static_cast<std::size_t>(i)] = shares(circle.here);
                in[static_cast<std::size_t>(i)] = shares(i);
            }
            weights_.emplace(weights_.begin(), place, circle, message_kind::weight_share, place.device, std::move(out),
                             std::move(in));
        }
    }

    /// Called by all replicas of the stages, between steps. On a device, its adder orders this with other work.
    void run(const any_transport& transport) {
        for (detail::share_exchange& circle : weights_) {
            circle.post(transport);
            circle.wait(transport);
        }
    }

private:
    std::vector<detail::share_exchange> weights_{};
};

} // namespace pulse
