#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/cuda/thread_transport.cuh>

#include <device_ring.hpp>

namespace cuda = pulse::cuda;
using cuda::thread_transport;
using pulse::message_id;
using pulse::message_part;

namespace {

[[nodiscard]] message_id message(int number) {
    return {pulse::message_kind::boundary, number, pulse::microbatch_id{0}};
}

/// The text of the error that a run ends with.
template <class Body>
[[nodiscard]] std::string error_of(int ranks, Body body) {
    try {
        cuda::run_ranks(std::vector<int>(static_cast<std::size_t>(ranks), 0), {}, body);
    } catch (const pulse::error& e) { return e.what(); }
    return {};
}

constexpr int count = 300;

[[nodiscard]] message_part part_of(unsigned* data, bool exchange) {
    return {reinterpret_cast<std::byte*>(data), count * sizeof(unsigned), pulse::traffic_kind::boundary, exchange};
}

void check_ring(int ranks, int rounds, bool exchange) {
    const pulse::test::device_ring ring{.count = count, .rounds = rounds, .exchange = true, .drift = true, .asks = 2};
    std::atomic<int> wrong{0};
    std::atomic<std::int64_t> handed_over{0};
    cuda::run_ranks(std::vector<int>(static_cast<std::size_t>(ranks), 0), {exchange}, [&](thread_transport& t) {
        wrong += ring.wrong(t);
        handed_over += t.sent().handed_over;
    });
    CHECK(wrong == 0);
    CHECK((handed_over > 0) == exchange);
}

} // namespace

TEST_CASE("ranks on one device pass messages behind the work that makes them and before the work that reads them") {
    for (const bool exchange : {false, true}) {
        check_ring(2, 20, exchange);
        check_ring(4, 100, exchange);
    }
}

TEST_CASE("messages may be waited for in another order than they were posted, and many may be under way") {
    constexpr int messages = 200; // more than a channel has room for at first
    std::vector<unsigned> found;
    cuda::run_ranks({0, 0}, {}, [&](thread_transport& t) {
        cuda::device_memory<unsigned> all(std::size_t{messages} * count);
        std::vector<message_part> parts;
        for (int m = 0; m != messages; ++m) { parts.push_back(part_of(all.data() + std::ptrdiff_t{m} * count, false)); }
        if (t.rank() == 0) { cuda::fill_bytes_async(all.data(), 0, all.size(), t.stream()); }
        for (int m = 0; m != messages; ++m) {
            const std::span<message_part> one{&parts[static_cast<std::size_t>(m)], 1};
            if (t.rank() == 0) {
                unsigned* const data = all.data() + std::ptrdiff_t{m} * count;
                cuda::launch(pulse::test::ring_kernel<unsigned>, 3, 128, 0, t.stream(), count, data, 1U,
                             static_cast<unsigned>(m), data);
                t.post_send(1, message(m), one);
            } else {
                t.post_recv(0, message(m), one);
            }
        }
        for (int m = messages; m-- != 0;) { t.rank() == 0 ? t.wait_send(1, message(m)) : t.wait_recv(0, message(m)); }
        cuda::check(cudaStreamSynchronize(t.stream()), "cudaStreamSynchronize");
        if (t.rank() == 0) { return; }
        found.resize(all.size());
        cuda::device_space::download(static_cast<const unsigned*>(all.data()), std::span{found});
    });
    REQUIRE(found.size() == std::size_t{messages} * count);
    int wrong = 0;
    for (std::size_t i = 0; i != found.size(); ++i) { wrong += found[i] == i / count ? 0 : 1; }
    CHECK(wrong == 0);
}

TEST_CASE("sums, gathers and broadcasts of hosts are those of all ranks") {
    cuda::run_ranks({0, 0, 0}, {}, [](thread_transport& t) {
        double value = 1.0 + t.rank();
        t.sum({&value, 1});
        if (value != 6.0) { throw pulse::error{"another sum"}; }
        std::vector<std::byte> mine(static_cast<std::size_t>(t.rank()) + 1, static_cast<std::byte>(t.rank()));
        const auto all = t.gather(mine);
        if (t.rank() == 0 && (all.size() != 3 || all[2] != std::vector<std::byte>(3, std::byte{2}))) {
            throw pulse::error{"another gather"};
        }
        t.broadcast(mine);
        if (mine != std::vector<std::byte>(1, std::byte{0})) { throw pulse::error{"another broadcast"}; }
    });
}

TEST_CASE("a rank that fails, leaves or disagrees stops the others") {
    const auto room = [](thread_transport& t, std::size_t bytes = 64) {
        return std::array<message_part, 1>{
            message_part{t.allocate(bytes), bytes, pulse::traffic_kind::boundary, false}};
    };
    CHECK(error_of(3, [&](thread_transport& t) {
              auto parts = room(t);
              if (t.rank() == 1) { throw pulse::error{"no wish to go on"}; }
              t.post_recv(1, message(0), parts);
              t.wait_recv(1, message(0));
          }) == "no wish to go on");
    CHECK(error_of(2, [&](thread_transport& t) {
              auto parts = room(t);
              if (t.rank() == 1) { return; }
              t.post_recv(1, message(0), parts);
              t.wait_recv(1, message(0));
          }).find("rank 1 has returned") != std::string::npos);
    CHECK(error_of(2, [&](thread_transport& t) {
              auto parts = room(t);
              t.rank() == 0 ? t.post_send(1, message(0), parts) : t.post_recv(0, message(1), parts);
              t.sum({});
          }).find("disagree about the next message") != std::string::npos);
    CHECK(error_of(2, [&](thread_transport& t) {
              auto parts = room(t, t.rank() == 0 ? 64 : 128);
              t.rank() == 0 ? t.post_send(1, message(0), parts) : t.post_recv(0, message(0), parts);
              t.sum({});
          }).find("disagree about the size") != std::string::npos);
    CHECK(error_of(2, [&](thread_transport& t) { t.wait_send(1, message(0)); }).find("never posted") !=
          std::string::npos);
    CHECK_THROWS_AS(cuda::thread_group{std::vector<int>{}}, pulse::input_error);
    CHECK_THROWS_AS(cuda::thread_group{std::vector<int>{1000}}, pulse::input_error);
    CHECK_THROWS_AS((cuda::thread_transport{std::make_shared<cuda::thread_group>(std::vector<int>{0}), 1}),
                    pulse::input_error);
}

TEST_CASE("once a failure is told, no transfer touches what was posted") {
    // The transfer that had started has ended when fail() returns: what is written to the room then stays.
    std::vector<unsigned> found(count);
    try {
        cuda::run_ranks({0, 0}, {}, [&](thread_transport& t) {
            auto* const memory = reinterpret_cast<unsigned*>(t.allocate(count * sizeof(unsigned)));
            std::array<message_part, 1> parts{part_of(memory, false)};
            if (t.rank() == 0) {
                cuda::fill_bytes_async(memory, 1, count, t.stream());
                t.post_send(1, message(0), parts);
                t.sum({});
                t.sum({});
            } else {
                t.post_recv(0, message(0), parts);
                t.sum({}); // both have posted: the transfer has started
                t.fail("enough");
                const std::vector<unsigned> mine(count, 7);
                cuda::device_space::upload(std::span<const unsigned>{mine}, memory);
                cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
                cuda::device_space::download(static_cast<const unsigned*>(memory), std::span{found});
                throw pulse::error{"enough"};
            }
        });
        CHECK(false);
    } catch (const pulse::error& e) { CHECK(std::string{e.what()} == "enough"); }
    for (const unsigned value : found) { CHECK(value == 7); }
}
