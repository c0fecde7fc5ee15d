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

/// A communicator between processes, as one of them sees it. What goes over is a file that the receiver has asked for.
class process_clique {
public:
    /// The first of a run, in its folder; null where that rank is there already.
    [[nodiscard]] static std::shared_ptr<process_clique> joined(const std::string& folder, int rank, int size);
    /// One of the ranks that give this colour to that split, by their number and in the order of their keys; null when
    /// nothing can be written.
    [[nodiscard]] std::shared_ptr<process_clique> split(int number, int colour, int key) const;

    /// Whether every rank has come; rank() and size() are known then.
    [[nodiscard]] bool complete();
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }

    /// The number of the next message of a direction and peer.
    [[nodiscard]] std::size_t next(bool sends, int peer) { return messages_[{sends, peer}]++; }
    /// A receive has started. False when nothing can be written.
    [[nodiscard]] bool offer_room(int peer, std::size_t number, std::size_t bytes, bool registered) const;
    enum class progress { waits, over, wrong };
    /// Moves a message that has started, where its other side has started too. Wrong: that is of another size, or the
    /// memory of one side is registered and that of the other is not.
    [[nodiscard]] progress move(bool sends, int peer, std::size_t number, void* data, std::size_t bytes,
                                bool registered) const;
    /// Whether the peer's process is no more; looks now and then.
    [[nodiscard]] bool died(int peer);

private:
    explicit process_clique(rank_folder folder) : folder_{std::move(folder)} {}

    /// Files of a message: the receiver's room, and what the sender puts there.
    [[nodiscard]] std::string file(bool sends, int peer, std::size_t number, const char* what) const;
    [[nodiscard]] static std::string came(int world_rank) { return "came." + std::to_string(world_rank); }

    rank_folder folder_;
    std::string name_{}; ///< what its files begin with
    int rank_{};
    int size_{};
    std::vector<int> world_ranks_{};
    std::string
        split_{}; ///< the files of the split that has made it; its ranks and world_ranks_ are the parent's until then
    bool complete_{};
    std::map<std::pair<bool, int>, std::size_t> messages_{};
    std::map<int, std::chrono::steady_clock::time_point> looked_{};
};

/// From now on a thread of this process runs what the stream holds, as a device does, until it is empty: no other rank
/// is here to do it while the host waits for something else. Under the machine's lock.
void let_device_run(cudaStream_t stream);

} // namespace emulated_nccl
