#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <pulse/cuda/thread_transport.cuh>

#include <device_ring.hpp>
#include <support/transports/endings.hpp>

namespace cuda = pulse::cuda;
namespace laws = pulse::test::transport_laws;
using cuda::thread_transport;

namespace {

struct ranks_of_a_device : pulse::test::device_parts {
    static constexpr bool sees_leaving = true;
    static constexpr const char* other_sum = " values, another rank sums ";
    static constexpr const char* other_collective = ", another rank ";
    int ranks{2};
    bool exchanges{};

    std::string error_of(const std::function<void(thread_transport&)>& body) const {
        try {
            cuda::run_ranks(std::vector<int>(static_cast<std::size_t>(ranks), 0), {exchanges}, body);
        } catch (const std::exception& e) { return e.what(); }
        return {};
    }
};

void check_ring(int ranks, int rounds, bool exchange) {
    const pulse::test::device_ring ring{.count = 300, .rounds = rounds, .exchange = true, .drift = true, .asks = 2};
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

TEST_CASE("messages and collectives of ranks on one device keep the laws of transports") {
    for (const ranks_of_a_device& these : {ranks_of_a_device{}, ranks_of_a_device{{}, 4, true}}) {
        CHECK(these.error_of([&](auto& t) { laws::keep_messages(these, t); }) == "");
    }
}

TEST_CASE("ranks on one device that fail, return or disagree end a run as the laws of transports say") {
    const ranks_of_a_device these{};
    laws::check_failing(ranks_of_a_device{{}, 3});
    laws::check_failed(these);
    laws::check_leaving(ranks_of_a_device{{}, 3});
    laws::check_left_messages(these);
    laws::check_unlike_collectives(these);
    laws::check_unlike_messages(these, "next message", "next message");
    CHECK_THROWS_AS(cuda::thread_group{std::vector<int>{}}, pulse::input_error);
    CHECK_THROWS_AS(cuda::thread_group{std::vector<int>{1000}}, pulse::input_error);
    CHECK_THROWS_AS((cuda::thread_transport{std::make_shared<cuda::thread_group>(std::vector<int>{0}), 1}),
                    pulse::input_error);
}
