#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/simulation.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse::detail {

/// The messages between all ranks (posted by one or both sides, waiting for links, in flight) and the exchanges of each
/// rank's ring of replicas.
class transfer_queue {
public:
    constexpr transfer_queue(const step_model& model, std::size_t ranks, int replicas,
                             const simulation_options& options) :
        model_(&model),
        options_(&options), ranks_(ranks), replicas_(replicas), wires_(ranks * ranks), rings_(ranks) {
        if (!options.links.empty() && options.links.size() != wires_.size()) {
            throw input_error("pulse: simulate: links must have one entry for each pair of ranks");
        }
        if (!options.routes.empty() && options.routes.size() != wires_.size()) {
            throw input_error("pulse: simulate: routes must have one entry for each pair of ranks");
        }
        if (!options.replica_routes.empty() && options.replica_routes.size() != ranks) {
            throw input_error("pulse: simulate: replica_routes must have one entry for each rank");
        }
        if (replicas < 1) { throw input_error("pulse: simulate: data_degree must be at least 1"); }
        if (!options.replica_rounds.empty() && options.replica_rounds.size() != ranks) {
            throw input_error("pulse: simulate: replica_rounds must have one entry for each rank");
        }
        for (const std::vector<replica_round>& of_rank : options.replica_rounds) {
            int shares = 1;
            for (const replica_round& round : of_rank) { shares += round.shares; }
            if (shares != replicas) {
                throw input_error(
                    "pulse: simulate: the shares in replica_rounds must add up to replicas - 1 for each rank");
            }
        }
        const int most =
            std::max(last_link(options.routes, "routes"), last_link(options.replica_routes, "replica_routes"));
        free_us_.resize(static_cast<std::size_t>(most + 1), 0.0);
    }

    [[nodiscard]] constexpr std::size_t wire_of(std::size_t from, std::size_t to) const noexcept {
        return from * ranks_ + to;
    }
    /// Posts one side of a message; returns its position among that side's messages, which pairs the two sides.
    constexpr std::size_t post(std::size_t at, const message_id& message, bool sends, double time_us) {
        wire& w = wires_[at];
        std::vector<posting>& side = sends ? w.sent : w.received;
        side.push_back({message, time_us});
        const std::size_t number = side.size() - 1;
        if (number < w.sent.size() && number < w.received.size()) {
            if (w.sent[number].message != w.received[number].message) {
                refuse_pair(w.sent[number].message, w.received[number].message);
            }
            if (number == w.transfers.size()) { waiting_.push_back(at); }
        }
        return number;
    }
    [[nodiscard]] constexpr bool started(std::size_t at, std::size_t number) const noexcept {
        return number < wires_[at].transfers.size();
    }
    [[nodiscard]] constexpr const simulated_transfer& transfer(std::size_t at, std::size_t number) const noexcept {
        return wires_[at].transfers[number];
    }
    [[nodiscard]] constexpr bool idle() const noexcept { return waiting_.empty(); }

    /// Posts an exchange between the rank's replicas: shares of `share_bytes` bytes move to their owners (`there`),
    /// back from them (`back`), or both.
    constexpr void post_exchange(std::size_t rank, std::int64_t share_bytes, bool there, bool back, double time_us) {
        if (replicas_ < 2 || share_bytes == 0) { return; }
        ring& r = rings_[rank];
        const int rounds = options_->round_count(rank, replicas_);
        const int ways = (there ? 1 : 0) + (back ? 1 : 0);
        exchange posted{time_us, ways * rounds, there ? rounds : 0, 0.0, share_bytes};
        if (!options_->shares_links(rank)) {
            // No other message competes for the links, so one piece stands for all rounds.
            posted.whole_us = ways * exchange_us(*options_, rank, share_bytes, replicas_);
            posted.pieces = 1;
        }
        r.posted.push_back(posted);
        if (r.next + 1 == r.posted.size()) { waiting_.push_back(wires_.size() + rank); }
    }
    /// Whether all exchanges posted for the rank have started; reduced_us is then the time when they end.
    [[nodiscard]] constexpr bool reduced(std::size_t rank) const noexcept {
        return rings_[rank].next == rings_[rank].posted.size();
    }
    [[nodiscard]] constexpr double reduced_us(std::size_t rank) const noexcept { return rings_[rank].arrived_us; }

    /// Starts the message that can start first; ties go to the one that was ready first, then to the lower sender, then
    /// to the lower receiver, and rings come last. Returns sender and receiver.
    constexpr std::pair<std::size_t, std::size_t> start_next() {
        std::size_t best = 0;
        for (std::size_t i = 1; i < waiting_.size(); ++i) {
            const times a = times_of(waiting_[i]);
            const times b = times_of(waiting_[best]);
            const bool sooner = a.start_us != b.start_us   ? a.start_us < b.start_us
                                : a.ready_us != b.ready_us ? a.ready_us < b.ready_us
                                                           : waiting_[i] < waiting_[best];
            if (sooner) { best = i; }
        }
        const std::size_t at = waiting_[best];
        const double start_us = times_of(at).start_us;
        const bool is_ring = at >= wires_.size();
        const bool was_last = is_ring ? start_piece(at - wires_.size(), start_us) : start(at, start_us);
        if (was_last) { waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(best)); }
        if (is_ring) { return {at - wires_.size(), at - wires_.size()}; }
        return {at / ranks_, at % ranks_};
    }

    /// Appends all messages by sender, then receiver, then time.
    constexpr void report(simulation& made) const {
        for (const wire& w : wires_) {
            for (const simulated_transfer& t : w.transfers) {
                made.boundary_bytes += t.boundary_bytes;
                made.skip_bytes += t.skip_bytes;
                made.transfers.push_back(t);
            }
        }
    }

private:
    struct posting {
        message_id message{};
        double time_us{};
    };
    /// One direction between two ranks: what each side has posted, in order, and what has started.
    struct wire {
        std::vector<posting> sent{};
        std::vector<posting> received{};
        std::vector<simulated_transfer> transfers{};
    };
    /// An exchange between replicas: rounds, each of which starts when the previous one has arrived.
    struct exchange {
        double time_us{};
        int pieces{};      ///< rounds, or 1 where the rank shares no link
        int there{};       ///< rounds that go to the owners
        double whole_us{}; ///< duration of all rounds where the rank shares no link
        std::int64_t share_bytes{};
    };
    struct ring {
        std::vector<exchange> posted{};
        std::size_t next{}; ///< first exchange whose pieces have not all started
        int pieces{};       ///< pieces of it that have started
        double arrived_us{};
    };
    struct times {
        double ready_us{};
        double start_us{};
    };

    const step_model* model_;
    const simulation_options* options_;
    std::size_t ranks_;
    int replicas_;
    std::vector<wire> wires_;
    std::vector<ring> rings_;
    std::vector<double> free_us_{};      // when each shared link is free
    std::vector<std::size_t> waiting_{}; // wires with a message posted on both sides; from wires_.size() on, rings

    [[noreturn]] static void refuse_pair(const message_id& sent, const message_id& received) {
        throw input_error("pulse: simulate: " + to_text(sent) + " is sent, but the receiver expects " +
                          to_text(received));
    }
    [[nodiscard]] constexpr link_route route_of(std::size_t at) const {
        return options_->routes.empty() ? link_route{} : options_->routes[at];
    }
    [[nodiscard]] constexpr replica_round round_of(std::size_t rank, const exchange& of, int piece) const noexcept {
        return piece < of.there ? options_->round(rank, piece + 1) : options_->round_back(rank, piece - of.there + 1);
    }
    [[nodiscard]] static constexpr int last_link(const std::vector<link_route>& routes, const char* name) {
        int most = -1;
        for (const link_route& r : routes) {
            if (r.first < -1 || r.second < -1) {
                throw input_error("pulse: simulate: " + std::string{name} + " must not name a link below -1");
            }
            most = std::max({most, r.first, r.second});
        }
        return most;
    }
    [[nodiscard]] constexpr times times_of(std::size_t at) const {
        times made{};
        link_route route{};
        if (at >= wires_.size()) {
            const ring& r = rings_[at - wires_.size()];
            const std::size_t rank = at - wires_.size();
            if (round_of(rank, r.posted[r.next], r.pieces).shared) { route = options_->replica_route(rank); }
            made.ready_us = std::max(r.posted[r.next].time_us, r.arrived_us);
        } else {
            const wire& w = wires_[at];
            const std::size_t next = w.transfers.size();
            route = route_of(at);
            made.ready_us = std::max(w.sent[next].time_us, w.received[next].time_us);
            if (next > 0) { made.ready_us = std::max(made.ready_us, w.transfers[next - 1].left_us); }
        }
        made.start_us = made.ready_us;
        for_each_link(route, [&](std::size_t shared) { made.start_us = std::max(made.start_us, free_us_[shared]); });
        return made;
    }
    /// Starts the next piece of the ring; returns whether nothing is left to start.
    constexpr bool start_piece(std::size_t rank, double start_us) {
        ring& r = rings_[rank];
        const exchange& now = r.posted[r.next];
        if (options_->shares_links(rank)) {
            const replica_round round = round_of(rank, now, r.pieces);
            r.arrived_us = start_us + round.message_us(now.share_bytes);
            const double left_us = std::max(start_us, r.arrived_us - round.line.latency_us);
            if (round.shared) {
                for_each_link(options_->replica_route(rank), [&](std::size_t shared) { free_us_[shared] = left_us; });
            }
        } else {
            r.arrived_us = start_us + now.whole_us;
        }
        if (++r.pieces == now.pieces) {
            r.pieces = 0;
            ++r.next;
        }
        return r.next == r.posted.size();
    }
    /// Starts the wire's next message; returns whether no other is posted on both sides.
    constexpr bool start(std::size_t at, double start_us) {
        wire& w = wires_[at];
        simulated_transfer t{};
        t.message = w.sent[w.transfers.size()].message;
        t.from = static_cast<int>(at / ranks_);
        t.to = static_cast<int>(at % ranks_);
        const std::vector<buffer_id> parts = model_->parts(t.message, t.to);
        for (std::size_t i = 0; i != parts.size(); ++i) {
            (model_->is_skip_part(t.message, i) ? t.skip_bytes : t.boundary_bytes) += model_->bytes(parts[i]);
        }
        const link& line = options_->links.empty() ? options_->between_ranks : options_->links[at];
        t.start_us = start_us;
        t.arrived_us = t.start_us + line.transfer_us(t.boundary_bytes + t.skip_bytes);
        // The next message may start while this one is still in flight.
        t.left_us = std::max(t.start_us, t.arrived_us - line.latency_us);
        for_each_link(route_of(at), [&](std::size_t shared) { free_us_[shared] = t.left_us; });
        w.transfers.push_back(t);
        return w.transfers.size() == std::min(w.sent.size(), w.received.size());
    }
};

} // namespace pulse::detail
