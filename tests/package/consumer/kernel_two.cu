#include <pulse/cuda.cuh>

int other_kernel_unit();

int other_kernel_unit() { return 0; }
