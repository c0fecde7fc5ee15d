#include <initializer_list>
#include <pulse/hardware/link.hpp>

#include <cstdint>

#include <doctest/doctest.h>

#include "../support/check_both.hpp"

using pulse::nvlink3;
using pulse::pcie4_x16;

TEST_CASE("a transfer takes the latency and the bytes over the bandwidth") {
    constexpr pulse::link wire{.latency_us = 5.0, .bandwidth_gb_per_s = 2.0};
    CHECK_BOTH(wire.transfer_us(0) == 5.0);
    CHECK_BOTH(wire.transfer_us(2000) == 6.0); // 2 GB/s is 2000 bytes per microsecond
    CHECK_BOTH(wire.transfer_us(2'000'000'000) == 1e6 + 5.0);
    CHECK_BOTH(pulse::link{}.transfer_us(1 << 30) == 0.0);
    CHECK_BOTH(pulse::link{.latency_us = 3.0, .bandwidth_gb_per_s = 0.0}.transfer_us(1 << 30) == 3.0);
}

TEST_CASE("splitting a message costs its latency again, and no byte more") {
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{4096}, std::int64_t{1} << 33}) {
        const double whole = pcie4_x16.transfer_us(2 * bytes);
        CHECK(2.0 * pcie4_x16.transfer_us(bytes) == doctest::Approx(whole + pcie4_x16.latency_us));
        CHECK(nvlink3.transfer_us(bytes) < pcie4_x16.transfer_us(bytes));
    }
}
