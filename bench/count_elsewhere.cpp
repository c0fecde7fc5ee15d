// --count where CUDA is not emulated.
#include <filesystem>

#include <unistd.h>

#include <pulse/core/error.hpp>

#include "blocks_count.hpp"

namespace pulse_bench {

int count_blocks(const count_options&, char** arguments) {
    const auto counting = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "bench_blocks_emulated";
    execv(counting.c_str(), arguments);
    throw pulse::error{"--count: " + counting.string() +
                       ", which does the counting, cannot be run: it is built with the tests"};
}

} // namespace pulse_bench
