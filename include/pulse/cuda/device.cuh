#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/error.cuh>

namespace pulse::cuda {

/// What pulse needs to know about a device.
struct device_properties {
    std::string name;
    std::string bus_id; ///< PCI address, unique within the machine
    int multiprocessors{};
    int compute_major{}; ///< compute capability: 9.0 is 9 and 0
    int compute_minor{};
    /// Compute capability as in sm_90.
    [[nodiscard]] int sm() const noexcept { return compute_major * 10 + compute_minor; }
    std::size_t memory_bytes{};
    std::size_t shared_bytes_per_block{};       ///< available to every kernel
    std::size_t shared_bytes_per_block_optin{}; ///< available to a kernel that opts in
    std::size_t l2_bytes{};
};

/// Asks the driver for 32 queues per device instead of 8, unless CUDA_DEVICE_MAX_CONNECTIONS is set: a rank has up to
/// six streams, and streams that share a queue wait for each other. Call it before any other CUDA function: CUDA reads
/// the variable once.
inline void widen_queues() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

/// Number of devices that this process may use; 0 without a driver or a device.
[[nodiscard]] inline int device_count() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
        static_cast<void>(cudaGetLastError());
        return 0;
    }
    check(status, "cudaGetDeviceCount");
    return count;
}

/// Throws input_error unless `device` is one of the devices.
inline void require_device(int device) {
    const int count = device_count();
    if (device < 0 || device >= count) {
        throw input_error("CUDA device " + std::to_string(device) + ": there are " + std::to_string(count) +
                          " devices");
    }
}

/// Properties of a device; throws input_error if there is no such device.
[[nodiscard]] inline device_properties properties_of(int device) {
    require_device(device);
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties");
    device_properties result;
    result.name = found.name;
    std::array<char, 32> bus_id{};
    std::snprintf(bus_id.data(), bus_id.size(), "%04x:%02x:%02x", static_cast<unsigned>(found.pciDomainID),
                  static_cast<unsigned>(found.pciBusID), static_cast<unsigned>(found.pciDeviceID));
    result.bus_id = bus_id.data();
    result.multiprocessors = found.multiProcessorCount;
    result.compute_major = found.major;
    result.compute_minor = found.minor;
    result.memory_bytes = found.totalGlobalMem;
    result.shared_bytes_per_block = found.sharedMemPerBlock;
    result.shared_bytes_per_block_optin = found.sharedMemPerBlockOptin;
    result.l2_bytes = static_cast<std::size_t>(found.l2CacheSize);
    return result;
}

/// The calling thread's current device.
[[nodiscard]] inline int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

/// Makes a device current on the calling thread while this object lives. Throws input_error if there is no such
/// device.
class device_scope {
public:
    explicit device_scope(int device) {
        require_device(device);
        before_ = current_device();
        check(cudaSetDevice(device), "cudaSetDevice");
    }
    device_scope(const device_scope&) = delete;
    device_scope& operator=(const device_scope&) = delete;
    ~device_scope() { static_cast<void>(cudaSetDevice(before_)); }

private:
    int before_{};
};

/// Makes a device current on the calling thread. Throws input_error if there is no such device.
inline void select_device(int device) {
    require_device(device);
    check(cudaSetDevice(device), "cudaSetDevice");
}

} // namespace pulse::cuda
