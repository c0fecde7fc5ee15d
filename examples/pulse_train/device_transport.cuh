#pragma once

#include <functional>

#include <cuda_runtime.h>

#include <pulse/runtime/transport.hpp>

#include "rank_transport.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// The transport of a rank on a device, thread or process: messages are ordered with its streams.
class device_transport : public rank_transport {
public:
    /// Where the rank computes.
    [[nodiscard]] virtual cudaStream_t stream() const = 0;
    /// Where gradients of replicas are exchanged and added.
    [[nodiscard]] virtual cudaStream_t reduction_stream() const = 0;
};

/// A transport over device memory as a device_transport.
template <pulse::transport T>
class device_transport_of final : public transport_of<T, device_transport> {
public:
    using transport_of<T, device_transport>::transport_of;

    [[nodiscard]] cudaStream_t stream() const override { return this->inner_.stream(); }
    [[nodiscard]] cudaStream_t reduction_stream() const override { return this->inner_.reduction_stream(); }
};

/// A rank with a device among the others, where each is a process: its transport exists as long as it trains.
class device_process : public rank_collectives {
public:
    /// The rank's device.
    [[nodiscard]] virtual int device() const = 0;
    /// Calls body(transport) as a rank of the run's plan. Collective.
    virtual void run(const run_inputs& in, const std::function<void(device_transport&)>& body) = 0;
};

} // namespace pulse_train
