#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <launch/ranks.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>

using namespace pulse;
using namespace pulse::launch;
using pulse::launch::detail::connect_to;
using pulse::launch::detail::descriptor;
using namespace pulse::test;

namespace {

/// The failure that the watch reports within `most`; otherwise "silence".
std::string hear(const watch& seen, std::chrono::milliseconds most) {
    const deadline until{most};
    while (!seen.failed()) {
        if (until.passed()) { return "silence"; }
        std::this_thread::sleep_for(2ms);
    }
    return *seen.failure() + " | " + std::to_string(seen.failed_rank());
}

/// Ranks as processes under a watch. Rank `bad` runs `act`, the others wait for a failure.
std::vector<std::string> watched(
    int ranks, int bad, const std::function<void(watch&)>& act, deadline::duration timeout,
    const std::function<void(process&)>& strike = [](process&) {}) {
    const std::uint16_t port = free_port();
    int ready[2];
    if (::pipe(ready) != 0) { std::abort(); }
    auto all = on_processes(ranks, [&](int r) -> std::string {
        const rank_identity who = rank_of(r, ranks);
        std::optional<tcp_store> store;
        store.emplace(who, tcp_store_options{{"127.0.0.1", port}, "", 10s});
        const rank_table table = rendezvous(*store, who, 10s);
        watch seen{*store, who, table, {.timeout = timeout}};
        store.reset();
        if (r == bad) {
            static_cast<void>(!::write(ready[1], "x", 1));
            act(seen);
            return "acted";
        }
        return hear(seen, 15s);
    });
    char one{};
    if (launch::detail::wait_ready(ready[0], POLLIN, deadline{15s}) && ::read(ready[0], &one, 1) == 1) {
        strike(all[static_cast<std::size_t>(bad)]);
    }
    ::close(ready[0]);
    ::close(ready[1]);
    std::vector<std::string> said;
    for (std::size_t r = 0; r != all.size(); ++r) {
        said.push_back(static_cast<int>(r) == bad ? std::string{} : all[r].text());
    }
    return said;
}

void check_survivors(const std::vector<std::string>& said, int bad, const std::string& part) {
    for (std::size_t r = 0; r != said.size(); ++r) {
        if (static_cast<int>(r) == bad) { continue; }
        INFO("rank " << r << ": " << said[r]);
        CHECK(said[r].find(part) != std::string::npos);
        CHECK(said[r].ends_with(" | " + std::to_string(bad)));
    }
}

void pause_for_ever(watch&) {
    for (;;) { ::pause(); }
}

} // namespace

TEST_CASE("a rank that is killed is reported to all others at once, whichever it is") {
    for (const int bad : {0, 1, 3}) {
        const auto start = std::chrono::steady_clock::now();
        const auto said = watched(4, bad, pause_for_ever, 12s, [](process& p) { p.signal(SIGKILL); });
        check_survivors(said, bad, "was killed or has exited: its connection ended without a goodbye");
        check_survivors(said, bad, "rank " + std::to_string(bad) + " (host ");
        CHECK(seconds_since(start) < 10);
    }
}

TEST_CASE("a rank that is stopped is reported within the timeout, whichever it is") {
    for (const int bad : {0, 2}) {
        std::chrono::steady_clock::time_point stopped;
        const auto said = watched(3, bad, pause_for_ever, 1600ms, [&](process& p) {
            p.signal(SIGSTOP);
            stopped = std::chrono::steady_clock::now();
        });
        const double heard = seconds_since(stopped);
        check_survivors(said, bad, "has given no sign of life for ");
        CHECK(heard > 1.0);
        CHECK(heard < 10.0);
    }
}

TEST_CASE("a rank that exits without a goodbye, by an exception or by saying so, has failed") {
    check_survivors(watched(
                        3, 1, [](watch&) { ::_exit(0); }, 12s),
                    1, "ended without a goodbye");
    check_survivors(watched(
                        3, 2, [](watch&) { throw std::runtime_error{"out"}; }, 12s),
                    2, "was ended by an exception");
    for (const int bad : {0, 2}) {
        const auto fail = [](watch& seen) {
            seen.fail("rank X, instruction 7: no data");
            ::_exit(1);
        };
        check_survivors(watched(4, bad, fail, 12s), bad, "rank X, instruction 7: no data |");
    }
}

TEST_CASE("ranks that leave with a goodbye have not failed, in any order, and rank 0 waits for them") {
    for (const int first : {0, 2}) {
        const std::uint16_t port = free_port();
        auto all = on_processes(3, [&](int r) -> std::string {
            const rank_identity who = rank_of(r, 3);
            tcp_store store{who, {{"127.0.0.1", port}, "", 10s}};
            const rank_table table = rendezvous(store, who, 10s);
            watch seen{store, who, table, {.timeout = 12s}};
            if (r != first) { std::this_thread::sleep_for(250ms); }
            const auto start = std::chrono::steady_clock::now();
            seen.close();
            const double waited = seconds_since(start);
            if (r == 0 && first == 0 && waited < 0.1) { return "rank 0 did not wait"; }
            if (waited > 5) { return "the goodbye took " + std::to_string(waited); }
            return seen.failure().value_or("quiet");
        });
        for (process& p : all) { CHECK(p.text() == "quiet"); }
    }
}

TEST_CASE("a watch of one rank is quiet, and failing twice keeps the first text") {
    tcp_store store{rank_of(0, 1), {{"127.0.0.1", 0}, "", 5s}};
    watch seen{store, rank_of(0, 1), rendezvous(store, rank_of(0, 1), 5s), {.timeout = 1s}};
    CHECK_FALSE(seen.failed());
    CHECK_FALSE(seen.failure());
    CHECK(seen.failed_rank() == -1);
    seen.check();
    seen.fail("the first");
    seen.fail("the second");
    CHECK(seen.failure() == "the first");
    CHECK_THROWS_WITH_AS(seen.check(), "pulse: the first", launch_error);
}

TEST_CASE("a watch with the longest timeout there is finds no rank silent") {
    const endpoint there{"127.0.0.1", free_port()};
    const auto said = on_threads(2, [&](int r) -> std::string {
        tcp_store store{rank_of(r, 2), {there, "", 10s}};
        watch seen{store, rank_of(r, 2), rendezvous(store, rank_of(r, 2), 10s), {.timeout = deadline::duration::max()}};
        return hear(seen, 100ms);
    });
    for (const std::string& s : said) { CHECK(s == "silence"); }
}

TEST_CASE("a watch that not every rank comes to says who is missing, on every rank") {
    const std::uint16_t port = free_port();
    const auto said = on_threads(4, [&](int r) -> std::string {
        const rank_identity who = rank_of(r, 4);
        tcp_store store{who, {{"127.0.0.1", port}, "", 5s}};
        const rank_table table = rendezvous(store, who, 5s);
        if (r == 2) {
            std::this_thread::sleep_for(1600ms);
            return "never came";
        }
        watch seen{store, who, table, {.timeout = 800ms}};
        return "watched";
    });
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
        INFO(said[r]);
        CHECK(said[r].find("rank 2") != std::string::npos);
        CHECK(said[r].find("error: pulse: watch: ") == 0);
    }
}

TEST_CASE("strangers on the watch's port do not disturb the ranks that connect") {
    std::uint16_t port = free_port();
    const std::uint16_t watch_port = free_port();
    const auto said = on_threads(3, [&](int r) -> std::string {
        const rank_identity who = rank_of(r, 2);
        if (r == 2) {
            std::string why;
            std::vector<descriptor> held;
            for (int i = 0; i != 60; ++i) {
                held.push_back(connect_to({"127.0.0.1", watch_port}, deadline{50ms}, why));
                if (held.back()) { static_cast<void>(!::write(held.back().get(), "EHLO a.b\r\n\r\n\r\n", 14)); }
                std::this_thread::sleep_for(5ms);
            }
            return "";
        }
        tcp_store store{who, {{"127.0.0.1", port}, "", 5s}};
        const rank_table table = rendezvous(store, who, 5s);
        if (r == 1) { std::this_thread::sleep_for(150ms); }
        watch seen{store, who, table, {.timeout = 5s, .port = watch_port}};
        std::this_thread::sleep_for(50ms);
        return seen.failure().value_or("quiet");
    });
    CHECK(said[0] == "quiet");
    CHECK(said[1] == "quiet");
}

TEST_CASE("of strangers that hold many connections to the watch's port, the oldest are dropped") {
    const std::uint16_t port = free_port();
    const std::uint16_t watch_port = free_port();
    std::promise<void> held_all;
    const std::shared_future<void> all_are_held = held_all.get_future().share();
    const auto said = on_threads(3, [&](int r) -> std::string {
        if (r == 2) {
            std::string why;
            std::vector<descriptor> held;
            for (const deadline until{20s}; held.size() != launch::detail::most_strangers + 10 && !until.passed();) {
                held.push_back(connect_to({"127.0.0.1", watch_port}, until, why));
                if (!held.back()) { // rank 0 does not listen yet
                    held.pop_back();
                    std::this_thread::sleep_for(1ms);
                }
            }
            char one{};
            const bool ends = launch::detail::wait_ready(held.at(0).get(), POLLIN, deadline{5s}) &&
                              ::read(held.front().get(), &one, 1) == 0;
            held_all.set_value();
            return ends ? "dropped" : "held";
        }
        const rank_identity who = rank_of(r, 2);
        tcp_store store{who, {{"127.0.0.1", port}, "", 20s}};
        const rank_table table = rendezvous(store, who, 20s);
        if (r == 1) { static_cast<void>(all_are_held.wait_for(30s)); }
        const watch seen{store, who, table, {.timeout = 30s, .port = watch_port}};
        return seen.failure().value_or("quiet");
    });
    CHECK(said[0] == "quiet");
    CHECK(said[1] == "quiet");
    CHECK(said[2] == "dropped");
}
