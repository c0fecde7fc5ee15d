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
#include <pulse/launch/control_plane.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/watch.hpp>
#include <pulse/launch/watch_links.hpp>

namespace pulse::launch {

PULSE_INLINE void control_plane::sum(std::span<double> values) {
    const detail::frame_writer head = begin(word::sum, values.size());
    for (double& v : values) { v += 0.0; }
    if (rank() == 0) {
        for (detail::rank_link& l : links_) {
            const std::string theirs = hear(l, head);
            add(values, detail::frame_reader{body_of(theirs)});
        }
        return tell_all(with_values(head, values));
    }
    say(links_.front(), with_values(head, values));
    const std::string total = hear(links_.front(), head);
    std::fill(values.begin(), values.end(), 0.0);
    add(values, detail::frame_reader{body_of(total)});
}

PULSE_INLINE std::vector<std::vector<std::byte>> control_plane::gather(std::span<const std::byte> mine) {
    const detail::frame_writer head = begin(word::gather, 0);
    std::vector<std::vector<std::byte>> all;
    if (rank() != 0) {
        say_bytes(links_.front(), head, mine);
        return all;
    }
    all.emplace_back(mine.begin(), mine.end());
    for (detail::rank_link& l : links_) { all.push_back(hear_bytes(l, head)); }
    return all;
}

PULSE_INLINE void control_plane::broadcast(std::vector<std::byte>& bytes) {
    const detail::frame_writer head = begin(word::broadcast, 0);
    if (rank() != 0) {
        bytes = hear_bytes(links_.front(), head);
        return;
    }
    for (detail::rank_link& l : links_) { say_bytes(l, head, bytes); }
}

PULSE_INLINE void control_plane::say_bytes(detail::rank_link& to, detail::frame_writer head,
                                           std::span<const std::byte> bytes) {
    const std::string start = head.number(bytes.size()).bytes();
    do {
        const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), piece_bytes));
        bytes = bytes.subspan(piece.size());
        say(to, start + std::string{text_of(piece)});
    } while (!bytes.empty());
}

PULSE_INLINE std::vector<std::byte> control_plane::hear_bytes(detail::rank_link& from,
                                                              const detail::frame_writer& head) {
    std::vector<std::byte> all;
    std::uint64_t size = 0;
    do {
        const std::string theirs = hear(from, head);
        const std::uint64_t said = detail::frame_reader{body_of(theirs)}.number();
        const auto piece = std::as_bytes(std::span{theirs}.subspan(head_bytes + sizeof said));
        if (all.empty()) { size = said; }
        if (said != size || piece.size() > size - all.size() || (piece.empty() && size != 0)) {
            stop("pulse: " + name(from) + " sent a different number of bytes than announced");
        }
        all.insert(all.end(), piece.begin(), piece.end());
    } while (all.size() != size);
    return all;
}

PULSE_INLINE void control_plane::say(detail::rank_link& to, std::string_view frame) {
    check();
    const deadline until{options_.timeout};
    to.stream.put(frame);
    while (!to.stream.flush(deadline{std::min(until.left(), look)})) {
        check();
        if (to.stream.lost()) { lost(to); }
        if (until.passed()) {
            stop("pulse: " + name(to) + " did not receive a message within " + seconds_text(options_.timeout));
        }
    }
}

PULSE_INLINE void control_plane::tell_all(const std::string& frame) {
    for (detail::rank_link& l : links_) { say(l, frame); }
}

PULSE_INLINE std::string control_plane::hear(detail::rank_link& from, const detail::frame_writer& head) {
    const deadline until{options_.timeout};
    for (;;) {
        if (std::optional<std::string> frame = from.stream.wait_frame(deadline{std::min(until.left(), look)})) {
            if (std::string_view{*frame}.substr(0, head_bytes) !=
                std::string_view{head.bytes()}.substr(0, head_bytes)) {
                stop("pulse: " + name(from) + " and rank " + std::to_string(rank()) +
                     " call different collectives, or pass different numbers of values");
            }
            return *std::move(frame);
        }
        check();
        if (from.stream.lost()) { lost(from); }
        if (until.passed()) {
            stop("pulse: " + name(from) + " did not join the collective within " + seconds_text(options_.timeout));
        }
    }
}

} // namespace pulse::launch
