#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "ledger.hpp"

namespace pulse_bench {

struct count_options {
    block_options blocks{};
    std::string card{"h200"};
    bool markdown{};
    std::string json_file{};
};

struct counted_step {
    ledger book;
    std::int64_t parameters{};
    std::int64_t runtime_calls{}; ///< copies and fills, which are not kernels
};

/// A model whose step can be counted.
struct counted_model {
    const char* name;
    counted_step (*count)(int batch, const card& on);
};

// Each is compiled separately: a whole model takes the compiler some seconds.
[[nodiscard]] counted_step count_small(int batch, const card& on);
[[nodiscard]] counted_step count_sd21_512(int batch, const card& on);
[[nodiscard]] counted_step count_sd21_768(int batch, const card& on);
[[nodiscard]] counted_step count_sdxl(int batch, const card& on);

[[nodiscard]] inline std::vector<counted_model> counted_models(bool quick) {
    if (quick) { return {{"small", count_small}}; }
    return {{"sd21 512", count_sd21_512}, {"sd21 768", count_sd21_768}, {"sdxl 1024", count_sdxl}};
}

/// Counts the kernels, bytes and FLOP of training steps on emulated CUDA, without a device; returns the exit status.
/// Where CUDA is not emulated, runs bench_blocks_emulated beside this program with the same arguments instead.
[[nodiscard]] int count_blocks(const count_options& options, char** arguments);

} // namespace pulse_bench
