#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace pulse::nccl {

/// Lets ranks that are processes share a GPU, which NCCL refuses to two ranks of one host: each rank becomes its own
/// host, and they talk through sockets. Every rank of the run must call this before any other use of NCCL, which reads
/// these environment variables once; variables already set stay. For functional checks: the ranks' kernels take turns,
/// and a message takes milliseconds. `most_blocks` of the transport should then be small.
inline void share_devices(int rank, bool one_machine) {
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); };
    set("NCCL_HOSTID", "pulse-" + std::to_string(rank));
    for (const auto& [name, value] : {std::pair{"NCCL_NET", "Socket"}, std::pair{"NCCL_P2P_DISABLE", "1"},
                                      std::pair{"NCCL_SHM_DISABLE", "1"}, std::pair{"NCCL_MNNVL_ENABLE", "0"},
                                      std::pair{"NCCL_RAS_ENABLE", "0"}, std::pair{"NCCL_NET_PLUGIN", "none"}}) {
        set(name, value);
    }
    if (one_machine) { set("NCCL_SOCKET_IFNAME", "lo"); }
}

} // namespace pulse::nccl
