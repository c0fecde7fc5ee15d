#pragma once

#include <functional>

#include <pulse/core/separate.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/threads/host_copies.hpp>

namespace pulse::ranks {

/// Ranks that are threads of this process, with tensors in host memory.
struct threads {
    pulse::threads::link_options link{};

    void run(const rank_grid& grid, const std::function<void(const any_transport&)>& body) const;
};

} // namespace pulse::ranks

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/threads/ranks.ipp> // IWYU pragma: keep
#endif
