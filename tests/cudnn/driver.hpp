#pragma once

#include <dlfcn.h>

namespace cudnn_tests {

/// cuDNN asks the driver's library what it can compile; CUDA's stub library suffices if it is loaded under the real
/// name.
[[nodiscard]] inline bool has_driver() {
    static const bool found = [] {
        if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) { return true; }
#ifdef PULSE_TEST_CUDA_STUB
        return dlopen(PULSE_TEST_CUDA_STUB, RTLD_NOW) != nullptr && dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
#else
        return false;
#endif
    }();
    return found;
}

} // namespace cudnn_tests
