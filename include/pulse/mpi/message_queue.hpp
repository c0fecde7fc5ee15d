#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include <pulse/core/error.hpp>
#include <pulse/mpi/communicator.hpp>
#include <pulse/mpi/error.hpp>
#include <pulse/mpi/options.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::mpi {

/// The name that both sides give a message.
struct message_name {
    std::int32_t kind{};
    std::int32_t index{};
    std::int32_t number{};

    [[nodiscard]] bool operator==(const message_name&) const = default;
};

enum class direction : std::uint8_t { out, in };

/// How many messages, and pieces of their parts, one rank has started with another in a queue.
struct started_count {
    std::uint64_t messages{};
    std::uint64_t pieces{};
};
struct started_both {
    started_count out{};
    started_count in{};
};

/// Exchanges messages between every two ranks, matched in the order in which both sides post them.
///
/// A message is a header, then its parts in pieces of at most chunk_bytes under a second tag. MPI messages of one tag
/// never overtake each other, so the n-th header belongs to the n-th message. The receiver posts receives for the parts
/// only once the header matches its own: no receive is ever too short, which not every MPI survives.
class message_queue {
public:
    /// A posted message.
    class transfer {
    public:
        [[nodiscard]] int peer() const noexcept { return peer_; }
        [[nodiscard]] direction way() const noexcept { return way_; }
        /// Sequence number of the message in this direction.
        [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

    private:
        friend class message_queue;
        struct header {
            std::uint64_t mark{};
            message_name name{};
            std::uint32_t parts{};
            std::uint64_t bytes{};
            std::uint64_t cut{}; ///< hash of the part sizes and the piece size

            [[nodiscard]] bool operator==(const header&) const = default;
        };

        int peer_{};
        direction way_{};
        bool open_{};
        bool started_{}; ///< its pieces are in flight
        bool cancelled_{};
        std::uint64_t order_{};
        std::uint64_t number_{};
        header mine_{};
        header theirs_{};
        traffic_count carries_{};
        std::vector<message_part> parts_{};
        MPI_Request head_{MPI_REQUEST_NULL};
        std::vector<MPI_Request> pieces_{};
        std::size_t over_{}; ///< pieces done, counted from the first
    };

    /// `text` renders a name for error texts. Headers are sent under `tag`, pieces under `tag` + 1.
    message_queue(const communicator& on, int tag, const options& how, std::string (*text)(const message_name&)) :
        on_{on.get()}, rank_{on.rank()}, tag_{tag}, chunk_{how.chunk_bytes}, synchronous_{how.synchronous}, text_{text},
        count_(static_cast<std::size_t>(on.size())), expected_(static_cast<std::size_t>(on.size())) {}
    message_queue(const message_queue&) = delete;
    message_queue& operator=(const message_queue&) = delete;

    /// Starts a transfer. The data of the parts must live until it is over; the span itself need not.
    transfer& post(direction way, int peer, const message_name& name, std::span<const message_part> parts) {
        transfer& t = free_one();
        t.peer_ = peer;
        t.way_ = way;
        t.open_ = true;
        t.started_ = false;
        t.cancelled_ = false;
        t.order_ = ++posted_;
        t.mine_ = {mark, name, static_cast<std::uint32_t>(parts.size()), 0, chunk_};
        t.theirs_ = {};
        t.carries_ = {.messages = 1};
        t.parts_.assign(parts.begin(), parts.end());
        t.pieces_.clear();
        t.over_ = 0;
        for (const message_part& p : parts) {
            t.mine_.bytes += p.bytes;
            t.mine_.cut = (t.mine_.cut ^ p.bytes) * 0x100000001B3U; // FNV-1a
            t.carries_.of(p.kind) += static_cast<std::int64_t>(p.bytes);
        }
        const bool out = way == direction::out;
        if (!out) { expected_[static_cast<std::size_t>(peer)].push_back(&t); }
        t.number_ = ++count(t).messages;
        start(t, out ? &t.mine_ : &t.theirs_, sizeof t.mine_, tag_, t.head_);
        if (out) { start_pieces(t); }
        return t;
    }

    /// The oldest transfer of that name that was posted and is not closed. Throws error when there is none.
    [[nodiscard]] transfer& find(direction way, int peer, const message_name& name) {
        transfer* found = nullptr;
        for (transfer& t : transfers_) {
            if (t.open_ && t.way_ == way && t.peer_ == peer && t.mine_.name == name &&
                (found == nullptr || t.order_ < found->order_)) {
                found = &t;
            }
        }
        if (found == nullptr) { throw error{"pulse: a rank waits for a message that it never posted"}; }
        return *found;
    }

    /// Starts to receive the parts of all messages whose headers have arrived, in order per peer: a sender must not
    /// wait for a rank that has posted its receive but is now waiting for another rank. Throws mpi_error.
    void proceed() {
        for (std::vector<transfer*>& waiting : expected_) {
            while (!waiting.empty() && over(waiting.front()->head_) && agreed(*waiting.front())) {
                transfer& t = *waiting.front();
                waiting.erase(waiting.begin());
                start_pieces(t);
            }
        }
    }

    /// Whether the transfer is over, as far as proceed() has driven it. Throws error when the two sides disagree about
    /// it or an earlier one, and mpi_error.
    [[nodiscard]] bool test(transfer& t) {
        const std::vector<transfer*>& waiting = expected_[static_cast<std::size_t>(t.peer_)];
        if (t.way_ == direction::in && !waiting.empty() && over(waiting.front()->head_)) {
            require_same(*waiting.front());
        }
        return t.started_ && over(t.head_) && pieces_over(t);
    }

    /// Releases a transfer that is over; a send adds to sent().
    void close(transfer& t) {
        t.open_ = false;
        if (t.way_ == direction::out) { sent_ += t.carries_; }
    }

    [[nodiscard]] const started_both& started(int peer) const { return count_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] const traffic_count& sent() const noexcept { return sent_; }
    [[nodiscard]] std::string text_of(const transfer& t) const { return text_(t.mine_.name); }

    /// Winds down a peer that posts nothing more and has started `theirs` with this rank: cancels receives that it will
    /// not serve, discards messages that have no receive, and returns whether no transfer with it is in flight.
    [[nodiscard]] bool settle(int peer, const started_both& theirs) {
        for (transfer& t : transfers_) {
            if (!t.open_ || t.peer_ != peer || t.way_ == direction::out || t.cancelled_) { continue; }
            if (t.number_ <= theirs.out.messages || t.head_ == MPI_REQUEST_NULL) { continue; }
            check(MPI_Cancel(&t.head_), "MPI_Cancel");
            t.cancelled_ = true;
        }
        started_count& mine = count_[static_cast<std::size_t>(peer)].in;
        while (mine.messages < theirs.out.messages && take_one(peer, tag_)) { ++mine.messages; }
        while (mine.pieces < theirs.out.pieces && take_one(peer, tag_ + 1)) { ++mine.pieces; }
        bool all = mine.messages >= theirs.out.messages && mine.pieces >= theirs.out.pieces;
        for (transfer& t : transfers_) {
            if (t.open_ && t.peer_ == peer) { all = over(t.head_) && pieces_over(t) && all; }
        }
        for (discarded& d : discarded_) { all = over(d.request) && all; }
        return all;
    }

private:
    static constexpr std::uint64_t mark = 0x70756C73652F3031; // "pulse/01"
    struct discarded {
        std::vector<std::byte> bytes{};
        MPI_Request request{MPI_REQUEST_NULL};
    };

    [[nodiscard]] started_count& count(const transfer& t) {
        started_both& both = count_[static_cast<std::size_t>(t.peer_)];
        return t.way_ == direction::out ? both.out : both.in;
    }

    [[nodiscard]] transfer& free_one() {
        for (transfer& t : transfers_) {
            if (!t.open_) { return t; }
        }
        return transfers_.emplace_back();
    }

    void start(const transfer& t, void* data, std::size_t bytes, int tag, MPI_Request& request) {
        const int n = static_cast<int>(bytes);
        if (t.way_ == direction::in) {
            check(MPI_Irecv(data, n, MPI_BYTE, t.peer_, tag, on_, &request), "MPI_Irecv");
        } else if (synchronous_) {
            check(MPI_Issend(data, n, MPI_BYTE, t.peer_, tag, on_, &request), "MPI_Issend");
        } else {
            check(MPI_Isend(data, n, MPI_BYTE, t.peer_, tag, on_, &request), "MPI_Isend");
        }
    }
    void start_pieces(transfer& t) {
        for (const message_part& p : t.parts_) {
            for (std::size_t at = 0; at < p.bytes; at += chunk_) {
                MPI_Request& request = t.pieces_.emplace_back(MPI_REQUEST_NULL);
                start(t, p.data + at, p.bytes - at < chunk_ ? p.bytes - at : chunk_, tag_ + 1, request);
                ++count(t).pieces;
            }
        }
        t.started_ = true;
    }

    [[nodiscard]] static bool over(MPI_Request& request) {
        int done = 0;
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
    }
    [[nodiscard]] static bool pieces_over(transfer& t) {
        while (t.over_ != t.pieces_.size() && over(t.pieces_[t.over_])) { ++t.over_; }
        return t.over_ == t.pieces_.size();
    }

    [[nodiscard]] static bool agreed(const transfer& t) { return t.theirs_ == t.mine_; }
    void require_same(const transfer& t) const {
        const auto& theirs = t.theirs_;
        if (agreed(t)) { return; }
        const std::string expects = " between them: rank " + std::to_string(rank_) + " expects " + text_(t.mine_.name);
        const std::string sends = ", rank " + std::to_string(t.peer_) + " sends ";
        if (theirs.mark != mark) {
            throw error{"pulse: two ranks disagree about the next message" + expects + sends + "something else"};
        }
        if (theirs.name != t.mine_.name) {
            throw error{"pulse: two ranks disagree about the next message" + expects + sends + text_(theirs.name)};
        }
        throw error{"pulse: two ranks disagree about the size of a message" + expects + " of " +
                    std::to_string(t.mine_.bytes) + " bytes in " + std::to_string(t.mine_.parts) + " parts" + sends +
                    std::to_string(theirs.bytes) + " in " + std::to_string(theirs.parts)};
    }

    /// Starts to receive, and discard, the peer's next message for which no receive was posted.
    [[nodiscard]] bool take_one(int peer, int tag) {
        int there = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status{};
        check(MPI_Improbe(peer, tag, on_, &there, &message, &status), "MPI_Improbe");
        if (there == 0) { return false; }
        int bytes = 0;
        check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        discarded& d = discarded_.emplace_back();
        d.bytes.resize(static_cast<std::size_t>(bytes));
        check(MPI_Imrecv(d.bytes.data(), bytes, MPI_BYTE, &message, &d.request), "MPI_Imrecv");
        return true;
    }

    MPI_Comm on_;
    int rank_;
    int tag_;
    std::size_t chunk_;
    bool synchronous_;
    std::string (*text_)(const message_name&);
    std::vector<started_both> count_;              ///< with each peer
    std::vector<std::vector<transfer*>> expected_; ///< receives of each peer, in order, with unread headers
    std::deque<transfer> transfers_;               ///< a deque: MPI writes to headers, which must not move
    std::deque<discarded> discarded_;
    std::uint64_t posted_{};
    traffic_count sent_{};
};

} // namespace pulse::mpi
