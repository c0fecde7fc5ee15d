#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "p2p.hpp"

namespace pulse_bench {

/// Measures threads::transport between two threads of this process.
[[nodiscard]] p2p_report measure_thread_path(const p2p_options& options);

/// A function that multiplies two square matrices of floats once, on one core of the host.
[[nodiscard]] std::function<void()> host_product(bool quick);

/// Bytes of memory of this host.
[[nodiscard]] std::int64_t host_memory_bytes();

/// What the two processes of a run under mpirun know before they measure.
struct mpi_side {
    int rank{};
    bool between_hosts{};
    /// To be called on both ranks; rank 0 gets the report.
    std::function<p2p_report(const p2p_options&)> measure{};
};

/// Runs `body` as this process's rank and returns the exit status; an error of either rank ends both. Refused unless
/// mpirun started two processes.
[[nodiscard]] int run_mpi_path(const std::function<void(const mpi_side&)>& body);

/// The devices of this machine.
struct p2p_devices {
    int count{};
    std::string name{}; ///< of device 0
    std::int64_t memory_bytes{};
    bool bulk_copies{}; ///< device 0 has the bulk copies of sm_90
    bool nccl{};        ///< this program has NCCL
};
[[nodiscard]] p2p_devices find_devices();

/// The values of --path that run on devices.
inline const std::vector<std::string> device_paths{"copy", "kernel", "bulk", "cuda-threads"};

/// Those that need two devices, since NCCL allows one rank per device.
inline const std::vector<std::string> nccl_paths{"nccl", "nccl-registered"};

/// Measures one of device_paths or nccl_paths: between devices 0 and 1 if there are two, else on device 0.
[[nodiscard]] p2p_report measure_device_path(const std::string& path, const p2p_options& options);

} // namespace pulse_bench
