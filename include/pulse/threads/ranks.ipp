#pragma once

#include <functional>

#include <pulse/core/separate.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/threads/ranks.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::ranks {

PULSE_INLINE void threads::run(const rank_grid& grid, const std::function<void(const any_transport&)>& body) const {
    pulse::threads::run_ranks(grid.size(), link, [&](pulse::threads::transport& among) { body(any_transport{among}); });
}

} // namespace pulse::ranks
