#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include <pulse/mpi/communicator.hpp>
#include <pulse/mpi/error.hpp>
#include <pulse/mpi/message_queue.hpp>

namespace pulse::mpi {

/// A rank's last message to another: that it posts nothing more, why, and what it has started with that rank.
struct closing_note {
    /// Longer texts are cut.
    static constexpr std::size_t longest_text = 2000;

    std::uint32_t failed{};                ///< 1: the run has failed, as the text says; 0: the rank has returned
    std::uint32_t length{};                ///< of the text, in bytes
    std::array<started_both, 2> started{}; ///< per queue, by the sender with the receiver
    std::array<char, longest_text> text{};

    [[nodiscard]] std::string_view what() const noexcept { return {text.data(), length}; }
};

/// Exchanges the closing notes of all ranks, under a tag of their own.
class closing_notes {
public:
    closing_notes(const communicator& on, int tag) :
        on_{on}, tag_{tag}, out_(static_cast<std::size_t>(on.size())), in_(static_cast<std::size_t>(on.size())),
        heard_(static_cast<std::size_t>(on.size())), sending_(static_cast<std::size_t>(on.size()), MPI_REQUEST_NULL) {}
    closing_notes(const closing_notes&) = delete;
    closing_notes& operator=(const closing_notes&) = delete;

    /// Polls for notes and drives MPI's progress. Returns true when one arrived.
    bool listen() {
        bool came = false;
        for (;;) {
            int there = 0;
            MPI_Status status{};
            check(MPI_Iprobe(MPI_ANY_SOURCE, tag_, on_.get(), &there, &status), "MPI_Iprobe");
            if (there == 0) { return came; }
            const auto peer = static_cast<std::size_t>(status.MPI_SOURCE);
            check(MPI_Recv(&in_[peer], static_cast<int>(sizeof(closing_note)), MPI_BYTE, status.MPI_SOURCE, tag_,
                           on_.get(), MPI_STATUS_IGNORE),
                  "MPI_Recv");
            heard_[peer] = true;
            came = true;
        }
    }
    [[nodiscard]] bool heard(int peer) const { return heard_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] const closing_note& of(int peer) const { return in_[static_cast<std::size_t>(peer)]; }

    /// Starts sending a note; at most once per peer.
    void send(int peer, bool failed, std::string_view what, const std::array<started_both, 2>& started) {
        const auto at = static_cast<std::size_t>(peer);
        closing_note& note = out_[at];
        note.failed = failed ? 1 : 0;
        note.length = static_cast<std::uint32_t>(std::min(what.size(), closing_note::longest_text));
        std::memcpy(note.text.data(), what.data(), note.length);
        note.started = started;
        check(MPI_Isend(&note, static_cast<int>(sizeof note), MPI_BYTE, peer, tag_, on_.get(), &sending_[at]),
              "MPI_Isend");
    }
    /// Whether all notes sent by this rank have left.
    [[nodiscard]] bool left() {
        for (MPI_Request& r : sending_) {
            int done = 0;
            check(MPI_Test(&r, &done, MPI_STATUS_IGNORE), "MPI_Test");
            if (done == 0) { return false; }
        }
        return true;
    }

private:
    const communicator& on_;
    int tag_;
    std::vector<closing_note> out_; ///< to each peer
    std::vector<closing_note> in_;  ///< from each peer
    std::vector<bool> heard_;
    std::vector<MPI_Request> sending_;
};

} // namespace pulse::mpi
