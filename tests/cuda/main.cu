#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

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
    doctest::Context context;
    context.applyCommandLine(argc, argv);
    if (pulse::cuda::device_count() == 0) {
        context.setOption("count", true);
        std::printf("GPU: none, the tests are skipped:\n");
        context.run();
        return gpu_is_required() ? EXIT_FAILURE : skip_status;
    }
    std::printf("GPU: %s\n", pulse::cuda::properties_of(0).name.c_str());
    return context.run();
}
