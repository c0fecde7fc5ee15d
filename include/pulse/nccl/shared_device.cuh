#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace pulse::nccl {

/// Lets ranks that are processes share a GPU, which NCCL refuses to two ranks of one host: each rank becomes a host of
/// its own and they talk through sockets. To be called by every rank of the run before anything else of NCCL, which
/// reads these environment variables once; variables that are set already stay. For functional checks: kernels of the
/// ranks take turns, and a message takes milliseconds. `most_blocks` of the transport should be small then.
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
