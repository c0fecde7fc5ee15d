#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

// Laws of every transport while nothing fails: each rank of a run keeps them, or throws. `World` describes one kind of
// transport:
//   write(t, part, bytes)  writes bytes to the part; on a device behind the rank's computation
//   finish(t), drain()     wait for the rank's own work; wait for everything in flight on its device
//   read(part)             the current bytes of the part
//   large                  a size that is not sent before the receiver asks for it, where there is such a size
//   exchanges              buffers that the sender no longer needs change hands
//   launches               waits are those of streams: a message counts as arrived once its receive is posted

namespace pulse::test::transport_laws {

[[nodiscard]] inline message_id message(int index, int m = 0) {
    return {message_kind::boundary, index, microbatch_id{m}};
}
[[nodiscard]] inline std::byte value_of(int from, int number, std::size_t i) {
    return static_cast<std::byte>((static_cast<std::size_t>(from * 31 + number * 7) + i * 13 + i / 256) % 251);
}
[[nodiscard]] inline std::vector<std::byte> filled(int from, int number, std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i != bytes; ++i) { all[i] = value_of(from, number, i); }
    return all;
}
/// Memory that stays valid if an error ends a rank's body while a message is in flight.
template <class T>
[[nodiscard]] message_part room_of(T& t, std::size_t bytes) {
    return {t.allocate(bytes), bytes, traffic_kind::boundary, false};
}
[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}
/// Throws unless the part equals filled() once the rank's own work is done.
template <class World, class T>
void require_filled(const World&, T& t, const message_part& part, int from, int number) {
    World::finish(t);
    if (World::read(part) != filled(from, number, part.bytes)) { throw error{"a message brought wrong bytes"}; }
}
inline void require(bool right, const char* otherwise) {
    if (!right) { throw error{otherwise}; }
}

/// The part of a World for messages in host memory.
struct host_memory {
    static void write(auto&, const message_part& part, const std::vector<std::byte>& bytes) {
        std::copy(bytes.begin(), bytes.end(), part.data);
    }
    static void finish(auto&) {}
    static void drain() {}
    [[nodiscard]] static std::vector<std::byte> read(const message_part& part) {
        return {part.data, part.data + part.bytes};
    }
    static constexpr bool launches = false;
};

/// A sum is the same on every rank, in rank order; a gather brings every rank's bytes to rank 0; a broadcast brings
/// rank 0's bytes to every rank.
template <class T>
void keep_collectives(T& t) {
    for (int round = 0; round != 50; ++round) {
        std::vector<double> v{0.1 * (t.rank() + 1), static_cast<double>(round), -0.0, 1.0};
        v.resize(static_cast<std::size_t>(2 + round % 3));
        t.sum(v);
        double first = 0;
        for (int r = 0; r != t.size(); ++r) { first += 0.1 * (r + 1); }
        require(v[0] == first && v[1] == t.size() * round, "a sum is wrong");
        require((v.size() < 3 || v[2] == 0) && (v.size() < 4 || v[3] == t.size()), "a sum of several is wrong");
        t.sum({});
        const auto bytes_of = [&](int r) {
            return filled(r, round, static_cast<std::size_t>(r * round * 50 + round % 2));
        };
        std::vector<std::byte> mine = bytes_of(t.rank());
        const std::vector<std::vector<std::byte>> all = t.gather(mine);
        require(all.size() == (t.rank() == 0 ? static_cast<std::size_t>(t.size()) : 0U), "a gather has other parts");
        for (std::size_t r = 0; r != all.size(); ++r) {
            require(all[r] == bytes_of(static_cast<int>(r)), "a gathered part is wrong");
        }
        t.broadcast(mine);
        require(mine == bytes_of(0), "a broadcast brought the wrong bytes");
    }
}

/// Each rank sends `count` two-part messages to the next, two per id, all in flight at once, and waits for them in
/// reverse order. sizes(n) gives the bytes of the parts of message n.
template <class World, class T, class Sizes>
void keep_order(const World& w, T& t, int count, Sizes sizes) {
    const int next = (t.rank() + 1) % t.size();
    const int last = (t.rank() + t.size() - 1) % t.size();
    traffic_count wanted = t.sent();
    std::size_t all = 0;
    std::vector<message_part> out;
    for (int n = 0; n != count; ++n) {
        const std::array<std::size_t, 2> bytes = sizes(static_cast<std::size_t>(n));
        all += bytes[0] + bytes[1];
        out.push_back({nullptr, bytes[0], traffic_kind::boundary, false});
        out.push_back({nullptr, bytes[1], traffic_kind::skip, false});
        wanted += {.boundary = static_cast<std::int64_t>(bytes[0]),
                   .skip = static_cast<std::int64_t>(bytes[1]),
                   .messages = 1};
    }
    std::vector<message_part> in = out;
    for (auto* const parts : {&out, &in}) {
        std::byte* at = t.allocate(all);
        require(reinterpret_cast<std::uintptr_t>(at) % 64 == 0, "memory of messages is not aligned");
        for (message_part& part : *parts) { part.data = std::exchange(at, at + part.bytes); }
    }
    const auto two = [](std::vector<message_part>& of, int n) {
        return std::span{of}.subspan(2 * static_cast<std::size_t>(n), 2);
    };
    const auto whole = [&](std::vector<message_part>& of, int n) {
        const auto parts = two(of, n);
        return message_part{parts[0].data, parts[0].bytes + parts[1].bytes, {}, false};
    };
    for (int n = 0; n != count; ++n) {
        World::write(t, whole(out, n), filled(t.rank(), n, whole(out, n).bytes));
        // where transfers run one after the other, not all ranks may begin with a send
        for (const bool sends : {t.rank() % 2 == 0, t.rank() % 2 != 0}) {
            sends ? t.post_send(next, message(n / 2), two(out, n)) : t.post_recv(last, message(n / 2), two(in, n));
        }
    }
    for (int n = count; n-- != 0;) {
        t.wait_recv(last, message(n / 2));
        t.wait_send(next, message(n / 2));
        require_filled(w, t, whole(in, n ^ 1), last, n ^ 1); // of two with one id the older comes first
    }
    const traffic_count sent = t.sent();
    require(sent.boundary == wanted.boundary && sent.skip == wanted.skip && sent.gradient == wanted.gradient &&
                sent.messages == wanted.messages && sent.handed_over == wanted.handed_over,
            "the transport counted wrong");
}

/// Posting never waits. A message has not arrived before it is sent; polling makes it progress.
template <class World, class T>
void keep_arrivals(const World& w, T& t) {
    const std::size_t bytes = 10 * World::large;
    for (const bool sender_first : {true, false}) {
        message_part part = room_of(t, bytes);
        const message_id id = message(sender_first ? 1 : 0);
        const auto post = [&] {
            if (t.rank() == 0) { t.post_send(1, id, {&part, 1}); }
            if (t.rank() == 1) { t.post_recv(0, id, {&part, 1}); }
        };
        World::write(t, part, filled(t.rank(), 0, bytes));
        const bool first = (t.rank() == 0) == sender_first;
        if (first) { post(); }
        require(World::launches || t.rank() != 1 || !first || !t.arrived(0, id), "it has arrived before it was sent");
        t.sum({});
        if (!first) { post(); }
        if (t.rank() == 0) { t.wait_send(1, id); }
        if (t.rank() == 1) {
            while (!t.arrived(0, id)) { std::this_thread::yield(); }
            t.wait_recv(0, id);
            require_filled(w, t, part, 0, 0);
        }
    }
}

/// A buffer that the sender no longer needs changes hands if the transport does that; any other is copied.
template <class World, class T>
void keep_buffers(const World& w, T& t) {
    const traffic_count before = t.sent();
    for (const bool exchange : {true, false}) {
        message_part part = room_of(t, 8);
        part.kind = traffic_kind::gradient;
        part.may_exchange = exchange;
        const std::byte* const mine = part.data;
        World::write(t, part, filled(t.rank(), 1, 8));
        if (t.rank() > 1) { continue; }
        if (t.rank() == 0) {
            t.post_send(1, message(0), {&part, 1});
            t.wait_send(1, message(0));
        } else {
            t.post_recv(0, message(0), {&part, 1});
            t.wait_recv(0, message(0));
        }
        require((part.data != mine) == (exchange && w.exchanges), "a rank has the wrong buffer");
        if (t.rank() == 1) { require_filled(w, t, part, 0, 1); }
    }
    t.sum({});
    const traffic_count sent = t.sent();
    const int sends = t.rank() == 0 ? 1 : 0;
    require(sent.gradient - before.gradient == 16 * sends && sent.messages - before.messages == 2 * sends &&
                sent.boundary + sent.skip == before.boundary + before.skip &&
                sent.handed_over - before.handed_over == (w.exchanges ? 8 * sends : 0),
            "the transport counted wrong");
}

/// A rank that has posted a receive takes the message even while it waits for another rank.
template <class World, class T>
void keep_others_going(const World&, T& t) {
    message_part large = room_of(t, 34 * World::large), small = room_of(t, 8);
    if (t.rank() == 1) {
        t.post_recv(0, message(0), {&large, 1});
        t.post_recv(2, message(2), {&small, 1});
    }
    t.sum({});
    if (t.rank() == 0) {
        t.post_send(1, message(0), {&large, 1});
        t.wait_send(1, message(0));
        t.post_send(2, message(1), {&small, 1});
        t.wait_send(2, message(1));
    } else if (t.rank() == 1) {
        t.wait_recv(2, message(2));
        t.wait_recv(0, message(0));
    } else if (t.rank() == 2) {
        t.post_recv(0, message(1), {&small, 1});
        t.wait_recv(0, message(1));
        t.post_send(1, message(2), {&small, 1});
        t.wait_send(1, message(2));
    }
    t.sum({}); // a rank's memory may be freed when it returns
}

/// Links to no rank and messages that were never posted are refused with a clear error, and the run continues.
template <class T>
void keep_refusals(T& t) {
    const auto refused = [](const char* wanted, auto call) {
        std::string said = "nothing";
        try {
            call();
        } catch (const error& e) { said = e.what(); }
        if (!contains(said, wanted)) { throw error{"for '" + std::string{wanted} + "' a rank heard '" + said + "'"}; }
    };
    for (const int nobody : {-1, t.size()}) {
        refused("no link", [&] { t.post_send(nobody, message(0), {}); });
        refused("no link", [&] { t.post_recv(nobody, message(0), {}); });
    }
    const int other = t.rank() == 0 ? 1 : 0;
    refused("never posted", [&] { t.wait_send(other, message(0)); });
    refused("never posted", [&] { t.wait_recv(other, message(0)); });
    refused("never posted", [&] { static_cast<void>(t.arrived(other, message(0))); });
}

/// Checks all of these laws, with at least two ranks and `many` messages in flight at once.
template <class World, class T>
void keep_messages(const World& w, T& t, int many = 200) {
    keep_refusals(t);
    keep_order(w, t, many, [](std::size_t n) { return std::array{n % 50, n}; });
    keep_order(w, t, 20, [](std::size_t n) { return std::array{n * World::large, World::large + 45}; });
    keep_arrivals(w, t);
    keep_buffers(w, t);
    if (t.size() > 2) { keep_others_going(w, t); }
    keep_collectives(t);
    keep_refusals(t);
}

} // namespace pulse::test::transport_laws
