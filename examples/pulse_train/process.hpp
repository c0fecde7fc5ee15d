#pragma once

#include <atomic>
#include <exception>
#include <memory>

#include <pulse/launch/process_group.hpp>

#include "arguments.hpp"
#include "rank_collectives.hpp"

namespace pulse_train {

/// 2 where what was asked or given is wrong, also where a rank found it amid a step; else 1.
[[nodiscard]] int exit_code_of(const std::exception& e);

/// Throws input_error when a launcher has started this process as one of several, each of which would train alone and
/// write the same files.
void require_alone(const arguments& a);

/// The whole job where every rank is a process of its own that a launcher has started; gives the exit code. Every rank
/// says why it ends when it does not end well, and all give a code other than 0 then.
[[nodiscard]] int run_as_process(const arguments& a, const std::atomic<bool>& stop);

/// Makes a process with a device of the ranks that have met. Collective.
using device_process_maker = std::unique_ptr<rank_collectives> (*)(const arguments& a,
                                                                   pulse::launch::process_group& group);

/// Made once where NCCL is linked: what is linked is what there is.
struct nccl_registration {
    explicit nccl_registration(device_process_maker maker);
};

} // namespace pulse_train
