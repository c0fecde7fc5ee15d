#pragma once

#include <string>
#include <utility>

#include <mpi.h>

#include <pulse/core/error.hpp>
#include <pulse/mpi/error.hpp>
#include <pulse/mpi/patience.hpp>

namespace pulse::mpi {

/// A duplicate of a communicator, with errors returned to the caller.
class communicator {
public:
    /// Collective over `of`. Throws error when not all its ranks arrive within `timeout_s`; the duplication cannot be
    /// cancelled then, so MPI cannot be finalized any more.
    communicator(MPI_Comm of, double timeout_s) {
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Comm_idup(of, &get_, &request), "MPI_Comm_idup");
        patience left{timeout_s};
        for (int done = 0; done == 0;) {
            check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
            if (done == 0 && !left.rest()) {
                throw error{"pulse: not all ranks created their transport within " + std::to_string(timeout_s) + " s"};
            }
        }
        check(MPI_Comm_set_errhandler(get_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Comm_rank(get_, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(get_, &size_), "MPI_Comm_size");
    }
    communicator(const communicator&) = delete;
    communicator& operator=(const communicator&) = delete;
    ~communicator() {
        if (get_ != MPI_COMM_NULL) { static_cast<void>(MPI_Comm_free(&get_)); }
    }

    [[nodiscard]] MPI_Comm get() const noexcept { return get_; }
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    /// Prevents the free: messages may still be in flight on it.
    void give_up() noexcept { get_ = MPI_COMM_NULL; }

private:
    MPI_Comm get_{MPI_COMM_NULL};
    int rank_{};
    int size_{};
};

} // namespace pulse::mpi
