#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "background_work.hpp"
#include "p2p.hpp"
#include "statistics.hpp"

namespace pulse_bench {

/// Time that the host spent posting sends.
struct post_time {
    double seconds{};
    int posts{};
};

/// A path from end 0 to end 1 and back, as seen by one thread, which holds both ends, or one while another thread holds
/// the other. All threads of a path call the same functions with the same arguments in the same order.
///
/// 1. ends() are the ends held here;
/// 2. prepare(most) makes room at each end for a message out and a message in of up to `most` bytes;
/// 3. write(end, at, bytes) fills the send buffer of `end`, poison(end, at, bytes) its receive buffer, and
///    read(end, at, bytes) reads the latter; all are done on return;
/// 4. round_trip(bytes) sends from end 0 to end 1 and, after arrival, back; on return it is over at end 0;
/// 5. stream(bytes, n, both) sends n messages from end 0 to end 1 back to back, and as many the other way at once if
///    `both`; on return all are over at end 0;
/// 6. sum(values) adds the values of all threads; none goes on before all have arrived.
template <class P>
concept p2p_path = requires(P& p, const P& c, int end, std::size_t at, std::size_t bytes, std::span<const std::byte> in,
                            std::span<std::byte> out, int n, bool both, std::span<double> values) {
    { c.ends() } -> std::convertible_to<std::vector<int>>;
    p.prepare(bytes);
    p.write(end, at, in);
    p.poison(end, at, in);
    p.read(end, at, out);
    p.round_trip(bytes);
    { p.stream(bytes, n, both) } -> std::same_as<post_time>;
    p.sum(values);
};

/// Word i of the message from `end`, by Mueller's integer hash, so that bytes in different places differ.
[[nodiscard]] constexpr std::uint32_t pattern_word(std::uint32_t seed, int end, std::uint32_t i) noexcept {
    std::uint32_t x = i * 0x9e3779b9U + seed + static_cast<std::uint32_t>(end) * 0x7f4a7c15U;
    x = (x ^ (x >> 16U)) * 0x45d9f3bU;
    x = (x ^ (x >> 16U)) * 0x45d9f3bU;
    return x ^ (x >> 16U);
}

/// Calls use(at, words) for every piece of a message of `bytes` bytes, in order; `words` is its pattern, with all bits
/// inverted if `turned`.
template <class Use>
void for_each_piece(std::size_t bytes, std::uint32_t seed, int end, bool turned, const Use& use) {
    constexpr std::size_t piece = std::size_t{1} << 20U;
    std::vector<std::uint32_t> words(std::min(piece, bytes + 3) / 4);
    for (std::size_t at = 0; at < bytes; at += piece) {
        const auto first = static_cast<std::uint32_t>(at / 4);
        for (std::size_t i = 0; i != words.size(); ++i) {
            words[i] = pattern_word(seed, end, first + static_cast<std::uint32_t>(i)) ^ (turned ? ~0U : 0U);
        }
        use(at, std::as_bytes(std::span{words}).first(std::min(piece, bytes - at)));
    }
}

/// Number of wrong bytes after `transfer`, over both directions: every byte is compared, and receive buffers hold the
/// inverted pattern before. Call on all threads.
template <p2p_path P, class Transfer>
[[nodiscard]] std::int64_t count_wrong(P& path, std::size_t bytes, std::uint32_t seed, const Transfer& transfer) {
    for (const int end : path.ends()) {
        for_each_piece(bytes, seed, end, false,
                       [&](std::size_t at, std::span<const std::byte> words) { path.write(end, at, words); });
        for_each_piece(bytes, seed, 1 - end, true,
                       [&](std::size_t at, std::span<const std::byte> words) { path.poison(end, at, words); });
    }
    path.sum({});
    transfer();
    double wrong = 0;
    std::vector<std::byte> found;
    for (const int end : path.ends()) {
        for_each_piece(bytes, seed, 1 - end, false, [&](std::size_t at, std::span<const std::byte> wanted) {
            found.resize(wanted.size());
            path.read(end, at, found);
            std::int64_t here = 0;
            for (std::size_t i = 0; i != wanted.size(); ++i) { here += found[i] == wanted[i] ? 0 : 1; }
            wrong += static_cast<double>(here);
        });
    }
    path.sum({&wrong, 1});
    return static_cast<std::int64_t>(wrong);
}

/// Seconds that `work` takes.
template <class Work>
[[nodiscard]] double clocked(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Seconds of every run of `work`, repeated for about options.seconds; end 0 decides how often.
template <p2p_path P, class Work>
[[nodiscard]] std::vector<double> repeat(P& path, const p2p_options& options, const Work& work) {
    double runs = options.seconds / std::max(clocked(work), 1e-9);
    if (path.ends().front() != 0) { runs = 0; }
    path.sum({&runs, 1});
    std::vector<double> seconds(static_cast<std::size_t>(std::clamp(runs, 1.0 * options.repeats, 1e5)));
    for (double& s : seconds) { s = clocked(work); }
    return seconds;
}

/// Measures every size of the options on a path. Call on each of its threads; the one with end 0 gets the figures.
///
/// `product` runs a matrix product on the side of end 0, done on return; a separate thread repeats it while messages
/// pass. All times are by the host's clock and include what the host needs to start a transfer and to see its end.
template <p2p_path P>
[[nodiscard]] std::vector<p2p_row> measure_path(P& path, const p2p_options& options,
                                                const std::function<void()>& product) {
    const bool leads = path.ends().front() == 0;
    path.prepare(static_cast<std::size_t>(options.sizes.back().bytes));
    double alone = 0;
    if (leads) {
        product(); // finds its algorithm, fills its cache
        background_work products{product};
        alone = products.seconds_of_one(options.seconds);
    }
    std::vector<p2p_row> rows;
    for (const p2p_size& size : options.sizes) {
        const auto bytes = static_cast<std::size_t>(size.bytes);
        // Enough to fill some milliseconds of a fast link, so that start and end do not matter.
        const auto window = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{32} << 20) / size.bytes, 2, 64));
        const auto seed = static_cast<std::uint32_t>(1 + 2 * rows.size());
        p2p_row row{size};
        row.wrong = count_wrong(path, bytes, seed, [&] { path.round_trip(bytes); });
        row.wrong += count_wrong(path, bytes, seed + 1, [&] { static_cast<void>(path.stream(bytes, 2, true)); });

        const std::vector<double> trips = repeat(path, options, [&] { path.round_trip(bytes); });
        row.p50_us = 0.5e6 * quantile(trips, 0.5);
        row.p99_us = 0.5e6 * quantile(trips, 0.99);
        post_time posted;
        const auto rate = [&](bool both) {
            const std::vector<double> windows = repeat(path, options, [&] {
                const post_time some = path.stream(bytes, window, both);
                posted.seconds += some.seconds;
                posted.posts += some.posts;
            });
            return 1e-9 * (both ? 2 : 1) * window * static_cast<double>(bytes) / median(windows);
        };
        row.gb_per_s = rate(false);
        row.post_us = posted.posts == 0 ? 0.0 : 1e6 * posted.seconds / posted.posts;
        row.both_ways_gb_per_s = rate(true);
        if (leads) {
            background_work products{product};
            row.beside_gb_per_s = rate(false);
            row.product_slower_percent = 100 * (products.seconds_of_one(0) / alone - 1);
        } else {
            static_cast<void>(rate(false));
        }
        rows.push_back(row);
    }
    return rows;
}

} // namespace pulse_bench
