#pragma once

#include <array>

#include <CLI/CLI.hpp>

namespace pulse_bench {

// Each part of bench_plan adds a subcommand whose callback measures, prints and writes the JSON.

/// Growth of the partitioner's time with the number of layers.
void add_partition_part(CLI::App& app);

/// Bytes between devices: folded against sequential and interleaved, for the models of the zoo.
void add_bytes_part(CLI::App& app);

/// Makespan against the certified bound on the grid of schedule_grid.hpp, with the targets.
void add_gaps_part(CLI::App& app);

/// Every schedule method on every backbone of the zoo, validated and checked, beside the synthesizer at equal memory.
void add_schedules_part(CLI::App& app);

/// Time of the tuner on a large cluster, and its choice against the whole space.
void add_tuner_part(CLI::App& app);

/// Frozen work in the bubbles of a pipeline: makespan against the certified bound, and against encoding first.
void add_frozen_part(CLI::App& app);

#ifdef PULSE_BENCH_PART // this one alone, as it compiles in a tenth of the time
inline constexpr std::array plan_parts{&PULSE_BENCH_PART};
#else
inline constexpr std::array plan_parts{&add_partition_part, &add_bytes_part, &add_gaps_part,
                                       &add_schedules_part, &add_tuner_part, &add_frozen_part};
#endif

} // namespace pulse_bench
