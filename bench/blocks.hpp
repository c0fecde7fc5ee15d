#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pulse_bench {

/// What of bench_blocks is measured.
struct block_options {
    std::vector<int> batches{1, 4, 16};
    std::string only{}; ///< operations whose name contains this
    int rounds{11};     ///< of which the median counts
    bool quick{};       ///< one small shape of each operation; the figures mean nothing
};

/// One operation at one shape.
struct block_row {
    std::string operation{};
    std::string shape{};
    int batch{};
    double seconds{};        ///< of one run, inputs not in the cache
    double spread_percent{}; ///< half the distance between the quartiles
    double bytes{};          ///< that the operation must move at least
    double flops{};          ///< of its products; 0: memory is its ceiling
    std::int64_t checked{};
    std::int64_t wrong{}; ///< of the checked numbers
};

struct block_report {
    std::string device{};
    int driver{};              ///< CUDA version of the driver, 1000 major + 10 minor
    double bytes_per_second{}; ///< read and written, of a large copy on the device
    double flops_per_second{}; ///< of a large product in bfloat16
    std::vector<block_row> rows{};
};

/// Whether there is a device to measure.
[[nodiscard]] bool has_device();

/// Measures the operations of the CUDA backend in bfloat16. Throws where the device, or a check of memory, fails.
[[nodiscard]] block_report measure_blocks(const block_options& options);

} // namespace pulse_bench
