#pragma once

#include <functional>

#include <pulse/core/separate.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/threads/ranks.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::ranks {

PULSE_INLINE void threads::run(int count, const std::function<void(const any_transport&)>& body) const {
    host::run_ranks(count, link, [&](host::thread_transport& among) { body(any_transport{among}); });
}

} // namespace pulse::ranks
