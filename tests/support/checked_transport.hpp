#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::test {

/// Returns 64 bits that depend on every byte: detects accidental changes in memory or on a link, not attacks.
[[nodiscard]] inline std::uint64_t checksum_of(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept {
    constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
    std::uint64_t sum = seed ^ (bytes.size() * odd);
    const auto mix = [&](std::uint64_t word) {
        // multiplying by an odd number loses no bits; the rotation moves the high bits down to where the next word
        // starts
        sum = std::rotl((sum ^ word) * odd, 29);
    };
    std::size_t at = 0;
    for (std::uint64_t word = 0; at + sizeof word <= bytes.size(); at += sizeof word) {
        std::memcpy(&word, bytes.data() + at, sizeof word);
        mix(word);
    }
    if (at != bytes.size()) {
        std::uint64_t rest = 0;
        std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
        mix(rest);
    }
    return sum;
}

/// A transport of host memory that verifies every message: a trailing part carries the sender, the message's identity,
/// its sequence number between the two ranks and a checksum of its bytes, and wait_recv compares them.
///
/// For clusters whose links or memory are not trusted, and for tracking down faults. Each side reads every byte once
/// more. Either all ranks use it, or none.
template <transport T>
class checked_transport {
public:
    explicit checked_transport(T& under) :
        under_{under}, sent_to_(static_cast<std::size_t>(under.size())),
        received_from_(static_cast<std::size_t>(under.size())) {}
    checked_transport(const checked_transport&) = delete;
    checked_transport& operator=(const checked_transport&) = delete;

    [[nodiscard]] int rank() const { return under_.rank(); }
    [[nodiscard]] int size() const { return under_.size(); }

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        in_flight& mine = open(peer, message, parts, true);
        mine.seal = proof_of(mine, under_.rank());
        under_.post_send(peer, message, mine.parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        in_flight& mine = open(peer, message, parts, false);
        mine.seal = {};
        under_.post_recv(peer, message, mine.parts);
    }
    void wait_send(int peer, message_id message) {
        under_.wait_send(peer, message);
        close(find(peer, message, true));
    }
    /// Throws error naming the message and what is wrong with it.
    void wait_recv(int peer, message_id message) {
        under_.wait_recv(peer, message);
        in_flight& mine = find(peer, message, false);
        const auto* const came = reinterpret_cast<const proof*>(mine.parts.back().data);
        const proof expected = proof_of(mine, peer);
        const std::string fault = difference(*came, expected);
        close(mine);
        if (!fault.empty()) {
            throw error{"pulse: message " + to_text(message) + " from rank " + std::to_string(peer) + " " + fault};
        }
    }
    [[nodiscard]] bool arrived(int peer, message_id message) { return under_.arrived(peer, message); }
    void sum(std::span<double> values) { under_.sum(values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        return under_.gather(mine);
    }
    void broadcast(std::vector<std::byte>& bytes) { under_.broadcast(bytes); }
    void fail(std::string_view what) noexcept { under_.fail(what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) { return under_.allocate(bytes); }
    /// Excludes the proofs that were added to the messages.
    [[nodiscard]] traffic_count sent() {
        traffic_count all = under_.sent();
        all.boundary -= all.messages * static_cast<std::int64_t>(sizeof(proof));
        return all;
    }

private:
    struct proof {
        std::int32_t from{};
        std::int32_t kind{};
        std::int32_t index{};
        std::int32_t microbatch{};
        std::uint64_t number{};
        std::uint64_t checksum{};
    };
    struct in_flight {
        int peer{};
        message_id message{};
        bool outgoing{};
        bool open{};
        std::uint64_t number{};
        std::span<message_part> callers{};
        std::vector<message_part> parts{}; ///< the caller's, then the proof
        proof seal{};
    };

    in_flight& open(int peer, message_id message, std::span<message_part> parts, bool outgoing) {
        in_flight* mine = nullptr;
        for (in_flight& each : in_flight_) {
            if (!each.open) { mine = &each; }
        }
        if (mine == nullptr) { mine = &in_flight_.emplace_back(); }
        std::uint64_t& number = (outgoing ? sent_to_ : received_from_).at(static_cast<std::size_t>(peer));
        mine->peer = peer;
        mine->message = message;
        mine->outgoing = outgoing;
        mine->open = true;
        mine->number = number++;
        mine->callers = parts;
        mine->parts.assign(parts.begin(), parts.end());
        mine->parts.push_back(
            {reinterpret_cast<std::byte*>(&mine->seal), sizeof(proof), traffic_kind::boundary, false});
        return *mine;
    }
    /// Finds the oldest matching transfer in flight.
    in_flight& find(int peer, message_id message, bool outgoing) {
        in_flight* oldest = nullptr;
        for (in_flight& each : in_flight_) {
            const bool fits = each.open && each.peer == peer && each.message == message && each.outgoing == outgoing;
            if (fits && (oldest == nullptr || each.number < oldest->number)) { oldest = &each; }
        }
        if (oldest == nullptr) {
            throw error{"pulse: a wait for message " + to_text(message) + " that was not posted"};
        }
        return *oldest;
    }
    /// Returns the caller's parts as the transfer left them.
    static void close(in_flight& done) {
        std::copy(done.parts.begin(), done.parts.end() - 1, done.callers.begin());
        done.open = false;
    }
    [[nodiscard]] static proof proof_of(const in_flight& of, int from) {
        proof made{from,
                   static_cast<std::int32_t>(of.message.kind),
                   of.message.index,
                   index_of(of.message.microbatch),
                   of.number,
                   0};
        for (const message_part& part : std::span{of.parts}.first(of.parts.size() - 1)) {
            made.checksum = checksum_of({part.data, part.bytes}, made.checksum);
        }
        return made;
    }
    [[nodiscard]] static std::string difference(const proof& came, const proof& expected) {
        if (came.from != expected.from) { return "says that it is from rank " + std::to_string(came.from); }
        if (came.kind != expected.kind || came.index != expected.index || came.microbatch != expected.microbatch) {
            return "is another message: the two ranks disagree about their order";
        }
        if (came.number != expected.number) {
            return "is number " + std::to_string(came.number) + " between the two ranks, not " +
                   std::to_string(expected.number) + ": one was lost or came twice";
        }
        return came.checksum == expected.checksum ? "" : "is damaged: its checksum does not match";
    }

    T& under_;
    std::deque<in_flight> in_flight_{}; ///< a deque, because a transfer in flight must not move
    std::vector<std::uint64_t> sent_to_;
    std::vector<std::uint64_t> received_from_;
};

} // namespace pulse::test
