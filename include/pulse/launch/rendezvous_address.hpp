#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/environment.hpp>
#include <pulse/launch/identity.hpp>

namespace pulse::launch {

/// Where the ranks of a run meet.
struct rendezvous_address {
    /// Address at which rank 0 serves a tcp_store.
    endpoint at{};
    /// The same on all ranks of a run, different in the next run; empty if unknown.
    std::string run_id{};
};

/// The id of this run: PULSE_RUN_ID, else the launcher's id of its job, else empty.
[[nodiscard]] inline std::string run_id_of(const environment& from = {}) {
    const auto joined = [&](const char* name, const char* more) {
        return from.get(name).value_or("") + "." + from.get(more).value_or("0");
    };
    if (const auto given = from.get("PULSE_RUN_ID")) { return *given; }
    if (from.get("TORCHELASTIC_RUN_ID")) { return joined("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"); }
    for (const char* const name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
        if (const auto job = from.get(name)) { return *job; }
    }
    if (from.get("SLURM_STEP_ID")) { return joined("SLURM_JOB_ID", "SLURM_STEP_ID"); }
    return {};
}

/// The first host of a Slurm host list: node03 for "node[03-07,9],login".
[[nodiscard]] inline std::string first_host(std::string_view list) {
    std::string host;
    for (std::size_t i = 0; i != list.size() && list[i] != ','; ++i) {
        if (list[i] != '[') {
            host.push_back(list[i]);
            continue;
        }
        std::size_t end = list.find_first_of(",-]", i + 1);
        if (end == std::string_view::npos) { end = list.size(); }
        host.append(list.substr(i + 1, end - i - 1));
        i = list.find(']', i);
        if (i == std::string_view::npos) { break; }
    }
    return host;
}

namespace detail {

/// A port derived from the run's id, below the usual range of outgoing connections; two runs rarely share one.
[[nodiscard]] inline std::uint16_t port_of_run(std::string_view run_id) noexcept {
    std::uint32_t hash = 2166136261U; // FNV-1a
    for (const char c : run_id) { hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U; }
    return static_cast<std::uint16_t>(21000U + hash % 10000U);
}

} // namespace detail

/// Where the ranks of this run meet, in order of precedence:
/// - PULSE_STORE: "host:port" of rank 0;
/// - MASTER_ADDR and MASTER_PORT (torchrun): that host and the next port, since torchrun's own store may have that one;
/// - under Slurm the first host of the step's list, else this machine if all ranks are on it; the port is derived from
///   the run's id, except for a single process without Slurm, which takes any free one.
///
/// Throws input_error naming the variable that is wrong, or PULSE_STORE when no variable says enough.
[[nodiscard]] inline rendezvous_address find_rendezvous(const rank_identity& who, const environment& from = {}) {
    rendezvous_address place{{}, run_id_of(from)};
    if (const auto given = from.get("PULSE_STORE")) {
        place.at = read_endpoint(*given, "PULSE_STORE");
        return place;
    }
    if (const auto host = from.get("MASTER_ADDR")) {
        const auto port = from.get("MASTER_PORT");
        if (!port) { throw input_error{"pulse: MASTER_ADDR is set, but MASTER_PORT is not"}; }
        const int next = read_port(*port, "MASTER_PORT") + 1;
        if (next > 65535) {
            throw input_error{"pulse: MASTER_PORT must be below 65535 (the ranks meet at the next port), not " + *port};
        }
        place.at = endpoint{*host, static_cast<std::uint16_t>(next)};
        return place;
    }
    const std::uint16_t port = detail::port_of_run(place.run_id);
    if (who.source == "Slurm") {
        for (const char* const name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST"}) {
            const auto list = from.get(name);
            if (!list) { continue; }
            place.at = endpoint{first_host(*list), port};
            return place;
        }
    }
    if (who.local_size == who.world_size || who.world_size == 1) {
        // Nobody else has to find a single process: on a port of its own it never meets another run.
        place.at = endpoint{"127.0.0.1", who.world_size == 1 ? std::uint16_t{0} : port};
        return place;
    }
    throw input_error{"pulse: the address where the " + std::to_string(who.world_size) +
                      " ranks meet is unknown: set PULSE_STORE to HOST:PORT of rank 0"};
}

} // namespace pulse::launch
