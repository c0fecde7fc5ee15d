#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <emulated/rank_folder.hpp>

namespace emulated_nccl {

/// One process's view of a communicator between processes. A message is a file, written once the receiver asked for it.
class process_clique {
public:
    /// The first communicator of a run, in its folder; null if that rank has joined already.
    [[nodiscard]] static std::shared_ptr<process_clique> joined(const std::string& folder, int rank, int size);
    /// Joins the ranks that pass this colour to split `number`, ordered by key; null if nothing can be written.
    [[nodiscard]] std::shared_ptr<process_clique> split(int number, int colour, int key) const;

    /// Whether every rank has joined; only then are rank() and size() known.
    [[nodiscard]] bool complete();
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }

    /// The number of the next message in a direction with a peer.
    [[nodiscard]] std::size_t next(bool sends, int peer) { return messages_[{sends, peer}]++; }
    /// Announces a started receive to its sender. False if nothing can be written.
    [[nodiscard]] bool offer_room(int peer, std::size_t number, std::size_t bytes, bool registered) const;
    enum class progress { waits, over, wrong };
    /// Moves a started message if its other side has started, too. `wrong`: the sizes differ, or only one side's memory
    /// is registered.
    [[nodiscard]] progress move(bool sends, int peer, std::size_t number, void* data, std::size_t bytes,
                                bool registered) const;
    /// Whether the peer's process has ended; checks at most every 10 ms.
    [[nodiscard]] bool died(int peer);

private:
    explicit process_clique(rank_folder folder) : folder_{std::move(folder)} {}

    /// Path of a message's file: the receiver's announcement, or the sender's data.
    [[nodiscard]] std::string file(bool sends, int peer, std::size_t number, const char* what) const;
    [[nodiscard]] static std::string came(int world_rank) { return "came." + std::to_string(world_rank); }

    rank_folder folder_;
    std::string name_{}; ///< the prefix of its files
    int rank_{};
    int size_{};
    std::vector<int> world_ranks_{};
    std::string
        split_{}; ///< the files of the split that has made it; its ranks and world_ranks_ are the parent's until then
    bool complete_{};
    std::map<std::pair<bool, int>, std::size_t> messages_{};
    std::map<int, std::chrono::steady_clock::time_point> looked_{};
};

/// Lets a thread of this process run the stream, as a device would, until it is empty: no other rank is in this process
/// to run it while the host waits for something else. Needs the machine's lock.
void let_device_run(cudaStream_t stream);

} // namespace emulated_nccl
