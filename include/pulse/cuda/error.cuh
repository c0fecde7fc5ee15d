#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>

namespace pulse::cuda {

/// A CUDA runtime call failed; the text names the call, the error and the source location. Wrong arguments to pulse's
/// own functions throw input_error instead.
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

/// Device memory or pinned host memory is exhausted.
struct out_of_memory : cuda_error {
    /// `bytes` were requested; `free` of the device's `total` bytes were free.
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

/// Throws cuda_error unless `status` is success; `call` is what was called. Clears an error that the next call would
/// report again; one that broke the context stays, because only a new process recovers from it.
inline void check(cudaError_t status, const char* call, std::source_location where = std::source_location::current()) {
    if (status == cudaSuccess) { return; }
    static_cast<void>(cudaGetLastError());
    throw cuda_error(status, call, where);
}

} // namespace pulse::cuda
