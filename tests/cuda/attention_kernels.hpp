#pragma once

#include <pulse/cuda/attention.cuh>

// Attention has many kernels: attention.cu compiles them for the whole test program, other files only call them.
namespace pulse::cuda {

extern template attention_launches<bf16::scalar> attention_launches_of<bf16>(attention_engine, const attention_shape&,
                                                                             std::size_t);
extern template attention_launches<fp32::scalar> attention_launches_of<fp32>(attention_engine, const attention_shape&,
                                                                             std::size_t);

} // namespace pulse::cuda
