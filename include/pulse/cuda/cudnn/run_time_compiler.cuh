#pragma once

#include <cudnn.h>

#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/cudnn/engines.cuh>

namespace pulse::cuda::cudnn {

/// Whether cuDNN can compile engines at run time: without libnvrtc it silently proposes none of those (9.19). Asks for
/// a graph for which every device from sm_80 on has run-time compiled engines only.
[[nodiscard]] inline bool compiles_at_run_time(const target& device) {
    const attention_graph small{{64, 1, 64}, 1, attention_pass::forward, CUDNN_DATA_HALF};
    return !engines_for(make_graph(small, device.handle), device, {}).empty();
}

/// What to check if run-time compiled engines are missing or cannot be made ready.
inline constexpr const char* compiler_hint =
    "engines that are compiled at run time need libnvrtc and libnvrtc-builtins where the loader finds them";

} // namespace pulse::cuda::cudnn
