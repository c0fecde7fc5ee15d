#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/copy_bytes.cuh>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
using pulse::test::device_array;

namespace {

constexpr std::size_t edge = 48; // guard bytes before the destination

/// Copies random bytes between addresses at given offsets from an aligned one, and checks every byte and the guards.
template <class Copy>
void check_copy(std::mt19937& random, std::int64_t bytes, std::size_t from_off, std::size_t to_off, const Copy& copy) {
    CAPTURE(bytes);
    CAPTURE(from_off);
    CAPTURE(to_off);
    std::vector<unsigned char> values(edge + from_off + static_cast<std::size_t>(bytes));
    for (unsigned char& v : values) { v = static_cast<unsigned char>(random() % 255U); } // never the poison value
    const pulse::test::device_queue queue;
    device_array<unsigned char> from(values.size());
    from.upload(values);
    const device_array<unsigned char> to(edge + to_off + static_cast<std::size_t>(bytes) + edge);
    copy(queue.on(), reinterpret_cast<const std::byte*>(from.data() + edge + from_off),
         reinterpret_cast<std::byte*>(to.data() + edge + to_off), bytes);
    const std::vector<unsigned char> found = to.raw(queue.stream());
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i != found.size(); ++i) {
        const std::size_t begin = edge + to_off;
        const bool inside = i >= begin && i < begin + static_cast<std::size_t>(bytes);
        wrong += found[i] == (inside ? values[i - begin + edge + from_off] : 0xff) ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(to.intact());
}

} // namespace

TEST_CASE("copies by the multiprocessors move every byte and no other, whatever the addresses") {
    std::mt19937 random{31};
    for (const std::int64_t bytes : {0, 1, 8, 15, 16, 17, 1000, 4096, 16384, 70000}) {
        for (const int blocks : {0, 1, 3}) {
            const auto copy = [blocks](const cuda::queue& on, const std::byte* from, std::byte* to, std::int64_t n) {
                cuda::copy_bytes(on, from, to, n, blocks);
            };
            check_copy(random, bytes, 0, 0, copy);
            check_copy(random, bytes, 5, 5, copy); // aligned after a few bytes
            check_copy(random, bytes, 3, 8, copy); // never aligned together
        }
    }
}

TEST_CASE("bulk copies move every byte and no other, also where a block passes its ring of slots many times") {
    std::mt19937 random{37};
    constexpr std::int64_t chunk = 8192;
    for (const std::int64_t bytes :
         {std::int64_t{0}, std::int64_t{8}, std::int64_t{16}, std::int64_t{1000}, chunk - 16, chunk, chunk + 16,
          3 * chunk, 4 * chunk, 5 * chunk + 7, 9 * chunk + 1008, 20 * chunk}) {
        for (const int blocks : {0, 1, 3}) {
            check_copy(random, bytes, 0, 16,
                       [blocks](const cuda::queue& on, const std::byte* from, std::byte* to, std::int64_t n) {
                           cuda::copy_bytes_in_bulk(on, from, to, n, blocks);
                       });
        }
    }
}

TEST_CASE("copies that make no sense are refused") {
    const pulse::test::device_queue queue;
    const device_array<unsigned char> memory(64);
    auto* const place = reinterpret_cast<std::byte*>(memory.data());
    CHECK_THROWS_AS(cuda::copy_bytes(queue.on(), place, place + 32, -1), pulse::input_error);
    CHECK_THROWS_AS(cuda::copy_bytes(queue.on(), place, place + 32, 16, -1), pulse::input_error);
    CHECK_THROWS_AS(cuda::copy_bytes_in_bulk(queue.on(), place, place + 32, -1), pulse::input_error);
    CHECK_THROWS_AS(cuda::copy_bytes_in_bulk(queue.on(), place + 8, place + 32, 16), pulse::input_error);
    CHECK_THROWS_AS(cuda::copy_bytes_in_bulk(queue.on(), place, place + 40, 16), pulse::input_error);
    CHECK(memory.intact(queue.stream()));
}
