#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link_fit.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse {

/// A rank's description of itself for measuring links, and how to measure.
struct link_measurement {
    /// Machine of this rank: ranks with the same one share a node.
    std::string machine{};
    /// Memory of the rank's device, at least 1, and the device's name on its machine: ranks on one device share its
    /// memory equally. The cluster gets the smallest amount that a rank may use.
    std::int64_t memory_bytes{};
    std::string device{};
    /// The kind of device, such as the card's name: if the ranks' kinds differ, the cluster lists them all.
    std::string kind{};
    /// Approximate duration of all messages together, the same on every rank.
    double seconds{1.0};
    /// Returns when every awaited transfer is complete; needed if a wait makes a stream wait, not the host.
    std::function<void()> settle{};
};

namespace detail {

/// Message sizes in bytes, from latency-bound to bandwidth-bound.
inline constexpr std::array<std::int64_t, 6> measured_sizes{256, 2048, 16'384, 131'072, 1'048'576, 8'388'608};

/// Ranks of a run by machine.
struct machine_table {
    std::vector<std::string> machines{};
    std::vector<std::string> kinds{};
    std::vector<std::int64_t> memory_bytes{}; ///< that each rank may use
    /// Largest size of aligned rank blocks that never leave a machine: smaller than a machine if machines have
    /// different numbers of ranks or ranks alternate between them.
    int devices_per_node{1};

    [[nodiscard]] int size() const noexcept { return static_cast<int>(machines.size()); }
    [[nodiscard]] bool share(int a, int b) const {
        return machines[static_cast<std::size_t>(a)] == machines[static_cast<std::size_t>(b)];
    }
};

[[nodiscard]] inline int node_size_of(const machine_table& table) {
    const int ranks = table.size();
    for (int size = ranks; size > 1; --size) {
        if (ranks % size != 0) { continue; }
        bool whole = true;
        for (int r = 0; r != ranks; ++r) { whole = whole && table.share(r, r / size * size); }
        if (whole) { return size; }
    }
    return 1;
}

/// The same table on every rank. Collective.
template <transport T>
[[nodiscard]] machine_table machines_of(T& among, const link_measurement& mine) {
    // Four words per rank, each prefixed with its length in bytes.
    std::string text;
    for (const std::string& word : {mine.machine, mine.device, mine.kind, std::to_string(mine.memory_bytes)}) {
        text += std::to_string(word.size()) + ' ' + word;
    }
    std::vector<std::byte> all;
    for (const auto& of_rank : among.gather(std::as_bytes(std::span{text}))) {
        all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    among.broadcast(all);
    text.assign(reinterpret_cast<const char*>(all.data()), all.size());
    std::size_t at = 0;
    const auto next_word = [&] {
        std::size_t digits = 0;
        const std::size_t length = std::stoul(text.substr(at), &digits);
        at += digits + 1 + length;
        return text.substr(at - length, length);
    };
    machine_table table;
    std::vector<std::pair<std::string, std::int64_t>> memories;
    while (at != text.size()) {
        table.machines.push_back(next_word());
        const std::string device = next_word();
        table.kinds.push_back(next_word());
        memories.emplace_back(table.machines.back() + '\0' + device, std::stoll(next_word()));
    }
    for (const auto& of_rank : memories) {
        const auto sharing = std::count_if(memories.begin(), memories.end(),
                                           [&](const auto& other) { return other.first == of_rank.first; });
        table.memory_bytes.push_back(of_rank.second / sharing);
    }
    table.devices_per_node = node_size_of(table);
    return table;
}

/// Neighbouring ranks within a node, or on different machines: at most three pairs, the first, a middle one and the
/// last. A pair is its lower rank.
[[nodiscard]] inline std::vector<int> measured_pairs(const machine_table& table, bool inside) {
    std::vector<int> all;
    for (int r = 0; r + 1 < table.size(); ++r) {
        const bool one_node = r / table.devices_per_node == (r + 1) / table.devices_per_node;
        if (inside ? one_node : !table.share(r, r + 1)) { all.push_back(r); }
    }
    if (all.size() > 3) { all = {all.front(), all[all.size() / 2], all.back()}; }
    return all;
}

/// Exchanges messages between a rank and the next one, timed by a clock of type Clock.
template <class Clock, transport T>
class ping_pong {
public:
    ping_pong(T& over, const std::function<void()>& settle) : over_{over}, settle_{settle} {
        const auto most = static_cast<std::size_t>(measured_sizes.back());
        out_ = over_.allocate(most);
        in_ = over_.allocate(most);
    }

    /// One-way microseconds of a message of each size: all sizes, or those for which there is time. Takes the fastest
    /// of several trips, as slower ones waited for something other than the link. Collective; all ranks get the same
    /// result.
    [[nodiscard]] std::vector<link_sample> between(int first, double seconds) {
        std::vector<link_sample> samples;
        double left = seconds;
        double before = 0.0;
        for (std::size_t i = 0; i != measured_sizes.size(); ++i) {
            const std::int64_t bytes = measured_sizes[i];
            trip(first, bytes); // sets up protocol and memory
            double fastest = from_first(first, trip(first, bytes));
            const double share = left / static_cast<double>(measured_sizes.size() - i);
            const auto more = static_cast<int>(std::clamp(share / fastest, 2.0, 200.0));
            const auto start = Clock::now();
            double mine = fastest;
            for (int t = 0; t != more; ++t) { mine = std::min(mine, trip(first, bytes)); }
            left -= from_first(first, seconds_since(start)) + 2 * fastest;
            fastest = from_first(first, mine);
            samples.push_back({bytes, 0.5e6 * fastest});
            // The next size is eight times as large: predict four trips by extrapolating the last two. Two small sizes
            // say little about bandwidth, so the first four sizes may exceed their share.
            const double next = 4 * (fastest + 8 * std::max(0.0, fastest - before));
            if (i > 0 && next > (i < 3 ? seconds : left)) { break; }
            before = fastest;
        }
        return samples;
    }

private:
    [[nodiscard]] static double seconds_since(typename Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    }

    /// The value of rank `first` on every rank.
    [[nodiscard]] double from_first(int first, double value) {
        double shared = over_.rank() == first ? value : 0.0;
        over_.sum({&shared, 1});
        return std::max(shared, 1e-9);
    }

    /// Seconds of a message and its reply, on the rank that begins; 0 on ranks not in the pair.
    double trip(int first, std::int64_t bytes) {
        const int number = std::exchange(next_, next_ + 1);
        if (over_.rank() != first && over_.rank() != first + 1) { return 0.0; }
        const bool begins = over_.rank() == first;
        const int peer = begins ? first + 1 : first;
        const message_id ping{message_kind::boundary, number, microbatch_id{0}};
        const message_id pong{message_kind::boundary_gradient, number, microbatch_id{0}};
        std::array out{message_part{out_, static_cast<std::size_t>(bytes), traffic_kind::boundary, false}};
        std::array in{message_part{in_, static_cast<std::size_t>(bytes), traffic_kind::boundary, false}};
        const auto start = Clock::now();
        if (begins) {
            over_.post_send(peer, ping, out);
            over_.post_recv(peer, pong, in);
            over_.wait_recv(peer, pong);
            over_.wait_send(peer, ping);
        } else {
            over_.post_recv(peer, ping, in);
            over_.wait_recv(peer, ping);
            over_.post_send(peer, pong, out);
            over_.wait_send(peer, pong);
        }
        if (settle_) { settle_(); }
        return seconds_since(start);
    }

    T& over_;
    const std::function<void()>& settle_;
    std::byte* out_{};
    std::byte* in_{};
    int next_{};
};

/// Fits a line to the times. If they do not grow, no message was large enough: the largest is assumed to take twice as
/// long as the fastest.
[[nodiscard]] inline link line_through(const std::vector<link_sample>& samples) {
    const auto faster = [](const link_sample& a, const link_sample& b) { return a.us < b.us; };
    const double least = std::min_element(samples.begin(), samples.end(), faster)->us;
    const link flat{least, 1e-3 * static_cast<double>(samples.back().bytes) / least};
    try {
        return fit_link(samples).line;
    } catch (const input_error&) { return flat; }
}

} // namespace detail

/// The cluster formed by a transport's ranks, with measured links: messages of several sizes between neighbours, pair
/// after pair, a line fitted to their times (fit_link), and of several pairs the slowest at 1 MiB. Ranks of one machine
/// form a node. Ranks of several kinds are unlike devices with speed 1, as their speed is not known yet.
///
/// Collective: all ranks get the same cluster. It takes about `seconds`; on a slow link, large messages are left out.
/// Throws input_error on every rank if memory_bytes is less than 1 on any, and what the transport throws.
template <class Clock = std::chrono::steady_clock, transport T>
[[nodiscard]] cluster measure_links(T& among, const link_measurement& mine) {
    const detail::machine_table table = detail::machines_of(among, mine);
    cluster made{};
    made.memory_bytes = *std::min_element(table.memory_bytes.begin(), table.memory_bytes.end());
    if (made.memory_bytes < 1) { throw input_error{"measure_links: memory_bytes must be at least 1"}; }
    const bool unlike = std::any_of(table.kinds.begin(), table.kinds.end(),
                                    [&](const std::string& kind) { return kind != table.kinds.front(); });
    for (std::size_t r = 0; unlike && r != table.kinds.size(); ++r) {
        made.unlike.push_back(
            {label{std::string_view{table.kinds[r]}.substr(0, label::capacity - 1)}, table.memory_bytes[r]});
    }
    made.devices_per_node = table.devices_per_node;
    made.nodes = table.size() / table.devices_per_node;
    const std::array pairs{detail::measured_pairs(table, true), detail::measured_pairs(table, false)};
    if (pairs[0].empty() && pairs[1].empty()) { return made; }
    detail::ping_pong<Clock, T> messages{among, mine.settle};
    const double seconds = mine.seconds / static_cast<double>(pairs[0].size() + pairs[1].size());
    for (const std::size_t kind : {0U, 1U}) {
        link slowest{};
        for (const int first : pairs[kind]) {
            const link found = detail::line_through(messages.between(first, seconds));
            constexpr std::int64_t reference = std::int64_t{1} << 20U;
            if (found.transfer_us(reference) > slowest.transfer_us(reference)) { slowest = found; }
        }
        (kind == 0 ? made.intra_node : made.inter_node) = slowest;
    }
    return made;
}

} // namespace pulse
