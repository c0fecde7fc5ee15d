#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <pulse/host/threads.hpp>

using namespace pulse;
using clock_type = std::chrono::steady_clock;

namespace {

message_id message(int index, int m = 0) { return {message_kind::boundary, index, microbatch_id{m}}; }

double microseconds_since(clock_type::time_point start) {
    return std::chrono::duration<double, std::micro>(clock_type::now() - start).count();
}

} // namespace

TEST_CASE("a buffer that the sender needs no more changes hands, any other is copied") {
    host::run_ranks(2, {}, [](host::thread_transport& t) {
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
        if (t.rank() == 0 && (t.sent().skip != 16 || t.sent().boundary != 0 || t.sent().handed_over != 8 || t.sent().messages != 2)) {
            throw error{"the transport counted wrong"};
        }
        if (t.rank() == 1 && t.sent().messages != 0) { throw error{"a receiver counted as a sender"}; }
    });
}

TEST_CASE("many messages are in flight at once and are waited for in any order") {
    constexpr int many = 300;
    host::run_ranks(2, {}, [](host::thread_transport& t) {
        std::vector<int> values(many);
        std::vector<message_part> parts(many);
        for (int i = 0; i != many; ++i) {
            auto& v = values[static_cast<std::size_t>(i)];
            v = t.rank() == 0 ? i : -1;
            parts[static_cast<std::size_t>(i)] = {reinterpret_cast<std::byte*>(&v), sizeof v, traffic_kind::boundary, false};
        }
        for (int i = 0; i != many; ++i) {
            const std::span<message_part> part{&parts[static_cast<std::size_t>(i)], 1};
            if (t.rank() == 0) { t.post_send(1, message(i), part); } else { t.post_recv(0, message(i), part); }
        }
        for (int i = many - 1; i >= 0; --i) {
            if (t.rank() == 0) { t.wait_send(1, message(i)); } else { t.wait_recv(0, message(i)); }
            if (values[static_cast<std::size_t>(i)] != i) { throw error{"a message brought the wrong value"}; }
        }
    });
}

TEST_CASE("a sum is the same on every rank, in rank order") {
    host::run_ranks(4, {}, [](host::thread_transport& t) {
        for (int round = 0; round != 50; ++round) {
            double v[2]{0.1 * (t.rank() + 1), static_cast<double>(round)};
            t.sum(v);
            if (v[0] != ((0.0 + 0.1 * 1 + 0.1 * 2) + 0.1 * 3) + 0.1 * 4 || v[1] != 4 * round) { throw error{"a sum is wrong"}; }
        }
    });
}

TEST_CASE("ranks that disagree about a message are told so") {
    const auto mismatch = [](message_id other, std::size_t bytes) {
        std::string text;
        try {
            host::run_ranks(2, {}, [&](host::thread_transport& t) {
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
        } catch (const error& e) {
            text = e.what();
        }
        return text;
    };
    CHECK(mismatch(message(0), 8).empty());
    CHECK(mismatch(message(1), 8).find("next message") != std::string::npos);
    CHECK(mismatch(message(0), 16).find("size") != std::string::npos);
}

TEST_CASE("a link takes its latency and its bytes over its bandwidth, one message after the other") {
    host::run_ranks(2, {.latency_us = 20000, .bandwidth_gb_per_s = 0.0001}, [](host::thread_transport& t) {
        std::vector<std::byte> room(4000); // 4000 B at 1e5 B/s: 40 ms
        message_part first{room.data(), 2000, traffic_kind::boundary, false};
        message_part second{room.data() + 2000, 2000, traffic_kind::boundary, false};
        t.sum({});
        const auto start = clock_type::now();
        if (t.rank() == 0) {
            t.post_send(1, message(0), {&first, 1});
            t.post_send(1, message(1), {&second, 1});
            if (microseconds_since(start) > 15000) { throw error{"a post blocked"}; }
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
