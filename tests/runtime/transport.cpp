#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/threads/transport.hpp>

using namespace pulse;
using clock_type = std::chrono::steady_clock;

namespace {

message_id message(int index, int m = 0) { return {message_kind::boundary, index, microbatch_id{m}}; }

double microseconds_since(clock_type::time_point start) {
    return std::chrono::duration<double, std::micro>(clock_type::now() - start).count();
}

} // namespace

TEST_CASE("a buffer that the sender needs no more changes hands, any other is copied") {
    threads::run_ranks(2, {}, [](threads::transport& t) {
        for (const bool exchange : {true, false}) {
            std::byte* const mine = t.allocate(8);
            std::memset(mine, t.rank() == 0 ? 1 : 2, 8);
            message_part part{mine, 8, traffic_kind::skip, exchange};
            if (t.rank() == 0) {
                t.post_send(1, message(exchange ? 0 : 1), {&part, 1});
                t.wait_send(1, message(exchange ? 0 : 1));
                if ((part.data == mine) == exchange) { throw error{"the sender has the wrong buffer"}; }
            } else {
                t.post_recv(0, message(exchange ? 0 : 1), {&part, 1});
                t.wait_recv(0, message(exchange ? 0 : 1));
                if ((part.data == mine) == exchange) { throw error{"the receiver has the wrong buffer"}; }
                if (part.data[7] != std::byte{1}) { throw error{"the receiver has the wrong bytes"}; }
            }
        }
        t.sum({});
        if (t.rank() == 0 &&
            (t.sent().skip != 16 || t.sent().boundary != 0 || t.sent().handed_over != 8 || t.sent().messages != 2)) {
            throw error{"the transport counted wrong"};
        }
        if (t.rank() == 1 && t.sent().messages != 0) { throw error{"a receiver counted as a sender"}; }
    });
}

TEST_CASE("a message has arrived when waiting for it takes no time, and not before") {
    constexpr int messages = 12;
    for (const bool blocking : {false, true}) {
        const threads::link_options link{.latency_us = 10'000, .blocking = blocking};
        threads::run_ranks(2, link, [&](threads::transport& t) {
            int late = 0; // waits that a busy machine has kept from returning, or all of them
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

TEST_CASE("who asks whether a message has arrived learns that its sender has failed or returned") {
    for (const bool fails : {true, false}) {
        std::string text;
        try {
            threads::run_ranks(2, {}, [&](threads::transport& t) {
                if (t.rank() == 0) {
                    if (fails) { t.fail("rank 0 gave up"); }
                    return;
                }
                int value = 0;
                message_part part{reinterpret_cast<std::byte*>(&value), sizeof value, traffic_kind::boundary, false};
                t.post_recv(0, message(0), {&part, 1});
                while (!t.arrived(0, message(0))) { std::this_thread::yield(); }
                t.wait_recv(0, message(0));
            });
        } catch (const error& e) { text = e.what(); }
        INFO(text);
        CHECK(text.find(fails ? "rank 0 gave up" : "rank 0 has returned") != std::string::npos);
    }
}

TEST_CASE("many messages are in flight at once and are waited for in any order") {
    constexpr int many = 300;
    threads::run_ranks(2, {}, [](threads::transport& t) {
        std::vector<int> values(many);
        std::vector<message_part> parts(many);
        for (int i = 0; i != many; ++i) {
            auto& v = values[static_cast<std::size_t>(i)];
            v = t.rank() == 0 ? i : -1;
            parts[static_cast<std::size_t>(i)] = {reinterpret_cast<std::byte*>(&v), sizeof v, traffic_kind::boundary,
                                                  false};
        }
        for (int i = 0; i != many; ++i) {
            const std::span<message_part> part{&parts[static_cast<std::size_t>(i)], 1};
            if (t.rank() == 0) {
                t.post_send(1, message(i), part);
            } else {
                t.post_recv(0, message(i), part);
            }
        }
        for (int i = many - 1; i >= 0; --i) {
            if (t.rank() == 0) {
                t.wait_send(1, message(i));
            } else {
                t.wait_recv(0, message(i));
            }
            if (values[static_cast<std::size_t>(i)] != i) { throw error{"a message brought the wrong value"}; }
        }
    });
}

TEST_CASE("a sum is the same on every rank, in rank order") {
    threads::run_ranks(4, {}, [](threads::transport& t) {
        for (int round = 0; round != 50; ++round) {
            double v[2]{0.1 * (t.rank() + 1), static_cast<double>(round)};
            t.sum(v);
            if (v[0] != ((0.0 + 0.1 * 1 + 0.1 * 2) + 0.1 * 3) + 0.1 * 4 || v[1] != 4 * round) {
                throw error{"a sum is wrong"};
            }
        }
    });
}

TEST_CASE("a gather brings the bytes of every rank to rank 0, a broadcast those of rank 0 to every rank") {
    const auto bytes_of = [](int rank, int round) {
        return std::vector<std::byte>(static_cast<std::size_t>(rank * 3 + round % 2),
                                      static_cast<std::byte>(16 * rank + round));
    };
    for (const int ranks : {1, 4}) {
        threads::run_ranks(ranks, {}, [&](threads::transport& t) {
            for (int round = 0; round != 20; ++round) {
                std::vector<std::byte> mine = bytes_of(t.rank(), round);
                const std::vector<std::vector<std::byte>> all = t.gather(mine);
                if (all.size() != (t.rank() == 0 ? static_cast<std::size_t>(ranks) : 0U)) {
                    throw error{"a gather has the wrong number of parts"};
                }
                for (std::size_t r = 0; r != all.size(); ++r) {
                    if (all[r] != bytes_of(static_cast<int>(r), round)) { throw error{"a gathered part is wrong"}; }
                }
                t.broadcast(mine);
                if (mine != bytes_of(0, round)) { throw error{"a broadcast brought the wrong bytes"}; }
            }
        });
    }
}

TEST_CASE("ranks that disagree about a message are told so") {
    const auto mismatch = [](message_id other, std::size_t bytes) {
        std::string text;
        try {
            threads::run_ranks(2, {}, [&](threads::transport& t) {
                std::byte room[16]{};
                message_part part{room, t.rank() == 0 ? 8 : bytes, traffic_kind::boundary, false};
                if (t.rank() == 0) {
                    t.post_send(1, message(0), {&part, 1});
                    t.wait_send(1, message(0));
                } else {
                    t.post_recv(0, other, {&part, 1});
                    t.wait_recv(0, other);
                }
            });
        } catch (const error& e) { text = e.what(); }
        return text;
    };
    CHECK(mismatch(message(0), 8).empty());
    CHECK(mismatch(message(1), 8).find("next message") != std::string::npos);
    CHECK(mismatch(message(0), 16).find("size") != std::string::npos);
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

TEST_CASE("a post does not wait for the other side") {
    threads::run_ranks(2, {}, [](threads::transport& t) {
        int value = t.rank() == 0 ? 7 : 0;
        message_part part{reinterpret_cast<std::byte*>(&value), sizeof value, traffic_kind::boundary, false};
        if (t.rank() == 0) { t.post_send(1, message(0), {&part, 1}); }
        t.sum({}); // the receiver posts only after this
        if (t.rank() == 0) {
            t.wait_send(1, message(0));
        } else {
            t.post_recv(0, message(0), {&part, 1});
            t.wait_recv(0, message(0));
            if (value != 7) { throw error{"the message did not arrive"}; }
        }
    });
}

namespace {

/// What run_ranks throws, as text; empty when it throws nothing.
template <class Body>
std::string error_of(int ranks, Body body, const threads::link_options& link = {}) {
    try {
        threads::run_ranks(ranks, link, body);
    } catch (const std::exception& e) { return e.what(); }
    return {};
}

} // namespace

TEST_CASE("a rank that says it has failed and returns makes the run fail") {
    CHECK(error_of(3, [](threads::transport& t) {
              if (t.rank() == 1) { t.fail("rank 1 gave up"); }
          }) == "rank 1 gave up");
    CHECK(error_of(3, [](threads::transport& t) {
              if (t.rank() == 1) {
                  t.fail("rank 1 gave up");
              } else {
                  t.sum({});
              }
          }) == "rank 1 gave up");
    CHECK(error_of(1, [](threads::transport& t) { t.fail(""); }) == "a rank failed");
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

TEST_CASE("a rank that returns leaves nobody waiting for what it never posts") {
    for (const bool blocking : {false, true}) {
        const threads::link_options link{.blocking = blocking};
        for (const bool sends : {true, false}) {
            const std::string text = error_of(
                3,
                [&](threads::transport& t) {
                    if (t.rank() == 1) { return; }
                    if (t.rank() == 2) { t.sum({}); }
                    int value = 0;
                    message_part part{reinterpret_cast<std::byte*>(&value), sizeof value, traffic_kind::boundary,
                                      false};
                    if (sends) {
                        t.post_send(1, message(0), {&part, 1});
                        t.wait_send(1, message(0));
                    } else {
                        t.post_recv(1, message(0), {&part, 1});
                        t.wait_recv(1, message(0));
                    }
                },
                link);
            CHECK(text.find("rank 1 has returned") != std::string::npos);
        }
    }
    CHECK(error_of(3, [](threads::transport& t) {
              if (t.rank() != 2) { t.sum({}); }
          }).find("rank 2 has returned") != std::string::npos);
}

TEST_CASE("what a rank posted before it returned still arrives, and its sums are complete") {
    int sent = 7;
    message_part out{reinterpret_cast<std::byte*>(&sent), sizeof sent, traffic_kind::boundary, false};
    CHECK(error_of(2,
                   [&](threads::transport& t) {
                       double one[1]{1.0};
                       t.sum(one);
                       if (one[0] != 2.0) { throw error{"a sum is wrong"}; }
                       if (t.rank() == 0) {
                           t.post_send(1, message(0), {&out, 1});
                           return;
                       }
                       std::this_thread::sleep_for(std::chrono::milliseconds{20});
                       int received = 0;
                       message_part in{reinterpret_cast<std::byte*>(&received), sizeof received, traffic_kind::boundary,
                                       false};
                       t.post_recv(0, message(0), {&in, 1});
                       t.wait_recv(0, message(0));
                       if (received != 7) { throw error{"the message did not arrive"}; }
                   },
                   {.latency_us = 1000})
              .empty());
}

TEST_CASE("a group of no ranks, a rank or link that is not there, and sums of different lengths are refused") {
    CHECK_THROWS_AS(threads::thread_group{0}, input_error);
    CHECK_THROWS_AS(threads::run_ranks(-1, {}, [](threads::transport&) {}), input_error);
    CHECK_THROWS_AS((threads::transport{std::make_shared<threads::thread_group>(2), 2}), input_error);
    CHECK(error_of(2, [](threads::transport& t) { t.wait_send(2, message(0)); }).find("no link") != std::string::npos);
    CHECK(error_of(3, [](threads::transport& t) {
              std::vector<double> values(t.rank() == 1 ? 2U : 1U);
              t.sum(values);
          }).find("values") != std::string::npos);
    const std::string mixed = error_of(3, [](threads::transport& t) {
        std::vector<std::byte> bytes(1);
        if (t.rank() == 0) { t.sum({}); }
        if (t.rank() == 1) { static_cast<void>(t.gather(bytes)); }
        if (t.rank() == 2) { t.broadcast(bytes); }
    });
    CHECK(mixed.find(", another rank ") != std::string::npos);
    for (const char* const text : {"gather", "broadcast"}) {
        const std::string left = error_of(2, [&](threads::transport& t) {
            std::vector<std::byte> bytes(1);
            if (t.rank() == 1) { return; }
            if (std::string{text} == "gather") {
                static_cast<void>(t.gather(bytes));
            } else {
                t.broadcast(bytes);
            }
        });
        CHECK(left.find("rank 1 has returned") != std::string::npos);
        CHECK(error_of(2, [&](threads::transport& t) {
                  std::vector<std::byte> bytes(1);
                  if (t.rank() == 1) { throw error{"rank 1 gave up"}; }
                  if (std::string{text} == "gather") {
                      static_cast<void>(t.gather(bytes));
                  } else {
                      t.broadcast(bytes);
                  }
              }) == "rank 1 gave up");
    }
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
