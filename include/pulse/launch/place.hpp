#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <variant>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/environment.hpp>
#include <pulse/launch/identity.hpp>

namespace pulse::launch {

/// Where the ranks of a run meet.
struct meeting_place {
    /// Where rank 0 serves a tcp_store, or the folder of a file_store.
    std::variant<endpoint, std::filesystem::path> at{};
    /// The same on all ranks of a run, another in the next run; empty where nothing says it.
    std::string run_id{};
};

/// What tells this run from others: PULSE_RUN_ID, else what the launcher calls its job; empty when nobody says.
[[nodiscard]] PULSE_INLINE std::string run_id_of(const environment& from = {});

/// The first host of a list as Slurm writes it: "node[03-07,9],login" begins with node03.
[[nodiscard]] PULSE_INLINE std::string first_host(std::string_view list);

/// Reads a place as PULSE_STORE has it: "host:port" (rank 0's), or "file:FOLDER" of a folder that all ranks see. Throws
/// input_error naming `what`.
[[nodiscard]] inline std::variant<endpoint, std::filesystem::path> read_place(std::string_view text,
                                                                              const std::string& what) {
    if (!text.starts_with("file:")) { return read_endpoint(text, what); }
    std::string_view folder = text.substr(5);
    if (folder.starts_with("//")) { folder.remove_prefix(2); }
    if (folder.empty()) { throw input_error{"pulse: " + what + ": 'file:' without a folder"}; }
    return std::filesystem::path{folder};
}

/// Where the ranks of this run meet, in this order:
/// - PULSE_STORE: "host:port" (rank 0's), or "file:FOLDER" of a folder that all ranks see;
/// - MASTER_ADDR and MASTER_PORT (torchrun): that host, the port after that one, which torchrun's own store may have;
/// - under Slurm the first host of the step's list, else this machine when all ranks are on it; the port is drawn by
///   the run's name.
///
/// Throws input_error naming the variable that is wrong, or PULSE_STORE where nothing says enough.
[[nodiscard]] PULSE_INLINE meeting_place find_meeting_place(const rank_identity& who, const environment& from = {});

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/place.ipp> // IWYU pragma: keep
#endif
