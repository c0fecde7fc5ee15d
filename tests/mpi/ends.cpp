#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <thread>

#include <pulse/core/error.hpp>
#include <pulse/mpi/run_rank.hpp>

/// A run in which rank 1 does what the argument says while the others wait for it in a sum. throws: it throws; leaves:
/// it returns; silent: it does nothing for longer than anybody waits; early: it throws before it has a transport.
/// again: every rank begins anew after MPI has ended. Each rank that MPI does not stop writes its error, and all exit
/// with a failure.
int main(int argc, char** argv) {
    const std::string_view how = argc == 2 ? argv[1] : "";
    int rank = -1;
    const auto report = [&](const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
        std::fflush(stderr);
    };
    if (how == "early") {
        pulse::mpi::session here;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        try {
            if (rank == 1) {
                std::this_thread::sleep_for(std::chrono::seconds{2});
                throw pulse::error{"rank 1 threw before it had a transport"};
            }
            pulse::mpi::transport end{here, {.timeout_s = 0.5}};
        } catch (const std::exception& e) { report(e); }
        return EXIT_FAILURE;
    }
    if (how == "again") {
        try {
            {
                const pulse::mpi::session first;
                MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            }
            const pulse::mpi::session second;
        } catch (const std::exception& e) { report(e); }
        return EXIT_FAILURE;
    }
    return pulse::mpi::run_rank(
        {.timeout_s = 0.5, .closing_s = 0.5},
        [&](pulse::mpi::transport& t) {
            rank = t.rank();
            if (rank != 1) { t.sum({}); }
            if (rank == 1 && how == "throws") { throw pulse::error{"rank 1 threw"}; }
            if (rank == 1 && how == "silent") { std::this_thread::sleep_for(std::chrono::seconds{30}); }
        },
        report);
}
