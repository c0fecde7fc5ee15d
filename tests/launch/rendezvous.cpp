#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <launch/ranks.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>

using namespace pulse;
using namespace pulse::launch;
using namespace pulse::test;

namespace {

/// Runs body(store, identity) for every identity on a thread. No body begins before all have their store or have failed
/// to reach it. The store's own timeout is `patience`.
template <class Body>
std::vector<std::string> meet(const std::vector<rank_identity>& ranks, Body body, deadline::duration patience = 5s) {
    const std::uint16_t port = free_port();
    std::barrier all_are_there{static_cast<std::ptrdiff_t>(ranks.size())};
    return on_threads(static_cast<int>(ranks.size()), [&](int i) {
        const rank_identity& who = ranks[static_cast<std::size_t>(i)];
        std::optional<tcp_store> store;
        try {
            store.emplace(who, tcp_store_options{{"127.0.0.1", port}, "", patience});
        } catch (...) {
            all_are_there.arrive_and_drop();
            throw;
        }
        all_are_there.arrive_and_wait();
        return body(*store, who);
    });
}

std::vector<rank_identity> world_of(int ranks) {
    std::vector<rank_identity> all;
    for (int r = 0; r != ranks; ++r) { all.push_back(rank_of(r, ranks)); }
    return all;
}

/// With a timeout that should never expire.
const auto just_meet = [](tcp_store& store, const rank_identity& who) -> std::string {
    static_cast<void>(rendezvous(store, who, 10s));
    return "met";
};
/// With a short timeout, for ranks that never come.
const auto meet_soon = [](tcp_store& store, const rank_identity& who) -> std::string {
    static_cast<void>(rendezvous(store, who, 800ms));
    return "met";
};

void check_all(const std::vector<std::string>& said, const std::string& part) {
    for (const std::string& s : said) {
        INFO(s);
        CHECK(s.find(part) != std::string::npos);
    }
}

} // namespace

TEST_CASE("all ranks meet and hold the same table") {
    for (const int ranks : {1, 2, 4, 8}) {
        std::vector<rank_table> tables(static_cast<std::size_t>(ranks));
        const auto said = meet(world_of(ranks), [&](tcp_store& store, const rank_identity& who) -> std::string {
            std::this_thread::sleep_for(std::chrono::milliseconds{(who.rank * 7) % 10});
            tables[static_cast<std::size_t>(who.rank)] = rendezvous(store, who, 5s);
            return "met";
        });
        check_all(said, "met");
        for (const rank_table& table : tables) { CHECK(table == tables[0]); }
        REQUIRE(tables[0].ranks.size() == static_cast<std::size_t>(ranks));
        CHECK(tables[0].secret != 0);
        CHECK(tables[0].one_machine());
        for (int r = 0; r != ranks; ++r) {
            const member& m = tables[0].ranks[static_cast<std::size_t>(r)];
            CHECK(m.local_rank == r);
            CHECK(m.local_size == ranks);
            CHECK(m.node == 0);
            CHECK(m.process == ::getpid());
        }
    }
}

TEST_CASE("ranks that are processes meet") {
    for (const int ranks : {2, 8}) {
        const std::uint16_t port = free_port();
        auto all = on_processes(ranks, [&](int r) {
            tcp_store store{rank_of(r, ranks), {{"127.0.0.1", port}, "", 10s}};
            const rank_table table = rendezvous(store, rank_of(r, ranks), 10s);
            std::set<std::int64_t> processes;
            for (const member& m : table.ranks) { processes.insert(m.process); }
            return std::to_string(processes.size());
        });
        for (process& p : all) { CHECK(p.text() == std::to_string(ranks)); }
    }
}

TEST_CASE("machines are told apart, and a launcher's places on them stay") {
    using detail::arrival;
    std::string problem;
    const auto places = [&](const std::vector<arrival>& arrivals) {
        std::string text;
        for (const member& m : detail::members_of(arrivals, problem)) {
            text +=
                std::to_string(m.node) + "." + std::to_string(m.local_rank) + "/" + std::to_string(m.local_size) + " ";
        }
        return text;
    };
    CHECK(places({{4, "a", "x", 1, -1}, {4, "b", "y", 1, -1}, {4, "a", "x", 2, -1}, {4, "a", "z", 3, -1}}) ==
          "0.0/2 1.0/1 0.1/2 2.0/1 ");
    CHECK(places({{3, "a", "x", 1, 1}, {3, "b", "y", 1, 0}, {3, "a", "x", 2, 0}}) == "0.1/2 1.0/1 0.0/2 ");
    CHECK(problem.empty());
    static_cast<void>(places({{3, "a", "x", 1, 1}, {3, "b", "y", 1, 0}, {3, "a", "x", 2, 1}}));
    CHECK(problem == "ranks 0 and 2 are both local rank 1 of host a");
}

TEST_CASE("ranks that do not come are named on every rank that is there") {
    for (const std::vector<int>& absent : {std::vector{2}, std::vector{1, 2}, std::vector{1, 2, 3}}) {
        std::vector<rank_identity> there;
        for (const rank_identity& who : world_of(4)) {
            if (std::find(absent.begin(), absent.end(), who.rank) == absent.end()) { there.push_back(who); }
        }
        const auto start = std::chrono::steady_clock::now();
        const auto said = meet(there, meet_soon, 2s);
        CHECK(seconds_since(start) < 10);
        check_all(said, absent.size() == 1   ? "rank 2 of 4 did not join within 0.8 s"
                        : absent.size() == 2 ? "ranks 1 and 2 of 4 did not join within 0.8 s"
                                             : "ranks 1, 2 and 3 of 4 did not join within 0.8 s");
    }
}

TEST_CASE("an absent rank 0 is named") {
    const std::vector<rank_identity> there{rank_of(1, 3), rank_of(2, 3)};
    check_all(meet(there, meet_soon, 200ms), "could not reach rank 0 at 127.0.0.1:");
}

TEST_CASE("a rank that is there twice is an error on every rank") {
    std::vector<rank_identity> there = world_of(3);
    there.push_back(rank_of(2, 3));
    const auto said = meet(there, just_meet);
    // Which of the two came first is random, but the other one must get the error; if all others had met before it
    // came, only that one does.
    int heard = 0;
    for (const std::string& s : said) {
        INFO(s);
        const bool named = s.find("rank 2 joined twice") != std::string::npos;
        CHECK((named || s == "met"));
        heard += named ? 1 : 0;
    }
    CHECK(heard >= 1);
    // With a rank missing, the duplicate cannot be too late.
    check_all(meet({rank_of(0, 4), rank_of(1, 4), rank_of(2, 4), rank_of(2, 4)}, just_meet, 2s), "rank 2 joined twice");
}

TEST_CASE("a second rank 0 at the same place cannot listen") {
    const std::uint16_t port = free_port();
    tcp_store first{rank_of(0, 1), {{"127.0.0.1", port}, "", 5s}};
    const auto said = on_threads(1, [&](int) -> std::string {
        tcp_store second{rank_of(0, 1), {{"127.0.0.1", port}, "", 5s}};
        return "";
    });
    CHECK(said[0] == "error: pulse: rank 0 cannot listen on port " + std::to_string(port) +
                         " of this machine: it is taken by another program or run");
    CHECK(first.set("still", "there"));
}

TEST_CASE("ranks that were told different world sizes all hear so") {
    check_all(meet({rank_of(0, 4), rank_of(1, 4), rank_of(2, 8), rank_of(3, 4)}, just_meet, 2s),
              "was told that there are 8 ranks, rank 0 that there are 4");
    check_all(meet({rank_of(0, 2), rank_of(1, 3), rank_of(2, 3)}, just_meet, 2s),
              "was told that there are 3 ranks, rank 0 that there are 2");
    check_all(meet({rank_of(0, 4), rank_of(1, 2)}, just_meet, 2s), "rank 0 that there are 4");
}

TEST_CASE("no rank meets the others where one was told another world size, even if it never objects") {
    const auto said =
        meet({rank_of(0, 3), rank_of(1, 3), rank_of(2, 5)}, [](tcp_store& store, const rank_identity& who) {
            if (who.rank != 2) { return just_meet(store, who); }
            store.set("rendezvous/2", detail::to_bytes(detail::arrival{5, "host", "boot", 1, -1}));
            return store.get("rendezvous/problem", 10s).value_or("nothing");
        });
    check_all(said, "rank 0 that there are 3");
}

TEST_CASE("a rank that dies while the others meet is named, long before the timeout") {
    const std::uint16_t port = free_port();
    const auto start = std::chrono::steady_clock::now();
    auto ranks = on_processes(4, [&](int r) -> std::string {
        tcp_store store{rank_of(r, 4), {{"127.0.0.1", port}, "", 20s}};
        if (r == 2) {
            std::this_thread::sleep_for(100ms);
            ::raise(SIGKILL);
        }
        static_cast<void>(rendezvous(store, rank_of(r, 4), 20s));
        return "met";
    });
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
        const std::string text = ranks[r].text();
        INFO(text);
        CHECK(text.find("rank 2 (process ") != std::string::npos);
    }
    CHECK(seconds_since(start) < 10);
}
