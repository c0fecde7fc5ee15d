#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pulse_bench {

/// A message to measure; `name` says whose it is, empty for one of the doubling sizes.
struct p2p_size {
    std::int64_t bytes{};
    std::string name{};
};

/// What bench_p2p measures of every path.
struct p2p_options {
    std::vector<p2p_size> sizes{}; ///< ascending
    double seconds{};              ///< for each of the four measurements of a size
    int repeats{};                 ///< of each measurement, at least
    bool quick{};                  ///< small copies and background products: the figures mean nothing
};

/// One size on one path. 1 GB = 10^9 bytes.
struct p2p_row {
    p2p_size size{};
    double p50_us{}; ///< one way: half a round trip
    double p99_us{};
    double gb_per_s{};               ///< one way, messages back to back
    double both_ways_gb_per_s{};     ///< the sum of both directions at once
    double beside_gb_per_s{};        ///< one way, while the sender's side runs matrix products
    double product_slower_percent{}; ///< how much longer those products take
    double post_us{};                ///< time of the host to post one send
    std::int64_t wrong{};            ///< bytes that arrived wrong or not at all
};

/// A path between two ends, measured.
struct p2p_report {
    std::string path{};
    std::string text{}; ///< what it is, for people
    bool between_hosts{};
    double copy_gb_per_s{}; ///< of a path on one card: what a large copy on that card reaches; else 0
    std::vector<p2p_row> rows{};
};

} // namespace pulse_bench
