#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/launch/identity.hpp>
#include <pulse/nccl/ranks.cuh>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/run.hpp>
#include <pulse/runtime/transport.hpp>

#include <device_ring.hpp>
#include <launch/ranks.hpp>
#include <support/transports/messages.hpp>

// Runs of pulse::ranks::nccl with ranks as processes of this machine, over NCCL or its emulation.

namespace pulse::test {

using rank_transport = nccl::transport<launch::control_plane>;
static_assert(transport<rank_transport>, "nccl::transport is a transport");

/// Asks in a separate process: a process that has used a GPU must not fork.
inline int device_count() {
    const pid_t asks = ::fork();
    if (asks == 0) {
        try {
            ::_exit(cuda::device_count());
        } catch (const error&) { ::_exit(0); } // an unusable driver
    }
    int status = 0;
    ::waitpid(asks, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// Runs body(ranks) in `ranks` processes, which share devices if there are fewer; whether each returns or throws
/// `wanted`.
template <class Body>
bool all_say(const std::string& name, int ranks, int devices, const std::string& wanted, const Body& body) {
    const std::string place = "127.0.0.1:" + std::to_string(free_port());
    auto all = on_processes(ranks, [&](int r) -> std::string {
        const auto set = [](const char* variable, const std::string& value) { ::setenv(variable, value.c_str(), 1); };
        set("PULSE_RANK", std::to_string(r));
        set("PULSE_WORLD_SIZE", std::to_string(ranks));
        set("PULSE_STORE", place);
        ranks::nccl with{.timeout = 60s};
        for (int i = 0; devices < ranks && i != ranks; ++i) { with.devices.push_back(i % devices); }
        return body(with);
    });
    bool right = true;
    for (int r = 0; r != ranks; ++r) {
        const std::string said = all[static_cast<std::size_t>(r)].text(120s);
        if (said.find(wanted) != std::string::npos) { continue; }
        right = false;
        std::printf("%s: rank %d of %d: %s\n", name.c_str(), r, ranks, said.c_str());
    }
    return right;
}

struct nccl_messages : device_parts {
    static constexpr bool exchanges = false;
    static constexpr bool launches = true;
};

/// Whether the ring of device_ring.hpp is right on every rank of a grid with one replica and the laws of transports
/// hold; with several replicas, the laws of collectives.
inline bool messages_are_right(const rank_grid& grid, int devices) {
    return all_say("messages", grid.size(), devices, "right", [&](const ranks::nccl& with) -> std::string {
        int wrong = -1;
        with.run(grid, [&](rank_transport& t) {
            wrong = t.size() - grid.size();
            if (grid.data != 1) { return transport_laws::keep_collectives(t); }
            const device_ring ring{.count = 100'000, .rounds = 8};
            t.follow(ring.transfers(t.rank(), t.size()));
            wrong += ring.wrong(t);
            t.follow(nullptr);
            transport_laws::keep_messages(nccl_messages{}, t, 20);
        });
        return wrong == 0 ? "right" : "wrong";
    });
}

/// Whether every run ends as it should, and every refusal and error reaches every rank.
inline bool nccl_ranks_are_right(int devices) {
    bool right = true;
    for (const rank_grid& grid :
         {rank_grid{.pipeline = 2}, rank_grid{.pipeline = 4}, rank_grid{.pipeline = 2, .data = 2}}) {
        right = messages_are_right(grid, devices) && right;
    }
    const auto run = [](const ranks::nccl& with, const rank_grid& grid, const auto& body) -> std::string {
        with.run(grid, body);
        return "it has run";
    };
    right = all_say("wrong number", 3, devices,
                    "error: pulse: the plan is for 2 x 2 ranks (pipeline_degree x data_degree), not for 3",
                    [&](const ranks::nccl& with) {
                        return run(with, {.pipeline = 2, .data = 2}, [](const any_transport&) {});
                    }) &&
            right;
    right = all_say("throws", 3, devices, "rank 1 has enough",
                    [&](const ranks::nccl& with) -> std::string {
                        planned made;
                        made.plan.pipeline_degree = 3;
                        pulse::run(made, with, [](rank& self) {
                            if (self.rank() == 1) { throw std::runtime_error{"rank 1 has enough"}; }
                            self.sum({});
                        });
                        return "it has run";
                    }) &&
            right;
    right = all_say("no such device", 2, devices, "there is no CUDA device 1000",
                    [&](const ranks::nccl&) {
                        return run(ranks::nccl{.devices = {0, 1000}}, {.pipeline = 2}, [](const any_transport&) {});
                    }) &&
            right;
    if (devices == 1) {
        right = all_say("shared", 2, devices, "ranks 0 and 1 use the same CUDA device (PCI ",
                        [&](const ranks::nccl&) {
                            return run(ranks::nccl{}, {.pipeline = 2}, [](const any_transport&) {});
                        }) &&
                right;
    }
    return right;
}

} // namespace pulse::test
