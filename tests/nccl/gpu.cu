#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/launch/control_plane.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>
#include <pulse/nccl/transport.cuh>

// NCCL ranks that are processes, each with a GPU, or all on one: started without PULSE_RANK it starts itself for 2 and 4
// ranks, with the variables by which several ranks may share a GPU.

namespace {

namespace cuda = pulse::cuda;
namespace launch = pulse::launch;
using namespace std::chrono_literals;
using rank_transport = pulse::nccl::transport<launch::control_plane>;

static_assert(pulse::transport<rank_transport>, "nccl::transport is a transport");

constexpr int count = 100'000;
constexpr int skipped = 77;

template <class T>
__global__ void step_kernel(int n, const T* x, T factor, T amount, T* y) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) { y[i] = factor * x[i] + amount; }
}

/// Every rank doubles what it gets from the one before it and adds its number, round after round.
int wrong_in_ring(rank_transport& t, int rounds) {
    const int ranks = t.size();
    const int after = (t.rank() + 1) % ranks;
    const int before = (t.rank() + ranks - 1) % ranks;
    const auto message = [](int round) {
        return pulse::message_id{pulse::message_kind::boundary, round, pulse::microbatch_id{0}};
    };
    pulse::rank_transfers all;
    for (int round = 0; round != rounds; ++round) {
        all.steps.push_back({pulse::transfer_step::role::send, after, message(round), false, {}});
        all.steps.push_back({pulse::transfer_step::role::receive, before, message(round), false, {}});
        all.steps.push_back({pulse::transfer_step::role::other, 0, {}, true, {3 * round, 3 * round + 1}});
    }
    all.slots = pulse::slots_of(all.steps);
    t.follow(all);
    const auto part = [&] {
        return std::array{pulse::message_part{t.allocate(count * sizeof(unsigned)), count * sizeof(unsigned),
                                              pulse::traffic_kind::boundary, false}};
    };
    auto out = part();
    auto in = part();
    auto* const x = reinterpret_cast<unsigned*>(in[0].data);
    auto* const y = reinterpret_cast<unsigned*>(out[0].data);
    const auto compute = [&](const unsigned* from, unsigned factor, unsigned amount) {
        cuda::launch(step_kernel<unsigned>, (count + 255) / 256, 256, 0, t.stream(), count, from, factor, amount, y);
    };
    cuda::fill_bytes_async(y, 0, count, t.stream());
    compute(y, 1, static_cast<unsigned>(t.rank()));
    for (int round = 0; round != rounds; ++round) {
        cuda::fill_bytes_async(x, 0x55, count, t.stream());
        t.post_send(after, message(round), out);
        t.post_recv(before, message(round), in);
        t.wait_recv(before, message(round));
        t.wait_send(after, message(round));
        compute(x, 2, static_cast<unsigned>(t.rank()) + 1);
    }
    t.synchronize();
    std::vector<unsigned> found(count);
    cuda::device_space::download(static_cast<const unsigned*>(y), std::span{found});
    std::vector<unsigned> expected(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r != expected.size(); ++r) { expected[r] = static_cast<unsigned>(r); }
    for (int round = 0; round != rounds; ++round) {
        std::vector<unsigned> next = expected;
        for (std::size_t r = 0; r != next.size(); ++r) {
            next[r] = 2 * expected[(r + next.size() - 1) % next.size()] + static_cast<unsigned>(r) + 1;
        }
        expected = next;
    }
    int wrong = 0;
    for (const unsigned value : found) { wrong += value == expected[static_cast<std::size_t>(t.rank())] ? 0 : 1; }
    return wrong;
}

int run_rank() {
    const launch::rank_identity who = launch::identify();
    launch::tcp_store store{who, {launch::read_endpoint(std::getenv("PULSE_STORE"), "PULSE_STORE"), "", 60s}};
    const launch::rank_table table = launch::rendezvous(store, who);
    launch::watch seen{store, who, table};
    launch::control_plane control{store, who, table, {.timeout = 60s, .seen = &seen}};
    const int devices = cuda::device_count();
    rank_transport t{control,
                     {pulse::rank_layout::pipeline_inside, who.world_size, 1},
                     {.device = who.rank % devices, .timeout = 60s, .seen = &seen, .most_blocks = 4}};
    const int wrong = wrong_in_ring(t, 8);
    double total[1]{static_cast<double>(wrong)};
    t.sum(total);
    std::printf("rank %d of %d on device %d: %d wrong, memory %s\n", who.rank, who.world_size, who.rank % devices,
                wrong, t.registers_memory() ? "registered" : "plain");
    return total[0] == 0 ? 0 : 1;
}

/// Runs this program once per rank; 0 when all ranks end with 0.
int start_ranks(const char* program, int ranks, int devices) {
    std::uint16_t port = 0;
    { const launch::descriptor probe = launch::listen_on("127.0.0.1", port); }
    std::vector<pid_t> started;
    for (int r = 0; r != ranks; ++r) {
        const pid_t id = ::fork();
        if (id == 0) {
            const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
            set("PULSE_RANK", std::to_string(r));
            set("PULSE_WORLD_SIZE", std::to_string(ranks));
            set("PULSE_STORE", "127.0.0.1:" + std::to_string(port));
            if (devices < ranks) {
                // NCCL refuses two ranks on a GPU of one host: each gets a host of its own, and talks by sockets.
                set("NCCL_HOSTID", "pulse-" + std::to_string(r));
                for (const auto& [name, value] :
                     {std::pair{"NCCL_NET", "Socket"}, std::pair{"NCCL_SOCKET_IFNAME", "lo"},
                      std::pair{"NCCL_P2P_DISABLE", "1"}, std::pair{"NCCL_SHM_DISABLE", "1"},
                      std::pair{"NCCL_MNNVL_ENABLE", "0"}, std::pair{"NCCL_RAS_ENABLE", "0"},
                      std::pair{"NCCL_NET_PLUGIN", "none"}}) {
                    set(name, value);
                }
            }
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
        for (const int ranks : {2, 4}) { failed += start_ranks(arguments[0], ranks, devices); }
        return failed == 0 ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
