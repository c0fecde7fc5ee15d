#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include <pulse/mpi/transport.hpp>

#include <support/transports/endings.hpp>

#include "world.hpp"

namespace mpi_transport_tests {

using namespace pulse;
using namespace pulse::test;
using namespace pulse::test::transport_laws;
using clock_type = std::chrono::steady_clock;

/// All processes of the test program; small messages are sent at once, those of `Large` bytes when the receiver asks.
template <std::size_t Large = 30000>
struct mpi_ranks : host_memory {
    static constexpr std::size_t large = Large;
    static constexpr bool exchanges = false;
    static constexpr bool sees_leaving = true;
    static constexpr const char* other_sum =
        "disagree about the size of a message between them: rank 0 expects a sum (collective operation 1) of 8 bytes "
        "in 1 parts, rank 1 sends 16 in 1";
    static constexpr const char* other_collective = "disagree about the";
    mpi::options how{};
    int ranks{world_size()};

    std::string error_of(const std::function<void(mpi::transport&)>& body) const { return test::error_of(body, how); }
};

inline double seconds_since(clock_type::time_point start) {
    return std::chrono::duration<double>(clock_type::now() - start).count();
}

} // namespace mpi_transport_tests
