#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include <mpi.h>

#include <pulse/mpi/options.hpp>
#include <pulse/mpi/session.hpp>
#include <pulse/mpi/transport.hpp>

namespace pulse::test {

/// The session of the test program, and its number of ranks.
mpi::session& session_here();
int world_size();

/// The first `ranks` processes of the world; the others get MPI_COMM_NULL.
class first_ranks {
public:
    explicit first_ranks(int ranks) {
        int rank = 0;
        mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
        mpi::check(MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &get_), "MPI_Comm_split");
    }
    first_ranks(const first_ranks&) = delete;
    first_ranks& operator=(const first_ranks&) = delete;
    ~first_ranks() {
        if (get_ != MPI_COMM_NULL) { static_cast<void>(MPI_Comm_free(&get_)); }
    }
    [[nodiscard]] MPI_Comm get() const noexcept { return get_; }

private:
    MPI_Comm get_{MPI_COMM_NULL};
};

/// Runs body(transport) on every rank like mpi::run_rank, in the session of the test program. Returns this rank's
/// error, or "".
inline std::string error_of(const std::function<void(mpi::transport&)>& body, const mpi::options& how = {},
                            MPI_Comm over = MPI_COMM_WORLD) {
    mpi::transport end{session_here(), how, over};
    try {
        body(end);
        end.leave();
        return {};
    } catch (const std::exception& e) {
        end.fail(e.what());
        return e.what();
    }
}

} // namespace pulse::test
