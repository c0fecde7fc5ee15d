#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <latch>
#include <span>
#include <string>
#include <vector>

#include <launch/ranks.hpp>
#include <support/transports/messages.hpp>
#include <pulse/launch/control_plane.hpp>
#include <pulse/launch/process_group.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>

using namespace pulse;
using namespace pulse::launch;
using pulse::launch::detail::frame_stream;
using namespace pulse::test;

namespace {

/// Runs body(control plane) on every rank, one thread each.
template <class Body>
std::vector<std::string> connected(int ranks, deadline::duration timeout, Body body) {
    const std::uint16_t port = free_port();
    return on_threads(ranks, [&](int r) -> std::string {
        const rank_identity who = rank_of(r, ranks);
        tcp_store store{who, {{"127.0.0.1", port}, "", 5s}};
        control_plane control{store, who, rendezvous(store, who, 5s), {.timeout = timeout}};
        return body(control);
    });
}

} // namespace

TEST_CASE("sums are added in rank order, and bytes of every size are gathered and broadcast") {
    for (const int ranks : {1, 2, 5}) {
        const auto said = connected(ranks, 5s, [&](control_plane& control) -> std::string {
            transport_laws::keep_collectives(control);
            return "right";
        });
        for (const std::string& s : said) { CHECK(s == "right"); }
    }
}

TEST_CASE("more bytes than a frame holds are gathered and broadcast") {
    constexpr std::size_t many = frame_stream::most_bytes + 12345;
    const auto byte_of = [](std::size_t i, int rank) {
        return std::byte{static_cast<unsigned char>(i * 131 + i / 4096 + static_cast<std::size_t>(rank))};
    };
    const auto said = connected(2, 20s, [&](control_plane& control) -> std::string {
        std::vector<std::byte> mine(many + static_cast<std::size_t>(control.rank()));
        for (std::size_t i = 0; i != mine.size(); ++i) { mine[i] = byte_of(i, control.rank()); }
        for (const auto& bytes : control.gather(mine)) {
            const int rank = static_cast<int>(bytes.size() - many);
            for (std::size_t i = 0; i != bytes.size(); ++i) {
                if (bytes[i] != byte_of(i, rank)) { return "gathered other bytes"; }
            }
        }
        control.broadcast(mine);
        if (mine.size() != many) { return "broadcast other sizes"; }
        for (std::size_t i = 0; i != many; ++i) {
            if (mine[i] != byte_of(i, 0)) { return "broadcast other bytes"; }
        }
        return "right";
    });
    for (const std::string& s : said) { CHECK(s == "right"); }
}

TEST_CASE("a process group meets at one port, one run after the other") {
    const std::uint16_t port = free_port();
    const endpoint there{"127.0.0.1", port};
    for (int run = 0; run != 3; ++run) {
        const auto said = on_threads(3, [&](int r) -> std::string {
            process_group group{rank_of(r, 3), {there, ""}, {.timeout = 10s}};
            std::vector<double> values{static_cast<double>(group.self().local_rank)};
            group.control().sum(values);
            const bool right = values[0] == 3 && group.self().local_size == 3 && group.table().ranks.size() == 3;
            if (run == 2 && r == 1) { group.seen().fail("rank 1 has enough"); }
            while (run == 2 && !group.seen().failed()) { std::this_thread::sleep_for(1ms); }
            return right ? group.seen().failure().value_or("right") : "wrong";
        });
        for (const std::string& s : said) { CHECK(s.find(run == 2 ? "rank 1 has enough" : "right") != s.npos); }
    }
    const auto alone = on_threads(1, [&](int r) -> std::string {
        process_group group{rank_of(r, 2), {there, ""}, {.timeout = 300ms}};
        return "met";
    });
    CHECK(alone[0].find("rank 1 of 2 did not join within 0.3 s") != std::string::npos);
}

TEST_CASE("ranks that call different collectives, or do not come, are named") {
    const auto mixed = connected(3, 5s, [](control_plane& control) -> std::string {
        std::vector<double> values(control.rank() == 2 ? 2 : 1);
        control.sum(values);
        return "summed";
    });
    CHECK(mixed[0].find("rank 2 and rank 0 call different collectives") != std::string::npos);
    for (const std::string& s : mixed) { CHECK(s != "summed"); }
    std::latch others_have_ended{2};
    const auto late = connected(3, 1500ms, [&](control_plane& control) -> std::string {
        if (control.rank() == 1) {
            others_have_ended.wait();
            return "";
        }
        try {
            control.sum({});
        } catch (...) {
            others_have_ended.count_down();
            throw;
        }
        others_have_ended.count_down();
        return "summed";
    });
    CHECK(late[0] == "error: pulse: rank 1 did not join the collective within 1.5 s");
    CHECK(late[2].find("error: pulse: ") == 0);
}

TEST_CASE("a rank that is killed ends the collectives of all others, with its name") {
    const std::uint16_t port = free_port();
    auto all = on_processes(3, [&](int r) -> std::string {
        const rank_identity who = rank_of(r, 3);
        tcp_store store{who, {{"127.0.0.1", port}, "", 10s}};
        const rank_table table = rendezvous(store, who, 10s);
        watch seen{store, who, table, {.timeout = 15s}};
        control_plane control{store, who, table, {.timeout = 15s, .seen = &seen}};
        control.sum({});
        if (r == 1) { ::raise(SIGKILL); }
        control.sum({});
        return "summed";
    });
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
        const std::string text = all[r].text();
        INFO(text);
        CHECK(text.find("rank 1 (host ") != std::string::npos);
    }
}
