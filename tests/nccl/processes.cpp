#include <cstdlib>
#include <filesystem>
#include <string>

#include "ranks.hpp"

// The same ranks with CUDA and NCCL emulated, for which the processes meet in a folder.

int main() {
    std::string folder = (std::filesystem::temp_directory_path() / "pulse-nccl-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) { return 1; }
    ::setenv("PULSE_EMULATED_NCCL", folder.c_str(), 1);
    const bool right = pulse::test::nccl_ranks_are_right(1);
    std::filesystem::remove_all(folder);
    return right ? 0 : 1;
}
