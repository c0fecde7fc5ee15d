#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/stream.cuh>

int other_kernel_unit();

int other_kernel_unit() { return 0; }
