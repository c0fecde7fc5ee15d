#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <pulse/cuda/device.cuh>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/place.hpp>
#include <pulse/launch/process_group.hpp>
#include <pulse/nccl/shared_device.cuh>
#include <pulse/nccl/transport.cuh>

#include <device_ring.hpp>

// NCCL ranks that are processes, each with a GPU, or several on one: started without PULSE_RANK it starts itself for 2
// and 4 ranks.

namespace {

namespace cuda = pulse::cuda;
namespace launch = pulse::launch;
using namespace std::chrono_literals;
using rank_transport = pulse::nccl::transport<launch::control_plane>;

static_assert(pulse::transport<rank_transport>, "nccl::transport is a transport");

constexpr int skipped = 77;

int run_rank() {
    cuda::widen_queues();
    const launch::rank_identity who = launch::identify();
    launch::process_group group{who, launch::find_meeting_place(who)};
    const int devices = cuda::device_count();
    const int device = group.self().local_rank % devices;
    const bool shared = devices < group.self().local_size;
    if (shared) { pulse::nccl::share_devices(who.rank, group.table().one_machine()); }
    rank_transport t{group.control(),
                     {pulse::rank_layout::pipeline_inside, who.world_size, 1},
                     {.device = device, .timeout = 60s, .seen = &group.seen(), .most_blocks = shared ? 4 : 0}};
    const pulse::test::device_ring ring{.count = 100'000, .rounds = 8};
    t.follow(ring.transfers(t.rank(), t.size()));
    const int wrong = ring.wrong(t);
    double total[1]{static_cast<double>(wrong)};
    t.sum(total);
    std::printf("rank %d of %d on device %d: %d wrong, memory %s\n", who.rank, who.world_size, device, wrong,
                t.registers_memory() ? "registered" : "plain");
    return total[0] == 0 ? 0 : 1;
}

/// Runs this program once per rank; 0 when all ranks end with 0.
int start_ranks(const char* program, int ranks) {
    std::uint16_t port = 0;
    { const launch::detail::descriptor probe = launch::detail::listen_on("127.0.0.1", port); }
    std::vector<pid_t> started;
    for (int r = 0; r != ranks; ++r) {
        const pid_t id = ::fork();
        if (id == 0) {
            const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
            set("PULSE_RANK", std::to_string(r));
            set("PULSE_WORLD_SIZE", std::to_string(ranks));
            set("PULSE_STORE", "127.0.0.1:" + std::to_string(port));
            ::execl("/proc/self/exe", program, static_cast<char*>(nullptr));
            ::_exit(127);
        }
        started.push_back(id);
    }
    int failed = 0;
    for (const pid_t id : started) {
        int status = 0;
        ::waitpid(id, &status, 0);
        failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    }
    return failed;
}

} // namespace

int main(int, char** arguments) {
    try {
        if (std::getenv("PULSE_RANK") != nullptr) { return run_rank(); }
        // Asked in a process of its own: a process that has used a GPU must not fork.
        const pid_t asks = ::fork();
        if (asks == 0) {
            try {
                ::_exit(cuda::device_count());
            } catch (const pulse::error&) { ::_exit(0); } // a driver that cannot be used
        }
        int status = 0;
        ::waitpid(asks, &status, 0);
        const int devices = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        if (devices == 0) {
            std::puts("GPU: none, the NCCL ranks were not run");
            const char* const required = std::getenv("PULSE_REQUIRE_GPU");
            return required != nullptr && std::string{required} == "1" ? 1 : skipped;
        }
        int failed = 0;
        for (const int ranks : {2, 4}) { failed += start_ranks(arguments[0], ranks); }
        return failed == 0 ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
