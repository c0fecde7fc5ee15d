#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/runtime/transport.hpp>

#include <support/transports/messages.hpp>

// How runs of every transport end when not all ranks behave. `World` also has
//   ranks             the size of a run
//   error_of(body)    runs body(transport) on every rank; the text of the error that ended the run, or ""
//   sees_leaving      whether a rank that waits for a message with a rank that returned gets an error
//   other_sum         the error if rank 1 sums 2 values and the others sum 1
//   other_collective  the error if ranks call different collectives

namespace pulse::test::transport_laws {

/// Where one rank waits for another.
enum class place { sum, gather, broadcast, receives, asks, sends };
inline constexpr std::array places{place::sum,      place::gather, place::broadcast,
                                   place::receives, place::asks,   place::sends};

/// Waits at `where` for rank `whom`, which does not take part, and then in a sum.
template <class T>
void wait_at(T& t, place where, int whom, message_part& part) {
    std::vector<std::byte> bytes(part.bytes);
    if (where == place::gather) { static_cast<void>(t.gather(bytes)); }
    if (where == place::broadcast) { t.broadcast(bytes); }
    if (where == place::receives || where == place::asks) {
        t.post_recv(whom, message(0), {&part, 1});
        while (where == place::asks && !t.arrived(whom, message(0))) { std::this_thread::yield(); }
        t.wait_recv(whom, message(0));
    }
    if (where == place::sends) {
        t.post_send(whom, message(0), {&part, 1});
        t.wait_send(whom, message(0));
    }
    t.sum({});
}

/// One rank's error ends every wait of all ranks with its text.
template <class World>
void check_failing(const World& w) {
    for (int who = 0; who != w.ranks; ++who) {
        const std::string text = "rank " + std::to_string(who) + " has no wish to go on";
        for (const place where : places) {
            CAPTURE(where);
            CHECK(w.error_of([&](auto& t) {
                message_part part = room_of(t, 34 * World::large);
                if (t.rank() != who) { return wait_at(t, where, who, part); }
                // a transfer with this rank is in flight when it fails
                const int other = who == 0 ? 1 : 0;
                where == place::sends ? t.post_send(other, message(1), {&part, 1})
                                      : t.post_recv(other, message(1), {&part, 1});
                std::this_thread::sleep_for(std::chrono::milliseconds{2});
                throw error{text};
            }) == text);
        }
    }
    // the same if it calls fail and returns
    for (const bool wait : {false, true}) {
        for (const std::string text : {"rank 1 gave up", ""}) {
            CHECK(w.error_of([&](auto& t) {
                if (t.rank() == 1) {
                    t.fail(text);
                } else if (wait) {
                    t.sum({});
                }
            }) == (text.empty() ? "a rank failed" : text));
        }
    }
}

/// After a failure is reported, no transfer touches posted memory.
template <class World>
void check_failed(const World& w) {
    CHECK(w.error_of([](auto& t) {
        message_part part = room_of(t, 12 * World::large);
        if (t.rank() == 0) {
            World::write(t, part, filled(0, 1, part.bytes));
            t.post_send(1, message(0), {&part, 1});
        }
        if (t.rank() == 1) { t.post_recv(0, message(0), {&part, 1}); }
        t.sum({}); // both have posted: the transfer may have started
        if (t.rank() == 1) {
            t.fail("enough");
            World::write(t, part, filled(1, 2, part.bytes));
            World::drain();
            require(World::read(part) == filled(1, 2, part.bytes), "a transfer goes on after a failure");
            throw error{"enough"};
        }
        t.sum({});
    }) == "enough");
}

/// A rank that waits for one that has returned gets an error; messages from before the return still arrive.
template <class World>
void check_leaving(const World& w) {
    for (const place where : places) {
        if (!World::sees_leaving && where > place::broadcast) { continue; }
        CAPTURE(where);
        const std::string said = w.error_of([&](auto& t) {
            message_part part = room_of(t, 34 * World::large);
            if (t.rank() != 1) { wait_at(t, where, 1, part); }
        });
        CAPTURE(said);
        CHECK(contains(said, "rank 1 has returned"));
    }
    for (const std::size_t bytes : {std::size_t{8}, 34 * World::large}) {
        std::vector<message_part> parts(static_cast<std::size_t>(w.ranks)); // they outlive their ranks
        CHECK(w.error_of([&](auto& t) {
            message_part& part = parts[static_cast<std::size_t>(t.rank())];
            part = room_of(t, bytes);
            if (t.rank() == 0) {
                World::write(t, part, filled(0, 0, bytes));
                t.post_send(1, message(0), {&part, 1});
            }
            if (t.rank() == 1) {
                std::this_thread::sleep_for(std::chrono::milliseconds{5});
                t.post_recv(0, message(0), {&part, 1});
                t.wait_recv(0, message(0));
                require_filled(w, t, part, 0, 0);
            }
        }) == "");
    }
}

/// Messages that nobody receives do no harm.
template <class World>
void check_left_messages(const World& w) {
    for (const std::size_t bytes : {std::size_t{8}, 34 * World::large}) {
        std::vector<message_part> sent(static_cast<std::size_t>(w.ranks));
        message_part received;
        CHECK(w.error_of([&](auto& t) {
            message_part& part = sent[static_cast<std::size_t>(t.rank())];
            part = room_of(t, bytes);
            if (t.rank() != 1) { t.post_send((t.rank() + 1) % t.size(), message(0), {&part, 1}); }
            if (t.rank() == 0) {
                received = room_of(t, bytes);
                t.post_recv(1, message(5), {&received, 1});
            }
        }) == "");
    }
}

/// Ranks that call different collectives get an error.
template <class World>
void check_unlike_collectives(const World& w) {
    const auto check = [&](const char* wanted, auto call) {
        const std::string said = w.error_of([&](auto& t) {
            call(t);
            t.sum({});
        });
        CAPTURE(said);
        CHECK(contains(said, wanted));
    };
    check(World::other_sum, [](auto& t) {
        std::vector<double> values(t.rank() == 1 ? 2U : 1U);
        t.sum(values);
    });
    for (const bool gathers : {true, false}) {
        check(World::other_collective, [&](auto& t) {
            std::vector<std::byte> bytes(1);
            if (t.rank() != 1 && t.rank() != 2) {
                t.sum({});
            } else if ((t.rank() == 1) == gathers) {
                static_cast<void>(t.gather(bytes));
            } else {
                t.broadcast(bytes);
            }
        });
    }
}

/// Ranks that disagree about a message of any size get an error, and so does every other rank. `other_name` and
/// `other_parts` occur in it if rank 1 expects message 1 but rank 0 sends message 0, or expects two parts but gets one.
template <class World>
void check_unlike_messages(const World& w, const char* other_name, const char* other_parts) {
    for (const std::size_t bytes : {std::size_t{8}, 34 * World::large}) {
        CAPTURE(bytes);
        const auto check = [&](message_id other, std::size_t received, int parts, const char* wanted) {
            const std::string said = w.error_of([&](auto& t) {
                std::vector<message_part> all(static_cast<std::size_t>(t.rank() == 0 ? 1 : parts),
                                              {t.allocate(bytes * 2), t.rank() == 0 ? bytes : received, {}, false});
                if (t.rank() == 0) {
                    t.post_send(1, message(0), all);
                    t.wait_send(1, message(0));
                    t.post_send(1, message(0), all);
                }
                if (t.rank() == 1) {
                    t.post_recv(0, other, all);
                    t.post_recv(0, message(0), all);
                    t.wait_recv(0, other);
                }
                t.sum({});
            });
            CAPTURE(said);
            CHECK(contains(said, "disagree about the"));
            CHECK(contains(said, wanted));
        };
        check(message(1), bytes, 1, other_name);
        check(message(0), bytes * 2, 1, "disagree about the size");
        check(message(0), bytes / 2, 1, "disagree about the size");
        check(message(0), bytes / 2, 2, other_parts);
    }
}

} // namespace pulse::test::transport_laws
