#pragma once

#include <atomic>
#include <exception>
#include <memory>

#include <pulse/launch/process_group.hpp>

#include "arguments.hpp"
#include "rank_collectives.hpp"

namespace pulse_train {

/// 2 if the arguments or input are wrong, even if a rank finds that during a step; else 1.
[[nodiscard]] int exit_code_of(const std::exception& e);

/// Throws input_error if a launcher started this process as one of several: each would train alone and write the same
/// files.
void require_alone(const arguments& a);

/// The whole job if every rank is its own process, started by a launcher; returns the exit code. If a run fails, every
/// rank says why, and all return a code other than 0.
[[nodiscard]] int run_as_process(const arguments& a, const std::atomic<bool>& stop);

/// Makes a process with a device for one of the assembled ranks. Collective.
using device_process_maker = std::unique_ptr<rank_collectives> (*)(const arguments& a,
                                                                   pulse::launch::process_group& group);

/// One instance if NCCL is linked: linking registers it.
struct nccl_registration {
    explicit nccl_registration(device_process_maker maker);
};

} // namespace pulse_train
