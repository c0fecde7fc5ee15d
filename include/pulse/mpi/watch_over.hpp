#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <pulse/launch/addresses.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/rendezvous_address.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>
#include <pulse/mpi/transport.hpp>

namespace pulse::mpi {

/// Makes a watch over the processes of a transport: it notices a killed process at once and a silent one within the
/// timeout; MPI reports neither. Pass its failure() as options::watch.
///
/// Collective. Ranks reach rank 0 on the loopback if all are on one machine, else at its first external address. Throws
/// launch_error on every rank when one does not arrive within the timeout.
[[nodiscard]] inline std::unique_ptr<launch::watch> watch_over(transport& world,
                                                               const launch::watch_options& how = {}) {
    const launch::rank_identity who{.rank = world.rank(), .world_size = world.size(), .source = "MPI"};
    const auto [host, boot] = launch::this_machine();
    const std::string machine = host + '\n' + boot;
    const auto machines = world.gather(std::as_bytes(std::span{machine}));

    std::unique_ptr<launch::tcp_store> store;
    const auto meet = [&](const launch::endpoint& where) {
        store = std::make_unique<launch::tcp_store>(
            who, launch::tcp_store_options{.where = where, .run_id = launch::run_id_of(), .timeout = how.timeout});
    };
    std::vector<std::byte> said;
    if (who.rank == 0) {
        const bool one_machine =
            std::all_of(machines.begin(), machines.end(), [&](const auto& m) { return m == machines.front(); });
        meet({one_machine ? "127.0.0.1" : launch::own_addresses().front(), 0});
        const std::string place = to_text(store->where());
        const auto bytes = std::as_bytes(std::span{place});
        said.assign(bytes.begin(), bytes.end());
    }
    world.broadcast(said);
    if (who.rank != 0) {
        meet(launch::read_endpoint({reinterpret_cast<const char*>(said.data()), said.size()}, "the store of rank 0"));
    }
    const launch::rank_table table = launch::rendezvous(*store, who, how.timeout);
    return std::make_unique<launch::watch>(*store, who, table, how);
}

} // namespace pulse::mpi
