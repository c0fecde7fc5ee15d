#pragma once

#include <cstdlib>
#include <exception>

#include <pulse/core/error.hpp>
#include <pulse/mpi/options.hpp>
#include <pulse/mpi/session.hpp>
#include <pulse/mpi/transport.hpp>

namespace pulse::mpi {

/// Runs body(transport) as this process's rank of MPI_COMM_WORLD and returns the exit status.
///
/// An error on any rank ends all ranks: each passes `report` the text of the rank that failed first (its own error as
/// it was thrown) and returns EXIT_FAILURE. A rank that cannot be told is stopped by MPI_Abort, after the report.
template <class Body, class Report>
[[nodiscard]] int run_rank(const options& how, Body body, Report report) {
    session here;
    try {
        transport end{here, how};
        try {
            body(end);
            end.leave();
            return EXIT_SUCCESS;
        } catch (const std::exception& e) {
            report(e);
            end.fail(e.what());
        } catch (...) {
            const error unknown{"an exception that is not a std::exception"};
            report(unknown);
            end.fail(unknown.what());
        }
    } catch (const std::exception& e) { report(e); }
    return EXIT_FAILURE;
}

} // namespace pulse::mpi
