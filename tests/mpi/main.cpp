#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include <mpi.h>

#include "world.hpp"

namespace {

pulse::mpi::session* session = nullptr;

} // namespace

namespace pulse::test {

mpi::session& session_here() { return *session; }

int world_size() {
    int size = 0;
    mpi::check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    return size;
}

} // namespace pulse::test

/// Every rank runs every case. A rank prints doctest's output if its checks fail, rank 0 always does.
int main(int argc, char** argv) {
    pulse::mpi::session here;
    session = &here;
    int rank = 0;
    pulse::mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    std::ostringstream said;
    doctest::Context context;
    context.setCout(&said);
    context.applyCommandLine(argc, argv);
    const int failed = context.run();
    if (rank == 0 || failed != EXIT_SUCCESS) { std::cout << "rank " << rank << ":\n" << said.str() << std::flush; }
    return failed;
}
