#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <pulse/runtime/any_transport.hpp>

namespace pulse_train {

struct run_inputs;

/// A rank among ranks that are processes, before there is a plan: collectives only, no messages between two ranks.
class rank_collectives {
public:
    rank_collectives() = default;
    rank_collectives(const rank_collectives&) = delete;
    rank_collectives& operator=(const rank_collectives&) = delete;
    virtual ~rank_collectives() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    virtual void sum(std::span<double> values) = 0;
    [[nodiscard]] virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) = 0;
    virtual void broadcast(std::vector<std::byte>& bytes) = 0;
    virtual void fail(std::string_view what) noexcept = 0;
    /// Says that this rank no longer needs the others, and waits until all say so; throws an error if one has failed.
    virtual void leave() = 0;
    /// The rank's device; -1 if it computes on the host.
    [[nodiscard]] virtual int device() const = 0;
    /// Calls body(transport) as a rank of the run's plan. Collective.
    virtual void run(const run_inputs& in, const std::function<void(pulse::any_transport)>& body) = 0;
};

} // namespace pulse_train
