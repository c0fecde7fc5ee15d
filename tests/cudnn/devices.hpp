#pragma once

#include <string>

namespace cudnn_tests {

/// A device as cuDNN's JSON of device properties describes it; datasheet values.
struct device_facts {
    const char* name;
    int sm;
    int multiprocessors;
    int shared_bytes; ///< that one block may have
    long long memory_bytes;
    int clock_khz;
    int memory_clock_khz;
    int cache_bytes;
};

inline constexpr device_facts a100{"NVIDIA A100-SXM4-80GB", 80,      108,     166912,
                                   85'899'345'920,          1410000, 1593000, 41943040};
inline constexpr device_facts h200{"NVIDIA H200", 90, 132, 232448, 150'754'820'096, 1980000, 3201000, 62914560};
inline constexpr device_facts b200{"NVIDIA B200", 100, 148, 232448, 191'503'138'816, 1965000, 3996000, 132644864};

[[nodiscard]] inline std::string properties_json(const device_facts& d) {
    const auto field = [](const char* name, long long value) {
        return "\"" + std::string{name} + "\":" + std::to_string(value) + ",";
    };
    return "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]," + field("regsPerBlock", 65536) +
           field("multiProcessorCount", d.multiprocessors) + field("warpSize", 32) +
           field("maxSharedMemoryPerBlock", 49152) + field("maxSharedMemoryPerBlockOptin", d.shared_bytes) +
           field("reservedSharedMemoryPerBlock", 1024) + field("maxRegistersPerSM", 65536) + field("maxCtasPerSM", 32) +
           field("maxThreadsPerBlock", 1024) + field("maxThreadsPerSM", 2048) + field("pciDeviceId", 0) +
           field("isTccDriver", 0) + field("supportCoopLaunch", 1) + field("totalGlobalMem", d.memory_bytes) +
           field("smClockRateKHz", d.clock_khz) + field("memClockRateKHz", d.memory_clock_khz) +
           field("l2CacheSize", d.cache_bytes) + field("cudaDeviceId", 0) + field("deviceVer", d.sm * 10) +
           field("driverVer", 13000) + "\"deviceName\":\"" + d.name + "\"}";
}

} // namespace cudnn_tests
