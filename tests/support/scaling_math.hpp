#pragma once

#include <pulse/reference/backend.hpp>
#include <pulse/train/host_updates.hpp>

namespace pulse::test {

/// The host with loss scaling, as half precision on a device has it.
struct scaled_updates : train::host_updates<> {
    static constexpr bool scales_loss = true;
};
struct scaling_math : reference::backend<float> {
    [[nodiscard]] scaled_updates updates() const { return {}; }
};

} // namespace pulse::test
