#pragma once

#include <cudnn.h>

#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/cudnn/engines.cuh>

namespace pulse::cuda::cudnn {

/// Whether cuDNN finds what it compiles engines with: where libnvrtc is missing it proposes none of those, and says
/// nothing (9.19). Asks for a graph that every device from sm_80 on has run-time compiled engines for, and no others.
[[nodiscard]] inline bool compiles_at_run_time(const target& device) {
    const attention_graph small{{64, 1, 64}, 1, attention_pass::forward, CUDNN_DATA_HALF};
    return !engines_for(make_graph(small, device.handle), device, {}).empty();
}

/// Where to look when run-time compiled engines are not there or cannot be made ready.
inline constexpr const char* compiler_hint =
    "engines that are compiled at run time need libnvrtc and libnvrtc-builtins where the loader finds them";

} // namespace pulse::cuda::cudnn
