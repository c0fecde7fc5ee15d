#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/nccl/transport.cuh>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/threads/transport.hpp>

#include "p2p_device_tensors.cuh"
#include "p2p_measure.hpp"
#include "p2p_transport.hpp"

namespace pulse_bench {

/// Measures NCCL between two threads of this process, each with a device; every message is its own group. Throws error
/// where memory should be `registered` and cannot be.
[[nodiscard]] inline std::vector<p2p_row> measure_nccl_path(std::array<int, 2> devices, bool registered,
                                                            const p2p_options& options,
                                                            const std::function<void()>& product) {
    using transport = pulse::nccl::transport<pulse::threads::transport>;
    std::vector<p2p_row> rows;
    pulse::threads::run_ranks(2, {}, [&](pulse::threads::transport& control) {
        pulse::rank_grid grid;
        grid.pipeline = 2;
        pulse::nccl::transport_options with;
        with.device = devices[static_cast<std::size_t>(control.rank())];
        with.register_memory = registered;
        transport over{control, grid, with};
        if (over.registers_memory() != registered) {
            throw pulse::error("NCCL does not register message memory on these devices");
        }
        transport_path<transport, device_tensors> path{over, {over.stream()}};
        std::vector<p2p_row> found = measure_path(path, options, product);
        if (control.rank() == 0) { rows = std::move(found); }
    });
    return rows;
}

} // namespace pulse_bench
