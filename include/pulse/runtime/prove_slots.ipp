#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/verdict.hpp>
#include <pulse/runtime/prove_slots.hpp>
#include <pulse/runtime/transfer_slots.hpp>

namespace pulse {

namespace detail {

/// The order constraints of a step whose slots are NCCL groups, as a graph: a cycle is a hang.
///
/// Nodes are every rank's instructions, and the start and end of each round of its slots. An NCCL kernel runs a group
/// in rounds, one after the other: the k-th call to each peer and the k-th from it form round k (scheduleP2pTasksToPlan
/// in NCCL's enqueue.cc). A slot starts after the instruction before its last transfer and after the previous slot's
/// end. A round ends after its own start and after the start of every peer's round that holds the other side of one of
/// its calls: calls of one round do not wait for each other, but none completes before both sides have started
/// (rendezvous). An instruction follows the previous one, the end of the slots whose transfers it waits for, and the
/// end of every slot that has started before it.
///
/// The last rule is stricter than stream order. It covers a host that waits for the whole device (a kernel is loaded,
/// memory is freed, a graph is made), a device that runs one communicator at a time, and streams that share too few
/// hardware queues: whatever order the device imposes, it is the order in which the host issued the work. A step
/// without a cycle here has none under fewer constraints either.
class slot_graph {
public:
    explicit slot_graph(std::span<const rank_transfers> ranks) : ranks_{ranks} {
        for (const rank_transfers& r : ranks) {
            firsts_.push_back(nodes_);
            nodes_ += r.steps.size();
            std::vector<std::size_t>& of_slots = rounds_.emplace_back();
            for (const transfer_slot& slot : r.slots) {
                of_slots.push_back(nodes_);
                calls_in_round counted;
                for (const int t : slot.transfers) { counted.add(r.steps[static_cast<std::size_t>(t)]); }
                nodes_ += 2 * counted.rounds();
            }
            of_slots.push_back(nodes_);
        }
        after_.resize(nodes_);
        for (std::size_t r = 0; r != ranks.size(); ++r) { add_rank(r); }
        meet();
    }

    /// Returns what is wrong, or nothing.
    [[nodiscard]] verdict judge() const {
        if (!problem_.empty()) { return problem_; }
        const std::vector<std::pair<std::size_t, std::size_t>> open = stuck();
        if (open.empty()) { return {}; }
        std::string text = "deadlock: each of these slots waits for another:";
        for (const auto& [r, s] : open) { text += " " + name(r, s) + ";"; }
        return text;
    }
    /// Slots that start and never end, or else those that never start, by rank and number. If there are none, all
    /// instructions end too, because they wait only for slots.
    [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> stuck() const {
        std::vector<int> left(nodes_, 0);
        for (const auto& followers : after_) {
            for (const std::size_t n : followers) { ++left[n]; }
        }
        std::vector<std::size_t> ready;
        for (std::size_t n = 0; n != nodes_; ++n) {
            if (left[n] == 0) { ready.push_back(n); }
        }
        while (!ready.empty()) {
            const std::size_t n = ready.back();
            ready.pop_back();
            for (const std::size_t f : after_[n]) {
                if (--left[f] == 0) { ready.push_back(f); }
            }
        }
        std::vector<std::pair<std::size_t, std::size_t>> open;
        std::vector<std::pair<std::size_t, std::size_t>> unreached;
        for (std::size_t r = 0; r != ranks_.size(); ++r) {
            for (std::size_t s = 0; s != ranks_[r].slots.size(); ++s) {
                if (left[end(r, s)] == 0) { continue; }
                (left[start(r, s)] == 0 ? open : unreached).emplace_back(r, s);
            }
        }
        // If none has started, the cycle is among slots that never start.
        if (open.empty()) { return unreached; }
        return open;
    }

private:
    /// One side of a call: the node at which its round starts; the round's end is the next node.
    struct side {
        std::size_t round{};
        message_id message{};
    };
    /// Counts a slot's calls to and from each peer.
    class calls_in_round {
    public:
        /// Returns the first round of a transfer's calls, each of which takes one round.
        std::size_t add(const transfer_step& one) {
            std::size_t& calls = calls_[{one.what == transfer_step::role::send, one.peer}];
            const std::size_t first = calls;
            calls += static_cast<std::size_t>(one.parts);
            rounds_ = std::max(rounds_, calls);
            return first;
        }
        [[nodiscard]] std::size_t rounds() const noexcept { return rounds_; }

    private:
        std::map<std::pair<bool, int>, std::size_t> calls_{};
        std::size_t rounds_{1};
    };

    [[nodiscard]] std::size_t step(std::size_t rank, std::size_t i) const { return firsts_[rank] + i; }
    [[nodiscard]] std::size_t start(std::size_t rank, std::size_t slot) const { return rounds_[rank][slot]; }
    [[nodiscard]] std::size_t end(std::size_t rank, std::size_t slot) const { return rounds_[rank][slot + 1] - 1; }
    [[nodiscard]] std::string name(std::size_t rank, std::size_t slot) const {
        std::string text = "rank " + std::to_string(rank) + " slot " + std::to_string(slot) + " (";
        for (const int t : ranks_[rank].slots[slot].transfers) {
            const transfer_step& one = ranks_[rank].steps[static_cast<std::size_t>(t)];
            text += (one.what == transfer_step::role::send ? "send " : "recv ") + to_text(one.message) + ", ";
        }
        text.resize(text.size() - 2);
        return text + ")";
    }
    void follow(std::size_t later, std::size_t earlier) { after_[earlier].push_back(later); }

    void add_rank(std::size_t rank) {
        const rank_transfers& mine = ranks_[rank];
        std::vector<std::size_t> slot_of(mine.steps.size(), mine.slots.size());
        for (std::size_t s = 0; s != mine.slots.size(); ++s) {
            const transfer_slot& slot = mine.slots[s];
            for (std::size_t n = start(rank, s); n != end(rank, s); ++n) { follow(n + 1, n); }
            const auto last = static_cast<std::size_t>(slot.transfers.back());
            if (last != 0) { follow(start(rank, s), step(rank, last - 1)); }
            if (last + 1 != mine.steps.size()) { follow(step(rank, last + 1), end(rank, s)); }
            if (s != 0) { follow(start(rank, s), end(rank, s - 1)); }
            calls_in_round calls;
            for (const int t : slot.transfers) {
                const auto at = static_cast<std::size_t>(t);
                slot_of[at] = s;
                const transfer_step& one = mine.steps[at];
                const bool sends = one.what == transfer_step::role::send;
                const int from = sends ? static_cast<int>(rank) : one.peer;
                const int to = sends ? one.peer : static_cast<int>(rank);
                std::vector<side>& sides = (sends ? sent_ : received_)[{slot.way, from, to}];
                const std::size_t first = start(rank, s) + 2 * calls.add(one);
                for (int part = 0; part != one.parts; ++part) {
                    sides.push_back({first + 2 * static_cast<std::size_t>(part), one.message});
                }
            }
        }
        for (std::size_t i = 0; i != mine.steps.size(); ++i) {
            if (i != 0) { follow(step(rank, i), step(rank, i - 1)); }
            for (const int w : mine.steps[i].waits) {
                const std::size_t s = slot_of[static_cast<std::size_t>(w)];
                if (s == mine.slots.size()) {
                    problem_ =
                        "rank " + std::to_string(rank) + ", instruction " + std::to_string(w) + " is not in any slot";
                    return;
                }
                follow(step(rank, i), end(rank, s));
            }
        }
    }

    /// NCCL messages from one rank to another have no names: those of one way are received in the order in which they
    /// are sent.
    void meet() {
        for (const auto& [pair, out] : sent_) {
            const auto& [way, from, to] = pair;
            const std::vector<side>& in = received_[pair];
            if (out.size() != in.size()) { return disagree(from, to); }
            for (std::size_t i = 0; i != out.size(); ++i) {
                if (out[i].message != in[i].message) { return disagree(from, to); }
                follow(out[i].round + 1, in[i].round);
                follow(in[i].round + 1, out[i].round);
            }
        }
        for (const auto& [pair, in] : received_) {
            if (!in.empty() && sent_[pair].empty()) { return disagree(std::get<1>(pair), std::get<2>(pair)); }
        }
    }
    void disagree(int from, int to) {
        problem_ = "rank " + std::to_string(from) + " does not send the messages that rank " + std::to_string(to) +
                   " receives from it, in the same order";
    }

    std::span<const rank_transfers> ranks_;
    std::vector<std::size_t> firsts_{};
    std::vector<std::vector<std::size_t>>
        rounds_{}; ///< per rank: the first node of each slot, then one past its last node
    std::size_t nodes_{};
    std::vector<std::vector<std::size_t>> after_{};
    std::map<std::tuple<transfer_way, int, int>, std::vector<side>> sent_{};
    std::map<std::tuple<transfer_way, int, int>, std::vector<side>> received_{};
    std::string problem_{};
};

} // namespace detail

PULSE_INLINE verdict prove_slots(std::span<const rank_transfers> ranks) { return detail::slot_graph{ranks}.judge(); }

namespace detail {

/// Splits the slots of several transfers that never end into slots of one; returns whether there were any.
[[nodiscard]] inline bool cut_stuck_slots(std::vector<rank_transfers>& ranks) {
    bool cut = false;
    const auto open = slot_graph{ranks}.stuck();
    for (auto at = open.rbegin(); at != open.rend(); ++at) {
        std::vector<transfer_slot>& slots = ranks[at->first].slots;
        const auto whole = slots.begin() + static_cast<std::ptrdiff_t>(at->second);
        if (whole->transfers.size() == 1) { continue; }
        std::vector<transfer_slot> parts;
        for (const int t : whole->transfers) { parts.push_back({whole->way, {t}}); }
        slots.insert(slots.erase(whole), parts.begin(), parts.end());
        cut = true;
    }
    if (!cut) { return false; }
    for (rank_transfers& r : ranks) { order_slots(r.slots); }
    return true;
}

} // namespace detail

PULSE_INLINE std::vector<rank_transfers> transfers_of(const step_model& model, const std::vector<program>& programs) {
    std::vector<rank_transfers> ranks;
    for (const program& p : programs) {
        ranks.push_back({detail::transfer_steps(model, p), {}});
        ranks.back().slots = slots_of(ranks.back().steps);
    }
    while (detail::cut_stuck_slots(ranks)) {}
    if (prove_slots(ranks)) {
        for (rank_transfers& r : ranks) { r.slots = slots_of(r.steps, 1); }
    }
    return ranks;
}

} // namespace pulse
