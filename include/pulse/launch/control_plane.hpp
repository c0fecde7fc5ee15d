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

#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/store.hpp>
#include <pulse/launch/watch.hpp>
#include <pulse/launch/watch_links.hpp>

namespace pulse::launch {

struct control_plane_options {
    /// How long a rank waits in a collective for the others.
    deadline::duration timeout{std::chrono::seconds{120}};
    /// Asked while it waits, where there is one: a rank that has failed ends the wait. It must outlive the control
    /// plane.
    const watch* seen{};
};

/// Collectives of small values on the host over the connections of all ranks with rank 0: sums of doubles, bytes
/// gathered and broadcast. The same bits on every rank: rank 0 adds in rank order.
///
/// One thread of a rank uses it at a time. All ranks call the same collectives in the same order; one that does not is
/// noticed. After an error every further collective of the rank throws it again, and its connections are closed.
class control_plane {
public:
    /// To be made by every rank after the rendezvous. Throws launch_error on every rank, naming who is missing, when a
    /// rank does not connect within the timeout.
    template <store S>
    control_plane(S& store, const rank_identity& who, const rank_table& table,
                  const control_plane_options& options = {}) :
        links_{link_with_rank_0(store, who, table, "control plane", 0, options.timeout)},
        who_{who}, options_{options} {}
    control_plane(const control_plane&) = delete;
    control_plane& operator=(const control_plane&) = delete;

    [[nodiscard]] int rank() const noexcept { return who_.rank; }
    [[nodiscard]] int size() const noexcept { return who_.world_size; }

    /// Every element becomes its sum over ranks; a sum of none is a barrier. Throws launch_error when a rank is lost,
    /// does not come within the timeout, or calls another collective.
    void sum(std::span<double> values) {
        const frame_writer head = begin(word::sum, values.size());
        for (double& v : values) { v += 0.0; }
        if (rank() == 0) {
            for (rank_link& l : links_) {
                const std::string theirs = hear(l, head);
                add(values, frame_reader{body_of(theirs)});
            }
            return tell_all(with_values(head, values));
        }
        say(links_.front(), with_values(head, values));
        const std::string total = hear(links_.front(), head);
        std::fill(values.begin(), values.end(), 0.0);
        add(values, frame_reader{body_of(total)});
    }

    /// On rank 0 the bytes of every rank in rank order, elsewhere nothing. Throws as sum.
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        const frame_writer head = begin(word::gather, 0);
        std::vector<std::vector<std::byte>> all;
        if (rank() != 0) {
            say_bytes(links_.front(), head, mine);
            return all;
        }
        all.emplace_back(mine.begin(), mine.end());
        for (rank_link& l : links_) { all.push_back(hear_bytes(l, head)); }
        return all;
    }

    /// Rank 0's bytes, on every rank. Throws as sum.
    void broadcast(std::vector<std::byte>& bytes) {
        const frame_writer head = begin(word::broadcast, 0);
        if (rank() != 0) {
            bytes = hear_bytes(links_.front(), head);
            return;
        }
        for (rank_link& l : links_) { say_bytes(l, head, bytes); }
    }

    /// Ends the connections: what the others wait for here is lost to them.
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
    static_assert(piece_bytes + head_bytes + 8 <= frame_stream::most_bytes);

    /// Says which collective this is, by its kind, its number and the number of values.
    [[nodiscard]] frame_writer begin(word what, std::size_t count) {
        check();
        frame_writer made;
        made.number(static_cast<std::uint64_t>(what)).number(++calls_).number(count);
        return made;
    }
    [[nodiscard]] static std::string with_values(frame_writer head, std::span<const double> values) {
        for (const double v : values) { head.number(std::bit_cast<std::uint64_t>(v)); }
        return head.bytes();
    }
    static void add(std::span<double> values, frame_reader said) {
        for (double& v : values) { v += std::bit_cast<double>(said.number()); }
    }
    [[nodiscard]] static std::string_view body_of(std::string_view frame) { return frame.substr(head_bytes); }
    [[nodiscard]] static std::string_view text_of(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    /// Any number of bytes, in frames that say how many there are in all.
    void say_bytes(rank_link& to, frame_writer head, std::span<const std::byte> bytes) {
        const std::string start = head.number(bytes.size()).bytes();
        do {
            const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), piece_bytes));
            bytes = bytes.subspan(piece.size());
            say(to, start + std::string{text_of(piece)});
        } while (!bytes.empty());
    }
    [[nodiscard]] std::vector<std::byte> hear_bytes(rank_link& from, const frame_writer& head) {
        std::vector<std::byte> all;
        std::uint64_t size = 0;
        do {
            const std::string theirs = hear(from, head);
            const std::uint64_t said = frame_reader{body_of(theirs)}.number();
            const auto piece = std::as_bytes(std::span{theirs}.subspan(head_bytes + sizeof said));
            if (all.empty()) { size = said; }
            if (said != size || piece.size() > size - all.size() || (piece.empty() && size != 0)) {
                stop("pulse: " + name(from) + " sends other bytes than it says");
            }
            all.insert(all.end(), piece.begin(), piece.end());
        } while (all.size() != size);
        return all;
    }

    [[noreturn]] void stop(const std::string& why) {
        fail(why);
        throw launch_error{*broken_};
    }
    void check() {
        if (broken_) { throw launch_error{broken_->empty() ? "a rank failed" : *broken_}; }
        if (options_.seen != nullptr && options_.seen->failed()) { stop(*options_.seen->failure()); }
    }
    void say(rank_link& to, std::string_view frame) {
        check();
        const deadline until{options_.timeout};
        to.stream.put(frame);
        while (!to.stream.flush(deadline{std::min(until.left(), look)})) {
            check();
            if (to.stream.lost()) { lost(to); }
            if (until.passed()) { stop("pulse: " + name(to) + " takes nothing for " + seconds_text(options_.timeout)); }
        }
    }
    void tell_all(const std::string& frame) {
        for (rank_link& l : links_) { say(l, frame); }
    }
    /// The next frame of a rank, which must be of this collective.
    [[nodiscard]] std::string hear(rank_link& from, const frame_writer& head) {
        const deadline until{options_.timeout};
        for (;;) {
            if (std::optional<std::string> frame = from.stream.wait_frame(deadline{std::min(until.left(), look)})) {
                if (std::string_view{*frame}.substr(0, head_bytes) !=
                    std::string_view{head.bytes()}.substr(0, head_bytes)) {
                    stop("pulse: " + name(from) + " and rank " + std::to_string(rank()) +
                         " call different collectives, or with different numbers of values");
                }
                return *std::move(frame);
            }
            check();
            if (from.stream.lost()) { lost(from); }
            if (until.passed()) {
                stop("pulse: " + name(from) + " does not come to a collective within " +
                     seconds_text(options_.timeout));
            }
        }
    }
    [[nodiscard]] static std::string name(const rank_link& of) { return "rank " + std::to_string(of.rank); }
    /// A connection ends before the watch knows why: it is given a moment to say so.
    [[noreturn]] void lost(const rank_link& of) {
        if (options_.seen != nullptr) { options_.seen->failed_within(look * 4); }
        check();
        stop("pulse: the connection with " + name(of) + " has ended");
    }

    static constexpr deadline::duration look{50};

    std::vector<rank_link> links_;
    rank_identity who_;
    control_plane_options options_;
    std::uint64_t calls_{};
    std::optional<std::string> broken_{};
};

} // namespace pulse::launch
