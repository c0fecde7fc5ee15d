#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/fingerprint.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>

namespace pulse {

/// A rank of a run, connected to the others.
using rank = any_transport;

namespace detail {

/// Throws input_error on every rank unless all have the same plan. Collective.
inline void require_same_plan(const any_transport& among, const plan& mine) {
    const std::string stands_for = fingerprint_of(mine).text();
    const auto all = among.gather(std::as_bytes(std::span{stands_for}));
    std::string text;
    for (std::size_t r = 0; r != all.size() && text.empty(); ++r) {
        if (all[r] != all[0]) {
            text = "pulse: rank " + std::to_string(r) +
                   " has a different plan than rank 0: if each process plans for itself, " +
                   "set .seconds = 0 (a timed search is not reproducible) or load the plan from a file";
        }
    }
    const auto bytes = std::as_bytes(std::span{text});
    std::vector<std::byte> said(bytes.begin(), bytes.end());
    among.broadcast(said);
    if (!said.empty()) { throw input_error{{reinterpret_cast<const char*>(said.data()), said.size()}}; }
}

} // namespace detail

/// Runs body(rank) on every rank of a plan that this process hosts, and returns when all are done. `ranks` is
/// ranks::threads, ranks::threads_on, ranks::mpi or ranks::nccl.
///
/// An error on any rank ends all ranks and is thrown here; a plan that differs between processes is such an error.
template <class Ranks, class Body>
void run(const planned& made, const Ranks& ranks, const Body& body) {
    const rank_grid grid{made.layout, made.plan.pipeline_degree, made.plan.data_degree};
    ranks.run(grid, [&](const any_transport& among) {
        detail::require_same_plan(among, made.plan);
        rank self{among};
        body(self);
    });
}

} // namespace pulse
