#pragma once

#include <cstddef>
#include <cstdint>

#include <pulse/cuda/queue.cuh>

namespace pulse_bench {

/// pulse's copy kernels, compiled separately because only they have code for more than one architecture.
void copy_by_kernel(const pulse::cuda::queue& on, const std::byte* from, std::byte* to, std::int64_t bytes);
void copy_in_bulk(const pulse::cuda::queue& on, const std::byte* from, std::byte* to, std::int64_t bytes);

} // namespace pulse_bench
