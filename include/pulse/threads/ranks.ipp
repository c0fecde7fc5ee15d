#pragma once

#include <functional>

#include <pulse/core/separate.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/threads/ranks.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::ranks {

PULSE_INLINE void threads::run(const rank_grid& grid, const std::function<void(const any_transport&)>& body) const {
    host::run_ranks(grid.size(), link, [&](host::thread_transport& among) { body(any_transport{among}); });
}

} // namespace pulse::ranks
