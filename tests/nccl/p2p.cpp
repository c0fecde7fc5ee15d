// The path of bench_p2p over NCCL: figures mean nothing here, but every byte must arrive and no pair of posts may hang.
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <pulse/cuda/launch.cuh>

#include "../../bench/p2p_nccl.cuh"

TEST_CASE("bench_p2p measures NCCL's messages one way, both ways and round, and no byte is wrong") {
    const pulse_bench::p2p_options options{{{8, {}}, {1000, {}}, {40000, {}}}, 1e-3, 2, true};
    for (const bool registered : {false, true}) {
        CAPTURE(registered);
        const std::vector<pulse_bench::p2p_row> rows =
            pulse_bench::measure_nccl_path({0, 0}, registered, options, [] {});
        REQUIRE(rows.size() == options.sizes.size());
        for (std::size_t i = 0; i != rows.size(); ++i) {
            CHECK(rows[i].size.bytes == options.sizes[i].bytes);
            CHECK(rows[i].wrong == 0);
            CHECK(rows[i].p50_us > 0);
            CHECK(rows[i].both_ways_gb_per_s > 0);
        }
    }
}
