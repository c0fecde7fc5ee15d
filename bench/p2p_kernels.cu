#include "p2p_kernels.cuh"

#include <pulse/cuda/kernels/copy_bytes.cuh>

namespace pulse_bench {

void copy_by_kernel(const pulse::cuda::queue& on, const std::byte* from, std::byte* to, std::int64_t bytes) {
    pulse::cuda::copy_bytes(on, from, to, bytes);
}

void copy_in_bulk(const pulse::cuda::queue& on, const std::byte* from, std::byte* to, std::int64_t bytes) {
    pulse::cuda::copy_bytes_in_bulk(on, from, to, bytes);
}

} // namespace pulse_bench
