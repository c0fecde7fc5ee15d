#pragma once

#include <string>

#include <mpi.h>

#include <pulse/core/error.hpp>

namespace pulse::mpi {

/// An MPI call failed; the text names the call and gives MPI's message. Wrong arguments to pulse's own functions throw
/// input_error instead.
struct mpi_error : pulse::error {
    mpi_error(int status, const std::string& failed_call) :
        pulse::error("pulse: " + failed_call + ": " + text_of(status)), code(status), call(failed_call) {}

    int code;
    std::string call;

private:
    [[nodiscard]] static std::string text_of(int status) {
        char text[MPI_MAX_ERROR_STRING]{};
        int length = 0;
        if (MPI_Error_string(status, text, &length) != MPI_SUCCESS) { return "error " + std::to_string(status); }
        return {text, static_cast<std::size_t>(length)};
    }
};

/// Throws mpi_error unless `status` is success; `call` names the MPI function.
inline void check(int status, const char* call) {
    if (status != MPI_SUCCESS) { throw mpi_error(status, call); }
}

/// The MPI error class of a status, such as MPI_ERR_TRUNCATE.
[[nodiscard]] inline int class_of(int status) noexcept {
    int kind = MPI_SUCCESS;
    return MPI_Error_class(status, &kind) == MPI_SUCCESS ? kind : MPI_ERR_UNKNOWN;
}

} // namespace pulse::mpi
