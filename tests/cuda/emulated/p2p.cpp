// The paths of bench_p2p on devices: its figures mean nothing here, but every byte must arrive on every path.
#include <doctest/doctest.h>

#include <string>

#define PULSE_BENCH_NCCL 0 // tests/nccl covers it
#include "../../../bench/p2p_device.cu"
#include "../../../bench/p2p_kernels.cu"

using namespace pulse_bench;

TEST_CASE("every path on devices measures every size, and no byte is wrong") {
    CHECK(find_devices().count == 1);
    p2p_options options{{{8, "a"}, {1000, {}}, {40000, "b"}}, 1e-3, 2, true};
    for (const std::string& path : device_paths) {
        CAPTURE(path);
        const p2p_report report = measure_device_path(path, options);
        CHECK(report.path == path);
        CHECK(report.text.find("device 0") != std::string::npos);
        CHECK(report.copy_gb_per_s > 0);
        REQUIRE(report.rows.size() == options.sizes.size());
        for (std::size_t i = 0; i != report.rows.size(); ++i) {
            const p2p_row& row = report.rows[i];
            CHECK(row.size.bytes == options.sizes[i].bytes);
            CHECK(row.size.name == options.sizes[i].name);
            CHECK(row.wrong == 0);
            CHECK(row.p50_us > 0);
            CHECK(row.p99_us >= row.p50_us);
            CHECK(row.gb_per_s > 0);
            CHECK(row.both_ways_gb_per_s > 0);
            CHECK(row.beside_gb_per_s > 0);
            CHECK(row.post_us > 0);
        }
    }
}
