#pragma once

#include <shared_mutex>

namespace pulse::cuda {

/// Held shared while a stream is captured, and exclusively by calls that may wait for a whole device, such as
/// cudnnDestroy: such a wait ends every capture on the device, also in other threads and in any mode.
[[nodiscard]] inline std::shared_mutex& capture_guard() noexcept {
    static std::shared_mutex guard;
    return guard;
}

} // namespace pulse::cuda
