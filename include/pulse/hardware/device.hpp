#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>

namespace pulse {

/// A device as data: peak rates from the maker's documents, and the one fraction of them that a backbone is assumed to
/// reach.
///
/// Rates are dense (no sparsity) with float32 accumulation; 0 where the maker states none. 1 GB = 10^9 bytes.
struct device {
    label name{};
    std::int64_t memory_bytes{};
    double memory_gb_per_s{};
    /// 16-bit floating point on the matrix units.
    double tflops_16{};
    /// float32 on the ordinary units.
    double tflops_32{};
    double tflops_64{};
    /// Fraction of each peak that analytic costs assume; not a figure of the maker.
    double efficiency{1.0};
    bool runs_cuda{true};
    std::string_view source{};

    /// Peak FLOP/s for scalars of 2, 4 or 8 bytes. Throws input_error for any other size.
    [[nodiscard]] constexpr double peak_flops_per_s(int scalar_bytes) const {
        switch (scalar_bytes) {
        case 2: return tflops_16 * 1e12;
        case 4: return tflops_32 * 1e12;
        case 8: return tflops_64 * 1e12;
        default: throw input_error("scalar_bytes: it must be 2, 4 or 8");
        }
    }
};

inline constexpr device v100_16gb{.name = "v100-16gb",
                                  .memory_bytes = 16'000'000'000,
                                  .memory_gb_per_s = 900.0,
                                  .tflops_16 = 125.0,
                                  .tflops_32 = 15.7,
                                  .tflops_64 = 7.8,
                                  .efficiency = 0.4,
                                  .source = "NVIDIA Tesla V100 datasheet (January 2020), SXM2"};
inline constexpr device v100_32gb{.name = "v100-32gb",
                                  .memory_bytes = 32'000'000'000,
                                  .memory_gb_per_s = 900.0,
                                  .tflops_16 = 125.0,
                                  .tflops_32 = 15.7,
                                  .tflops_64 = 7.8,
                                  .efficiency = 0.4,
                                  .source = "NVIDIA Tesla V100 datasheet (January 2020), SXM2"};
inline constexpr device a100_80gb{.name = "a100-80gb",
                                  .memory_bytes = 80'000'000'000,
                                  .memory_gb_per_s = 2039.0,
                                  .tflops_16 = 312.0,
                                  .tflops_32 = 19.5,
                                  .tflops_64 = 9.7,
                                  .efficiency = 0.4,
                                  .source = "NVIDIA A100 datasheet (June 2021), SXM4 80 GB"};
inline constexpr device h100_80gb{.name = "h100-80gb",
                                  .memory_bytes = 80'000'000'000,
                                  .memory_gb_per_s = 3350.0,
                                  .tflops_16 = 989.0,
                                  .tflops_32 = 67.0,
                                  .tflops_64 = 34.0,
                                  .efficiency = 0.4,
                                  .source =
                                      "NVIDIA H100 datasheet, SXM5; its 16-bit figure halved, as it is with sparsity"};
inline constexpr device h200{.name = "h200",
                             .memory_bytes = 141'000'000'000,
                             .memory_gb_per_s = 4800.0,
                             .tflops_16 = 989.0,
                             .tflops_32 = 67.0,
                             .tflops_64 = 34.0,
                             .efficiency = 0.4,
                             .source = "NVIDIA H200 datasheet, SXM; its 16-bit figure halved, as it is with sparsity"};
inline constexpr device ascend_910a{.name = "ascend-910a",
                                    .memory_bytes = 32'000'000'000,
                                    .memory_gb_per_s = 1200.0,
                                    .tflops_16 = 256.0,
                                    .tflops_32 = 0.0,
                                    .tflops_64 = 0.0,
                                    .efficiency = 0.4,
                                    .runs_cuda = false,
                                    .source = "Huawei, Hot Chips 31 (2019) and the launch of Ascend 910 (2019-08-23)"};
inline constexpr device rtx_4090{.name = "rtx-4090",
                                 .memory_bytes = 24'000'000'000,
                                 .memory_gb_per_s = 1008.0,
                                 .tflops_16 = 165.2,
                                 .tflops_32 = 82.6,
                                 .tflops_64 = 1.29,
                                 .efficiency = 0.4,
                                 .source = "NVIDIA Ada GPU Architecture whitepaper, appendix A, GeForce RTX 4090"};
/// One core of a current server, for planning without figures of the actual machine.
inline constexpr device cpu_core{
    .name = "cpu-core",
    .memory_bytes = 4'000'000'000,
    .memory_gb_per_s = 10.0,
    .tflops_16 = 0.0,
    .tflops_32 = 0.096,
    .tflops_64 = 0.048,
    .efficiency = 0.7,
    .runs_cuda = false,
    .source = "by arithmetic: two AVX2 multiply-adds a cycle at 3 GHz; memory is a rule of thumb"};

/// Every device that is known by name.
inline constexpr std::array known_devices{v100_16gb, v100_32gb, a100_80gb,   h100_80gb,
                                          h200,      rtx_4090,  ascend_910a, cpu_core};

/// The known device of this name, or null.
[[nodiscard]] constexpr const device* find_device(std::string_view name) noexcept {
    for (const device& known : known_devices) {
        if (known.name.view() == name) { return &known; }
    }
    return nullptr;
}

} // namespace pulse
