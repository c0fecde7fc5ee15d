#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <pulse/partition/partition.hpp>

namespace pulse_plan {

/// Who orders the passes, as the command line names it.
enum class method { ilp, list, gpipe, one_f_one_b, interleaved, zb_v };

/// Whether replicas share the optimizer's state. A plan file does not say it, so it is tuned only where that is asked.
enum class sharding { no, yes, tuned };

/// What the command line says, validated. What is empty or absent is tuned, or follows from the rest.
struct arguments {
    std::string model{};
    std::string device{};
    std::string profile{};
    std::string cluster{};
    int devices{};
    int global_batch{};
    std::optional<int> pipeline{};
    std::optional<int> data{};
    std::optional<int> waves{};
    std::optional<int> microbatch_size{};
    std::optional<int> microbatches{};
    std::optional<pulse::placement> placement{};
    std::optional<bool> split_backward{};
    std::optional<pulse::skip_routing> routing{};
    std::optional<pulse::recomputation> recompute{};
    sharding optimizer{sharding::no};
    std::optional<std::int64_t> memory_limit_bytes{};
    std::optional<method> schedule{};
    double time_limit_s{2.0};
    std::string out{};
    std::string svg{};
    std::string trace{};
};

/// Parses the command line. Empty when the program is to exit at once with `exit_code`: after --help, or after one line
/// on stderr that says which argument is wrong.
[[nodiscard]] std::optional<arguments> parse(int argc, char** argv, int& exit_code);

} // namespace pulse_plan
