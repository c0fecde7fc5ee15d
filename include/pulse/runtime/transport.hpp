#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>

namespace pulse {

/// The kind of a transferred tensor, for counting.
enum class traffic_kind : std::uint8_t {
    boundary,
    skip,
    gradient, ///< what replicas exchange for an update: gradients, their sums, new weights
};

/// Bytes that left a rank for another, by kind, as the transport delivered them.
struct traffic_count {
    std::int64_t boundary{};
    std::int64_t skip{};
    std::int64_t gradient{};
    std::int64_t messages{};
    /// Bytes, among all of these, whose buffer changed hands instead of being copied.
    std::int64_t handed_over{};

    /// The bytes of a kind.
    [[nodiscard]] constexpr std::int64_t& of(traffic_kind kind) noexcept {
        return kind == traffic_kind::boundary ? boundary : kind == traffic_kind::skip ? skip : gradient;
    }
    constexpr traffic_count& operator+=(const traffic_count& o) noexcept {
        boundary += o.boundary;
        skip += o.skip;
        gradient += o.gradient;
        messages += o.messages;
        handed_over += o.handed_over;
        return *this;
    }
};

/// One tensor of a message, on either side.
struct message_part {
    /// Before the transfer: the data to send, or memory to receive into. After it: the memory that this side now owns,
    /// which differs if the transport exchanged the two buffers instead of copying.
    std::byte* data{};
    std::size_t bytes{};
    traffic_kind kind{};
    /// Sender: it will not read the tensor again, so the receiver may take the buffer and give its own in exchange.
    bool may_exchange{};
};

/// A message that a rank sends to another or receives from it.
struct message_post {
    bool sends{};
    int peer{};
    message_id message{};
    std::span<message_part> parts{};
};

/// Most message parts, to and from several ranks, to post together: NCCL runs that many as one kernel.
inline constexpr std::size_t most_parts_together = 128;

/// Another rank has failed; the text is its error.
struct peer_failed : error {
    using error::error;
};

/// How ranks pass messages. T satisfies transport if, for messages posted in the same order on both sides of a pair:
/// 1. post_send and post_recv start a transfer and return; the span stays valid until the matching wait has returned;
/// 2. wait_send and wait_recv return when the transfer is complete; they throw if a rank has failed;
/// 3. arrived returns whether wait_recv of a posted message would return or throw without waiting. It never waits, lets
///    posted messages progress where that needs the host, and throws as wait_recv does if a rank has failed. Where a
///    post returns only after its transfer, or a wait makes a stream wait but never the host, it is true once the
///    message is posted;
/// 4. sum(values) replaces every element by its sum over ranks, the same bits on every rank; an empty sum is a barrier;
/// 5. gather(mine) returns, on rank 0, the bytes of every rank in rank order, and nothing on the others;
///    broadcast(bytes) replaces the bytes of every rank by those of rank 0; sizes may differ from rank to rank;
/// 6. sum, gather and broadcast are collective: all ranks call the same ones in the same order, and throw if they
///    notice that they did not;
/// 7. fail(what) makes every present and future post, wait and collective of every rank throw, and they report the
///    first `what`; it does not throw itself. Once it has returned, no other rank touches what this rank posted: a rank
///    must call it, whoever failed first, before it frees parts that it has not waited for;
/// 8. allocate(bytes) returns 64-byte aligned memory for message tensors, which outlives every rank that may own it.
template <class T>
concept transport = requires(T& t, int peer, message_id message, std::span<message_part> parts,
                             std::span<double> values, std::span<const std::byte> mine, std::vector<std::byte>& all,
                             std::string_view what, std::size_t bytes) {
    { t.rank() } -> std::convertible_to<int>;
    { t.size() } -> std::convertible_to<int>;
    t.post_send(peer, message, parts);
    t.post_recv(peer, message, parts);
    t.wait_send(peer, message);
    t.wait_recv(peer, message);
    { t.arrived(peer, message) } -> std::same_as<bool>;
    t.sum(values);
    { t.gather(mine) } -> std::same_as<std::vector<std::vector<std::byte>>>;
    t.broadcast(all);
    t.fail(what);
    { t.allocate(bytes) } -> std::same_as<std::byte*>;
    { t.sent() } -> std::convertible_to<traffic_count>;
};

} // namespace pulse
