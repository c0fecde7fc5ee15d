#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <pulse/cuda/device.cuh>

namespace {

/// ctest reads this exit status as "skipped".
constexpr int skip_status = 77;

bool gpu_is_required() {
    const char* required = std::getenv("PULSE_REQUIRE_GPU");
    return required != nullptr && std::string_view(required) == "1";
}

} // namespace

int main(int argc, char** argv) {
    // Line buffering: otherwise a killed process would lose doctest's output about the running case.
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    doctest::Context context;
    if (pulse::cuda::device_count() != 0) {
        std::printf("GPU: %s\n", pulse::cuda::properties_of(0).name.c_str());
        context.applyCommandLine(argc, argv);
        return context.run();
    }
    std::printf("GPU: none, the tests are skipped\n");
    std::vector<const char*> counting(argv, argv + argc);
    counting.push_back("--count");
    context.applyCommandLine(static_cast<int>(counting.size()), counting.data());
    context.run();
    return gpu_is_required() ? EXIT_FAILURE : skip_status;
}
