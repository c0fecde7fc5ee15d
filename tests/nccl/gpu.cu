#include <cstdio>
#include <cstdlib>
#include <string>

#include "ranks.hpp"

// NCCL ranks as processes, each with a GPU, or several sharing one.

int main() {
    const int devices = pulse::test::device_count();
    if (devices == 0) {
        std::puts("GPU: none, the NCCL ranks were not run");
        const char* const required = std::getenv("PULSE_REQUIRE_GPU");
        return required != nullptr && std::string{required} == "1" ? 1 : 77;
    }
    return pulse::test::nccl_ranks_are_right(devices) ? 0 : 1;
}
