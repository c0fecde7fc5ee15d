#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/verdict.hpp>

namespace pulse::detail {

/// "rank 1, instruction 7 (send ...)".
[[nodiscard]] inline std::string instruction_place(const program& of_rank, std::size_t at) {
    return "rank " + std::to_string(of_rank.device) + ", instruction " + std::to_string(at) + " (" +
           to_text(of_rank.instructions[at]) + ")";
}

/// Simulates ranks whose sends and receives block until the other side has reached its own.
///
/// The result does not depend on the speeds of the ranks. A rank has one instruction to do at a time; if it is neither
/// send nor recv, it can always be done. A send and a recv that match stay enabled until they are done, since neither
/// rank can do anything else. So no step ever disables another, all maximal runs do the same steps (the diamond lemma),
/// and one run that ends proves that all end.
///
/// This covers plans with several replicas: take a run of one replica that ends, and let all replicas do each of its
/// steps together. At an all_reduce the replicas of a rank are at the same place; if all post its messages there, in
/// the order of for_each_round, these are transferred in that order. This run of all ranks ends, so all do.
class rendezvous_machine {
public:
    constexpr explicit rendezvous_machine(const std::vector<program>& programs) :
        programs_(programs), at_(programs.size(), 0) {}

    /// The first deadlock in words, or none when every rank reaches its end.
    [[nodiscard]] constexpr verdict run() {
        std::vector<std::size_t> awake(programs_.size(), 0);
        for (std::size_t r = 0; r != awake.size(); ++r) { awake[r] = r; }
        while (!awake.empty()) {
            const std::size_t rank = awake.back();
            awake.pop_back();
            while (!ended(rank)) {
                const std::optional<std::size_t> peer = peer_of(rank);
                if (!peer) {
                    ++at_[rank];
                } else if (stand_opposite(rank, *peer)) {
                    ++at_[rank];
                    ++at_[*peer];
                    awake.push_back(*peer);
                } else {
                    break;
                }
            }
        }
        for (std::size_t r = 0; r != programs_.size(); ++r) {
            if (!ended(r)) { return explain(r); }
        }
        return {};
    }

private:
    const std::vector<program>& programs_;
    std::vector<std::size_t> at_;

    [[nodiscard]] constexpr bool ended(std::size_t rank) const {
        return at_[rank] == programs_[rank].instructions.size();
    }
    [[nodiscard]] constexpr const instruction& now(std::size_t rank) const {
        return programs_[rank].instructions[at_[rank]];
    }
    [[nodiscard]] constexpr std::optional<std::size_t> peer_of(std::size_t rank) const {
        if (const auto* s = std::get_if<op::send>(&now(rank))) { return static_cast<std::size_t>(index_of(s->peer)); }
        if (const auto* v = std::get_if<op::recv>(&now(rank))) { return static_cast<std::size_t>(index_of(v->peer)); }
        return std::nullopt;
    }
    [[nodiscard]] constexpr bool stand_opposite(std::size_t a, std::size_t b) const {
        if (ended(b) || peer_of(b) != a) { return false; }
        const auto* sent = std::get_if<op::send>(&now(a));
        const auto* received = std::get_if<op::recv>(&now(sent != nullptr ? b : a));
        if (sent == nullptr) { sent = std::get_if<op::send>(&now(b)); }
        return sent != nullptr && received != nullptr && sent->message == received->message;
    }
    /// Follows the waits from a stuck rank until a rank repeats or has ended.
    [[nodiscard]] std::string explain(std::size_t rank) const {
        std::vector<std::size_t> met{};
        std::string text = instruction_place(programs_[rank], at_[rank]);
        while (std::find(met.begin(), met.end(), rank) == met.end()) {
            met.push_back(rank);
            rank = *peer_of(rank);
            if (ended(rank)) { return text + " waits for rank " + std::to_string(rank) + ", which has ended"; }
            text += " waits for " + instruction_place(programs_[rank], at_[rank]);
        }
        return text + ": no rank can continue";
    }
};

[[nodiscard]] constexpr verdict first_deadlock(const std::vector<program>& programs) {
    return rendezvous_machine{programs}.run();
}

} // namespace pulse::detail
