#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mpi.h>

#include <pulse/core/error.hpp>
#include <pulse/mpi/closing.hpp>
#include <pulse/mpi/communicator.hpp>
#include <pulse/mpi/message_queue.hpp>
#include <pulse/mpi/options.hpp>
#include <pulse/mpi/patience.hpp>
#include <pulse/mpi/session.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/runtime/transport.hpp>
#include <pulse/tensor/aligned_bytes.hpp>

namespace pulse::mpi {

/// The transport of a rank that is an MPI process, on any host.
///
/// Use from one thread at a time. Every rank ends it with leave(), or with fail() after an error, and waits there for
/// the others, so that no message is in flight when a rank's memory is freed.
class transport {
public:
    /// Collective over the processes of `over`. Throws input_error when an option is out of range, error when not all
    /// of them arrive in time.
    explicit transport(session& in, options how = {}, MPI_Comm over = MPI_COMM_WORLD) :
        session_{in}, how_{valid(std::move(how))}, on_{opened(in, over, how_)}, notes_{*on_, 0},
        messages_{*on_, 1, how_, text_of_message}, collectives_{*on_, 3, how_, text_of_collective} {
        session_.transport_began();
    }
    transport(const transport&) = delete;
    transport& operator=(const transport&) = delete;
    /// Fails the run unless leave() or fail() has ended it.
    ~transport() {
        if (!closed_) { fail("pulse: rank " + std::to_string(rank()) + " left the run before its end"); }
    }

    [[nodiscard]] int rank() const noexcept { return on_->rank(); }
    [[nodiscard]] int size() const noexcept { return on_->size(); }

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        post(direction::out, peer, message, parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        post(direction::in, peer, message, parts);
    }
    void wait_send(int peer, message_id message) { wait(direction::out, peer, message); }
    void wait_recv(int peer, message_id message) { wait(direction::in, peer, message); }
    [[nodiscard]] bool arrived(int peer, message_id message) {
        look();
        message_queue::transfer& t = messages_.find(direction::in, linked(peer), name_of(message));
        return messages_.test(t) || (notes_.heard(peer) && !coming(queue_of::messages, t));
    }

    void sum(std::span<double> values) {
        const message_name name = next(collective::sum);
        const std::size_t n = values.size();
        sums_.assign(values.begin(), values.end());
        const auto result = [&] { return std::as_writable_bytes(std::span{sums_}.first(n)); };
        if (rank() == 0) {
            sums_.resize(static_cast<std::size_t>(size()) * n);
            from_all(name, [&](std::size_t r) { return std::as_writable_bytes(std::span{sums_}.subspan(r * n, n)); });
            add_in_rank_order(n);
            to_all(name, result());
        } else {
            exchange(direction::out, 0, name, result());
            exchange(direction::in, 0, name, result());
        }
        std::copy_n(sums_.begin(), n, values.begin());
    }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        const message_name name = next(collective::gather);
        bytes_.assign(rank() == 0 ? static_cast<std::size_t>(size()) : 1, {});
        bytes_[0].assign(mine.begin(), mine.end());
        sizes_.assign(bytes_.size(), mine.size());
        const auto size_at = [&](std::size_t r) { return std::as_writable_bytes(std::span{sizes_}.subspan(r, 1)); };
        if (rank() != 0) {
            exchange(direction::out, 0, name, size_at(0));
            exchange(direction::out, 0, name, bytes_[0]);
            return {};
        }
        from_all(name, size_at);
        for (std::size_t r = 1; r != bytes_.size(); ++r) { bytes_[r].resize(sizes_[r]); }
        from_all(name, [&](std::size_t r) { return std::span{bytes_[r]}; });
        return std::exchange(bytes_, {});
    }
    void broadcast(std::vector<std::byte>& bytes) {
        const message_name name = next(collective::broadcast);
        bytes_.assign(1, {});
        sizes_.assign(1, bytes.size());
        const auto head = std::as_writable_bytes(std::span{sizes_});
        if (rank() == 0) {
            bytes_[0] = bytes;
            from_all(name, [](std::size_t) { return std::span<std::byte>{}; });
            to_all(name, head);
            to_all(name, bytes_[0]);
            return;
        }
        // Rank 0 hears from every rank which operation it is in; otherwise it could wait for a rank that waits for it.
        exchange(direction::out, 0, name, {});
        exchange(direction::in, 0, name, head);
        bytes_[0].resize(sizes_[0]);
        exchange(direction::in, 0, name, bytes_[0]);
        bytes.swap(bytes_[0]);
    }

    /// See the transport concept. Waits up to closing_s for the others to hear of it; an earlier failure's text stays.
    void fail(std::string_view what) noexcept {
        if (closed_) { return; }
        try {
            if (!failed_) { failed_ = what.empty() ? "a rank failed" : std::string{what}; }
        } catch (...) { failed_.emplace(); }
        close(how_.closing_s);
    }
    /// Ends this rank's part and waits until all ranks end theirs. Throws peer_failed when another has failed, error
    /// when one does not end within the timeout.
    void leave() {
        if (closed_ && in_order_ && !failed_) { return; }
        look();
        close(how_.timeout_s);
        if (failed_) { throw peer_failed{*failed_}; }
        if (!in_order_) {
            throw error{"pulse: rank " + std::to_string(rank()) + " waited " + std::to_string(how_.timeout_s) +
                        " s for the other ranks to end"};
        }
    }

    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        memory_.push_back(allocate_aligned(bytes));
        return memory_.back().get();
    }
    /// Traffic of the messages this rank has sent, without collectives.
    [[nodiscard]] traffic_count sent() const noexcept { return messages_.sent(); }

private:
    enum class collective : std::uint8_t { sum, gather, broadcast };

    [[nodiscard]] static options valid(options how) {
        how.require_valid();
        return how;
    }

    [[nodiscard]] static message_name name_of(message_id m) noexcept {
        return {static_cast<std::int32_t>(m.kind), m.index, static_cast<std::int32_t>(index_of(m.microbatch))};
    }
    [[nodiscard]] static std::string text_of_message(const message_name& n) {
        return to_text(message_id{static_cast<message_kind>(n.kind), n.index, microbatch_id{n.number}});
    }
    [[nodiscard]] static std::string text_of_collective(const message_name& n) {
        constexpr std::array<std::string_view, 3> names{"a sum", "a gather", "a broadcast"};
        const auto kind = static_cast<std::size_t>(n.kind);
        return std::string{kind < names.size() ? names[kind] : "an unknown operation"} + " (collective operation " +
               std::to_string(n.number) + ")";
    }

    /// Index of a queue's counts in a closing_note.
    enum class queue_of : std::uint8_t { messages, collectives };

    [[nodiscard]] static std::unique_ptr<communicator> opened(session& in, MPI_Comm over, const options& how) {
        try {
            return std::make_unique<communicator>(over, how.timeout_s);
        } catch (...) {
            in.transport_ended(false);
            throw;
        }
    }
    [[nodiscard]] int linked(int peer) const {
        if (peer < 0 || peer >= size()) {
            throw input_error{"pulse: there is no link from rank " + std::to_string(rank()) + " to rank " +
                              std::to_string(peer)};
        }
        return peer;
    }

    void post(direction way, int peer, message_id message, std::span<const message_part> parts) {
        look();
        message_queue::transfer& t = messages_.post(way, linked(peer), name_of(message), parts);
        if (how_.synchronous) { wait_until_over(messages_, queue_of::messages, t); }
    }
    void wait(direction way, int peer, message_id message) {
        look();
        message_queue::transfer& t = messages_.find(way, linked(peer), name_of(message));
        wait_until_over(messages_, queue_of::messages, t);
        messages_.close(t);
    }

    [[nodiscard]] message_name next(collective what) {
        look();
        return {static_cast<std::int32_t>(what), 0, static_cast<std::int32_t>(++collective_count_ & 0x7FFFFFFF)};
    }
    [[nodiscard]] message_queue::transfer& start(direction way, int peer, const message_name& name,
                                                 std::span<std::byte> bytes) {
        const message_part part{bytes.data(), bytes.size(), {}, false};
        return collectives_.post(way, peer, name, {&part, 1});
    }
    void finish(message_queue::transfer& t) {
        wait_until_over(collectives_, queue_of::collectives, t);
        collectives_.close(t);
    }
    void exchange(direction way, int peer, const message_name& name, std::span<std::byte> bytes) {
        finish(start(way, peer, name, bytes));
    }
    /// On rank 0: receives bytes_of(r) from every other rank r.
    template <class BytesOf>
    void from_all(const message_name& name, BytesOf bytes_of) {
        under_way_.clear();
        for (int r = 1; r != size(); ++r) {
            under_way_.push_back(&start(direction::in, r, name, bytes_of(static_cast<std::size_t>(r))));
        }
        for (message_queue::transfer* const t : under_way_) { finish(*t); }
    }
    /// On rank 0: sends the bytes to every other rank.
    void to_all(const message_name& name, std::span<std::byte> bytes) {
        under_way_.clear();
        for (int r = 1; r != size(); ++r) { under_way_.push_back(&start(direction::out, r, name, bytes)); }
        for (message_queue::transfer* const t : under_way_) { finish(*t); }
    }

    /// On rank 0: adds the n values of every rank into the first n of sums_.
    void add_in_rank_order(std::size_t n) {
        for (std::size_t i = 0; i != n; ++i) {
            double total = 0;
            for (std::size_t r = 0; r != static_cast<std::size_t>(size()); ++r) { total += sums_[r * n + i]; }
            sums_[i] = total;
        }
    }

    void wait_until_over(message_queue& on, queue_of which, message_queue::transfer& t) {
        patience left{how_.timeout_s};
        while (!on.test(t)) {
            look();
            if (notes_.heard(t.peer()) && !coming(which, t)) {
                throw error{"pulse: rank " + std::to_string(t.peer()) + " has returned, but another rank waits for " +
                            (which == queue_of::messages ? "a message to or from it" : "it in a collective operation")};
            }
            if (left.rest()) { continue; }
            const std::string what = on.text_of(t);
            const std::string peer = "rank " + std::to_string(t.peer());
            throw error{"pulse: rank " + std::to_string(rank()) + " waited " + std::to_string(how_.timeout_s) +
                        (t.way() == direction::in ? " s for " + what + " from " + peer
                                                  : " s for " + peer + " to take " + what)};
        }
    }
    /// Whether a peer that has closed had started its side of the transfer.
    [[nodiscard]] bool coming(queue_of which, const message_queue::transfer& t) const {
        const started_both& theirs = notes_.of(t.peer()).started[static_cast<std::size_t>(which)];
        return t.number() <= (t.way() == direction::in ? theirs.out : theirs.in).messages;
    }

    /// Drives all transfers. Throws peer_failed when the run has failed, error when this rank has left.
    void look() {
        if (!closed_ && notes_.listen()) { hear(); }
        if (!failed_ && how_.watch) { failed_ = how_.watch(); }
        if (failed_) { throw peer_failed{*failed_}; }
        if (closed_) { throw error{"pulse: rank " + std::to_string(rank()) + " has left its transport"}; }
        messages_.proceed();
        collectives_.proceed();
    }
    void hear() {
        for (int peer = 0; peer != size() && !failed_; ++peer) {
            if (notes_.heard(peer) && notes_.of(peer).failed != 0) { failed_ = notes_.of(peer).what(); }
        }
    }

    void close(double seconds) noexcept {
        closed_ = true;
        try {
            for (int peer = 0; peer != size(); ++peer) {
                if (peer == rank()) { continue; }
                notes_.send(peer, failed_.has_value(), failed_.value_or(std::string{}),
                            {messages_.started(peer), collectives_.started(peer)});
            }
            bool failed = failed_.has_value();
            std::optional<patience> found;
            for (patience left{seconds}; !(in_order_ = settled()) && left.rest();) {
                // The watch tells every rank what it found, and a dead rank never answers: a short wait is enough.
                if (how_.watch && how_.watch()) {
                    if (!found) { found.emplace(std::min(seconds, 0.5)); }
                    if (!found->rest()) { break; }
                }
                if (notes_.listen()) { hear(); }
                if (!failed && failed_) {
                    failed = true;
                    left = patience{how_.closing_s};
                }
            }
        } catch (...) { in_order_ = false; }
        session_.transport_ended(in_order_);
        if (in_order_) { return; }
        on_->give_up();
        try {
            session_.keep(std::move(memory_));
        } catch (...) { std::terminate(); }
    }
    /// Whether every rank has closed and no message is in flight.
    [[nodiscard]] bool settled() {
        bool all = notes_.left();
        for (int peer = 0; peer != size(); ++peer) {
            started_both messages = messages_.started(peer);
            started_both collectives = collectives_.started(peer);
            if (peer != rank()) {
                if (!notes_.heard(peer)) {
                    all = false;
                    continue;
                }
                messages = notes_.of(peer).started[0];
                collectives = notes_.of(peer).started[1];
            }
            all = messages_.settle(peer, messages) && all;
            all = collectives_.settle(peer, collectives) && all;
        }
        return all;
    }

    session& session_;
    options how_;
    std::unique_ptr<communicator> on_;
    closing_notes notes_;
    message_queue messages_;
    message_queue collectives_;
    std::int64_t collective_count_{};
    std::vector<message_queue::transfer*> under_way_{};
    // Buffers of collectives are members: an error may end a collective while its messages are in flight.
    std::vector<double> sums_{};
    std::vector<std::uint64_t> sizes_{};
    std::vector<std::vector<std::byte>> bytes_{};
    std::vector<aligned_bytes> memory_{};
    std::optional<std::string> failed_{}; ///< the first failure known to this rank
    bool closed_{};
    bool in_order_{};
};

static_assert(pulse::transport<transport>, "pulse: mpi::transport must be a transport");

} // namespace pulse::mpi
