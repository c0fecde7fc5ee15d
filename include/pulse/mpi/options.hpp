#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include <pulse/core/error.hpp>

namespace pulse::mpi {

/// How MPI ranks exchange messages. chunk_bytes and synchronous must be the same on every rank.
struct options {
    /// Limit of every wait, which then ends with an error; seconds.
    double timeout_s{300};
    /// After a failure, how long a rank waits for the others to hear of it; seconds. A rank that stays silent makes the
    /// session end by MPI_Abort.
    double closing_s{10};
    /// The strictest rendezvous, to prove freedom from deadlock: sends are synchronous (MPI_Issend), and a post returns
    /// only when its transfer is over.
    bool synchronous{};
    /// Maximum size of one MPI message; a larger tensor is split. At most INT_MAX.
    std::size_t chunk_bytes{std::size_t{1} << 30};
    /// Polled in every wait. Returns why the run cannot go on when something other than this transport knows, and that
    /// must itself tell all ranks.
    std::function<std::optional<std::string>()> watch{};

    /// Throws input_error naming the value that is out of range.
    void require_valid() const {
        if (!(timeout_s > 0)) {
            throw input_error{"pulse: timeout_s must be above 0, not " + std::to_string(timeout_s)};
        }
        if (!(closing_s > 0)) {
            throw input_error{"pulse: closing_s must be above 0, not " + std::to_string(closing_s)};
        }
        if (chunk_bytes == 0 || chunk_bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
            throw input_error{"pulse: chunk_bytes must be from 1 to INT_MAX, not " + std::to_string(chunk_bytes)};
        }
    }
};

} // namespace pulse::mpi
