#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/wake_up.hpp>
#include <pulse/launch/watch.hpp>
#include <pulse/launch/watch_links.hpp>

namespace pulse::launch {

PULSE_INLINE void watch::close() noexcept {
    if (!thread_.joinable()) { return; }
    closing_ = true;
    wake_.signal();
    thread_.join();
}

PULSE_INLINE void watch::publish(int rank, std::string_view text) noexcept {
    static const report no_memory{-1, "a rank failed"};
    const report* none = nullptr;
    try {
        auto mine = std::make_unique<const report>(report{rank, std::string{text}});
        const std::lock_guard lock{mutex_};
        if (report_.compare_exchange_strong(none, mine.get(), std::memory_order_acq_rel)) { owned_ = std::move(mine); }
    } catch (...) { report_.compare_exchange_strong(none, &no_memory, std::memory_order_acq_rel); }
}

PULSE_INLINE void watch::serve() noexcept {
    try {
        run();
    } catch (const std::exception& e) {
        publish(rank_, std::string{"the watch of rank "} + std::to_string(rank_) + " has failed: " + e.what());
    }
    const std::lock_guard lock{mutex_};
    links_.clear(); // ranks that still listen see the connection end
    ended_ = true;
    told_.notify_all();
}

PULSE_INLINE void watch::run() {
    const deadline::duration beat = std::clamp(timeout_ / 8, deadline::duration{1}, deadline::duration{1000});
    const deadline::duration silence = timeout_ * 3 / 4;
    clock::time_point next_beat = clock::now();
    clock::time_point last_look = clock::now();
    std::optional<deadline> end;
    for (;;) {
        if (closing_ && !end) { end.emplace(failed() ? std::min(timeout_, deadline::duration{2000}) : timeout_); }
        if (end && (rank_ != 0 || links_left() || end->passed())) { return leave(); }
        wait_for_events(next_beat, end);
        const clock::time_point now = clock::now();
        // A rank that was itself stopped has not listened: it reads what has arrived before it calls others silent.
        const bool away = now - last_look > silence / 2 + beat;
        last_look = now;
        for (peer& p : links_) {
            if (away) { p.heard = now; }
            listen(p, now, silence);
        }
        if (now >= next_beat) {
            next_beat = now + beat;
            for (peer& p : links_) {
                if (!p.left && !p.stream.has_output()) { say(p, word::alive); }
            }
        }
        tell();
        for (peer& p : links_) { p.stream.send_some(); }
    }
}

PULSE_INLINE void watch::wait_for_events(clock::time_point next_beat, const std::optional<deadline>& end) {
    std::vector<pollfd> polled{{wake_.number(), POLLIN, 0}};
    for (const peer& p : links_) {
        if (!p.left) {
            polled.push_back(
                {p.stream.number(), static_cast<short>(p.stream.has_output() ? POLLIN | POLLOUT : POLLIN), 0});
        }
    }
    const auto beat_ms = std::chrono::ceil<deadline::duration>(next_beat - clock::now());
    auto wait_ms = std::max(beat_ms, deadline::duration{0});
    if (end) { wait_ms = std::min(wait_ms, end->left()); }
    ::poll(polled.data(), static_cast<nfds_t>(polled.size()), static_cast<int>(wait_ms.count()));
    wake_.clear();
}

PULSE_INLINE void watch::listen(peer& p, clock::time_point now, deadline::duration silence) {
    if (p.left) { return; }
    p.stream.receive_some();
    try {
        while (std::optional<std::string> frame = p.stream.next()) {
            p.heard = now;
            detail::frame_reader said{*frame};
            const auto what = static_cast<word>(said.number());
            if (what == word::goodbye) {
                p.left = true;
                p.stream = detail::frame_stream{};
                return;
            }
            if (what == word::failed) {
                const int rank = said.integer();
                publish(rank, said.text());
                broadcast();
            }
        }
    } catch (const detail::bad_frame&) { publish(p.rank, table_.name_of(p.rank) + " sent an invalid message"); }
    if (p.stream.lost()) {
        p.left = true;
        found(p.rank, " was killed or has exited: its connection ended without a goodbye" +
                          (p.stream.reason().empty() ? "" : " (" + p.stream.reason() + ")"));
    } else if (now - p.heard > silence) {
        p.left = true;
        found(p.rank, " has given no sign of life for " +
                          seconds_text(std::chrono::duration_cast<deadline::duration>(now - p.heard)));
    }
}

PULSE_INLINE void watch::found(int rank, const std::string& what) {
    publish(rank, table_.name_of(rank) + what);
    broadcast();
}

PULSE_INLINE void watch::broadcast() {
    if (rank_ == 0) { to_tell_everyone_ = true; }
}

PULSE_INLINE void watch::tell() {
    const std::lock_guard lock{mutex_};
    if ((to_tell_ || to_tell_everyone_) && !told_everyone_) {
        const report* const first = report_.load(std::memory_order_acquire);
        for (peer& p : links_) {
            if (p.stream.number() < 0) { continue; }
            p.stream.put(detail::frame_writer{}
                             .number(static_cast<std::uint64_t>(word::failed))
                             .number(static_cast<std::uint64_t>(first->rank))
                             .text(first->text)
                             .bytes());
            p.stream.send_some();
        }
        told_everyone_ = true;
    }
    if (!to_tell_) { return; }
    to_tell_ = false;
    told_.notify_all();
}

PULSE_INLINE void watch::say(peer& p, word what) {
    p.stream.put(detail::frame_writer{}.number(static_cast<std::uint64_t>(what)).bytes());
}

PULSE_INLINE void watch::leave() {
    tell();
    for (peer& p : links_) {
        if (p.stream.number() < 0 || p.stream.lost()) { continue; }
        if (!failed() || rank_ != 0) { say(p, word::goodbye); }
        p.stream.send_some();
    }
    const deadline soon{deadline::duration{1000}};
    for (peer& p : links_) {
        if (!p.left) { p.stream.finish(soon); }
    }
}

} // namespace pulse::launch
