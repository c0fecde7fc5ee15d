#include <cstdint>

#include <doctest/doctest.h>

#include <emulated/runtime.hpp>

#include <pulse/cuda/attention.cuh>

#include <attention_kernels.hpp>
#include <attention_oracle.hpp>
#include <attention_trial.hpp>

namespace cuda = pulse::cuda;
using pulse::attention_shape;
using namespace pulse::test;

namespace {

/// While one lives, the device allows a block only the shared memory of sm_86, sm_89 and sm_120.
struct small_card {
    small_card() { emulated_cuda::set_shared_bytes_limit(99 * 1024); }
    small_card(const small_card&) = delete;
    small_card& operator=(const small_card&) = delete;
    ~small_card() { emulated_cuda::set_shared_bytes_limit(227 * 1024); }
};

template <class P>
void check_shape(const attention_shape& s, std::uint32_t seed, std::size_t shift = 0) {
    attention_case c = draw_attention<typename P::scalar>(s, 1, seed);
    solve_attention<P>(c);
    check_by_policy<P>(c, shift);
}

template <class P>
void check_heads(std::uint32_t seed) {
    const small_card device;
    for (const int size : {8, 40, 64, 72, 80, 88, 96, 128, 160, 192, 256}) {
        check_shape<P>({34, 1, size, 50}, ++seed);
    }
    check_shape<P>({34, 1, 250, 50}, ++seed);                                             // without tensor cores
    check_shape<P>({34, 1, 256, 18}, ++seed, 1);                                          // the same
    for (const int size : {128, 160, 256}) { check_shape<P>({150, 1, size, 3}, ++seed); } // split over queries
}

} // namespace

TEST_CASE("a card of 99 KiB has attention in bf16") { check_heads<cuda::bf16>(700); }
TEST_CASE("a card of 99 KiB has attention in tf32") { check_heads<cuda::tf32>(800); }
TEST_CASE("a card of 99 KiB has attention in fp32") { check_heads<cuda::fp32>(900); }
