#pragma once

#include <pulse/runtime/any_transport.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::ranks {

/// Ranks that are threads of this process, with tensors in host memory.
struct threads {
    host::link_options link{};

    template <class Body>
    void run(int count, const Body& body) const {
        host::run_ranks(count, link, [&](host::thread_transport& among) { body(any_transport{among}); });
    }
};

} // namespace pulse::ranks
