#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>

namespace pulse::cuda {

/// A call of the CUDA runtime failed; the text names the call, the error and the place. Wrong arguments of pulse's own
/// functions are input_error instead.
struct cuda_error : pulse::error {
    cuda_error(cudaError_t status, const std::string& failed_call, std::source_location at) :
        cuda_error(status, failed_call, "", at) {}

    cuda_error(cudaError_t status, const std::string& failed_call, const std::string& more, std::source_location at) :
        pulse::error(failed_call + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status) + more + " (" +
                     at.file_name() + ":" + std::to_string(at.line()) + ")"),
        code(status), call(failed_call), where(at) {}

    cudaError_t code;
    std::string call;
    std::source_location where;
};

/// Memory of a device, or pinned memory of the host, does not suffice.
struct out_of_memory : cuda_error {
    /// `bytes` were asked for; of the device's memory `free` of `total` bytes were free.
    out_of_memory(const std::string& failed_call, std::size_t bytes, std::size_t free, std::size_t total,
                  std::source_location at) :
        cuda_error(cudaErrorMemoryAllocation, failed_call,
                   "; " + std::to_string(bytes) + " bytes were asked for, " + std::to_string(free) + " of " +
                       std::to_string(total) + " bytes of the device are free",
                   at),
        asked_bytes(bytes), free_bytes(free) {}

    std::size_t asked_bytes;
    std::size_t free_bytes;
};

/// Throws cuda_error unless `status` is success; `call` is what was called. An error that would be reported again by
/// the next call is cleared; one that broke the context stays, as nothing but a new process helps.
inline void check(cudaError_t status, const char* call, std::source_location where = std::source_location::current()) {
    if (status == cudaSuccess) { return; }
    static_cast<void>(cudaGetLastError());
    throw cuda_error(status, call, where);
}

} // namespace pulse::cuda
