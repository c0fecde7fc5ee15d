#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

#include <pulse/core/error.hpp>
#include <pulse/mpi/error.hpp>
#include <pulse/mpi/patience.hpp>
#include <pulse/tensor/aligned_bytes.hpp>

namespace pulse::mpi {

/// Owns MPI from its initialisation to its end.
///
/// Ends with MPI_Finalize once every rank has said that it stops, with or without an error; each rank then returns from
/// main as it wishes. When that is unknown (a rank was silent after a failure, or an exception that no transport has
/// reported leaves the session), it ends with MPI_Abort, which stops the processes of all ranks.
class session {
public:
    /// Initialises MPI unless it already is; every rank of MPI_COMM_WORLD must do the same. Throws error when MPI does
    /// not allow serialized calls from several threads, or has ended: it starts only once in a process.
    session() {
        int before = 0;
        int over = 0;
        check(MPI_Finalized(&over), "MPI_Finalized");
        if (over != 0) {
            throw error{"pulse: MPI has ended in this process and cannot start again: for more than one run, call "
                        "MPI_Init_thread before the first and MPI_Finalize after the last"};
        }
        check(MPI_Initialized(&before), "MPI_Initialized");
        owns_ = before == 0;
        int level = MPI_THREAD_SINGLE;
        if (owns_) {
            check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
        } else {
            check(MPI_Query_thread(&level), "MPI_Query_thread");
        }
        if (level < MPI_THREAD_SERIALIZED) { throw error{"pulse: this MPI does not provide MPI_THREAD_SERIALIZED"}; }
        check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        if (owns_) { check(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup"); }
    }
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() {
        if (broken_ || (std::uncaught_exceptions() > exceptions_ && !ended_in_order_)) { abort(); }
        if (owns_) {
            await_others();
            static_cast<void>(MPI_Finalize());
        }
    }

    /// Called when a transport is made, and when it has ended: `in_order` if every rank knows.
    void transport_began() noexcept { ended_in_order_ = false; }
    void transport_ended(bool in_order) noexcept {
        ended_in_order_ = in_order;
        broken_ = broken_ || !in_order;
    }
    /// Keeps memory alive until the process ends, because a message may still access it.
    void keep(std::vector<aligned_bytes>&& memory) {
        static auto* const kept = new std::vector<std::vector<aligned_bytes>>; // never freed
        kept->push_back(std::move(memory));
    }
    [[nodiscard]] bool broken() const noexcept { return broken_; }

private:
    /// Waits three seconds so that other ranks that know of the failure can report it themselves.
    [[noreturn]] static void abort() {
        std::this_thread::sleep_for(std::chrono::seconds{3});
        static_cast<void>(MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE));
        std::_Exit(EXIT_FAILURE);
    }

    /// Waits until every rank is about to call MPI_Finalize. If one calls MPI_Abort while another is inside
    /// MPI_Finalize, Open MPI's mpirun (4.1.4, PMIx 4.2.2) crashes or hangs in one of five runs. Ten minutes is twice
    /// the default timeout of a wait; a rank that has not come by then is presumed dead, which MPI_Finalize may know.
    void await_others() noexcept {
        MPI_Request all_came = MPI_REQUEST_NULL;
        int done = 0;
        if (MPI_Ibarrier(all_, &all_came) != MPI_SUCCESS) { return; }
        patience left{600};
        while (MPI_Test(&all_came, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0 && left.rest()) {}
        if (done != 0) { static_cast<void>(MPI_Comm_free(&all_)); }
    }

    MPI_Comm all_{MPI_COMM_NULL}; ///< a duplicate of MPI_COMM_WORLD, if this session ends MPI
    bool owns_{};
    bool broken_{};
    bool ended_in_order_{};
    int exceptions_{std::uncaught_exceptions()};
};

} // namespace pulse::mpi
