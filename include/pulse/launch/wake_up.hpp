#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <unistd.h>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/socket.hpp>

namespace pulse::launch::detail {

/// Ends the poll() of another thread.
class wake_up {
public:
    wake_up();

    /// To be polled for POLLIN.
    [[nodiscard]] int number() const noexcept { return read_.get(); }
    void signal() const noexcept;
    void clear() const noexcept;

private:
    descriptor read_{};
    descriptor write_{};
};

} // namespace pulse::launch::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/wake_up.ipp> // IWYU pragma: keep
#endif
