#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <launch/ranks.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/tcp_store.hpp>

using namespace pulse;
using namespace pulse::launch;
using pulse::launch::detail::connect_to;
using pulse::launch::detail::connect_to_one;
using pulse::launch::detail::descriptor;
using pulse::launch::detail::frame_stream;
using pulse::launch::detail::frame_writer;
using pulse::launch::detail::listen_on;
using namespace pulse::test;

namespace {

/// Runs body(store, rank) on threads that share a store.
template <class Body>
std::vector<std::string> with_store(int ranks, Body body) {
    const std::uint16_t port = free_port();
    return on_threads(ranks, [&](int r) {
        tcp_store store{rank_of(r, ranks), {{"127.0.0.1", port}, "run 1", 5s}};
        return body(store, r);
    });
}

/// Connects as a stranger and sends `bytes`.
frame_stream intruder(std::uint16_t port, std::string_view bytes) {
    std::string why;
    descriptor made = connect_to({"127.0.0.1", port}, deadline{1s}, why);
    REQUIRE(made);
    REQUIRE(::send(made.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    return frame_stream{std::move(made)};
}

} // namespace

TEST_CASE("a key of a store takes one value, which every rank gets as it was set") {
    std::mt19937 random{7};
    std::string any(100000, '\0');
    for (char& c : any) { c = static_cast<char>(random()); }
    std::atomic<int> first{0};
    const auto said = with_store(4, [&](tcp_store& store, int r) -> std::string {
        if (store.set("contested/key with spaces, \xc3\xa4", std::to_string(r))) { ++first; }
        if (r == 2) {
            store.set("empty", "");
            store.set("bytes", any);
        }
        if (store.get("bytes", 5s) != any) { return "wrong bytes"; }
        if (store.get("empty", 5s) != "") { return "the empty value is not empty"; }
        if (store.get("absent", 0s)) { return "a value nobody has set"; }
        return store.get("contested/key with spaces, \xc3\xa4", 5s).value_or("none");
    });
    CHECK(first == 1);
    for (const std::string& s : said) {
        CHECK(s == said[0]);
        CHECK(s.size() == 1);
    }
}

TEST_CASE("a store waits for the first of several keys, and not beyond the timeout") {
    const auto said = with_store(2, [&](tcp_store& store, int r) -> std::string {
        const std::vector<std::string> keys{"a", "b", "c"};
        if (r == 1) {
            static_cast<void>(store.get("it has waited", 10s));
            store.set("c", "C");
            return "";
        }
        const auto start = std::chrono::steady_clock::now();
        if (store.get_first(keys, 30ms)) { return "too early"; }
        if (seconds_since(start) < 0.03) { return "it did not wait"; }
        store.set("it has waited", "");
        const auto found = store.get_first(keys, 10s);
        if (!found || found->index != 2 || found->value != "C") { return "not what was set"; }
        store.set("b", "B");
        return store.get_first(keys, 0s)->value;
    });
    CHECK(said[0] == "B");
}

TEST_CASE("a store may be asked to wait for the longest time there is") {
    const auto said = with_store(2, [&](tcp_store& store, int r) -> std::string {
        if (r == 1) {
            std::this_thread::sleep_for(50ms);
            store.set("key", "value");
        }
        return store.get("key", deadline::duration::max()).value_or("nothing");
    });
    CHECK(said[0] == "value");
    CHECK(said[1] == "value");
}

TEST_CASE("a stranger that connects to the store's port changes nothing") {
    const std::uint16_t port = free_port();
    tcp_store store{rank_of(0, 1), {{"127.0.0.1", port}, "mine", 5s}};
    store.set("key", "value");
    std::mt19937 random{11};
    std::vector<frame_stream> strangers;
    strangers.push_back(intruder(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    strangers.push_back(intruder(port, ""));
    strangers.push_back(intruder(port, "pulse\x01"));
    strangers.push_back(intruder(port, std::string_view{"pulse\x01\r\n\xff\xff\xff\xff", 12}));
    for (int i = 0; i != 200; ++i) {
        // frames with a correct length and random contents, before and after a valid greeting
        frame_writer greeting = detail::begin(detail::store_word::hello);
        greeting.text("mine").number(0).number(1).text("a guest");
        std::string payload(random() % 60, '\0');
        for (char& c : payload) { c = static_cast<char>(random() % 4 == 0 ? random() : random() % 10); }
        std::string sent;
        const auto frame = [&](const std::string& content) {
            sent += std::string{"pulse\x01\r\n", 8};
            for (int b = 0; b != 4; ++b) { sent += static_cast<char>(content.size() >> (8 * b)); }
            sent += content;
        };
        if (i % 2 == 0) { frame(greeting.bytes()); }
        frame(payload);
        intruder(port, sent);
    }
    CHECK(store.get("key", 0s) == "value");
    // strangers that violate the protocol are disconnected
    CHECK_FALSE(strangers[0].wait_frame(deadline{5s}));
    CHECK(strangers[0].lost());
    CHECK_FALSE(strangers[3].wait_frame(deadline{5s}));
    CHECK(strangers[3].lost());
}

TEST_CASE("a rank of another run is sent away, and says why") {
    const std::uint16_t port = free_port();
    tcp_store store{rank_of(0, 2), {{"127.0.0.1", port}, "mine", 5s, 100ms}};
    const std::string text = on_threads(1, [&](int) -> std::string {
        tcp_store other{rank_of(1, 2), {{"127.0.0.1", port}, "theirs", 1s}};
        return "";
    })[0];
    INFO(text);
    CHECK(text.find("it serves the run 'mine', not 'theirs'") != std::string::npos);
    CHECK(text.find("rank 1 could not reach rank 0 at 127.0.0.1:" + std::to_string(port)) != std::string::npos);
    CHECK_FALSE(store.get("absent", 10ms));
}

TEST_CASE("IPv6 and names lead to the store") {
    for (const std::string host : {"::1", "localhost"}) {
        const std::uint16_t port = free_port();
        const auto said = on_threads(2, [&](int r) -> std::string {
            tcp_store store{rank_of(r, 2), {{host, port}, "", 2s}};
            store.set(std::to_string(r), host);
            return store.get(std::to_string(1 - r), 2s).value_or("none");
        });
        CHECK(said[0] == host);
        CHECK(said[1] == host);
    }
}

TEST_CASE("an address that drops what it is sent leaves time for the next one") {
    std::uint16_t port = 0;
    const descriptor answers = listen_on("127.0.0.1", port);
    const auto address = [&](in_addr_t number) {
        sockaddr_in made{};
        made.sin_family = AF_INET;
        made.sin_port = htons(port);
        made.sin_addr.s_addr = htonl(number);
        return made;
    };
    sockaddr_in silent = address(0x7F000002); // 127.0.0.2
    sockaddr_in good = address(INADDR_LOOPBACK);
    const auto in_list = [](sockaddr_in& at, addrinfo* next) {
        addrinfo made{};
        made.ai_family = AF_INET;
        made.ai_addr = reinterpret_cast<sockaddr*>(&at);
        made.ai_addrlen = sizeof at;
        made.ai_next = next;
        return made;
    };
    addrinfo second = in_list(good, nullptr);
    addrinfo only = in_list(silent, nullptr);
    const addrinfo first = in_list(silent, &second);

    const descriptor full{::socket(AF_INET, SOCK_STREAM, 0)};
    REQUIRE(::bind(full.get(), only.ai_addr, only.ai_addrlen) == 0);
    REQUIRE(::listen(full.get(), 0) == 0); // Linux drops connections that the queue of a listener has no room for.
    std::string why;
    std::vector<descriptor> waiting;
    while (descriptor more = connect_to_one(&only, deadline{100ms}, why)) { waiting.push_back(std::move(more)); }
    CHECK(why == "no answer");
    const deadline until{4s};
    CHECK(connect_to_one(&first, until, why));
    CHECK_FALSE(until.passed());
}

TEST_CASE("a store on all addresses is reached by this machine's name and numbers") {
    std::uint16_t port = 0;
    const descriptor listener = listen_on("", port);
    std::string why;
    CHECK(connect_to({"127.0.0.1", port}, deadline{1s}, why));
    CHECK(connect_to({"localhost", port}, deadline{1s}, why));
    CHECK_FALSE(connect_to({"no.such.host.invalid", port}, deadline{1s}, why));
    CHECK(why.find("resolved") != std::string::npos);
}

TEST_CASE("who is lost is told to whoever waits, at once; who leaves with a goodbye is not lost") {
    const std::uint16_t port = free_port();
    const auto start = std::chrono::steady_clock::now();
    auto ranks = on_processes(4, [&](int r) -> std::string {
        tcp_store store{rank_of(r, 4), {{"127.0.0.1", port}, "", 10s}};
        if (r == 3) { return "goodbye"; }
        if (r == 2) {
            store.set("ready", "");
            ::pause();
        }
        return store.get("never", 15s).value_or("timeout");
    });
    {
        tcp_store look{rank_of(3, 4), {{"127.0.0.1", port}, "", 10s}};
        REQUIRE(look.get("ready", 10s));
    }
    CHECK(ranks[3].text() == "goodbye");
    ranks[2].signal(SIGKILL);
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}}) {
        const std::string text = ranks[r].text();
        INFO(text);
        CHECK(text.find("error: pulse: rank 2 (process ") == 0);
        CHECK(text.find("has left without a goodbye") != std::string::npos);
    }
    CHECK(seconds_since(start) < 10);
}

TEST_CASE("when rank 0 is gone, whoever asks the store hears so") {
    const std::uint16_t port = free_port();
    auto ranks = on_processes(3, [&](int r) -> std::string {
        tcp_store store{rank_of(r, 3), {{"127.0.0.1", port}, "", 10s}};
        store.set("here " + std::to_string(r), "");
        return store.get("never", 15s).value_or("timeout");
    });
    {
        tcp_store look{rank_of(1, 3), {{"127.0.0.1", port}, "", 10s}};
        for (const std::string key : {"here 0", "here 1", "here 2"}) { REQUIRE(look.get(key, 10s)); }
    }
    ranks[0].signal(SIGKILL);
    for (const std::size_t r : {std::size_t{1}, std::size_t{2}}) {
        CHECK(ranks[r].text() == "error: pulse: rank 0, which keeps the store, is gone");
    }
}
