#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/process_group.hpp>
#include <pulse/launch/rendezvous_address.hpp>
#include <pulse/nccl/shared_device.cuh>
#include <pulse/nccl/transport.cuh>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::nccl {

/// A process of a group as a rank with a device.
class rank_process {
public:
    /// Collective; selects the device. `devices` lists the devices of a machine's ranks by local rank, a shared one
    /// once per rank; if empty, each rank takes the device numbered by its local rank. Errors call the list `what`.
    /// `group` must outlive this.
    ///
    /// Throws input_error when a machine lacks devices, and, on every rank, when two ranks have one device although
    /// `devices` is empty.
    rank_process(launch::process_group& group, const std::vector<int>& devices, const std::string& what) :
        group_{group}, device_{choose(devices, what)}, shared_{compare(devices.empty(), what)} {
        // First, so that no CUDA call creates a context on another device.
        cuda::select_device(device_);
        if (shared_) { share_devices(group.who().rank, group.table().one_machine()); }
    }

    [[nodiscard]] int device() const noexcept { return device_; }

    /// Collective. Calls body(transport) as a rank of the grid. Throws input_error unless the group has as many ranks.
    template <class Body>
    void run(const rank_grid& grid, const Body& body) const {
        require_size(grid, group_.who().world_size);
        transport<launch::control_plane> among{
            group_.control(),
            grid,
            {.device = device_, .timeout = group_.timeout(), .seen = &group_.seen(), .most_blocks = shared_ ? 4 : 0}};
        try {
            body(among);
        } catch (const std::exception& e) {
            among.fail("rank " + std::to_string(among.rank()) + ": " + e.what());
            throw;
        }
    }

    /// Throws input_error unless the grid has `ranks` ranks.
    static void require_size(const rank_grid& grid, int ranks) {
        if (grid.size() == ranks) { return; }
        throw input_error{"pulse: the plan is for " + std::to_string(grid.pipeline) + " x " +
                          std::to_string(grid.data) + " ranks (pipeline_degree x data_degree), not for " +
                          std::to_string(ranks)};
    }

private:
    [[nodiscard]] int choose(const std::vector<int>& devices, const std::string& what) const {
        cuda::widen_queues();
        const launch::member& self = group_.self();
        const int there = cuda::device_count();
        if (there == 0) { throw input_error{"pulse: host " + self.host + " has no CUDA device"}; }
        // Launchers may show each process its own device only; compare() then checks which rank has which.
        if (devices.empty() && there == 1) { return 0; }
        const int named = devices.empty() ? there : static_cast<int>(devices.size());
        if (self.local_size > named || self.local_rank >= named) {
            throw input_error{"pulse: " + std::to_string(self.local_size) + " ranks on host " + self.host + ", but " +
                              (devices.empty() ? "it has " + std::to_string(named) + " CUDA devices" + advice(what)
                                               : what + " lists " + std::to_string(named))};
        }
        const int chosen = devices.empty() ? self.local_rank : devices[static_cast<std::size_t>(self.local_rank)];
        if (chosen < 0 || chosen >= there) {
            throw input_error{"pulse: " + what + ": there is no CUDA device " + std::to_string(chosen) + " on host " +
                              self.host + ", which has " + std::to_string(there)};
        }
        return chosen;
    }

    /// Whether ranks share a device. Throws input_error on every rank if they do and `must_not` is set.
    [[nodiscard]] bool compare(bool must_not, const std::string& what) const {
        const std::string mine = std::to_string(group_.self().node) + " " + cuda::properties_of(device_).bus_id;
        const auto all = group_.control().gather(std::as_bytes(std::span{mine}));
        std::vector<std::byte> verdict;
        std::map<std::string, std::size_t> owners;
        for (std::size_t r = 0; r != all.size() && verdict.empty(); ++r) {
            const std::string theirs{reinterpret_cast<const char*>(all[r].data()), all[r].size()};
            const auto [owner, alone] = owners.emplace(theirs, r);
            if (alone) { continue; }
            const std::string text = "ranks " + std::to_string(owner->second) + " and " + std::to_string(r) +
                                     " use the same CUDA device (PCI " + theirs.substr(theirs.find(' ') + 1) +
                                     ") on host " + group_.table().ranks[r].host + advice(what);
            const auto bytes = std::as_bytes(std::span{text});
            verdict.assign(bytes.begin(), bytes.end());
        }
        group_.control().broadcast(verdict);
        if (!verdict.empty() && must_not) {
            throw input_error{"pulse: " + std::string{reinterpret_cast<const char*>(verdict.data()), verdict.size()}};
        }
        return !verdict.empty();
    }

    [[nodiscard]] static std::string advice(const std::string& what) {
        return "; to share a device, list it in " + what + " once for each rank";
    }

    launch::process_group& group_;
    int device_;
    bool shared_;
};

} // namespace pulse::nccl

namespace pulse::ranks {

/// Ranks that are processes, each with a device of its own, started by torchrun, srun, mpirun or with PULSE_RANK and
/// PULSE_WORLD_SIZE, as launch::identify finds.
struct nccl {
    /// The devices of a machine's ranks by local rank, a shared one once per rank; if empty, each rank takes the device
    /// numbered by its local rank.
    std::vector<int> devices{};
    /// How long the ranks wait for each other: to meet, in a collective, and for a transfer.
    std::chrono::milliseconds timeout{std::chrono::seconds{60}};

    /// Throws the error that ended the run, on every rank: its own, or peer_failed with the text of another rank's.
    template <class Body>
    void run(const rank_grid& grid, const Body& body) const {
        const launch::rank_identity who = launch::identify();
        pulse::nccl::rank_process::require_size(grid, who.world_size);
        launch::process_group group{who, launch::find_rendezvous(who), {.timeout = timeout}};
        try {
            pulse::nccl::rank_process{group, devices, "devices"}.run(grid, body);
            group.control().sum({}); // a barrier: all ranks are done
        } catch (const std::exception& e) {
            group.seen().fail("rank " + std::to_string(who.rank) + ": " + e.what());
            if (group.seen().failed_rank() == who.rank) { throw; }
            throw peer_failed{*group.seen().failure()};
        }
    }
};

} // namespace pulse::ranks
