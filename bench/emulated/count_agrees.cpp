// Whether a step that is counted has the kernels that it runs where they are run: the same program on the same device.
#include <cstdint>
#include <cstdio>

#include <emulated/runtime.hpp>

#include "../blocks_count.hpp"
#include "../ledger.hpp"
#include "../training_step.hpp"

namespace {

/// Of a run of so many steps and three before them.
std::int64_t kernels_of(int rounds) {
    const std::int64_t before = emulated_cuda::executed_kernels();
    const pulse_bench::step_figures found = pulse_bench::measure_small({1, rounds});
    if (!found.failure.empty()) { std::printf("%s\n", found.failure.c_str()); }
    return emulated_cuda::executed_kernels() - before;
}

} // namespace

int main() {
    constexpr std::int64_t runtime_copies = 3; // of the input, the sums of squares and the loss: they are no kernels
    const std::int64_t run = kernels_of(2) - kernels_of(1);
    const pulse_bench::counted_step found = pulse_bench::count_small(1, {emulated_cuda::multiprocessors, 1e12, 1e12});
    const auto counted =
        static_cast<std::int64_t>(found.book.total(pulse_bench::party::pulse).kernels) - runtime_copies;
    std::printf("%lld kernels run, %lld counted\n", static_cast<long long>(run), static_cast<long long>(counted));
    return run == counted && run > 0 ? 0 : 1;
}
