#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/prove_slots.hpp>
#include <pulse/runtime/transfer_slots.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::test {

template <class T>
__global__ void ring_kernel(int n, const T* x, T factor, T amount, T* y) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) { y[i] = factor * x[i] + amount; }
}

template <class Byte>
__global__ void turn_over(int n, Byte* bytes) {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
        bytes[i] = static_cast<Byte>(~bytes[i]);
    }
}

/// Message parts in device memory, for the laws of support/transports.
struct device_parts {
    static constexpr std::size_t large = 30;
    static constexpr bool launches = false;

    /// Writes the bytes by a kernel on the rank's stream that flips every bit of an uploaded copy.
    template <class Transport>
    static void write(Transport& t, const message_part& part, std::vector<std::byte> bytes) {
        if (bytes.empty()) { return; }
        for (std::byte& b : bytes) { b = ~b; }
        cuda::device_space::upload(std::span<const std::byte>{bytes}, part.data);
        cuda::launch(turn_over<unsigned char>, 1, 32, 0, t.stream(), static_cast<int>(bytes.size()),
                     reinterpret_cast<unsigned char*>(part.data));
    }
    /// Waits for the rank's stream.
    template <class Transport>
    static void finish(Transport& t) {
        if constexpr (requires { t.synchronize(); }) {
            t.synchronize();
        } else {
            cuda::check(cudaStreamSynchronize(t.stream()), "cudaStreamSynchronize");
        }
    }
    static void drain() { cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
    [[nodiscard]] static std::vector<std::byte> read(const message_part& part) {
        std::vector<std::byte> bytes(part.bytes);
        cuda::device_space::download(static_cast<const std::byte*>(part.data), std::span{bytes});
        return bytes;
    }
};

/// A ring of device ranks: each doubles what it gets from the previous rank and adds its number, round after round, in
/// two buffers. The sender overwrites its buffer, and the receiver reads its own, as soon as allowed.
struct device_ring {
    int count{}; ///< values per message
    int rounds{};
    bool exchange{}; ///< the sender's buffer may change hands
    bool drift{};    ///< hosts pause at random
    int asks{};      ///< rounds that are 1 modulo this poll arrived() until it is true; 0: never

    [[nodiscard]] static message_id message(int round) { return {message_kind::boundary, round, microbatch_id{0}}; }
    [[nodiscard]] static int after(int rank, int ranks) noexcept { return (rank + 1) % ranks; }
    [[nodiscard]] static int before(int rank, int ranks) noexcept { return (rank + ranks - 1) % ranks; }

    /// A rank's transfers, for a transport that needs them in advance. Slots hold two messages, as a ring needs.
    [[nodiscard]] rank_transfers transfers(int rank, int ranks) const {
        rank_transfers all;
        for (int round = 0; round != rounds; ++round) {
            all.steps.push_back({transfer_step::role::send, after(rank, ranks), message(round), 1, false, {}});
            all.steps.push_back({transfer_step::role::receive, before(rank, ranks), message(round), 1, false, {}});
            all.steps.push_back({transfer_step::role::other, 0, {}, 1, true, {3 * round, 3 * round + 1}});
        }
        all.slots = slots_of(all.steps);
        return all;
    }

    /// The value that every rank ends with.
    [[nodiscard]] std::vector<unsigned> results(int ranks) const {
        std::vector<unsigned> values(static_cast<std::size_t>(ranks));
        for (std::size_t r = 0; r != values.size(); ++r) { values[r] = static_cast<unsigned>(r); }
        for (int round = 0; round != rounds; ++round) {
            std::vector<unsigned> next = values;
            for (std::size_t r = 0; r != next.size(); ++r) {
                next[r] = 2 * values[(r + next.size() - 1) % next.size()] + static_cast<unsigned>(r) + 1;
            }
            values = next;
        }
        return values;
    }

    /// Runs this rank's part. Returns the number of wrong values at the end, plus one if the transport counted its
    /// sends wrong.
    template <class Transport>
    [[nodiscard]] int wrong(Transport& t) const {
        const int next = after(t.rank(), t.size());
        const int last = before(t.rank(), t.size());
        const auto rank = static_cast<unsigned>(t.rank());
        const auto part = [&](bool may_exchange) {
            const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(unsigned);
            return std::array{message_part{t.allocate(bytes), bytes, traffic_kind::boundary, may_exchange}};
        };
        auto out = part(exchange);
        auto in = part(false);
        const auto buffer = [](const auto& parts) { return reinterpret_cast<unsigned*>(parts[0].data); };
        const auto size = static_cast<std::size_t>(count);
        const auto compute = [&](const unsigned* x, unsigned factor, unsigned amount) {
            cuda::launch(ring_kernel<unsigned>, (count + 127) / 128, 128, 0, t.stream(), count, x, factor, amount,
                         buffer(out));
        };
        std::mt19937 random{rank};
        cuda::fill_bytes_async(buffer(out), 0, size, t.stream());
        compute(buffer(out), 1, rank);
        for (int round = 0; round != rounds; ++round) {
            if (drift) {
                std::this_thread::sleep_for(
                    std::chrono::microseconds{std::uniform_int_distribution<int>{0, 100}(random)});
            }
            cuda::fill_bytes_async(buffer(in), 0x55, size, t.stream()); // its memory is in use until here
            t.post_send(next, message(round), out);
            t.post_recv(last, message(round), in);
            while (asks != 0 && round % asks == 1 && !t.arrived(last, message(round))) { std::this_thread::yield(); }
            t.wait_recv(last, message(round));
            t.wait_send(next, message(round));
            compute(buffer(in), 2, rank + 1);
        }
        device_parts::finish(t);
        std::vector<unsigned> found(size);
        cuda::device_space::download(static_cast<const unsigned*>(buffer(out)), std::span{found});
        const unsigned expected = results(t.size())[rank];
        int bad = 0;
        for (const unsigned value : found) { bad += value == expected ? 0 : 1; }
        const traffic_count sent = t.sent();
        return bad + (sent.messages == rounds && sent.boundary == std::int64_t{rounds} * count * 4 ? 0 : 1);
    }
};

} // namespace pulse::test
