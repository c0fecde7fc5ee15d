#pragma once

#include <cstdlib>
#include <exception>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/mpi/options.hpp>
#include <pulse/mpi/run_rank.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>

namespace pulse::ranks {

/// Ranks that are the processes of MPI_COMM_WORLD, started by mpirun or srun, with tensors in host memory.
struct mpi {
    pulse::mpi::options options{};

    /// Calls body(transport). Throws the error that ended the run, on every rank. Also starts and ends MPI, unless the
    /// program has started it, as a program with more than one run must.
    template <class Body>
    void run(const rank_grid& grid, const Body& body) const {
        std::exception_ptr thrown;
        const auto checked = [&](pulse::mpi::transport& among) {
            if (among.size() != grid.size()) {
                throw input_error{"pulse: the plan is for " + std::to_string(grid.size()) + " ranks, but MPI has " +
                                  std::to_string(among.size())};
            }
            body(any_transport{among});
        };
        const int status =
            pulse::mpi::run_rank(options, checked, [&](const std::exception&) { thrown = std::current_exception(); });
        if (thrown) { std::rethrow_exception(thrown); }
        if (status != EXIT_SUCCESS) { throw error{"pulse: the run has failed"}; }
    }
};

} // namespace pulse::ranks
