#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/launch/addresses.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/tcp_store.hpp>

namespace pulse::launch::detail {

/// A connection to another rank.
struct rank_link {
    int rank{};
    frame_stream stream{};
};

/// Connections that rank 0 holds besides one per rank until they greet: more would use up the process's descriptors.
inline constexpr std::size_t most_strangers = 256;

/// On rank 0: accepts one connection from every other rank and ignores strangers, of which it drops the oldest if they
/// are too many. Throws launch_error on all ranks at the deadline.
inline std::vector<rank_link> accept_ranks(assembly& all, const rank_table& table, const descriptor& listener,
                                           const deadline& until, deadline::duration timeout) {
    std::vector<rank_link> links;
    std::list<frame_stream> strangers;
    const auto is_linked = [&](int rank) {
        return std::any_of(links.begin(), links.end(), [&](const rank_link& l) { return l.rank == rank; });
    };
    while (links.size() + 1 != table.ranks.size()) {
        std::vector<pollfd> polled{{listener.get(), POLLIN, 0}};
        for (const frame_stream& s : strangers) { polled.push_back({s.number(), POLLIN, 0}); }
        ::poll(polled.data(), static_cast<nfds_t>(polled.size()), until.poll_ms());
        for (descriptor made{::accept(listener.get(), nullptr, nullptr)}; made;
             made = descriptor{::accept(listener.get(), nullptr, nullptr)}) {
            prepare_socket(made.get());
            strangers.emplace_back(std::move(made));
        }
        for (frame_stream& s : strangers) {
            s.receive_some();
            const std::optional<std::string> greeting = s.next();
            if (!greeting || greeting->size() != 16) { continue; }
            frame_reader said{*greeting};
            const bool knows = said.number() == table.secret;
            const int rank = said.integer();
            if (!knows || rank < 1 || rank >= static_cast<int>(table.ranks.size()) || is_linked(rank)) { continue; }
            s.put(frame_writer{}.number(~table.secret).bytes());
            s.send_some();
            links.push_back({rank, std::exchange(s, frame_stream{})});
        }
        strangers.remove_if([](const frame_stream& s) { return s.number() < 0 || s.lost(); });
        while (strangers.size() > table.ranks.size() + most_strangers) { strangers.pop_front(); }
        if (until.passed() && links.size() + 1 != table.ranks.size()) {
            std::vector<int> missing;
            for (int r = 1; r != static_cast<int>(table.ranks.size()); ++r) {
                if (!is_linked(r)) { missing.push_back(r); }
            }
            all.object(list_ranks(missing) + " did not connect to rank 0 within " + seconds_text(timeout));
        }
    }
    std::sort(links.begin(), links.end(), [](const rank_link& a, const rank_link& b) { return a.rank < b.rank; });
    return links;
}

/// The text by which rank 0 tells the others where it listens: the port, then the hosts.
[[nodiscard]] inline std::string where_text(std::uint16_t port, const std::vector<std::string>& hosts) {
    frame_writer all;
    all.number(port);
    for (const std::string& host : hosts) { all.text(host); }
    return all.bytes();
}

/// On the other ranks: connects to rank 0, trying the hosts in turn.
inline rank_link connect_to_rank_0(assembly& all, const rank_identity& who, const rank_table& table,
                                   const std::string& where, const deadline& until) {
    frame_reader said{where};
    const auto port = static_cast<std::uint16_t>(said.number());
    std::vector<std::string> hosts;
    while (!said.empty()) { hosts.push_back(said.text()); }
    std::string why;
    for (std::size_t i = 0; i != hosts.size(); ++i) {
        // An address that silently drops what it is sent must leave time for the others.
        const deadline part{until.left() / static_cast<int>(hosts.size() - i)};
        frame_stream stream{connect_to({hosts[i], port}, part, why)};
        if (stream.number() < 0) { continue; }
        stream.put(frame_writer{}.number(table.secret).number(static_cast<std::uint64_t>(who.rank)).bytes());
        stream.flush(part);
        const std::optional<std::string> answer = stream.wait_frame(part);
        if (answer && answer == frame_writer{}.number(~table.secret).bytes()) { return {0, std::move(stream)}; }
        why = answer || stream.lost() ? "another program answers there" : "no answer";
    }
    all.object("rank " + std::to_string(who.rank) + " cannot connect to rank 0, port " + std::to_string(port) + ": " +
               why);
}

/// Connects rank 0 with every other rank. Collective, once per store and `subject`. Returns the links to all others in
/// rank order on rank 0, the link to rank 0 elsewhere. Rank 0 listens on `port` meanwhile (0: a free one).
///
/// Throws launch_error on every rank, naming the missing ranks, after the timeout.
[[nodiscard]] inline std::vector<rank_link> link_with_rank_0(tcp_store& store, const rank_identity& who,
                                                             const rank_table& table, const std::string& subject,
                                                             std::uint16_t port, deadline::duration timeout) {
    assembly all{store, who, subject, timeout};
    const deadline until{timeout};
    std::vector<rank_link> links;
    if (who.rank == 0) {
        std::vector<std::string> hosts{"127.0.0.1"};
        if (!table.one_machine()) {
            hosts = own_addresses();
            hosts.insert(hosts.begin(), store.where().host);
        }
        const descriptor listener = listen_on(table.one_machine() ? "127.0.0.1" : "", port);
        all.bring(where_text(port, hosts));
        links = accept_ranks(all, table, listener, until, timeout);
        all.decide("");
    } else {
        links.push_back(connect_to_rank_0(all, who, table, all.hear(0), until));
        all.bring("");
    }
    static_cast<void>(all.verdict());
    return links;
}

} // namespace pulse::launch::detail
