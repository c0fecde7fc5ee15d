#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PULSE_HAS_NVTX 1
#else
#define PULSE_HAS_NVTX 0
#endif

namespace pulse::cuda {

/// A named range on a profiler's timeline (NVTX) while this object lives; does nothing if nvtx3 was not found.
class range {
public:
    explicit range([[maybe_unused]] const char* name) {
#if PULSE_HAS_NVTX
        nvtxRangePushA(name);
#endif
    }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() {
#if PULSE_HAS_NVTX
        nvtxRangePop();
#endif
    }
};

} // namespace pulse::cuda
