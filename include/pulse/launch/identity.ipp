#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/launch/environment.hpp>
#include <pulse/launch/identity.hpp>

namespace pulse::launch {

namespace detail {

/// The variables through which a launcher tells a process its identity. An empty name: the launcher does not tell.
struct launcher_variables {
    const char* source;
    const char* rank;
    std::array<const char*, 2> world_size; ///< the first one that is set
    const char* local_rank;
    const char* local_size;
    const char* node;
    const char* only_with; ///< the launcher is considered only if this is set
    /// Whether every process it starts is a rank. Slurm's may be another launcher's daemons, one per machine.
    bool starts_ranks;
};

/// In order of precedence. Any of the launchers below may have started torchrun, once per machine. Slurm is last: other
/// launchers start their daemons through it, and the ranks inherit the daemon's variables.
inline constexpr std::array launchers{
    launcher_variables{"PULSE_RANK",
                       "PULSE_RANK",
                       {"PULSE_WORLD_SIZE", ""},
                       "PULSE_LOCAL_RANK",
                       "PULSE_LOCAL_SIZE",
                       "PULSE_NODE",
                       "",
                       true},
    launcher_variables{
        "torchrun", "RANK", {"WORLD_SIZE", ""}, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "", true},
    launcher_variables{"Open MPI",
                       "OMPI_COMM_WORLD_RANK",
                       {"OMPI_COMM_WORLD_SIZE", ""},
                       "OMPI_COMM_WORLD_LOCAL_RANK",
                       "OMPI_COMM_WORLD_LOCAL_SIZE",
                       "",
                       "",
                       true},
    launcher_variables{"PMI", "PMI_RANK", {"PMI_SIZE", ""}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", "", true},
    // Without a step id, the variables describe an allocation in which nothing has been started yet.
    launcher_variables{"Slurm",
                       "SLURM_PROCID",
                       {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                       "SLURM_LOCALID",
                       "",
                       "SLURM_NODEID",
                       "SLURM_STEP_ID",
                       false},
};

[[nodiscard]] inline std::string said(const char* variable, int value) {
    return std::string{variable} + "=" + std::to_string(value);
}

[[nodiscard]] inline std::optional<int> number_if_named(const environment& from, const char* variable) {
    return *variable == '\0' ? std::nullopt : from.number(variable);
}

/// The variable that holds the world size: the one that is set, or the first.
[[nodiscard]] inline const char* world_size_variable(const environment& from, const launcher_variables& names) {
    const bool second = *names.world_size[1] != '\0' && !from.get(names.world_size[0]) && from.get(names.world_size[1]);
    return names.world_size[second ? 1 : 0];
}

/// Throws input_error when the numbers cannot belong to one rank; the other arguments name them in the text.
inline void check_identity(const rank_identity& who, const char* rank, const char* size, const char* local_rank,
                           const char* local_size) {
    const auto refuse = [](const std::string& what) { throw input_error{"pulse: " + what}; };
    if (who.world_size < 1) { refuse(said(size, who.world_size) + " must be at least 1"); }
    if (who.rank < 0 || who.rank >= who.world_size) {
        refuse(said(rank, who.rank) + " must be at least 0 and below " + said(size, who.world_size));
    }
    if (who.local_size == 0 || who.local_size > who.world_size) {
        refuse(said(local_size, who.local_size) + " must be at least 1 and at most " + said(size, who.world_size));
    }
    if (who.local_size > 0 && who.local_rank >= who.local_size) {
        refuse(said(local_rank, who.local_rank) + " must be below " + said(local_size, who.local_size));
    }
    if (who.local_rank >= who.world_size) {
        refuse(said(local_rank, who.local_rank) + " must be below " + said(size, who.world_size));
    }
}

/// The identity that one launcher gives, or none when its variables are not set.
[[nodiscard]] inline std::optional<rank_identity> identity_from(const environment& from,
                                                                const launcher_variables& names) {
    if (*names.only_with != '\0' && !from.get(names.only_with)) { return std::nullopt; }
    const char* const size_name = world_size_variable(from, names);
    const std::optional<int> rank = from.number(names.rank);
    const std::optional<int> size = from.number(size_name);
    const std::optional<int> local_rank = number_if_named(from, names.local_rank);
    if (!rank && !size) {
        if (local_rank && names.rank == std::string_view{"PULSE_RANK"}) {
            throw input_error{std::string{"pulse: "} + names.local_rank + " is set, but " + names.rank + " is not"};
        }
        return std::nullopt;
    }
    if (!rank || !size) {
        throw input_error{std::string{"pulse: "} + (rank ? names.rank : size_name) + " is set, but " +
                          (rank ? size_name : names.rank) + " is not"};
    }
    rank_identity who{*rank,
                      *size,
                      local_rank.value_or(-1),
                      number_if_named(from, names.local_size).value_or(-1),
                      number_if_named(from, names.node).value_or(-1),
                      names.source};
    check_identity(who, names.rank, size_name, names.local_rank, names.local_size);
    return who;
}

} // namespace detail

PULSE_INLINE rank_identity identify(const identity_arguments& given, const environment& from) {
    std::optional<rank_identity> who{};
    const char* size_name = "";
    if (given.rank && given.world_size) {
        who = rank_identity{*given.rank, *given.world_size, -1, -1, -1, "arguments"};
    }
    for (const detail::launcher_variables& names : detail::launchers) {
        if (who) { break; }
        who = detail::identity_from(from, names);
        if (who) { size_name = detail::world_size_variable(from, names); }
    }
    if (!who) {
        if (given.rank) { throw input_error{"pulse: argument rank is given, but the world size is not"}; }
        if (given.world_size && *given.world_size != 1) {
            throw input_error{"pulse: argument world size is " + std::to_string(*given.world_size) +
                              ", but the rank of this process is unknown: set PULSE_RANK or use a launcher"};
        }
        who = rank_identity{0, 1, 0, 1, 0, "single process"};
    }
    const auto contradiction = [&](const char* argument, int value, int other) {
        if (value != other) {
            throw input_error{"pulse: argument " + detail::said(argument, value) + " contradicts " + who->source +
                              ", which says " + std::to_string(other)};
        }
    };
    if (given.rank) { contradiction("rank", *given.rank, who->rank); }
    if (given.world_size) { contradiction("world size", *given.world_size, who->world_size); }
    if (given.local_rank) { who->local_rank = *given.local_rank; }
    if (given.local_size) { who->local_size = *given.local_size; }
    if (given.node) { who->node = *given.node; }
    detail::check_identity(*who, "rank", "world size", "local rank", "local size");

    if (who->source == "arguments") { return *who; }
    for (const detail::launcher_variables& names : detail::launchers) {
        if (!names.starts_ranks || names.source == who->source) { continue; }
        const char* const other = detail::world_size_variable(from, names);
        const std::optional<int> started = from.number(other);
        if (started && from.get(names.rank) && *started > who->world_size) {
            throw input_error{"pulse: " + detail::said(size_name, who->world_size) + " contradicts " +
                              detail::said(other, *started) + ": more processes were started"};
        }
    }
    return *who;
}

} // namespace pulse::launch
