#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>
#include <pulse/launch/watch_links.hpp>

namespace pulse::launch {

struct control_plane_options {
    /// How long a rank waits for the others in a collective.
    deadline::duration timeout{std::chrono::seconds{120}};
    /// Optional. Polled during waits: a failed rank ends the wait. Must outlive the control plane.
    const watch* seen{};
};

/// Collectives of small host values over one connection from each rank to rank 0: sums of doubles, gathers and
/// broadcasts of bytes. Sums have the same bits on every rank: rank 0 adds in rank order.
///
/// Use from one thread of a rank at a time. All ranks call the same collectives in the same order; a mismatch is an
/// error. After an error every later collective of this rank throws it again, and its connections are closed.
class control_plane {
public:
    /// Collective, after the rendezvous. Throws launch_error on every rank, naming the missing ranks, when one does not
    /// connect within the timeout.
    control_plane(tcp_store& store, const rank_identity& who, const rank_table& table,
                  const control_plane_options& options = {}) :
        links_{detail::link_with_rank_0(store, who, table, "control plane", 0, options.timeout)},
        who_{who}, options_{options} {}
    control_plane(const control_plane&) = delete;
    control_plane& operator=(const control_plane&) = delete;

    [[nodiscard]] int rank() const noexcept { return who_.rank; }
    [[nodiscard]] int size() const noexcept { return who_.world_size; }

    /// Replaces every element by its sum over ranks; a sum of no elements is a barrier. Throws launch_error when a rank
    /// is lost, does not call within the timeout, or calls another collective.
    void sum(std::span<double> values);

    /// Returns the bytes of every rank in rank order on rank 0, nothing elsewhere. Throws as sum does.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine);

    /// Replaces `bytes` by those of rank 0 on every rank. Throws as sum does.
    void broadcast(std::vector<std::byte>& bytes);

    /// Closes the connections, so ranks that wait for this one get an error, as does every later call here.
    void fail(std::string_view what) noexcept {
        try {
            if (!broken_) { broken_.emplace(what); }
        } catch (...) { broken_.emplace(); }
        links_.clear();
    }

private:
    enum class word : std::uint64_t { sum, gather, broadcast };
    static constexpr std::size_t head_bytes = 24;
    static constexpr std::size_t piece_bytes = std::size_t{8} << 20;
    static_assert(piece_bytes + head_bytes + 8 <= detail::frame_stream::most_bytes);

    /// Starts a frame that identifies the collective by its kind, its sequence number and the number of values.
    [[nodiscard]] detail::frame_writer begin(word what, std::size_t count) {
        check();
        detail::frame_writer made;
        made.number(static_cast<std::uint64_t>(what)).number(++calls_).number(count);
        return made;
    }
    [[nodiscard]] static std::string with_values(detail::frame_writer head, std::span<const double> values) {
        for (const double v : values) { head.number(std::bit_cast<std::uint64_t>(v)); }
        return head.bytes();
    }
    static void add(std::span<double> values, detail::frame_reader said) {
        for (double& v : values) { v += std::bit_cast<double>(said.number()); }
    }
    [[nodiscard]] static std::string_view body_of(std::string_view frame) { return frame.substr(head_bytes); }
    [[nodiscard]] static std::string_view text_of(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    /// Sends any number of bytes in one or more frames, each with the total size.
    void say_bytes(detail::rank_link& to, detail::frame_writer head, std::span<const std::byte> bytes);
    [[nodiscard]] std::vector<std::byte> hear_bytes(detail::rank_link& from, const detail::frame_writer& head);

    [[noreturn]] void stop(const std::string& why) {
        fail(why);
        throw launch_error{*broken_};
    }
    void check() {
        if (broken_) { throw launch_error{broken_->empty() ? "a rank failed" : *broken_}; }
        if (options_.seen != nullptr && options_.seen->failed()) { stop(*options_.seen->failure()); }
    }
    void say(detail::rank_link& to, std::string_view frame);
    void tell_all(const std::string& frame);
    /// Receives a rank's next frame, which must belong to this collective.
    [[nodiscard]] std::string hear(detail::rank_link& from, const detail::frame_writer& head);
    [[nodiscard]] static std::string name(const detail::rank_link& of) { return "rank " + std::to_string(of.rank); }
    /// A connection may end before the watch knows why, so the watch gets a moment to report the reason.
    [[noreturn]] void lost(const detail::rank_link& of) {
        if (options_.seen != nullptr) { options_.seen->failed_within(look * 4); }
        check();
        stop("pulse: the connection to " + name(of) + " has ended");
    }

    static constexpr deadline::duration look{50};

    std::vector<detail::rank_link> links_;
    rank_identity who_;
    control_plane_options options_;
    std::uint64_t calls_{};
    std::optional<std::string> broken_{};
};

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/control_plane.ipp> // IWYU pragma: keep
#endif
