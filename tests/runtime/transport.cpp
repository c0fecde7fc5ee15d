#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/threads/transport.hpp>

#include <support/transports/endings.hpp>

using namespace pulse;
using clock_type = std::chrono::steady_clock;
namespace laws = pulse::test::transport_laws;

namespace {

using laws::message;

double microseconds_since(clock_type::time_point start) {
    return std::chrono::duration<double, std::micro>(clock_type::now() - start).count();
}

/// The error of run_ranks, or "".
std::string error_of(int ranks, const std::function<void(threads::transport&)>& body,
                     const threads::link_options& link = {}) {
    try {
        threads::run_ranks(ranks, link, body);
    } catch (const std::exception& e) { return e.what(); }
    return {};
}

struct thread_ranks : laws::host_memory {
    static constexpr std::size_t large = 30;
    static constexpr bool exchanges = true;
    static constexpr bool sees_leaving = true;
    static constexpr const char* other_sum = " values, another rank sums ";
    static constexpr const char* other_collective = ", another rank ";
    int ranks{3};
    threads::link_options link{};

    std::string error_of(const std::function<void(threads::transport&)>& body) const {
        return ::error_of(ranks, body, link);
    }
};

} // namespace

TEST_CASE("messages and collectives of threads keep the laws of transports") {
    CHECK(error_of(1, [](threads::transport& t) { laws::keep_collectives(t); }) == "");
    for (const int ranks : {2, 4}) {
        const thread_ranks these{{}, ranks};
        CHECK(these.error_of([&](auto& t) { laws::keep_messages(these, t); }) == "");
    }
}

TEST_CASE("threads that fail, return or disagree end a run as the laws of transports say") {
    laws::check_failing(thread_ranks{});
    laws::check_failed(thread_ranks{});
    laws::check_leaving(thread_ranks{{}, 3, {.latency_us = 1000}});
    laws::check_leaving(thread_ranks{{}, 3, {.blocking = true}});
    laws::check_left_messages(thread_ranks{});
    laws::check_unlike_collectives(thread_ranks{});
    laws::check_unlike_messages(thread_ranks{}, "next message", "next message");
    CHECK(error_of(1, [](threads::transport& t) { t.fail(""); }) == "a rank failed");
}

TEST_CASE("a message has arrived when waiting for it takes no time, and not before") {
    constexpr int messages = 12;
    for (const bool blocking : {false, true}) {
        const threads::link_options link{.latency_us = 10'000, .blocking = blocking};
        threads::run_ranks(2, link, [&](threads::transport& t) {
            int late = 0; // waits that took long: a few on a busy machine, all on a fault
            for (int i = 0; i != messages; ++i) {
                int value = t.rank() + 5;
                message_part part{reinterpret_cast<std::byte*>(&value), sizeof value, traffic_kind::gradient, false};
                if (t.rank() == 0) {
                    t.sum({});
                    t.post_send(1, message(i), {&part, 1});
                    t.wait_send(1, message(i));
                    continue;
                }
                if (!blocking) { t.post_recv(0, message(i), {&part, 1}); }
                if (!blocking && t.arrived(0, message(i))) { throw error{"it has arrived before it was sent"}; }
                const auto begin = clock_type::now();
                t.sum({});
                if (blocking) { t.post_recv(0, message(i), {&part, 1}); }
                while (!t.arrived(0, message(i))) {
                    if (blocking) { throw error{"a post has returned before its transfer was over"}; }
                    std::this_thread::sleep_for(std::chrono::microseconds{100});
                }
                if (microseconds_since(begin) < 9'000) { throw error{"it has arrived before the latency was over"}; }
                const auto end = clock_type::now();
                t.wait_recv(0, message(i));
                if (microseconds_since(end) > 7'000) { ++late; }
                if (value != 5) { throw error{"the receiver has the wrong bytes"}; }
            }
            t.sum({});
            if (t.rank() == 0) {
                if (t.sent().gradient != messages * sizeof(int) || t.sent().boundary + t.sent().skip != 0) {
                    throw error{"the transport counted wrong"};
                }
                return;
            }
            if (late > messages / 2) { throw error{"a message that has arrived is waited for"}; }
            bool refused = false;
            try {
                static_cast<void>(t.arrived(0, message(messages)));
            } catch (const error&) { refused = true; }
            if (!refused) { throw error{"a message that was never posted has arrived or not"}; }
        });
    }
}

TEST_CASE("a link takes its latency and its bytes over its bandwidth, one message after the other") {
    threads::run_ranks(2, {.latency_us = 20000, .bandwidth_gb_per_s = 0.0001}, [](threads::transport& t) {
        std::vector<std::byte> room(4000); // 4000 B at 1e5 B/s: 40 ms
        message_part first{room.data(), 2000, traffic_kind::boundary, false};
        message_part second{room.data() + 2000, 2000, traffic_kind::boundary, false};
        const auto start = clock_type::now();
        t.sum({});
        if (t.rank() == 0) {
            t.post_send(1, message(0), {&first, 1});
            t.post_send(1, message(1), {&second, 1});
            t.wait_send(1, message(1));
            if (microseconds_since(start) < 40000) { throw error{"the sender's buffer was free too early"}; }
        } else {
            t.post_recv(0, message(0), {&first, 1});
            t.post_recv(0, message(1), {&second, 1});
            t.wait_recv(0, message(0));
            if (microseconds_since(start) < 40000) { throw error{"the first message was too early"}; }
            t.wait_recv(0, message(1));
            if (microseconds_since(start) < 60000) { throw error{"the second message was too early"}; }
        }
    });
}

TEST_CASE("the error that is thrown is the one of the rank that failed first, however long it takes to return") {
    CHECK(error_of(2, [](threads::transport& t) {
              if (t.rank() == 0) {
                  t.fail("the first");
                  std::this_thread::sleep_for(std::chrono::milliseconds{50});
                  throw error{"the first, with all it has to say"};
              }
              try {
                  t.sum({});
              } catch (const peer_failed&) { throw error{"the second"}; }
          }) == "the first, with all it has to say");
}

TEST_CASE("a group of no ranks, and a rank or link that is not there, are refused") {
    CHECK_THROWS_AS(threads::thread_group{0}, input_error);
    CHECK_THROWS_AS(threads::run_ranks(-1, {}, [](threads::transport&) {}), input_error);
    CHECK_THROWS_AS((threads::transport{std::make_shared<threads::thread_group>(2), 2}), input_error);
    CHECK(error_of(2, [](threads::transport& t) { t.wait_send(2, message(0)); }).find("no link") != std::string::npos);
}

TEST_CASE("ranks that wait are released when the thread of another cannot be started") {
    std::atomic<int> released{0};
    const auto body = [&](threads::transport& t) {
        try {
            t.sum({});
        } catch (const peer_failed&) { ++released; }
    };
    int started = 0;
    const auto start = [&](auto work) {
        if (++started == 3) {
            throw std::system_error{std::make_error_code(std::errc::resource_unavailable_try_again)};
        }
        return std::jthread{std::move(work)};
    };
    const auto group = std::make_shared<threads::thread_group>(4);
    CHECK_THROWS_AS(threads::detail::run_ranks_on<threads::transport>(start, group, body), std::system_error);
    CHECK(released == 2);
}
